"""The outside of Tokenwalk: HTTP, WebSocket and the command line, around `engine`."""
