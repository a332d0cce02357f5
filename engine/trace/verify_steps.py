"""Replays the scheduling of a trace: slots, steps, the positions that each step computed, and what was timed of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from engine.codec import Frame
from engine.trace.checking import Check, Checker, Continuity, Fields, Tally

_VALUES = {"float32": 1e-4}
"""How far weights × values may be from the kernel's output, to the largest output: other dtypes round."""

PIPELINED = 2
"""Most steps that are under way at once."""


class Steps(Checker):
    """A request's positions are computed one after another, in steps that begin and end, in a slot that it holds."""

    def __init__(self, continuity: Continuity) -> None:
        self._continuity = continuity
        self._known: set[str] = set()
        self._slots: dict[int, str] = {}
        self._next: dict[str, int] = {}
        self._open: dict[int, Fields] = {}
        self._last = 0
        self._rows: dict[tuple[int, str], tuple[int, int]] = {}
        self._slot_tally, self._step_tally = Tally("slots are held by one"), Tally("steps follow")
        self._position_tally = Tally("events belong to their steps")

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.kind == "request.arrived" and frame.request is not None:
            self._known.add(frame.request)
        elif frame.kind == "request.scheduled" and frame.request is not None:
            self._next[frame.request] = fields["cached_tokens"]
        elif frame.kind == "slot.assigned":
            holder = self._slots.get(fields["slot"])
            what = f"event {frame.seq}: slot {fields['slot']} goes to {frame.request}"
            self._slot_tally.expect(holder is None, f"{what}, but {holder} holds it")
            self._slots[fields["slot"]] = str(frame.request)
        elif frame.kind == "slot.released":
            holder = self._slots.pop(fields["slot"], None)
            self._slot_tally.expect(
                holder == frame.request,
                f"event {frame.seq}: {frame.request} gives slot {fields['slot']} back, but {holder} holds it",
            )
        elif frame.kind == "step.started":
            self._started(fields)
        elif frame.kind == "step.finished":
            self._finished(fields["step"])
        elif "position" in fields and fields.get("step") is not None:
            self._of_a_position(frame, fields)

    def _started(self, fields: Fields) -> None:
        step = fields["step"]
        self._step_tally.expect(step > self._last, f"step {step} comes after step {self._last}")
        self._last, self._open[step] = step, fields
        under_way = len(self._open)
        self._step_tally.expect(under_way <= PIPELINED, f"{under_way} steps are under way at step {step}")
        computed = sum(row["to"] - row["from"] for row in fields["rows"])
        self._step_tally.expect(
            computed == fields["tokens"] and fields["tokens"] <= fields["token_budget"],
            f"step {step} says {fields['tokens']} positions of {fields['token_budget']}, and has rows for {computed}",
        )
        for row in fields["rows"]:
            self._rows[step, row["request"]] = (row["from"], row["to"])
            if row["request"] in self._known:
                self._row(step, row)

    def _row(self, step: int, row: Fields) -> None:
        expected = self._next.get(row["request"])
        self._step_tally.expect(
            row["from"] == expected and row["to"] > row["from"],
            f"step {step} computes {row['request']} from {row['from']} to {row['to']}, where {expected} is next",
        )
        self._next[row["request"]] = row["to"]
        holder = self._slots.get(row["slot"])
        self._slot_tally.expect(
            holder == row["request"], f"step {step} runs {row['request']} in slot {row['slot']}, which {holder} holds"
        )

    def _finished(self, step: int) -> None:
        oldest = min(self._open, default=None)
        self._step_tally.expect(step == oldest, f"step {step} ends, where step {oldest} is under way")
        self._open.pop(step, None)

    def _of_a_position(self, frame: Frame, fields: Fields) -> None:
        """A token is chosen by the last position of its row, what is captured by any."""
        if frame.request not in self._known:
            return
        start, stop = self._rows.get((fields["step"], frame.request), (0, 0))
        position = fields["position"] - 1 if frame.kind == "token" else fields["position"]
        here = position == stop - 1 if frame.kind == "token" else start <= position < stop
        what = f"{frame.kind} of {frame.request} position {fields['position']}"
        self._position_tally.expect(here, f"{what} is no part of step {fields['step']}")

    def results(self) -> Iterator[Check]:
        yield self._slot_tally.check(f"{self._slot_tally.checked} changes and rows", unknown=self._continuity.unknown)
        yield self._step_tally.check(f"up to step {self._last}", unknown=self._continuity.own_unknown)
        yield self._position_tally.check(
            f"{self._position_tally.checked} tokens and captured positions", unknown=self._continuity.own_unknown
        )


