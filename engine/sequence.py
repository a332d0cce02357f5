"""One request on its way through the engine: its tokens, its state, and its accounts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from engine.capture import CapturePlan
from engine.capture_schedule import CaptureSchedule
from engine.detokenizer import Detokenizer
from engine.events import FinishReason, RequestFinished, Token
from engine.request import GenerationRequest, RequestView
from engine.sampling import Sampler

Deliver = Callable[[Token | RequestFinished], None]
"""Called on the engine thread with each token and, once, the end."""

LIST_CHARACTERS = 80
"""How much of a prompt a list shows."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a request branched off: it shares the parent's tokens at positions < `position`."""

    parent: Sequence
    position: int


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """A request's prompt and answer while the engine works on it.

    A position's KV is *computed* when its pass was submitted; tokens are *known* when their ids are on the host.
    Decoding is pipelined: the pass for a token may be submitted while its id still is on the device alone.
    """

    id: str
    request: GenerationRequest
    text: str
    """The prompt's text, after the chat template."""
    tokens: list[int]
    """Known token ids: the prompt, then the answer."""
    roles: list[str]
    """Whose word each token of the prompt is."""
    prompt_tokens: int
    max_tokens: int
    plan: CapturePlan
    sampler: Sampler
    detokenizer: Detokenizer
    deliver: Deliver
    arrived_ns: int

    order: int = 0
    """Place in the order of arrival, given by the scheduler."""
    forked_from: Fork | None = None
    """The request whose beginning this one shares."""
    computed: int = 0
    """Positions whose KV is there, or whose pass has been submitted."""
    stored: int = 0
    """Positions whose KV others can find, as far as they fill whole blocks."""
    prefill_until: int = 0
    """Positions to prefill: the prompt, and after a preemption the answer so far."""
    cached: int = 0
    """Leading positions whose KV was found in the prefix cache when the request was admitted."""
    captured_until: int = 0
    """Positions below this have been captured, and are not again when they are recomputed."""
    said_unseen: set[int] | None = None
    """The layers of which it has been said that their attention cannot be seen; None before the first captured pass."""
    said_streamless: bool = False
    """Whether it has been said that the model has no residual stream."""
    said_unreadable: set[str] = field(default_factory=set)
    """Which readings (lens, attribution) it has been said of that the model has none."""
    preemptions: int = 0
    slot: int | None = None
    scheduled_ns: int | None = None
    first_token_ns: int | None = None
    finished_ns: int | None = None
    finish_reason: FinishReason | None = None
    captures: CaptureSchedule | None = None
    """What is captured of each position; None when nothing inside the model is."""
    said_over_budget: set[str] = field(default_factory=set)
    """The parts, prompt and answer, of which it has been said that the budget is spent."""

    @property
    def completion_tokens(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def prefilling(self) -> bool:
        return self.computed < self.prefill_until

    @property
    def most_tokens(self) -> int:
        """Positions whose KV it may come to hold: the last token allowed needs no pass."""
        return self.prompt_tokens + self.max_tokens - 1

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def last_pass(self) -> int:
        """The last position that needs a pass: the one that chooses the last token allowed."""
        return self.most_tokens - 1

    def view(self) -> RequestView:
        state = (
            "finished"
            if self.finished
            else "queued"
            if self.slot is None
            else "prefill"
            if self.prefilling
            else "decode"
        )
        return RequestView(
            id=self.id,
            name=self.request.name,
            state=state,
            slot=self.slot,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            max_tokens=self.max_tokens,
            source=self.request.source,
            text_start=self._shown()[:LIST_CHARACTERS],
            sampling=replace(self.request.sampling, seed=self.sampler.seed),
            stop=self.request.stop,
            preemptions=self.preemptions,
            finish_reason=self.finish_reason,
            arrived_ns=self.arrived_ns,
            finished_ns=self.finished_ns,
        )

    def timings(self) -> dict[str, int | None]:
        """How long each phase took, ns; None for a phase that was not reached."""
        end = self.finished_ns
        return {
            "queue_ns": _between(self.arrived_ns, self.scheduled_ns or end),
            "prefill_ns": _between(self.scheduled_ns, self.first_token_ns),
            "decode_ns": _between(self.first_token_ns, end),
            "ttft_ns": _between(self.arrived_ns, self.first_token_ns),
            "total_ns": _between(self.arrived_ns, end),
        }

    def _shown(self) -> str:
        """What the person wrote, rather than the template around it."""
        for message in reversed(self.request.messages or []):
            if message.get("role") == "user" and isinstance(message.get("content"), str):
                return str(message["content"])
        return self.text


def _between(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else end - start
