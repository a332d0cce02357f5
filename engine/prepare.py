"""From a request as asked for to a sequence that can be scheduled: render, tokenize, check against the context.

Runs on the caller's thread: it needs no arrays, and a slow tokenizer must not hold up those who decode.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from engine.capture import CapturePlan
from engine.capture_schedule import CaptureSchedule, Visible
from engine.detokenizer import Detokenizer
from engine.errors import RequestError
from engine.events import Event, RequestArrived, RequestTokenized
from engine.models.info import ModelInfo
from engine.request import GenerationRequest
from engine.sampling import Sampler
from engine.sequence import Deliver, Fork, Sequence
from engine.tokenizer import Encoding, Tokenizer

Emit = Callable[[Event], Event]


def new_request_id() -> str:
    """A name that no other request has."""
    return f"r-{secrets.token_hex(6)}"


def _field_of_prompt(request: GenerationRequest) -> str:
    """The field in which the caller wrote the prompt."""
    if request.source == "fork":
        return "text" if isinstance(request.prompt, str) else "token"
    return "prompt" if request.messages is None else "messages"


def _roles_of_fork(parent: Sequence, position: int, added: int) -> list[str]:
    """Whose word each token is: as in the parent, whose answer is the assistant's; what is added takes its place."""
    known = [*parent.roles, *["assistant"] * (len(parent.tokens) - len(parent.roles))]
    instead = known[position] if position < len(known) else "assistant"
    return [*known[:position], *[instead] * added]


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt as text, as tokens, and whose word each token is."""

    text: str
    encoding: Encoding
    roles: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What stays the same for all requests of one engine."""

    tokenizer: Tokenizer
    info: ModelInfo
    context: int
    """Most tokens that prompt and answer may have together."""
    kv_tokens: int | None = None
    """Most tokens whose KV one request could hold, were it alone; None where nobody counts."""
    default_plan: CapturePlan
    visible: Visible
    """What can be captured in the model."""
    emit: Emit
    now_ns: Callable[[], int]

    def prepare(self, request: GenerationRequest, deliver: Deliver) -> Sequence:
        """Render, tokenize and check a request, and say so to the bus.

        Raises:
            RequestError: naming the field, when the prompt is empty, too long, not renderable, or an id is not in the
                vocabulary. Nothing has been emitted then.
        """
        arrived_ns = self.now_ns()
        text, encoding, roles = self._tokenize(request)
        self._check_vocabulary("prompt", encoding.ids)
        return self._admitted(request, deliver, arrived_ns, _Prompt(text, encoding, roles), None)

    def estimate(self, request: GenerationRequest) -> dict[str, Any]:
        """What capturing a request would cost, were nothing of it in the prefix cache, and nothing said to the bus.

        Raises:
            RequestError: as `prepare`; a plan that would be refused is no error here: the answer says so.
        """
        ids = self._tokenize(request)[1].ids
        return self._estimate(request, len(ids))

    def estimate_of(self, prompt_tokens: int, max_tokens: int, plan: CapturePlan | None) -> dict[str, Any]:
        """The same for so many tokens. Raises likewise."""
        return self._estimate(GenerationRequest(prompt="", max_tokens=max_tokens, capture=plan), prompt_tokens)

    def _estimate(self, request: GenerationRequest, prompt_tokens: int) -> dict[str, Any]:
        return CaptureSchedule.checked(
            request.capture or self.default_plan,
            self.visible,
            prompt_tokens=prompt_tokens,
            max_tokens=self._room(request, prompt_tokens),
            refuse=False,
        ).estimate()

    def prepare_fork(self, request: GenerationRequest, deliver: Deliver, parent: Sequence, position: int) -> Sequence:
        """Branch off another request: its tokens before `position`, then those of this request's prompt.

        Without `max_tokens` it generates what the parent had left to: the two may become equally long.

        Raises:
            RequestError: as `prepare` does, or when the parent has no such position.
        """
        arrived_ns = self.now_ns()
        known = list(parent.tokens)
        if not 0 < position <= len(known):
            raise RequestError(
                f"position is {position}; {parent.id} has {len(known)} tokens, so expected 1 to {len(known)}",
                param="position",
            )
        if isinstance(request.prompt, list):
            added = request.prompt
        else:
            self._may_fit(request, request.prompt or "", after=position)
            added = self._encoded(request.prompt or "")
        self._check_vocabulary("token", added)
        ids = known[:position] + added
        if request.max_tokens is None:
            left = parent.prompt_tokens + parent.max_tokens - len(ids)
            request = replace(request, usual_tokens=max(1, left))
        text, encoding = self._decoded(ids)
        roles = _roles_of_fork(parent, position, len(added))
        return self._admitted(
            request, deliver, arrived_ns, _Prompt(text, encoding, roles), Fork(parent=parent, position=position)
        )

    def _admitted(
        self, request: GenerationRequest, deliver: Deliver, arrived_ns: int, prompt: _Prompt, fork: Fork | None
    ) -> Sequence:
        """Check what is left to check, make the sequence, and say so."""
        tokenized_ns = self.now_ns()
        ids = prompt.encoding.ids
        self._check_vocabulary("logit_bias", list(request.sampling.logit_bias))
        max_tokens = self._room(request, len(ids))
        plan = request.capture or self.default_plan
        captures = CaptureSchedule.checked(plan, self.visible, prompt_tokens=len(ids), max_tokens=max_tokens)
        sampler = Sampler(request.sampling, ids, statistics=plan.statistics)
        sequence = Sequence(
            id=request.id or new_request_id(),
            request=request,
            text=prompt.text,
            tokens=list(ids),
            roles=prompt.roles,
            prompt_tokens=len(ids),
            max_tokens=max_tokens,
            plan=plan,
            sampler=sampler,
            detokenizer=Detokenizer(request.stop),
            deliver=deliver,
            arrived_ns=arrived_ns,
            forked_from=fork,
            captures=captures if plan.arrays else None,
        )
        self.emit(
            RequestArrived(
                request=sequence.id,
                name=request.name,
                source=request.source,
                text=prompt.text,
                messages=request.messages,
                sampling={**request.sampling.as_dict(), "seed": sampler.seed, "stop": list(request.stop)},
                max_tokens=max_tokens,
                capture=plan.as_dict(),
                priority=request.priority,
                forked_from=None if fork is None else {"request": fork.parent.id, "position": fork.position},
            )
        )
        self.emit(
            RequestTokenized(
                request=sequence.id,
                tokens=self._described(prompt.encoding, prompt.roles),
                duration_ns=tokenized_ns - arrived_ns,
            )
        )
        return sequence

    def _tokenize(self, request: GenerationRequest) -> tuple[str, Encoding, list[str]]:
        tokenizer = self.tokenizer
        if request.messages is not None:
            prompt = tokenizer.render_chat(request.messages)
            self._may_fit(request, prompt.text)
            # The template writes every control token itself, a beginning-of-text token among them.
            encoding = tokenizer.encode(prompt.text, add_special=False)
            return prompt.text, encoding, tokenizer.roles(prompt, encoding.spans)
        if isinstance(request.prompt, str):
            self._may_fit(request, request.prompt)
            encoding = tokenizer.encode(request.prompt)
            return request.prompt, encoding, ["user"] * len(encoding.ids)
        ids = list(request.prompt or [])
        self._room(replace(request, max_tokens=None), len(ids))  # before each of them is looked at
        self._check_vocabulary("prompt", ids)
        text, encoding = self._decoded(ids)
        return text, encoding, ["user"] * len(ids)

    def _encoded(self, text: str) -> list[int]:
        """The ids of a text that continues another one."""
        return list(self.tokenizer.encode(text, add_special=False).ids)

    def _decoded(self, ids: list[int]) -> tuple[str, Encoding]:
        """A text for token ids that were given as such. Control tokens show as their names."""
        pieces = [self.tokenizer.label(t) if self.tokenizer.is_special(t) else self.tokenizer.decode([t]) for t in ids]
        ends = list(accumulate(map(len, pieces)))
        return "".join(pieces), Encoding(ids, list(zip([0, *ends[:-1]], ends, strict=True)) if ids else [])

    def _may_fit(self, request: GenerationRequest, text: str, *, after: int = 0) -> None:
        """Refuse a text that cannot fit the context, whatever its tokens: tokenizing megabytes takes seconds.

        Args:
            after: tokens that come before it.
        """
        if after + len(text) < self.context:
            return
        fewest = after + self.tokenizer.fewest_tokens(text)
        if fewest >= self.context:
            raise RequestError(
                f"the prompt has {len(text):,} characters, which are at least {fewest:,} tokens, and prompt and answer "
                f"together may have {self.context}; shorten it",
                param=_field_of_prompt(request),
                code="context_length_exceeded",
            )

    def _room(self, request: GenerationRequest, prompt_tokens: int) -> int:
        """How many tokens may be generated."""
        param = _field_of_prompt(request)
        if prompt_tokens == 0:
            raise RequestError("the prompt is empty: it has no token; give some text", param=param, code="empty_prompt")
        if prompt_tokens >= self.context:
            raise RequestError(
                f"the prompt has {prompt_tokens} tokens, and prompt and answer together may have {self.context}; "
                "shorten it",
                param=param,
                code="context_length_exceeded",
            )
        room = self.context - prompt_tokens
        if request.max_tokens is not None and request.max_tokens > room:
            raise RequestError(
                f"max_tokens is {request.max_tokens}, but after the prompt's {prompt_tokens} tokens the context of "
                f"{self.context} has room for {room}",
                param="max_tokens",
                code="context_length_exceeded",
            )
        # The last token needs no KV: it is generated and not read.
        kv_room = room if self.kv_tokens is None else self.kv_tokens + 1 - prompt_tokens
        least = request.max_tokens or 1
        if kv_room < least:
            raise RequestError(
                f"prompt and answer need KV for {prompt_tokens + least - 1} tokens, and the whole KV memory holds "
                f"{self.kv_tokens}; ask for less, or start the server with a larger --kv-memory",
                param="max_tokens" if request.max_tokens else param,
                code="kv_memory_exceeded",
            )
        return request.max_tokens or min(room, kv_room, request.usual_tokens or room)

    def _check_vocabulary(self, field: str, ids: list[int]) -> None:
        wrong = next((token for token in ids if not 0 <= token < self.info.vocab), None)
        if wrong is not None:
            raise RequestError(
                f"{field} names token {wrong}; this model's vocabulary has ids 0 to {self.info.vocab - 1}", param=field
            )

    def _described(self, encoding: Encoding, roles: list[str]) -> list[dict[str, Any]]:
        tokenizer = self.tokenizer
        return [
            {
                "id": token,
                "bytes_hex": tokenizer.token_bytes(token).hex(),
                "label": tokenizer.label(token),
                "start": start,
                "end": end,
                "role": role,
                "special": tokenizer.is_special(token),
            }
            for token, (start, end), role in zip(encoding.ids, encoding.spans, roles, strict=True)
        ]


def monotonic_ns() -> Callable[[], int]:
    """A clock that starts now, for use without an event bus."""
    origin = time.perf_counter_ns()
    return lambda: time.perf_counter_ns() - origin
