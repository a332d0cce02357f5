"""From captured arrays to events: one frame a position and kind; of attention that is told while a step is timed, one a
layer. (What is not captured: `engine.absences`.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.absences import Absences
from engine.capture_schedule import WHOLE, CaptureSchedule, Visible
from engine.captured import Captured
from engine.events import AttentionOut, Residual
from engine.experts import Experts
from engine.prepare import Emit
from engine.proof import StepProof
from engine.residuals import Kept, ResidualStore
from engine.router import router_events
from engine.sequence import Sequence
from engine.stream import Stream


class CaptureReport:
    """Says what was captured.

    Args:
        visible: what can be captured in the model.
        experts: of its layers that have any.
        residuals: keeps residual vectors for whoever asks for the lens.
    """

    def __init__(self, visible: Visible, experts: dict[int, Experts], residuals: ResidualStore, emit: Emit) -> None:
        self._experts = experts
        self.absences = Absences(visible, emit)
        self._visible = visible
        self._source_dtype = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}.get(visible.dtype, visible.dtype)
        self._residuals = residuals
        self.proof = StepProof()
        self._faults: dict[str, str] = {}
        """What was no number in the attention of requests, until the rest of the step is looked at."""
        self._emit = emit

    def attention(self, step: int, sequence: Sequence, captured: Captured) -> None:
        """Emit a frame for each captured position of the layers whose attention is here, and put it to the test."""
        rows = captured.rows
        assert rows is not None, "attention is read for the rows that a plan asks for"
        captured.read_all()
        for event in rows.events(sequence.id, step):
            self._emit(event)
        if rows.fault is not None:
            self._faults.setdefault(sequence.id, rows.fault)
        self.proof.rows(rows.errors)
        if captured.evidence is not None and rows.tested_weights is not None:
            position = captured.positions[captured.evidence.index]
            self.proof.test(captured.evidence, rows.tested_weights, sequence.id, position)

    def unused(self, sequence: Sequence) -> None:
        """A row had its pass, and its request had ended when it came."""
        self._faults.pop(sequence.id, None)

    def captured(self, step: int, sequence: Sequence, captured: Captured) -> str | None:
        """Emit a frame of each kind for each captured position.

        Returns:
            The first thing among them that is no finite number, in words; None when all are.
        """
        captures = sequence.captures
        assert captures is not None, "nothing is captured without a plan"
        if captured.rows is not None:
            self.attention(step, sequence, captured)
        fault = self._faults.pop(sequence.id, None)
        if captured.stream is not None:
            fault = self._stream(step, sequence, captured, captured.stream, captures) or fault
        if captured.experts:
            for routed in router_events(
                captured.experts, self._experts, captured.place, captured.positions, request=sequence.id, step=step
            ):
                self._emit(routed)
        seen, stream = captured.layers + captured.told, captured.stream is not None
        self.absences.unseen(sequence, seen, captured.positions[0], stream=stream)
        return fault

    def _stream(
        self, step: int, sequence: Sequence, captured: Captured, stream: Stream, captures: CaptureSchedule
    ) -> str | None:
        """Emit the residual stream of each position, and what attention wrote to it."""
        stream.read_all()
        first = captured.place.start or 0
        fault = None
        if not stream.finite:
            fault = _no_number(stream.norms["residual"][captured.place], captured.positions)
        wanted = captures.plan.wanted
        for index, position in enumerate(captured.positions):
            place = first + index
            vectors, wrote = stream.vectors("residual", place), stream.vectors("attention_out", place)
            assert vectors is not None
            self._residuals.put(sequence.id, position, Kept(vectors, wrote, captured.heads(index)))
            if captures.forms[position] != WHOLE:
                continue
            about: dict[str, Any] = {
                "request": sequence.id,
                "step": step,
                "position": position,
                "source_dtype": self._source_dtype,
            }
            if "residual" in wanted:
                data, scale = _stored(vectors, captures.dtype)
                norms = {name: of_all[place] for name, of_all in stream.listed.items()}
                self._emit(
                    Residual(
                        **about,
                        data=data,
                        scale=scale,
                        norms=norms["residual"],
                        attention_norms=norms.get("attention_out", [None] * self._visible.layers),
                        mlp_norms=norms.get("mlp_out", [None] * self._visible.layers),
                    )
                )
            if "attention_out" in wanted and wrote is not None:
                data, scale = _stored(wrote, captures.dtype)
                self._emit(AttentionOut(**about, data=data, scale=scale))
        return fault


def _stored(vectors: np.ndarray, dtype: np.dtype[Any]) -> tuple[np.ndarray, float | None]:
    """Vectors in the dtype that they are kept in, and the power of two that they were divided by to fit in it."""
    if dtype.itemsize == 4:
        return vectors.astype(dtype, copy=False), None
    largest = float(np.abs(vectors[np.isfinite(vectors)]).max(initial=0.0))
    limit = float(np.finfo(np.float16).max)
    if largest <= limit:
        return vectors.astype(dtype), None
    scale = float(2.0 ** np.ceil(np.log2(largest / limit)))
    return (vectors / np.float32(scale)).astype(dtype), scale


def _no_number(norms: np.ndarray, positions: list[int]) -> str | None:
    """The first residual that holds NaN or infinity, in words, by `[positions, layers + 1]` norms."""
    finite = np.isfinite(norms)
    if finite.all():
        return None
    faults = np.argwhere(~finite)
    index, row = faults[0]
    where = "the embedding" if row == 0 else f"the residual after layer {row - 1}"
    return f"{where} holds NaN or infinity at position {positions[index]}"
