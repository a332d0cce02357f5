"""Which frames of a run belong to one request."""

from __future__ import annotations

from typing import Any

from engine.codec import Frame, parse

_HOLDING = frozenset({"block.allocated", "block.reused", "block.copied", "block.stored"})


class RequestFilter:
    """Tells, frame by frame in the order of the run, whether a frame belongs to a request.

    Kept are run.header, the request's own events, the steps that had a row of it (with their kernels), the slot events
    it took part in, and every event of a block while the request holds it, whoever caused it. Gaps are kept: one may
    have held something of the request.
    """

    def __init__(self, request: str) -> None:
        self.request = request
        self._steps: set[int] = set()
        self._blocks: set[int] = set()

    def __call__(self, frame: Frame) -> bool:
        """Whether `frame` belongs to the request."""
        if frame.kind in ("run.header", "gap"):
            return True
        own = frame.request == self.request
        if frame.kind == "step.started":
            return self._started(frame)
        if frame.kind.startswith("block."):
            return self._touched(frame, own)
        return own or (frame.request is None and frame.step in self._steps)

    def _started(self, frame: Frame) -> bool:
        rows = _fields(frame).get("rows")
        touched = isinstance(rows, list) and any(
            isinstance(row, dict) and row.get("request") == self.request for row in rows
        )
        if touched and frame.step is not None:
            self._steps.add(frame.step)
        return touched

    def _touched(self, frame: Frame, own: bool) -> bool:
        fields = _fields(frame)
        block, refs = fields.get("block"), fields.get("refs")
        if not isinstance(block, int):
            return own
        held = block in self._blocks
        if own and frame.kind in _HOLDING:
            self._blocks.add(block)
        elif own and frame.kind == "block.ref_changed":  # taken or, if held, given back
            self._blocks.symmetric_difference_update({block})
        elif frame.kind == "block.freed" or (frame.kind == "block.evicted" and not refs):
            self._blocks.discard(block)
        return own or held


def _fields(frame: Frame) -> dict[str, Any]:
    return parse(frame.payload, binary=frame.binary)[0]
