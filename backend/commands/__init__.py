"""The commands of `tokenwalk`, one a module."""
