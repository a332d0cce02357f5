"""Uvicorn around the application: an open socket before anything slow, and an end that is quick and loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from backend.ending import end_at_once
from engine.errors import TokenwalkError

MAX_COMMAND_BYTES = 1 << 20
"""Largest WebSocket message from a client: commands are small."""


PATIENCE_S = 1.0
"""How long clients may take to read their last bytes when the server ends."""


class ServerError(TokenwalkError):
    """The server cannot be started as asked."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        ServerError: when the address is taken or is not this machine's, saying which.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ServerError(
            f"{host!r} is not an address of this machine: {error.strerror}; try --host 127.0.0.1"
        ) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ServerError(_why_not(error, host, port)) from error
    listener.setblocking(False)
    return listener


def _why_not(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use, perhaps by another Tokenwalk; give another with --port, or 0 for any"
    if error.errno == errno.EACCES:
        return f"port {port} is reserved for the system; give one above 1023 with --port"
    return f"cannot listen on {host}:{port}: {error.strerror}"


class Server(uvicorn.Server):
    """A uvicorn server with our own way to end.

    Args:
        app: the application.
        listener: the socket to serve; see `bind`.
        before_end: called when the end begins, while connections are still open: ends what they wait for.
    """

    def __init__(self, app: ASGIApp, listener: socket.socket, before_end: Callable[[], Awaitable[None]]) -> None:
        config = uvicorn.Config(
            app,
            lifespan="off",
            # Query strings may hold the access token, and uvicorn logs them: requests and handshakes are not logged.
            access_log=False,
            log_level="warning",
            # Slower than httptools by half a millisecond a streamed token, and right where that is not: a body beside
            # "Upgrade: h2c", a client that leaves with a second request waiting, trailers, heads without an end.
            http="h11",
            ws="websockets-sansio",
            ws_max_size=MAX_COMMAND_BYTES,
            ws_per_message_deflate=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=5,
        )
        super().__init__(config)
        self._listener = listener
        self._before_end = before_end

    async def run_until_stopped(self) -> None:
        """Serve until a signal comes, or `stop` is called."""
        await self.serve(sockets=[self._listener])

    def stop(self) -> None:
        """Begin the end."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, then end what runs, so that no connection waits for an answer that will not come."""
        for server in self.servers:
            server.close()
        await self._before_end()
        patience = asyncio.get_running_loop().call_later(PATIENCE_S, self._abort)
        try:
            await super().shutdown(sockets)
        finally:
            patience.cancel()

    def _abort(self) -> None:
        """Drop clients that do not read what they are sent: closing politely would wait for them."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM begin the end; the next one is obeyed at once.

        Uvicorn's own version raises the signal again when all is over, which would turn a clean end into a failed one.
        """
        if threading.current_thread() is not threading.main_thread():  # only the main one may handle signals
            yield
            return
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Signal handler."""
        if self.should_exit:
            end_at_once(128 + sig)
        self.should_exit = True


async def until_started(server: Server) -> None:
    """Wait until the server answers."""
    while not server.started and not server.should_exit:
        await asyncio.sleep(0.01)
