"""What the checks of `trace verify` have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.codec import Frame

Fields = dict[str, Any]

SHOWN = 3
"""How many failures a check's line names; it counts all."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked. `ok` is None where the trace holds nothing to check, or lacks what it takes."""

    name: str
    ok: bool | None
    detail: str


class Checker:
    """Sees every frame once, then says what it found."""

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        raise NotImplementedError

    def results(self) -> Iterator[Check]:
        raise NotImplementedError


@dataclass(slots=True)
class Tally:
    """How often one thing was checked, and where it did not hold."""

    name: str
    checked: int = 0
    failed: list[str] = field(default_factory=list)

    def expect(self, holds: bool, otherwise: str) -> None:
        """Count one look; `otherwise` says what was wrong, if it was."""
        self.checked += 1
        if not holds:
            self.failed.append(otherwise)

    def check(self, detail: str, *, unknown: str | None = None) -> Check:
        """The line for it.

        Args:
            detail: what was checked.
            unknown: why it could not be, if so.
        """
        if unknown is not None:
            return Check(self.name, None, f"not checked: {unknown}")
        failed = f"; {'; '.join(self.failed[:SHOWN])}" if self.failed else ""
        more = f" ({len(self.failed)} in all)" if len(self.failed) > SHOWN else ""
        return Check(self.name, not self.failed if self.checked else None, detail + failed + more)


class Continuity:
    """Whether bookkeeping can be followed: whether the events from the run's start on are all here."""

    def __init__(self, metadata: dict[str, str]) -> None:
        self._slice = metadata.get("slice_of")
        self._dropped = "dropped" in metadata  # of these, only tensors can have been
        self._header_seq: int | None = None
        self._previous: int | None = None
        self._missing = self._gaps = 0
        self._late = False

    def see(self, frame: Frame) -> None:
        """Take in the next frame."""
        if self._header_seq is None:
            self._header_seq = frame.seq
        elif frame.kind == "gap":
            self._gaps += 1
        elif self._previous is None:
            self._late = frame.seq != self._header_seq + 1
        else:
            self._missing += max(0, frame.seq - self._previous - 1)
        if frame.seq != self._header_seq:
            self._previous = frame.seq

    @property
    def own_unknown(self) -> str | None:
        """Why not even what touched one request can be followed; None when it can."""
        if self._gaps:
            return f"{self._gaps} gaps"
        if self._late and self._slice is None:
            return "this is a later part of a run"
        if self._missing and not self._dropped and self._slice is None:
            return f"{self._missing} events are missing"
        return None

    @property
    def unknown(self) -> str | None:
        """Why what touched several requests cannot be followed; None when it can."""
        return self.own_unknown or ("a slice holds what touched its request alone" if self._slice else None)
