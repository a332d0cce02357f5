"""Look into a model that you loaded yourself: no server, no thread.

::

    import engine.device  # before mlx_lm: on Linux it finds the fast BLAS, which MLX takes up while it is being loaded
    import mlx_lm, engine

    model, tokenizer = mlx_lm.load("…")
    with engine.instrument(model, tokenizer) as walk:
        for event in walk.generate("The capital of France is", max_tokens=8):
            print(event.kind, event)
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np

from engine.apart import Apart
from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.errors import EngineStopped, RequestError
from engine.events import Absent, Attribution, Event, Lens, TensorEvent
from engine.header import run_header
from engine.models.info import LoadedModel, describe_model
from engine.prepare import Preparation, monotonic_ns
from engine.request import GenerationRequest, SamplingParams
from engine.sequence import Sequence
from engine.tokenizer import Tokenizer


class Walk:
    """An instrumented model. Made by `instrument`; use it as a context manager or call `close`."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        self._events: deque[Event] = deque()  # what no generation has yielded yet
        self._readers: dict[int, deque[Event]] = {}  # the same of each generation under way
        self._closed = False
        self._sequences: dict[str, Sequence] = {}
        self._seq = 0
        self._now_ns = monotonic_ns()
        self._core = EngineCore(loaded, config, self._emit, self._now_ns)
        self._preparation = Preparation(
            tokenizer=loaded.tokenizer,
            info=loaded.info,
            context=min(loaded.info.context, config.max_context or loaded.info.context),
            kv_tokens=self._core.kv.tokens,
            default_plan=config.capture_default,
            visible=self._core.visible,
            emit=self._emit,
            now_ns=self._now_ns,
        )
        self._emit(run_header(loaded, self._core, epoch=secrets.token_hex(8), age_ns=self._now_ns()))

    def generate(
        self,
        prompt: str | list[int] | None = None,
        *,
        messages: list[dict[str, Any]] | None = None,
        max_tokens: int | None = None,
        sampling: SamplingParams | None = None,
        stop: tuple[str, ...] = (),
        capture: str | dict[str, Any] | CapturePlan = "follow",
    ) -> Iterator[Event]:
        """Generate, and yield every event as it happens; the first time, the run's header comes first.

        Leaving the loop early cancels the request. Of several at once, each yields everything that happens meanwhile;
        an interruption (Ctrl-C) in the middle of a step ends them all, since they share it.

        Args:
            prompt: text (a beginning-of-text token is added where the model has one) or token ids.
            messages: a chat instead, rendered by the model's template.
            max_tokens: most tokens to generate; None: as many as the context holds.
            sampling: greedy when not given.
            capture: a level's name or a plan.

        Raises:
            RequestError: for a wrong argument, at the first step of the iteration.
            EngineStopped: when the model is no longer looked into.
        """
        if self._closed:
            raise EngineStopped("this walk was closed, and the model restored; call engine.instrument once more")
        plan = capture if isinstance(capture, CapturePlan) else CapturePlan.parse(capture)
        request = GenerationRequest(
            prompt=prompt,
            messages=messages,
            max_tokens=max_tokens,
            sampling=sampling or SamplingParams(temperature=0),
            stop=stop,
            capture=plan,
            source="notebook",
        )
        events = deque(self._events)
        self._events.clear()
        self._readers[id(events)] = events
        sequence = None
        try:
            sequence = self._preparation.prepare(request, _nobody)
            self._sequences[sequence.id] = sequence
            self._core.scheduler.add(sequence)
            while events or (self._core.has_work and not self._closed):
                if not events:
                    self._step()
                while events:
                    yield events.popleft()
        finally:
            del self._readers[id(events)]
            if not self._readers:  # the next generation begins with what this one leaves
                self._events.extend(events)
            if sequence is not None:
                self._core.cancel(sequence)

    def estimate(
        self,
        prompt: str | list[int] | None = None,
        *,
        messages: list[dict[str, Any]] | None = None,
        max_tokens: int | None = None,
        capture: str | dict[str, Any] | CapturePlan = "follow",
    ) -> dict[str, Any]:
        """Bytes that `generate` would capture with the same arguments, and what the budget would leave out.

        Raises:
            RequestError: for a wrong argument.
        """
        plan = capture if isinstance(capture, CapturePlan) else CapturePlan.parse(capture)
        return self._preparation.estimate(
            GenerationRequest(prompt=prompt, messages=messages, max_tokens=max_tokens, capture=plan, source="notebook")
        )

    def lens(self, request: str, position: int) -> Lens | Absent:
        """The logit lens at a position of a request made here, or what says why there is none.

        Args:
            request: the id that the request's events carry.
            position: the position whose residual is read; its guesses are for the token after it.

        Raises:
            RequestError: for a request that was not made here.
        """
        event = self._core.readings.lens(self._sequence(request), position)
        self._taken()
        return event

    def attribution(self, request: str, position: int, *, heads: bool = False) -> Attribution | Absent:
        """What each part of the model added to the logit of the token after a position, or what says why not.

        Args:
            request: the id that the request's events carry.
            position: the position whose pass chose that token.
            heads: whether attention's parts are to be split by head, which needs capture level full.

        Raises:
            RequestError: for a request that was not made here.
        """
        event = self._core.readings.attribution(self._sequence(request), position, heads=heads)
        self._taken()
        return event

    def close(self) -> None:
        """Restore the model exactly. What is under way yields what has happened, and ends."""
        self._closed = True
        self._core.close()

    def __enter__(self) -> Walk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _step(self) -> None:
        try:
            self._core.step()
        except BaseException:
            self._core.give_up(self._sequences.values())
            raise

    def _sequence(self, request: str) -> Sequence:
        if request not in self._sequences:
            known = ", ".join(self._sequences) or "none"
            raise RequestError(f"no request {request!r} was made here; known: {known}", param="request")
        return self._sequences[request]

    def _taken(self) -> None:
        """The last event is returned to whoever asked: no generation must yield it again."""
        for events in self._unread():
            events.pop()

    def _emit(self, event: Event) -> Event:
        self._seq += 1
        event.seq, event.t_ns = self._seq, self._now_ns()
        if isinstance(event, TensorEvent) and isinstance(event.data, Apart):
            event.data = np.asarray(event.data)  # is calculated with
        for events in self._unread():
            events.append(event)
        return event

    def _unread(self) -> list[deque[Event]]:
        return list(self._readers.values()) or [self._events]


def instrument(model: Any, tokenizer: Any, *, config: EngineConfig | None = None) -> Walk:
    """Put taps into a model; leaving the context takes them out again.

    Args:
        model: as `mlx_lm.load` returns it.
        tokenizer: likewise: mlx-lm's wrapper, or a tokenizer of the transformers library.

    Raises:
        ModelUnsupported: when the model has no list of layers.
    """
    own = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.from_mlx_lm(tokenizer)
    loaded = LoadedModel(model=model, tokenizer=own, info=describe_model(model, own))
    return Walk(loaded, config or EngineConfig())


def _nobody(event: Event) -> None:
    """A notebook reads the events; nobody waits for a delivery."""
