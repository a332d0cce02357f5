"""Recomputes what a trace says about itself: what it holds is said in several places, and these must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from engine.codec import Frame, parse
from engine.events import SCHEMA_VERSION
from engine.trace.checking import Check, Checker, Continuity, Fields
from engine.trace.reader import Trace
from engine.trace.verify_blocks import BlockRefs, BlockTables
from engine.trace.verify_captures import Captures
from engine.trace.verify_readings import LastLens, Sums, Targets
from engine.trace.verify_requests import Choices, Lives, Times
from engine.trace.verify_steps import Kernels, Proofs, Steps
from engine.trace.verify_tensors import Attention, NotNumbers, Residuals
from engine.trace.verify_text import Answers, Sent
from engine.trace.verify_tokens import Candidates, Vocabulary

_MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError)
"""What comes of events whose fields are not of the types that they should have: a file may come from anybody."""


def verify(trace: Trace, *, seen: Callable[[Frame], None] | None = None) -> list[Check]:
    """Read a whole trace and check it: file, order of events, attention, residuals, what was to be captured, requests,
    tokens, text, lens, attribution, blocks, slots, steps and their times.

    `seen` is called with every frame, for showing progress. Wrong contents are failed checks, not errors.
    """
    continuity = Continuity(trace.metadata)
    checkers: list[Checker] = [
        _Order(trace),
        Attention(),
        Residuals(),
        NotNumbers(),
        Captures(continuity),
        Lives(continuity, trace.open_end),
        Answers(),
        Choices(continuity),
        Candidates(),
        Vocabulary(),
        Times(),
        Sent(continuity),
        LastLens(),
        Targets(),
        Sums(),
        BlockRefs(continuity),
        BlockTables(continuity),
        Steps(continuity),
        Kernels(continuity),
        Proofs(),
    ]
    kinds: set[str] = set()
    malformed: list[str] = []
    found: list[Check] = []
    with np.errstate(all="ignore"):  # what is no number, or too large for one, fails the check that it belongs to
        for frame in trace.frames():
            fields, array = parse(frame.payload, binary=frame.binary)
            kinds.add(frame.kind)
            continuity.see(frame)
            for checker in checkers:
                try:
                    checker.see(frame, fields, array)
                except _MALFORMED as error:
                    malformed.append(f"{frame.kind} event {frame.seq}: {type(error).__name__} {error}")
            if seen is not None:
                seen(frame)
        for checker in checkers:
            try:
                found += checker.results()
            except _MALFORMED as error:
                malformed.append(f"{type(checker).__name__}: {type(error).__name__} {error}")
    return [
        Check("file closed properly", trace.complete, _closing(trace)),
        Check("all chunks readable", not trace.damage or _only_cut(trace), "; ".join(trace.damage[:3]) or "yes"),
        Check("events well formed", not malformed, "; ".join(malformed[:3]) or f"{len(kinds)} kinds"),
        *found,
    ]


def _closing(trace: Trace) -> str:
    return "yes" if trace.complete else f"no index: cut off, or still being written ({trace.lost_bytes} bytes lost)"


def _only_cut(trace: Trace) -> bool:
    return not trace.complete and len(trace.damage) == 1


class _Order(Checker):
    """run.header first, seq and time rising, nothing missing."""

    def __init__(self, trace: Trace) -> None:
        self._partial = trace.metadata.get("slice_of") is not None or "dropped" in trace.metadata
        self._first: Frame | None = None
        self._header: Fields = {}
        self._previous: Frame | None = None
        self._disorder: list[int] = []
        self._missing = self._gaps = 0

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        before, self._previous = self._previous, frame
        if before is None:
            self._first, self._header = frame, fields
            return
        if frame.kind == "gap":
            self._gaps += 1
            return
        if frame.seq <= before.seq or (frame.t_ns < before.t_ns and before.kind != "gap"):
            self._disorder.append(frame.seq)
        if before is not self._first:  # a later part of a long run jumps from the header to its own events
            self._missing += max(0, frame.seq - before.seq - 1)

    def results(self) -> Iterator[Check]:
        version = self._header.get("schema_version")
        first = self._first.kind if self._first is not None else "nothing"
        yield Check("header first", first == "run.header", f"{first}, schema version {version}")
        if version != SCHEMA_VERSION:
            yield Check("schema known", False, f"version {version}; this Tokenwalk knows {SCHEMA_VERSION}")
        where = f"not at seq {', '.join(map(str, self._disorder[:5]))}" if self._disorder else "yes"
        yield Check("seq and time rise", not self._disorder, where)
        if self._partial and not self._gaps:
            yield Check("no events missing", None, f"{self._missing} events were left out on purpose")
        else:
            detail = f"{self._missing} missing, {self._gaps} gaps"
            yield Check("no events missing", not (self._missing or self._gaps), detail)