class Proofs(Checker):
    """What was found while it ran: captured weights times the values were what the kernel gave, rows summed to 1."""

    def __init__(self) -> None:
        self._slack = 0.0
        self._sums: dict[int, float] = {}
        self._values, self._rows = Tally("weights × values are output"), Tally("row sums as measured")
        self._worst = 0.0
        self._no_numbers: dict[str, str] = {}
        self._ended: dict[str, str] = {}

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.kind == "run.header":
            self._slack = _VALUES.get(fields["model"].get("dtype", "float32"), 2e-2)
        elif frame.kind.startswith("attention") and "row_sum_error" in fields:
            step = fields["step"]
            self._sums[step] = float(np.maximum(self._sums.get(step, 0.0), fields["row_sum_error"]))  # NaN stays NaN
        elif frame.kind == "step.finished":
            self._finished(fields["step"], fields)
        elif frame.kind == "request.finished":
            self._ended[str(frame.request)] = fields["reason"]

    def _finished(self, step: int, fields: Fields) -> None:
        stated, found = fields.get("row_sum_error"), self._sums.pop(step, None)
        if stated is not None and found is not None:
            # Frames may be fewer than the rows that were measured: a slice has those of one request.
            # A row that is no number is what `NotNumbers` looks at.
            right = np.isnan(stated) or found <= stated
            self._rows.expect(bool(right), f"step {step} says {stated:.1e}, and has a row with {found:.1e}")
        check = fields.get("attention_check")
        if check is not None:
            where = f"{check['request']} position {check['position']} layer {check['layer']}"
            if not np.isfinite(check["largest"]):  # what the kernel gave is no number: there is nothing to compare
                if self._ended.get(check["request"]) != "cancelled":  # or it was given up before anybody had looked
                    self._no_numbers[check["request"]] = where
                return
            self._worst = max(self._worst, check["error"])
            right = check["error"] <= self._slack * max(1.0, check["largest"])  # NaN fails
            self._values.expect(right, f"{where} differs by {check['error']:.1e} of {check['largest']:.2g}")

    def results(self) -> Iterator[Check]:
        for request, where in self._no_numbers.items():
            reason = self._ended.get(request, "error")  # where its end is not in the file, nothing can be said
            self._values.expect(reason == "error", f"{where} is no number, and the request ended with {reason}")
        tested = f"{self._values.checked} rows tested as they ran, worst difference {self._worst:.1e}"
        yield self._values.check(tested if self._values.checked else "no row was tested as it ran")
        yield self._rows.check(f"{self._rows.checked} steps" if self._rows.checked else "no step says")


class Kernels(Checker):
    """The operations of a timed step add up to what the step says of them, and to no more than it took."""

    def __init__(self, continuity: Continuity) -> None:
        self._continuity = continuity
        self._sums: Counter[int] = Counter()
        self._counts: Counter[int] = Counter()
        self._tally = Tally("operations add up to steps")
        self._slowdowns: list[float] = []

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.kind == "kernel":
            self._sums[fields["step"]] += fields["duration_ns"]
            self._counts[fields["step"]] += 1
            self._tally.expect(fields["duration_ns"] >= 0, f"event {frame.seq}: an operation takes negative time")
        elif frame.kind == "step.finished":
            step, stated = fields["step"], fields.get("operations_ns")
            if stated is not None or step in self._sums:
                found = self._sums.pop(step, 0)
                right = found == stated and found <= fields["eval_ns"]
                what = f"step {step} took {fields['eval_ns']} ns, {stated} in operations"
                self._tally.expect(right, f"{what}, which add up to {found}")
            if fields.get("timing") == "barriers" and fields.get("normal_ns"):
                self._slowdowns.append(fields["eval_ns"] / fields["normal_ns"])

    def results(self) -> Iterator[Check]:
        steps = len(self._counts)
        slower = f", {np.median(self._slowdowns):.2f} × as long as normal" if self._slowdowns else ""
        detail = f"{sum(self._counts.values())} of {steps} timed steps{slower}" if steps else "none was timed"
        yield self._tally.check(detail, unknown=self._continuity.own_unknown)
