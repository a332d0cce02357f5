"""Times the operations of one tiny model's passes, and compares with passes that are not timed."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

from engine.device import mx

import numpy as np

from engine.forward import SeparateForward
from engine.operations import kernels, writers
from engine.scheduler import Row
from engine.stopwatch import Stopwatch
from engine.taps import Taps

Rows = list[tuple[Row, mx.array, list[int]]]


def timed(taps: Taps, asked: list[Rows]) -> set[str]:
    """Run passes without and with barriers; the names of the operations that were found.

    Args:
        asked: per pass, what the forward is asked for.

    Raises:
        AssertionError: when a logit differs in any bit, or the times cannot be right.
    """
    stopwatch, where = Stopwatch(taps, time.perf_counter_ns), writers(taps.structure)
    outcomes: list[list[np.ndarray]] = []
    found: set[str] = set()
    for watched in (False, True):
        forward, logits = SeparateForward(taps), []
        for number, rows in enumerate(asked):
            start = time.perf_counter_ns()
            with stopwatch.running(choosing=rows[0][0].chooses) if watched else nullcontext():
                ((given, _),) = forward.lay_out(rows)()
            mx.eval(forward.written(rows[0][0].sequence), *([] if given is None else [given]))
            if given is not None:
                logits.append(np.array(given.astype(mx.float32)))
            if watched:
                found |= _looked_at(
                    kernels(number, stopwatch.spans, where, ["r"]), time.perf_counter_ns() - start, taps
                )
        forward.release(asked[0][0][0].sequence)
        outcomes.append(logits)
    plain, slow = outcomes
    same = [np.array_equal(one, other, equal_nan=True) for one, other in zip(plain, slow, strict=True)]
    assert same, "no pass chose a token"
    assert all(same), "a timed pass gives other logits"
    return found


def _looked_at(events: list[Any], wall_ns: int, taps: Taps) -> set[str]:
    assert min(event.duration_ns for event in events) >= 0, "an operation takes negative time"
    assert sum(event.duration_ns for event in events) <= wall_ns, "operations take longer than the pass"
    attending = {event.layer for event in events if event.operation == "attention"}
    expected = {layer for layer, attends in enumerate(taps.structure.attending) if attends}
    assert expected <= attending, f"attention was not timed in layers {sorted(expected - attending)}"
    return {event.operation for event in events}
