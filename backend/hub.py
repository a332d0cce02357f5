"""The live stream's hub: one listener on the bus, any number of WebSocket clients, none able to hold up another.

The bus's thread only appends to the ring and, at most once a turn of the event loop, wakes the clients. Each client has
its own task that sends at the client's own pace.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from backend.feed import Feed
from backend.history import History
from engine.bus import EventBus
from engine.codec import Frame


class Client:
    """A connected client: its feed, and the event that says that something may be due."""

    def __init__(self, number: int, feed: Feed) -> None:
        self.number = number
        self.feed = feed
        self.due = asyncio.Event()


class Hub:
    """All clients of one run."""

    def __init__(self, bus: EventBus, history: History, *, dropped: Callable[[str, int], None]) -> None:
        self.bus = bus
        self.history = history
        self.clients: set[Client] = set()
        self._dropped = dropped
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waking = False

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say on which event loop the clients live."""
        self._loop = loop

    def detach(self) -> None:
        """The event loop is about to end; frames are still kept."""
        self._loop = None

    def on_frame(self, frame: Frame) -> None:
        """Bus listener."""
        self.history.append(frame)
        loop = self._loop
        if not self._waking and loop is not None:
            self._waking = True
            loop.call_soon_threadsafe(self._wake)

    def join(self, *, recorded: bool) -> Client:
        """Add a client. Its number is the lowest free one, so that metrics' labels stay few."""
        taken = {client.number for client in self.clients}
        number = next(n for n in itertools.count() if n not in taken)
        feed = Feed(
            self.bus, self.history, recorded=recorded, dropped=lambda count: self._dropped(f"ws-{number}", count)
        )
        client = Client(number, feed)
        self.clients.add(client)
        return client

    def leave(self, client: Client) -> None:
        """Forget a client."""
        self.clients.discard(client)

    def _wake(self) -> None:
        # Cleared first: a frame that is appended from here on schedules the next waking.
        self._waking = False
        for client in self.clients:
            client.due.set()
