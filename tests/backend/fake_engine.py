"""An engine without a model, for tests of what is around it: real bus, tokenizer, preparation and text, made-up tokens.

It answers every prompt with the same text, a byte a token, and makes each token only when the test allows it, so that
tests can look at any moment of a generation without waiting for time to pass.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from engine.bus import EventBus
from engine.capture import CapturePlan
from engine.capture_schedule import Visible
from engine.errors import EngineStopped, QueueFull, RequestError, shown
from engine.events import (
    Attention,
    Attribution,
    Lens,
    RequestFinished,
    RequestScheduled,
    RunHeader,
    SlotAssigned,
    SlotReleased,
    StepFinished,
    StepStarted,
    Token,
)
from engine.models.info import ModelInfo
from engine.prepare import Preparation
from engine.request import GenerationRequest, RequestView
from engine.sequence import Deliver, Sequence
from engine.tokenizer import Tokenizer

ANSWER = "Hi! Grüße 🙂."
LAYERS, HEADS = 2, 3
INFO = ModelInfo(
    name="fake",
    architecture="none",
    layers=LAYERS,
    heads=HEADS,
    kv_heads=1,
    head_dim=4,
    hidden=8,
    vocab=259,
    dtype="float32",
    quantisation=None,
    context=512,
    parameters=0,
    weights_bytes=0,
    eos_ids=(258,),
    path=None,
)


class FakeEngine:
    """Answers `answer`, one request at a time. `hold` makes it wait for `allow` before each token."""

    slots = 1

    def __init__(self, bus: EventBus, *, answer: str = ANSWER, max_queue: int = 4, plan: str = "follow") -> None:
        self.bus = bus
        self.info = INFO
        self.answer = answer
        self.max_queue = max_queue
        self.plan = CapturePlan.parse(plan)
        self.breaks_at: int | None = None
        """Index of the token instead of which the generation fails."""
        self.reason: str | None = None
        """What `health` gives as the reason."""
        self.may_load = threading.Event()
        self.may_load.set()
        self.load_error: Exception | None = None
        self.attention_bytes = 0
        """Makes each attention frame about this large, where the default is too small to fill a buffer."""
        self._sequences: dict[str, Sequence] = {}
        self._cancelled: list[Sequence] = []
        self._permits = math.inf
        self._steps = 0
        self.timed_steps = 0
        self._stopping = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="fake-engine", daemon=True)

    # --- for the test -------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Make no token until allowed to."""
        with self._changed:
            self._permits = 0

    def allow(self, tokens: float = math.inf) -> None:
        """Make so many more."""
        with self._changed:
            self._permits += tokens
            self._changed.notify_all()

    def wait_for_state(self, state: str, *, count: int = 1, seconds: float = 10) -> None:
        """Wait until `count` requests are in this state."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: sum(sequence.view().state == state for sequence in self._sequences.values()) >= count, seconds
            ), f"no {count} requests became {state}: {[sequence.view() for sequence in self._sequences.values()]}"

    # --- what the server calls ----------------------------------------------------------------------------------------

    def start(self) -> None:
        self.may_load.wait()
        if self.load_error is not None:
            raise self.load_error
        self.tokenizer = Tokenizer.bytes_tokenizer()
        self._preparation = Preparation(
            tokenizer=self.tokenizer,
            info=INFO,
            context=INFO.context,
            default_plan=self.plan,
            visible=Visible(
                layers=LAYERS,
                heads=HEADS,
                hidden=INFO.hidden,
                attending=tuple(range(LAYERS)),
                residual=True,
                attention_out=True,
                dtype="float32",
            ),
            emit=self.bus.emit,
            now_ns=self.bus.now_ns,
        )
        self.bus.emit(
            RunHeader(
                epoch=self.bus.epoch,
                engine_version="test",
                model=INFO.as_dict(),
                tokenizer={"kind": "bytes", "vocab": 259, "chat_template": True},
                machine={"blas": {"name": "reference", "fast": False, "remedy": "install another"}},
                kv={},
                slots=1,
                started_at="2026-01-01T00:00:00.000+00:00",
            )
        )
        self._thread.start()

    def estimate(self, request: GenerationRequest) -> dict[str, Any]:
        return self._preparation.estimate(request)

    def estimate_of(self, prompt_tokens: int, max_tokens: int, plan: CapturePlan | None) -> dict[str, Any]:
        return self._preparation.estimate_of(prompt_tokens, max_tokens, plan)

    def submit(self, request: GenerationRequest, deliver: Deliver) -> str:
        return self._queue(lambda: self._preparation.prepare(request, deliver))

    def fork(self, parent: str, position: int, request: GenerationRequest, deliver: Deliver) -> str:
        return self._queue(lambda: self._preparation.prepare_fork(request, deliver, self._sequences[parent], position))

    def cache_state(self) -> dict[str, Any]:
        if self._stopping:
            raise EngineStopped("the engine is stopping")
        return {"seq": self.bus.last_seq, "store": "concat", "map": [], "waste": None, "fragmentation": None}

    def _queue(self, prepare: Callable[[], Sequence]) -> str:
        if self._stopping:
            raise EngineStopped("the engine is stopping")
        with self._changed:
            waiting = sum(sequence.view().state == "queued" for sequence in self._sequences.values())
            if waiting >= self.max_queue:
                raise QueueFull(f"{waiting} requests wait already")
            sequence = prepare()
            self._sequences[sequence.id] = sequence
            self._changed.notify_all()
        return sequence.id

    def cancel(self, request_id: str) -> bool:
        with self._changed:
            sequence = self._sequences.get(request_id)
            if sequence is None or sequence.finished:
                return False
            self._cancelled.append(sequence)
            self._changed.notify_all()
        return True

    def lens(self, request_id: str, positions: list[int]) -> None:
        self._must_know(request_id)
        for position in positions:
            self.bus.emit(
                Lens(request=request_id, position=position, target=None, layers=[], residual_dtype="f32", how="live")
            )

    def attribution(self, request_id: str, positions: list[int], *, heads: bool = False) -> None:
        self._must_know(request_id)
        for position in positions:
            self.bus.emit(
                Attribution(request=request_id, position=position, target=0, logit=1.5, components=[], how="live")
            )

    def _must_know(self, request_id: str) -> None:
        if request_id not in self._sequences:
            raise RequestError(f"this run has no request {shown(request_id)}", param="request")

    def time_steps(self, steps: int) -> None:
        self.timed_steps = steps

    def requests(self) -> list[RequestView]:
        return [sequence.view() for sequence in reversed(self._sequences.values())]

    def slots_view(self) -> list[dict[str, object]]:
        running = self._running()
        return [{"slot": 0, "request": running and running.id, "state": "decode" if running else "free"}]

    def health(self) -> SimpleNamespace:
        return SimpleNamespace(ok=self.reason is None, reason=self.reason, steps=self._steps, last_progress_s=0.0)

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    # --- its thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopping or self._cancelled or (self._next() is not None and self._permits > 0)
                )
                if self._stopping:
                    self._cancelled = [sequence for sequence in self._sequences.values() if not sequence.finished]
                cancelled, self._cancelled = self._cancelled, []
                sequence = None if cancelled or self._stopping else self._next()
                if sequence is not None:
                    self._permits -= 1
            for victim in cancelled:
                self._finish(victim, "cancelled")
            if self._stopping:
                return
            if sequence is not None:
                self._token(sequence)

    def _running(self) -> Sequence | None:
        return next((s for s in self._sequences.values() if s.slot is not None and not s.finished), None)

    def _next(self) -> Sequence | None:
        waiting = (s for s in self._sequences.values() if s.slot is None and not s.finished)
        return self._running() or next(waiting, None)

    def _token(self, sequence: Sequence) -> None:
        if sequence.slot is None:
            with self._changed:
                sequence.slot, sequence.scheduled_ns = 0, self.bus.now_ns()
                sequence.computed = sequence.prompt_tokens
                self._changed.notify_all()
            self.bus.emit(RequestScheduled(request=sequence.id, waited_ns=1, reason="a slot is free"))
            self.bus.emit(SlotAssigned(slot=0, request=sequence.id))
        self._steps += 1
        step, index, position = self._steps, sequence.completion_tokens, len(sequence.tokens)
        if index == self.breaks_at:
            self._finish(sequence, "error", "the logits are not finite")
            return
        row = {"request": sequence.id, "slot": 0, "phase": "decode", "from": position - 1, "to": position}
        self.bus.emit(StepStarted(step=step, rows=[row], tokens=1, token_budget=256))
        data = self.answer.encode()
        token = data[index] if index < len(data) else 258
        sequence.tokens.append(token)
        sequence.first_token_ns = sequence.first_token_ns or self.bus.now_ns()
        event, ended = self._describe(sequence, token, step, index, position)
        self.bus.emit(event)
        sequence.deliver(event)
        if sequence.plan.arrays:
            keys = max(position, self.attention_bytes // (LAYERS * HEADS * 4))
            rows = np.full((LAYERS, HEADS, keys), 1 / keys, np.float32)
            self.bus.emit(
                Attention(request=sequence.id, step=step, position=position - 1, data=rows, source_dtype="f32")
            )
        self.bus.emit(StepFinished(step=step, build_ns=1, eval_ns=2, wait_ns=1, capture_ns=500_000_000))
        if ended is not None:
            self._finish(sequence, *ended)

    def _describe(
        self, sequence: Sequence, token: int, step: int, index: int, position: int
    ) -> tuple[Token, tuple[str, str | None] | None]:
        special = token >= 256
        released = sequence.detokenizer.add(b"" if special else bytes([token]))
        text, ended = released.text, None
        if released.stopped_by is not None:
            ended = ("stop", released.stopped_by)
        elif special:
            ended = ("stop", "<|im_end|>")
        elif sequence.completion_tokens >= sequence.max_tokens:
            ended = ("length", None)
        if ended is not None and released.stopped_by is None:
            released = sequence.detokenizer.finish()
            text += released.text
        top = [{"id": token, "logprob": -0.5, "logit": 3.0}, {"id": 65, "logprob": -math.inf, "logit": -math.inf}]
        event = Token(
            request=sequence.id,
            step=step,
            position=position,
            index=index,
            id=token,
            bytes_hex="" if special else f"{token:02x}",
            special=special,
            label=self.tokenizer.label(token),
            text=text,
            text_length=sequence.detokenizer.text_length,
            held_back_bytes=released.held_back_bytes,
            logprob=-0.5,
            entropy_bits=0.25,
            rank=1,
            top=[{**item, "label": self.tokenizer.label(item["id"])} for item in top],
            stages=[],
            draw={"method": "greedy"},
        )
        return event, ended

    def _finish(self, sequence: Sequence, reason: str, detail: str | None = None) -> None:
        if sequence.finished:
            return
        event = RequestFinished(
            request=sequence.id,
            reason=reason,
            detail=detail,
            prompt_tokens=sequence.prompt_tokens,
            completion_tokens=sequence.completion_tokens,
            timings={"queue_ns": 10**9, "prefill_ns": 2 * 10**9, "ttft_ns": 3 * 10**9, "total_ns": 4 * 10**9},
        )
        if sequence.slot is not None:
            self.bus.emit(SlotReleased(slot=0, request=sequence.id))
        self.bus.emit(event)
        with self._changed:
            sequence.finish_reason, sequence.finished_ns = reason, self.bus.now_ns()
            self._changed.notify_all()
        sequence.deliver(event)
