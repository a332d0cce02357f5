"""The step loop's body: plan, run, look at the step before, say what happened.

No thread and no queue of its own: the engine thread drives it (`engine.engine`), and so does a notebook
(`engine.notebook`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from engine.device import mx, works_while_submitting

import numpy as np

from engine.capture import CapturePlan
from engine.capture_schedule import CaptureSchedule, Visible
from engine.captured import Captured
from engine.config import EngineConfig
from engine.distribution import Distribution
from engine.errors import RequestError
from engine.events import (
    FinishReason,
    RequestFinished,
    RequestPreempted,
    RequestScheduled,
    SlotAssigned,
    SlotReleased,
    StepFinished,
    StepStarted,
    Token,
)
from engine.kv.choose import choose
from engine.models.info import LoadedModel
from engine.prepare import Emit
from engine.readings import READINGS, Readings
from engine.report import CaptureReport
from engine.residuals import ResidualStore
from engine.runner import Laid, RowResult, Runner, Step, Timed
from engine.sampling import Choice, NonFiniteLogits, distributions_of
from engine.scheduler import Admission, Plan, Preemption, Row, Scheduler
from engine.sequence import Sequence
from engine.taps import Taps
from engine.timing import Timing

CLEAR_CACHE_EVERY = 256
"""Steps between handing MLX's freed buffers back, so that memory does not grow over hours."""


