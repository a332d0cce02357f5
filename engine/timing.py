"""Which steps are timed operation by operation, and what steps like them normally take."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.events import Kernel
from engine.operations import kernels, writers
from engine.runner import Step, Timed
from engine.sequence import Sequence
from engine.stopwatch import Stopwatch
from engine.taps import Taps

NORMAL_STEPS = 64
"""The latest normal steps of a shape, whose median is what such a step normally takes."""

Shape = tuple[int, int]
"""Decoding rows, and positions of prompts."""


class Timing:
    """Decides which steps are timed, keeps the times of normal ones, and puts one beside the other.

    Args:
        taps: in the model.
        config: of the engine: which steps are timed.
        batched: whether the rows of a step share one pass.
        now_ns: the run's clock.
    """

    def __init__(self, taps: Taps, config: EngineConfig, *, batched: bool, now_ns: Callable[[], int]) -> None:
        self.stopwatch = Stopwatch(taps, now_ns)
        self._every, self._batched = config.time_every, batched
        self._gpu_trace = config.gpu_trace
        self._asked = 0
        self._where = writers(taps.structure)
        self._normal: dict[Shape, deque[int]] = defaultdict(lambda: deque(maxlen=NORMAL_STEPS))

    def ask(self, steps: int) -> None:
        """Time the next steps."""
        self._asked = max(self._asked, steps)

    def due(self, number: int, running: list[Sequence]) -> Timed | None:
        """How step `number` is to be timed, because it was asked for, or one of its requests wants it."""
        if self._gpu_trace is not None and running and not any(sequence.prefilling for sequence in running):
            return "gpu_capture"
        wanted = (self._every, *(sequence.plan.time_every for sequence in running))
        due = self._asked > 0 or any(every and number % every == 0 for every in wanted)
        return "barriers" if due else None

    def begun(self) -> None:
        """A step is being timed with barriers: of those that were asked for, one less is to come."""
        self._asked = max(0, self._asked - 1)

    def gpu_trace(self) -> Path:
        """The file that Metal is to write; it is asked for once."""
        path, self._gpu_trace = self._gpu_trace, None
        assert path is not None, "a step is captured where a file was given"
        return path

    def kernels(self, step: Step) -> list[Kernel]:
        """What a timed step's operations took; none of one that was not."""
        requests = [None if self._batched else result.row.sequence.id for result in step.results]
        return kernels(step.number, step.spans, self._where, requests)

    def finished(self, step: Step, timed: list[Kernel]) -> dict[str, Any]:
        """The fields of `step.finished` that say how the step was timed; `timed` are its kernels."""
        decoding = sum(result.row.phase == "decode" for result in step.results)
        prompt = sum(result.row.stop - result.row.start for result in step.results if result.row.phase == "prefill")
        normal = self._normal[decoding, prompt]
        if step.timing is None:
            normal.append(step.eval_ns)
            return {}
        return {
            "timing": step.timing,
            "operations_ns": sum(kernel.duration_ns for kernel in timed) if timed else None,
            "normal_ns": round(statistics.median(normal)) if normal else None,
            "normal_steps": len(normal),
        }
