"""One step on the device: from a plan's rows to logits and captured arrays.

`Runner.build` builds the graph and `Step.start` submits it; `Step.wait` blocks until the results are there. In between
the device works and Python is free: that is when the step before is looked at.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from engine.device import gpu_trace, mx

import numpy as np

from engine.by_layer import run_by_layer
from engine.capture_schedule import SUMMARISED, WHOLE
from engine.captured import Captured, outputs_of
from engine.scheduler import Plan, Row
from engine.sequence import Sequence
from engine.stopwatch import Span, Stopwatch
from engine.stream import Stream
from engine.taps import Taps

Timed: TypeAlias = Literal["barriers", "gpu_capture"]
"""How a step is timed: operation by operation here, or as a whole by Metal."""


@dataclass(slots=True)
class RowResult:
    """What one row of a step leaves: lazy until the step has been waited for."""

    row: Row
    logits: mx.array | None = None
    """`[vocab]` float32, of the row's last position, when it chooses a token."""
    token: mx.array | None = None
    """The chosen token's id, when the device chose it."""
    captured: Captured | None = None
    written: list[mx.array] = field(default_factory=list)
    """Of an earlier chunk of a prompt, which chooses no token: truth values that say whether its KV holds numbers."""

    @property
    def sound(self) -> bool:
        """Whether what the row gave are numbers: then what it wrote are, too."""
        if self.logits is not None:
            return bool(np.isfinite(np.asarray(self.logits).max()))
        return all(bool(written) for written in self.written)


Pass: TypeAlias = Callable[[], list[tuple[mx.array | None, Captured | None]]]
"""Runs rows: for each the `[vocab]` logits of its last position, if it chooses a token, and what was captured."""


@dataclass(frozen=True, slots=True)
class Laid:
    """A step laid out: its rows, and the pass over them that has not been run."""

    rows: list[Row]
    run: Pass
    took_ns: int


class Forward(Protocol):
    """How the rows of a step go through the model."""

    batched: bool
    """Whether all rows go in one pass."""

    def lay_out(self, rows: list[tuple[Row, mx.array, list[int]]]) -> Pass:
        """Settle where rows lie, each with its `[L]` tokens and the indices of the positions to capture.

        Returns what runs them. It asks nobody any more whether a request still runs, or what memory it has.
        """

    def of_layer(self, layer: int) -> list[tuple[Sequence, Captured]]:
        """What the pass that is under way captured of a layer's attention: the pass lets go of it."""

    def copy(self, source: int, target: int) -> None:
        """Copy a block of the KV store."""

    def release(self, sequence: Sequence) -> None:
        """Let go of a request's arrays."""

    def wipe(self) -> None:
        """Something wrote values that are not finite: leave none in what is nobody's."""

    def written(self, sequence: Sequence) -> list[mx.array]:
        """Truth values that are there once the KV of a request's row in the last step is; false where it is none."""


@dataclass(slots=True)
class Step:
    """A step whose graph has been built."""

    number: int
    results: list[RowResult]
    outputs: list[mx.array] = field(repr=False)
    build_ns: int
    device_from: int = 0
    """When the device could begin: at submission, or when the step before was done."""
    done_at: int = 0
    wait_ns: int = 0
    eval_ns: int = 0
    timing: Timed | None = None
    """How it was timed; it is done then."""
    spans: list[Span] = field(default_factory=list)
    """How long each operation took, when there were barriers."""
    paused_ns: int = 0
    """For how long its operations waited meanwhile for attention to be told: no part of `eval_ns`."""
    by_layer: list[Captured] = field(default_factory=list)
    """Whose attention is evaluated and read layer by layer."""
    streams: list[Stream] = field(default_factory=list)
    """What else is."""
    _reading: Future[None] | None = None

    def start(self, beside: Executor) -> None:
        """Submit the graph; what is captured layer by layer is read on another thread, or two, as it comes."""
        self.device_from = time.perf_counter_ns()
        if self.by_layer or self.streams:
            self._reading = run_by_layer(self.by_layer, self.streams, self.outputs, beside)
            self.by_layer, self.streams = [], []
        else:
            mx.async_eval(self.outputs)

    def wait(self) -> None:
        """Block until the results are there."""
        if self.done_at:
            return
        start = time.perf_counter_ns()
        mx.eval(self.outputs)
        self.done_at = time.perf_counter_ns()
        self.wait_ns, self.eval_ns = self.done_at - start, self.done_at - self.device_from
        self.outputs = []  # whoever reads them has them

    def read(self) -> None:
        """Block until what is read layer by layer has been read. It is read before anything given to `beside` later."""
        if self._reading is not None:
            self._reading.result()