class EngineCore:
    """Runs requests on one model, one step at a time, on the thread that made it.

    Args:
        loaded: the model.
        config: how to run it.
        emit: where events go.
        now_ns: the run's clock.
    """

    def __init__(self, loaded: LoadedModel, config: EngineConfig, emit: Emit, now_ns: Callable[[], int]) -> None:
        self.taps = Taps(loaded.model)
        self.kv = choose(self.taps, loaded.info, config, emit)
        self.scheduler = Scheduler(
            slots=config.slots, token_budget=config.prefill_budget, memory=self.kv.memory, policy=config.policy
        )
        self.steps = 0
        self._tokenizer = loaded.tokenizer
        self._eos_ids = frozenset(loaded.info.eos_ids) | loaded.tokenizer.eos_ids
        self._runner = Runner(self.taps, self.kv.forward)
        residuals = ResidualStore()
        self.readings = Readings(self.taps, loaded.tokenizer.label, residuals, emit)
        self.visible = Visible.of(self.taps.structure, loaded.info.dtype)
        self._report = CaptureReport(self.visible, self.taps.experts.layers, residuals, emit)
        self.timing = Timing(self.taps, config, batched=self.kv.forward.batched, now_ns=now_ns)
        self._in_flight: Step | None = None
        self._begun: dict[int, int] = {}
        """Steps that were said to begin and not yet to end: how many rows each has."""
        self._left: list[Callable[[], None]] = []
        """What looking at a step left to do on the engine thread."""
        self._beside = ThreadPoolExecutor(1, "tokenwalk-beside")
        self._emit, self._now_ns = emit, now_ns
        self._must_suit(config.capture_default)

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work or self._in_flight is not None

    def close(self) -> None:
        """Leave the model as it was found, whatever the last step comes to."""
        last, self._in_flight = self._in_flight, None
        try:
            if last is not None:
                self._take_in(last)
        finally:
            self._beside.shutdown()
            self.taps.remove()

    def cancel(self, sequence: Sequence) -> None:
        """End a request at once, wherever it is."""
        if not sequence.finished:
            self._finish(sequence, "cancelled", None)
            self._do_what_is_left()

    def give_up(self, sequences: Iterable[Sequence]) -> None:
        """After an exception in a step (Ctrl-C in a notebook): end all requests, and the steps that are lost.

        Which rows had their pass, and what was read of it, nobody can tell: a request that went on would lack some.
        """
        for sequence in sequences:
            self.cancel(sequence)
        still = None if self._in_flight is None else self._in_flight.number
        for number in [number for number in self._begun if number != still]:
            unused = self._begun.pop(number)
            proof = self._report.proof.fields()
            self._emit(StepFinished(step=number, build_ns=0, eval_ns=0, wait_ns=0, unused_rows=unused, **proof))
        self._do_what_is_left()
        self._runner.wipe()  # nobody has looked at what the lost steps wrote

    def step(self) -> None:
        """Submit the next step if there is one, and take in the one before.

        Decoding is pipelined: where the device chooses the token itself, the next pass is submitted first and runs
        while this one's tokens are looked at, described and sent: by this thread, or by another where this one is kept
        by the submission. A timed step has the device for itself, and is planned and looked at when any other would
        be: with whom a row shares its pass decides how it rounds, and must not depend on who watches.
        """
        for admission in self.scheduler.admit():
            self._scheduled(admission)
        before, self._in_flight = self._in_flight, None
        timed = self.timing.due(self.steps + 1, self.scheduler.running)
        if before is not None and not _device_chooses(before):
            self._take_in(before)
            before = None
        plan = self.scheduler.plan()
        for preemption in plan.preemptions:
            self._preempted(preemption)
        if not plan.rows:
            if before is not None:
                self._take_in(before)
            return
        laid = self._begin(plan)
        if timed:
            if before is not None:
                before.wait()
                self._look_at(before)
            self._in_flight = self._run_timed(laid, timed)
            if before is not None:
                self._settle(before)
            return
        self._in_flight = self._runner.build(self.steps, laid)
        if before is not None and works_while_submitting():
            before.wait()
            looking = self._beside.submit(self._look_at, before)
            try:
                self._in_flight.start(self._beside)
                self._in_flight.wait()
            finally:  # whatever stopped this thread (Ctrl-C in a notebook), the other must not go on beside it
                looking.result()
            self._settle(before)
            return
        self._in_flight.start(self._beside)
        if before is not None:
            self._take_in(before)

    def _must_suit(self, plan: CapturePlan) -> None:
        """Raise RequestError for another model's default plan: every request that names none would be refused."""
        try:
            CaptureSchedule.checked(plan, self.visible, prompt_tokens=1, max_tokens=1, refuse=False)
        except RequestError as error:
            self.close()
            raise RequestError(f"the default capture plan is for another model: {error}", param=error.param) from None

    # --- stages of a step ---------------------------------------------------------------------------------------------

    def _scheduled(self, admission: Admission) -> None:
        sequence, now = admission.sequence, self._now_ns()
        waited = now - sequence.arrived_ns
        if sequence.scheduled_ns is None:
            sequence.scheduled_ns = now
            if sequence.captures is not None:
                sequence.captures = sequence.captures.after(sequence.cached)
            self._report.absences.not_captured(sequence)
        self._emit(
            RequestScheduled(
                request=sequence.id, waited_ns=waited, reason=admission.reason, cached_tokens=sequence.cached
            )
        )
        self._emit(SlotAssigned(slot=admission.slot, request=sequence.id))
        if sequence.cached > sequence.captured_until:
            self._report.absences.prefix_cached(sequence, self.kv.memory.computed_by(sequence.id, sequence.cached))

    def _preempted(self, preemption: Preemption) -> None:
        sequence = preemption.sequence
        self._runner.forget(sequence)
        self._emit(SlotReleased(slot=preemption.slot, request=sequence.id))
        self._emit(RequestPreempted(request=sequence.id, reason=preemption.reason))

    def _begin(self, plan: Plan) -> Laid:
        """Say that a step begins, and lay it out."""
        self.steps += 1
        self._begun[self.steps] = len(plan.rows)
        self._emit(
            StepStarted(
                step=self.steps,
                rows=[row.as_dict() for row in plan.rows],
                tokens=sum(row.stop - row.start for row in plan.rows),
                token_budget=self.scheduler.token_budget,
            )
        )
        for row in plan.rows:
            self._report.absences.over_budget(row.sequence, row.start, row.stop)
        return self._runner.lay_out(plan)

    def _run_timed(self, laid: Laid, timed: Timed) -> Step:
        """Run a step to its end."""
        if timed == "gpu_capture":
            return self._runner.gpu_captured(self.steps, laid, self.timing.gpu_trace())
        self.timing.begun()
        return self._runner.timed(self.steps, laid, self.timing.stopwatch, partial(self._report.attention, self.steps))

    def _take_in(self, step: Step) -> None:
        """Wait for a step and do all that it leads to."""
        step.wait()
        if self._in_flight is not None:  # until now the device was busy with this one
            self._in_flight.device_from = max(self._in_flight.device_from, step.done_at)
        self._look_at(step)
        self._settle(step)

    def _look_at(self, step: Step) -> None:
        """Tokens first, since someone is waiting for them, and captured arrays after.

        May run beside the engine thread, which then does nothing but compute the next step. So what needs the device is
        left for `_settle`.
        """
        step.read()
        start = time.perf_counter_ns()
        unused = [result for result in step.results if result.row.sequence.finished]
        used = [result for result in step.results if not result.row.sequence.finished]
        logits = {result.row.sequence: np.asarray(result.logits) for result in used if result.logits is not None}
        told = _distributions(logits)
        for result in used:
            self._stored(result.row)
            if result.logits is not None:
                sequence = result.row.sequence
                self._choose(step, result, logits[sequence], told.get(sequence))
        sampled = time.perf_counter_ns()
        for result in used:
            captured, result.captured = result.captured, None  # let go of before the next step needs the room
            if captured is not None:
                self._captured(step, result.row.sequence, captured)
        for result in used:
            if result.logits is None and not result.sound:
                self._unsound(result.row)
        for result in unused:
            self._report.unused(result.row.sequence)
        if not all(result.sound for result in unused):
            self._left.append(self._runner.wipe)
        capture_ns = time.perf_counter_ns() - sampled + step.paused_ns
        kernels = self.timing.kernels(step)
        for kernel in kernels:
            self._emit(kernel)
        del self._begun[step.number]
        self._emit(
            StepFinished(
                step=step.number,
                build_ns=step.build_ns,
                eval_ns=step.eval_ns,
                wait_ns=step.wait_ns,
                sample_ns=sampled - start,
                capture_ns=capture_ns,
                unused_rows=len(unused),
                **self.timing.finished(step, kernels),
                **self._report.proof.fields(),
            )
        )

    def _settle(self, step: Step) -> None:
        """What a step leads to and needs the device for."""
        self._do_what_is_left()
        if step.number % CLEAR_CACHE_EVERY == 0:
            mx.clear_cache()

    def _do_what_is_left(self) -> None:
        left, self._left = self._left, []
        for work in left:
            work()

    def _choose(self, step: Step, result: RowResult, logits: np.ndarray, distribution: Distribution | None) -> None:
        """Choose a row's next token, say how, and end the request where it ends."""
        sequence = result.row.sequence
        position = len(sequence.tokens)
        chosen_on_device = None if result.token is None else int(result.token)
        try:
            choice = sequence.sampler.choose(logits, position, token=chosen_on_device, distribution=distribution)
        except NonFiniteLogits as error:
            self._finish(sequence, "error", f"{error}; generation was stopped", keep=False)
            return
        sequence.tokens.append(choice.token)
        if sequence.first_token_ns is None:
            sequence.first_token_ns = self._now_ns()
        event, ended = self._describe(step, sequence, choice)
        self._emit(event)
        sequence.deliver(event)
        if ended is not None:
            self._finish(sequence, *ended)

    def _describe(
        self, step: Step, sequence: Sequence, choice: Choice
    ) -> tuple[Token, tuple[FinishReason, str | None] | None]:
        """The token's event, and why the answer ends with it, if it does."""
        tokenizer, token = self._tokenizer, choice.token
        for candidate in choice.top:
            candidate["label"] = tokenizer.label(candidate["id"])
        special = tokenizer.is_special(token)
        data = b"" if special else tokenizer.token_bytes(token)
        released = sequence.detokenizer.add(data)
        text = released.text
        ended: tuple[FinishReason, str | None] | None = None
        if released.stopped_by is not None:
            ended = ("stop", released.stopped_by)
        elif token in self._eos_ids:
            ended = ("stop", tokenizer.label(token))
        elif sequence.completion_tokens >= sequence.max_tokens:
            ended = ("length", None)
        if ended is not None and released.stopped_by is None:
            released = sequence.detokenizer.finish()
            text += released.text
        event = Token(
            request=sequence.id,
            step=step.number,
            position=len(sequence.tokens) - 1,
            index=sequence.completion_tokens - 1,
            id=token,
            bytes_hex=data.hex(),
            special=special,
            label=tokenizer.label(token),
            text=text,
            text_length=sequence.detokenizer.text_length,
            held_back_bytes=released.held_back_bytes,
            logprob=choice.logprob,
            entropy_bits=choice.entropy_bits,
            rank=choice.rank,
            top=choice.top,
            stages=choice.stages,
            draw=choice.draw,
        )
        return event, ended

    def _stored(self, row: Row) -> None:
        """What this row computed may now be found by others that begin alike."""
        sequence = row.sequence
        if sequence.slot is not None and not sequence.finished:
            self.kv.memory.stored(sequence.id, sequence.tokens, row.stop)
            sequence.stored = max(sequence.stored, row.stop)

    def _captured(self, step: Step, sequence: Sequence, captured: Captured) -> None:
        fault = self._report.captured(step.number, sequence, captured)
        if fault is not None:
            if not sequence.finished:
                self._finish(sequence, "error", f"{fault}; generation was stopped", keep=False)
            return
        if not sequence.plan.wanted.isdisjoint(READINGS):
            self._left.append(partial(self.readings.all_of, sequence, captured.positions))

    def _unsound(self, row: Row) -> None:
        """End a request whose prompt's KV is no numbers, before others find it."""
        if not row.sequence.finished:
            detail = f"keys or values of positions {row.start} to {row.stop - 1} hold NaN or infinity"
            self._finish(row.sequence, "error", f"{detail}; generation was stopped", keep=False)

    def _finish(self, sequence: Sequence, reason: FinishReason, detail: str | None, *, keep: bool = True) -> None:
        sequence.finish_reason, sequence.finished_ns = reason, self._now_ns()
        slot = self.scheduler.release(sequence, keep=keep)
        self._left.append(partial(self._runner.forget, sequence, keep=keep))
        event = RequestFinished(
            request=sequence.id,
            reason=reason,
            detail=detail,
            prompt_tokens=sequence.prompt_tokens,
            completion_tokens=sequence.completion_tokens,
            timings=sequence.timings(),
        )
        if slot is not None:
            self._emit(SlotReleased(slot=slot, request=sequence.id))
        self._emit(event)
        sequence.deliver(event)


def _distributions(logits: dict[Sequence, np.ndarray]) -> dict[Sequence, Distribution]:
    """Of those requests that tell how they choose."""
    telling = [sequence for sequence in logits if sequence.sampler.statistics]
    return dict(zip(telling, distributions_of([logits[sequence] for sequence in telling]), strict=True))


def _device_chooses(step: Step) -> bool:
    """Whether the next step can be built before this one has been looked at."""
    return all(result.logits is None or result.token is not None for result in step.results)
