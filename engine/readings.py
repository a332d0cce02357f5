"""What is read from kept residuals when somebody looks: the logit lens, and direct logit attribution."""

from __future__ import annotations

from typing import Literal, get_args

from engine.attribution import Readout, attribution_or_why
from engine.capture_schedule import SUMMARISED, UNWANTED, WHOLE
from engine.events import Absent, AbsentReason, Attribution, Lens
from engine.lens import Label, lens_event
from engine.prepare import Emit
from engine.residuals import KEPT_BYTES, Kept, ResidualStore
from engine.sequence import Sequence
from engine.taps import Taps

Reading = Literal["lens", "attribution"]
READINGS = frozenset(get_args(Reading))


class Readings:
    """Reads one model's residuals, on the thread of its taps.

    Args:
        taps: in the model.
        label: writes a token id for display.
        residuals: what recent passes left.
        emit: where events go.
    """

    def __init__(self, taps: Taps, label: Label, residuals: ResidualStore, emit: Emit) -> None:
        self._taps, self._label, self._residuals, self._emit = taps, label, residuals, emit
        self._readout = Readout(taps)

    def waits(self, sequence: Sequence, position: int) -> bool:
        """Whether a position's pass is still to come: who asks for it early, as a page does, gets it then."""
        return (
            not sequence.finished and position >= sequence.stored and self._residuals.get(sequence.id, position) is None
        )

    def lens(self, sequence: Sequence, position: int) -> Lens | Absent:
        """Emit the logit lens of a position, or say why there is none. Returns what was emitted."""
        if not self._taps.lens_possible:
            detail = "after its last layer this model does more than a lens can repeat from the residual alone"
            return self._absent("lens", sequence, "unsupported", detail)
        kept = self._kept("lens", sequence, position)
        if isinstance(kept, Absent):
            return kept
        event = lens_event(
            self._taps,
            self._label,
            kept.residual,
            request=sequence.id,
            position=position,
            target=_next(sequence, position),
            how="live",
        )
        self._emit(event)
        return event

    def attribution(self, sequence: Sequence, position: int, *, heads: bool = False) -> Attribution | Absent:
        """Emit what each part of the model added to the logit of the token that came next, or say why not.

        Args:
            heads: whether attention's parts are to be split by head as well.
        """
        if self._readout.unsupported is not None:
            return self._absent("attribution", sequence, "unsupported", self._readout.unsupported)
        kept = self._kept("attribution", sequence, position)
        if isinstance(kept, Absent):
            return kept
        target = _next(sequence, position)
        if target is None:
            detail = "no token came after this position, so there is no logit to split"
            return self._absent("attribution", sequence, "not_captured", detail, position)
        event = attribution_or_why(
            self._readout, kept, request=sequence.id, position=position, target=target, how="live", heads=heads
        )
        self._emit(event)
        return event

    def all_of(self, sequence: Sequence, positions: list[int]) -> None:
        """Read what the plan asks for of positions at once; what this model has not is said once a request."""
        for what, read in (("lens", self.lens), ("attribution", self.attribution)):
            if what not in sequence.plan.wanted:
                continue
            possible = self._taps.lens_possible if what == "lens" else self._readout.unsupported is None
            if possible:
                for position in positions:
                    if _next(sequence, position) is not None:
                        read(sequence, position)
            elif what not in sequence.said_unreadable:
                sequence.said_unreadable.add(what)
                read(sequence, positions[0])

    def _kept(self, what: Reading, sequence: Sequence, position: int) -> Kept | Absent:
        kept = self._residuals.get(sequence.id, position)
        if kept is not None:
            return kept
        return self._absent(what, sequence, "not_captured", _why_not_kept(sequence, position), position)

    def _absent(
        self, what: Reading, sequence: Sequence, reason: AbsentReason, detail: str, position: int | None = None
    ) -> Absent:
        at = None if position is None else [position, position + 1]
        absent = Absent(what=what, reason=reason, request=sequence.id, positions=at, detail=detail)
        self._emit(absent)
        return absent


def _why_not_kept(sequence: Sequence, position: int) -> str:
    captures = sequence.captures
    form = UNWANTED if captures is None or position >= sequence.captured_until else captures.forms[position]
    if form not in (WHOLE, SUMMARISED) or sequence.plan.wanted <= {"attention"}:
        return "the residual that it is read from was not captured"
    kept = f"the residual that it is read from is no longer in memory, where the newest {KEPT_BYTES >> 20} MiB are kept"
    recorded = form == WHOLE and "residual" in sequence.plan.wanted
    return f"{kept}; `tokenwalk trace bake FILE` reads it from a recording" if recorded else kept


def _next(sequence: Sequence, position: int) -> int | None:
    """The token that came after a position."""
    return sequence.tokens[position + 1] if position + 1 < len(sequence.tokens) else None