class Runner:
    """Runs steps of one model. Everything here happens on the engine thread."""

    def __init__(self, taps: Taps, forward: Forward) -> None:
        self._forward = forward
        self._structure = taps.structure
        self._pending: dict[Sequence, mx.array] = {}
        """Per sequence: the token chosen last, while it is on the device alone."""

    def lay_out(self, plan: Plan) -> Laid:
        """Settle what a step computes, and where that lies. Until it runs, no array that it needs may be let go of."""
        start = time.perf_counter_ns()
        for copy in plan.copies:
            self._forward.copy(copy.source, copy.target)
        run = self._forward.lay_out([(row, self._tokens(row), self._wanted(row)) for row in plan.rows])
        return Laid(plan.rows, run, time.perf_counter_ns() - start)

    def build(self, number: int, laid: Laid) -> Step:
        """Build a step's graph."""
        start = time.perf_counter_ns()
        results = self._run(laid)
        outputs: list[mx.array] = []
        for result in results:
            if result.logits is None:
                outputs += result.written  # its KV is all that is wanted, and what was captured
            else:
                outputs.append(result.logits)
            if result.token is not None:
                outputs.append(result.token)
        captured = [result.captured for result in results if result.captured is not None]
        outputs += outputs_of(captured)
        # Rows of one pass share what it left.
        outputs = list({id(array): array for array in outputs}.values())
        by_layer = [row for row in captured if row.by_layer]
        build_ns = laid.took_ns + time.perf_counter_ns() - start
        return Step(number, results, outputs, build_ns=build_ns, by_layer=by_layer, streams=_large(results))

    def gpu_captured(self, number: int, laid: Laid, path: Path) -> Step:
        """Run a step to its end while Metal writes down what the GPU does."""
        with gpu_trace(path):
            step = self.build(number, laid)
            step.device_from = time.perf_counter_ns()
            step.wait()
        step.timing = "gpu_capture"
        return step

    def timed(self, number: int, laid: Laid, stopwatch: Stopwatch, tell: Callable[[Sequence, Captured], None]) -> Step:
        """Run a step operation by operation, each with a barrier, to its end.

        Args:
            tell: called with what was captured of a request's attention in a layer, as the layer finishes.
        """
        told: dict[Sequence, list[int]] = defaultdict(list)

        def finished(layer: int) -> None:
            for sequence, captured in self._forward.of_layer(layer):
                assert sequence.captures is not None, "nothing is captured without a plan"
                captured.keep(sequence.captures)
                told[sequence].append(layer)
                if captured.rows is not None and not sequence.finished:
                    stopwatch.evaluate("capture", [*captured.outputs, *captured.pieces[0]])
                    tell(sequence, captured)

        start = time.perf_counter_ns()
        with stopwatch.running(choosing=any(row.chooses for row in laid.rows), finished=finished):
            results = self._run(laid)
        for result in results:
            if result.captured is not None:
                result.captured.told = told[result.row.sequence]
        captured = outputs_of(result.captured for result in results if result.captured is not None)
        captured += [array for stream in _large(results) for array in stream.outputs]
        chosen = [array for result in results for array in (result.logits, result.token) if array is not None]
        written = [array for result in results for array in result.written]
        stopwatch.evaluate("choice", chosen)
        stopwatch.evaluate("capture", captured)
        stopwatch.evaluate("rest", written)
        step = Step(number, results, [], build_ns=0, device_from=start, timing="barriers", spans=stopwatch.spans)
        step.done_at = time.perf_counter_ns()
        step.paused_ns = stopwatch.paused_ns
        step.eval_ns = step.done_at - start - step.paused_ns
        for stream in _large(results):  # it is looked at a step later, and would take the room that that one needs
            stream.read_all()
        step.paused_ns += time.perf_counter_ns() - step.done_at
        return step

    def _run(self, laid: Laid) -> list[RowResult]:
        return [self._result(row, *outcome) for row, outcome in zip(laid.rows, laid.run(), strict=True)]

    def forget(self, sequence: Sequence, *, keep: bool = True) -> None:
        """Let go of the arrays of a sequence that has ended or gave way; `keep` says that they may be read again."""
        self._pending.pop(sequence, None)
        self._forward.release(sequence)
        if not keep:
            self.wipe()

    def wipe(self) -> None:
        """Leave nothing that is not finite where others may read."""
        self._forward.wipe()

    def _result(self, row: Row, logits: mx.array | None, captured: Captured | None) -> RowResult:
        sequence = row.sequence
        sequence.computed = row.stop
        if captured is not None and sequence.captures is not None:
            captured.keep(sequence.captures)
        result = RowResult(row, captured=captured)
        if logits is not None:
            result.logits = logits.astype(mx.float32)
            if sequence.sampler.on_device:
                result.token = mx.argmax(result.logits)
                self._pending[sequence] = result.token
        else:
            result.written = self._forward.written(sequence)
        return result

    def _tokens(self, row: Row) -> mx.array:
        """`[L]` token ids of a row."""
        known = row.sequence.tokens[row.start : row.stop]
        return mx.array(known) if known else self._pending[row.sequence].reshape(1)

    def _wanted(self, row: Row) -> list[int]:
        """Indices of the row's positions to capture, whole or summarised."""
        sequence = row.sequence
        if sequence.captures is None:
            return []
        first = max(row.start, sequence.captured_until)
        sequence.captured_until = max(sequence.captured_until, row.stop)
        forms = sequence.captures.forms[first : row.stop].tolist()
        return [index for index, form in enumerate(forms, first - row.start) if form in (WHOLE, SUMMARISED)]


def _large(results: list[RowResult]) -> list[Stream]:
    """What rows wrote to the residual stream and is read layer by layer: rows of one pass share it."""
    streams = [result.captured.stream for result in results if result.captured is not None]
    return list({id(stream): stream for stream in streams if stream is not None and stream.large}.values())
