"""From the engine thread to the event loop: one HTTP request is one or several generations, merged in one queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.bus import EventBus
from engine.errors import TokenwalkError
from engine.events import RequestFinished, Token
from engine.request import GenerationRequest

if TYPE_CHECKING:
    from engine.engine import Engine

Submit = Callable[[GenerationRequest, Callable[[Token | RequestFinished], None]], str]
"""Hands a request to the engine, which delivers its tokens; returns the request's id."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event of one choice, and when the engine handed it over."""

    choice: int
    event: Token | RequestFinished
    queued_ns: int


class Generation:
    """The choices of one HTTP request, under way."""

    def __init__(self, engine: Engine, bus: EventBus) -> None:
        self.requests: list[str] = []
        """Ids, by choice."""
        self._engine = engine
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue()
        self._unfinished: set[int] = set()

    @classmethod
    async def start(
        cls, engine: Engine, bus: EventBus, requests: list[GenerationRequest], submit: Submit | None = None
    ) -> Generation:
        """Submit all choices, or none: when one is refused, those before it are cancelled.

        Args:
            submit: how each is handed to the engine; None is `engine.submit`.

        Raises:
            RequestError, QueueFull, EngineStopped: what the engine says.
        """
        generation = cls(engine, bus)
        try:
            for choice, request in enumerate(requests):
                # Tokenizing a long prompt takes a while: not on the event loop.
                generation.requests.append(await asyncio.to_thread(generation._submit, choice, request, submit))
        except TokenwalkError:
            generation.cancel()
            raise
        return generation

    async def deliveries(self) -> AsyncIterator[Delivery]:
        """All events as they come, until every choice is finished."""
        while self._unfinished:
            delivery = await self._queue.get()
            if isinstance(delivery.event, RequestFinished):
                self._unfinished.discard(delivery.choice)
            yield delivery

    def cancel(self) -> None:
        """End what is not finished; a running one ends within a step."""
        for choice in self._unfinished:
            if choice < len(self.requests):
                self._engine.cancel(self.requests[choice])

    def _submit(self, choice: int, request: GenerationRequest, submit: Submit | None) -> str:
        def deliver(event: Token | RequestFinished) -> None:  # on the engine thread
            delivery = Delivery(choice, event, self._bus.now_ns())
            self._loop.call_soon_threadsafe(self._queue.put_nowait, delivery)

        request_id = (submit or self._engine.submit)(request, deliver)
        self._unfinished.add(choice)
        return request_id
