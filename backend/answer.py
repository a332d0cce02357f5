"""Answers in OpenAI's shapes, whole and in chunks, made from one stream of token events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from backend.errors import ApiError
from backend.generation import Delivery
from backend.logprobs import Entry, Pending, chat_logprobs, completion_logprobs
from engine.events import RequestFinished, Token

if TYPE_CHECKING:
    from engine.tokenizer import Tokenizer

Api = Literal["chat", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What an answer looks like, fixed when the request is accepted."""

    api: Api
    requests: list[str]
    """Request ids, by choice."""
    prompts: int
    """How many prompts these choices answer; the choices of one prompt are neighbours."""
    model: str
    url: str
    """Address of the first request in the dashboard."""
    tokenizer: Tokenizer
    top_logprobs: int | None
    """Alternatives a token; None for no log-probabilities at all."""
    include_usage: bool
    created: int = field(default_factory=lambda: int(time.time()))

    def envelope(self, choices: list[dict[str, Any]], *, chunk: bool) -> dict[str, Any]:
        """The object around the choices."""
        prefix, name = ("chatcmpl", "chat.completion") if self.api == "chat" else ("cmpl", "text_completion")
        return {
            "id": f"{prefix}-{self.requests[0]}",
            "object": f"{name}.chunk" if chunk and self.api == "chat" else name,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def logprobs(self, entries: list[Entry]) -> dict[str, Any] | None:
        """Log-probabilities in this API's shape."""
        if self.top_logprobs is None:
            return None
        shape = chat_logprobs if self.api == "chat" else completion_logprobs
        return shape(entries, self.top_logprobs, self.tokenizer)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of a streamed answer, and what `stream.sent` will say about it."""

    data: dict[str, Any] | None
    """None for the closing [DONE]."""
    request: str
    queued_ns: int
    position: int | None = None
    text: str = ""
    held_back_bytes: int = 0


@dataclass(slots=True)
class _Choice:
    """What is known of one choice so far."""

    pending: Pending = field(default_factory=Pending)
    entries: list[Entry] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    held_back_bytes: int = 0
    position: int | None = None
    finished: RequestFinished | None = None


class Answer:
    """Collects the events of all choices; gives them back in chunks as they come, or as one body in the end."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self._choices = [_Choice() for _ in form.requests]

    def opening(self, now_ns: int) -> Iterator[Chunk]:
        """Chunks before the first token: a chat answer says whose turn it is."""
        if self.form.api == "chat":
            for index, request in enumerate(self.form.requests):
                part = self._part(index, "", None, role="assistant")
                yield Chunk(self._chunk([part]), request, now_ns)

    def take(self, delivery: Delivery) -> Chunk | None:
        """Take an event. Returns the chunk it makes, if any: a token may release no text yet.

        Raises:
            ApiError: 500, when the generation failed.
        """
        choice, event = self._choices[delivery.choice], delivery.event
        if isinstance(event, Token):
            choice.pending.add(event)
            choice.text.append(event.text)
            choice.held_back_bytes, choice.position = event.held_back_bytes, event.position
            released = choice.pending.release(event.text_length)
            choice.entries += released
            if not event.text:
                return None
            part = self._part(delivery.choice, event.text, released)
        else:
            if event.reason == "error":
                raise ApiError(500, event.detail or "the generation failed", code="generation_failed")
            choice.finished = event
            choice.held_back_bytes = 0
            part = self._part(delivery.choice, "", None, finish_reason=event.reason)
        data = self._chunk([part])
        if not self.form.include_usage and self._complete:
            data["tokenwalk"] = self._tokenwalk()
        text = event.text if isinstance(event, Token) else ""
        position = event.position if isinstance(event, Token) else None
        request = self.form.requests[delivery.choice]
        return Chunk(data, request, delivery.queued_ns, position, text, choice.held_back_bytes)

    def closing(self, now_ns: int) -> Iterator[Chunk]:
        """Chunks after the last token."""
        if self.form.include_usage:
            data = {**self._chunk([]), "usage": self._usage(), "tokenwalk": self._tokenwalk()}
            yield Chunk(data, self.form.requests[0], now_ns)
        yield Chunk(None, self.form.requests[0], now_ns)

    def body(self) -> dict[str, Any]:
        """The whole answer, once every choice is finished."""
        choices = []
        for index, choice in enumerate(self._choices):
            assert choice.finished is not None
            text, logprobs = "".join(choice.text), self.form.logprobs(choice.entries)
            said = {"message": {"role": "assistant", "content": text}} if self.form.api == "chat" else {"text": text}
            choices.append({"index": index, **said, "logprobs": logprobs, "finish_reason": choice.finished.reason})
        return {
            **self.form.envelope(choices, chunk=False),
            "usage": self._usage(),
            "tokenwalk": self._tokenwalk(),
        }

    def sent_whole(self) -> Iterator[Chunk]:
        """What `stream.sent` will say about each choice of a body that was sent whole."""
        for request, choice in zip(self.form.requests, self._choices, strict=True):
            yield Chunk(None, request, 0, choice.position, "".join(choice.text))

    @property
    def _complete(self) -> bool:
        return all(choice.finished for choice in self._choices)

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        data = self.form.envelope(choices, chunk=True)
        return {**data, "usage": None} if self.form.include_usage else data

    def _part(
        self,
        index: int,
        text: str,
        entries: list[Entry] | None,
        *,
        role: str | None = None,
        finish_reason: str | None = None,
    ) -> dict[str, Any]:
        """A choice within a chunk."""
        logprobs = None if entries is None else self.form.logprobs(entries)
        if self.form.api == "text":
            return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
        delta: dict[str, Any] = {"role": role} if role else {}
        if finish_reason is None:
            delta["content"] = text
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}

    def _usage(self) -> dict[str, int]:
        """Token counts; a prompt with several choices counts once."""
        finished = [choice.finished for choice in self._choices if choice.finished]
        each = len(self._choices) // self.form.prompts
        prompt = sum(event.prompt_tokens for event in finished[::each])
        completion = sum(event.completion_tokens for event in finished)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    def _tokenwalk(self) -> dict[str, Any]:
        timings = [choice.finished.timings if choice.finished else None for choice in self._choices]
        own = {"request": self.form.requests[0], "url": self.form.url, "timings": timings[0]}
        several = {"requests": self.form.requests, "timings_by_choice": timings} if len(timings) > 1 else {}
        return own | several
