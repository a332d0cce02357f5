"""The HTTP and WebSocket routes, one subject a module."""
