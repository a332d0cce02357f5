"""Says what is not captured of a request, and why: a hole must never be taken for a zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.capture_schedule import KEPT_WEIGHTS, LEFT_OUT, SUMMARISED, UNWANTED, CaptureSchedule, Visible, runs
from engine.events import Absent
from engine.prepare import Emit
from engine.sequence import Sequence

WHAT = ("attention", "residual")
"""What is said to be absent. (Readings are made when somebody asks, or say so then.)"""


class Absences:
    """Emits `absent` events.

    Args:
        visible: what can be captured in the model.
    """

    def __init__(self, visible: Visible, emit: Emit) -> None:
        self._visible = visible
        self._emit = emit

    def not_captured(self, sequence: Sequence) -> None:
        """What the request's plan does not ask for, said when it starts."""
        captures, plan = sequence.captures, sequence.plan
        for what in WHAT:
            if captures is None or what not in plan.wanted:
                detail = f"capture level {plan.level}" if plan.tensors is None else "the capture plan leaves it out"
                self._emit(Absent(what=what, reason="not_captured", request=sequence.id, detail=detail))
                continue
            gaps = runs(np.flatnonzero(captures.forms[captures.first :] == UNWANTED) + captures.first)
            for gap in gaps if plan.positions is not None else []:
                detail = "the capture plan leaves these positions out"
                self._emit(Absent(what=what, reason="not_captured", request=sequence.id, positions=gap, detail=detail))
        if captures is not None and "attention" in plan.wanted:
            self._parts(sequence, captures)

    def prefix_cached(self, sequence: Sequence, computed_by: list[tuple[str, int, int]]) -> None:
        """The first positions were found in the prefix cache: they had no pass of their own here.

        Args:
            computed_by: whose passes they had: request, from, to.
        """
        if not sequence.plan.arrays:
            return
        at = [sequence.captured_until, sequence.cached]
        names = dict.fromkeys(request for request, _, _ in computed_by)
        about: dict[str, Any] = {"reason": "prefix_cached", "request": sequence.id, "positions": at}
        about["detail"] = f"computed by {', '.join(names)}" if names else None
        about["computed_by"] = [{"request": request, "positions": [first, end]} for request, first, end in computed_by]
        for what in WHAT:
            self._emit(Absent(what=what, **about))

    def over_budget(self, sequence: Sequence, start: int, stop: int) -> None:
        """Say it of the prompt and of the answer once, when the first position that the budget does not hold is run.

        Args:
            start, stop: positions that are about to be run.
        """
        captures = sequence.captures
        if captures is None or captures.within_budget:
            return
        border = captures.prompt_tokens - 1
        for part, first, end in (("prompt", 0, border), ("answer", border, captures.stop)):
            if part in sequence.said_over_budget:
                continue
            seen = captures.forms[max(start, first) : max(0, min(stop, end))]
            if not ((seen == SUMMARISED) | (seen == LEFT_OUT)).any():
                continue
            sequence.said_over_budget.add(part)
            for form in (SUMMARISED, LEFT_OUT):
                for first_position, end_position in runs(np.flatnonzero(captures.forms[first:end] == form) + first):
                    self._over_budget(sequence, captures, form, [first_position, end_position])

    def unseen(self, sequence: Sequence, layers: list[int], position: int, *, stream: bool) -> None:
        """Say once what cannot be seen in this model: the attention of some layers, the residual stream.

        Args:
            layers: whose attention a pass left.
            position: its first; where a layer is lost that was seen before, it is from here on.
        """
        captures, wanted = sequence.captures, sequence.plan.wanted
        if captures is None:
            return
        if not stream and wanted - {"attention"} and not sequence.said_streamless:
            sequence.said_streamless = True
            detail = "the layers of this model do not hand on one vector for each token"
            self._emit(Absent(what="residual", reason="unsupported", request=sequence.id, detail=detail))
        if len(layers) == self._visible.layers and sequence.said_unseen is not None:
            return
        asked = sequence.plan.layers_of(self._visible.layers) if "attention" in wanted else []
        at = None if sequence.said_unseen is None else [position, captures.stop]
        said = sequence.said_unseen or set()
        unseen = sorted(set(asked) - set(layers) - said)
        sequence.said_unseen = said.union(unseen)
        if unseen:
            detail = "these layers do not attend through a kernel that can be watched, or keep their keys out of order"
            about: dict[str, Any] = {"what": "attention", "reason": "unsupported", "request": sequence.id}
            self._emit(Absent(**about, positions=at, layers=unseen, detail=detail))

    def _parts(self, sequence: Sequence, captures: CaptureSchedule) -> None:
        """The layers and heads whose attention the plan leaves out."""
        layers = sorted(set(range(self._visible.layers)) - set(captures.plan.layers_of(self._visible.layers)))
        heads = sorted(set(range(self._visible.heads)) - set(captures.heads))
        about: dict[str, Any] = {"what": "attention", "reason": "not_captured", "request": sequence.id}
        if layers:
            self._emit(Absent(**about, layers=layers, detail="the capture plan leaves these layers out"))
        if heads:
            self._emit(Absent(**about, heads=heads, detail="the capture plan leaves these heads out"))

    def _over_budget(self, sequence: Sequence, captures: CaptureSchedule, form: int, positions: list[int]) -> None:
        numbers = (
            f"the plan needs {captures.needed_bytes:,} bytes and the budget is {captures.plan.budget_bytes:,}, of "
            f"which {captures.bytes:,} are used"
        )
        for what in WHAT:
            if what not in captures.plan.wanted:
                continue
            kept = form == SUMMARISED and what == "attention"
            became = f"summarised: of each row its {KEPT_WEIGHTS} largest weights; " if kept else ""
            self._emit(
                Absent(
                    what=what,
                    reason="over_budget",
                    request=sequence.id,
                    positions=positions,
                    detail=f"{became}{numbers}",
                    instead="attention.summary" if kept else None,
                )
            )
