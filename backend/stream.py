"""Handing an answer to the socket: server-sent events or one JSON body, each timed where it leaves, and ended at once
when the client has gone.

The events are written by hand rather than with an SSE package: it is one line of framing, and `stream.sent` has to be
told the moment, number and size of each chunk, which must not be guessed from outside.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backend.answer import Answer, Chunk
from backend.errors import ApiError
from backend.generation import Generation
from backend.json import dumps
from engine.bus import EventBus
from engine.events import StreamSent


class AnswerResponse(Response):
    """Base of both ways to send an answer. Subclasses say how in `_send_answer`."""

    def __init__(self, generation: Generation, answer: Answer, bus: EventBus, *, detached: bool = False) -> None:
        self.generation = generation
        self.answer = answer
        self.bus = bus
        self.detached = detached
        self.background = None
        self._sent: Counter[str] = Counter()  # chunks, by request
        self._leaving = False  # the last byte is on its way: what follows is bookkeeping, to be finished

    @property
    def _own_headers(self) -> dict[str, str]:
        return {"x-tokenwalk-request": self.generation.requests[0], "cache-control": "no-store"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._unless_gone(receive, self._send_answer(scope, receive, send))
        finally:
            if not self.detached:  # a page that is reloaded finds its request still running
                self.generation.cancel()  # does nothing to what has finished

    async def _send_answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError

    async def _unless_gone(self, receive: Receive, work: Coroutine[Any, Any, None]) -> None:
        """Do the work, but stop when the client disconnects."""
        working = asyncio.create_task(work)
        watching = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
            if self._leaving:
                await working
        finally:
            watching.cancel()
            working.cancel()
            await asyncio.gather(watching, working, return_exceptions=True)
        if not working.cancelled():
            working.result()  # a fault in our own code must not pass unseen

    def _note(self, chunk: Chunk, size: int, to: str) -> None:
        """Say that a chunk has been handed to the socket."""
        self.bus.emit(
            StreamSent(
                request=chunk.request,
                chunk=self._sent[chunk.request],
                position=chunk.position,
                chunk_bytes=size,
                text_bytes=len(chunk.text.encode()),
                held_back_bytes=chunk.held_back_bytes,
                queued_ns=chunk.queued_ns,
                sent_ns=self.bus.now_ns(),
                to=to,
            )
        )
        self._sent[chunk.request] += 1


class EventStream(AnswerResponse):
    """The answer as server-sent events, a chunk a token that released text."""

    async def _send_answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.status_code = 200
        self.init_headers({**self._own_headers, "content-type": "text/event-stream; charset=utf-8"})
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for chunk in self.answer.opening(self.bus.now_ns()):
            await self._send_chunk(send, chunk)
        try:
            async for delivery in self.generation.deliveries():
                made = self.answer.take(delivery)
                if made is not None:
                    await self._send_chunk(send, made)
        except ApiError as error:  # the status is out already: the error becomes an event, as OpenAI does it
            await send(_body(b"data: " + dumps(error.body()) + b"\n\n"))
        else:
            for chunk in self.answer.closing(self.bus.now_ns()):
                await self._send_chunk(send, chunk)
        self._leaving = True
        await send(_body(b"", more=False))

    async def _send_chunk(self, send: Send, chunk: Chunk) -> None:
        data = b"data: " + (b"[DONE]" if chunk.data is None else dumps(chunk.data)) + b"\n\n"
        await send(_body(data))
        self._note(chunk, len(data), "sse")


class WholeAnswer(AnswerResponse):
    """The answer as one JSON body."""

    async def _send_answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async for delivery in self.generation.deliveries():
                self.answer.take(delivery)
        except ApiError as error:
            response = error.response()
            response.headers.update(self._own_headers)
            await response(scope, receive, send)
            return
        self._leaving = True
        queued_ns = self.bus.now_ns()
        body = dumps(self.answer.body())
        await Response(body, headers=self._own_headers, media_type="application/json")(scope, receive, send)
        for chunk in self.answer.sent_whole():
            self._note(Chunk(None, chunk.request, queued_ns, chunk.position, chunk.text), len(body), "json")


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _body(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}
