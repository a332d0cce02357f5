"""Holds what was captured against what was asked for: a position's arrays are there, or it is said why they are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from engine.capture import CapturePlan
from engine.codec import Frame
from engine.trace.checking import Check, Checker, Continuity, Fields, Tally

_CAPTURED = {"attention": "attention", "attention.summary": "attention"} | {
    kind: kind for kind in ("residual", "attention_out")
}
"""What a plan asks for, by the kind of frame that holds it."""

_MOST_LAYERS = 4096
"""A model with more is none: sets of layers are numbers with so many bits."""


@dataclass(frozen=True, slots=True)
class _Lack:
    """Something of a computed position that no frame held by the end of its step."""

    request: str
    what: str
    position: int
    layers: int = 0
    """Those that lack, a bit each; 0: it is not by layer, or none is there."""


@dataclass(slots=True)
class _Asked:
    """What one request asked for, and what has come of it."""

    wanted: frozenset[str]
    tokens: int = 0
    """Known so far."""
    ended: bool = False
    absent: list[Fields] = field(default_factory=list)
    attention: dict[str, dict[int, int]] = field(default_factory=dict)
    """By kind and position: the layers that are there, a bit each."""
    vectors: dict[str, set[int]] = field(default_factory=dict)
    """By kind: the positions."""

    def said(self, what: str, position: int) -> Iterator[Fields]:
        """What was said of a position: that something is not there."""
        for event in self.absent:
            at = event["positions"]
            if event["what"] == what and not event["heads"] and (at is None or at[0] <= position < at[1]):
                yield event


class Captures(Checker):
    """Each position that a step computed has its attention, of all layers, and its residual, or is said to have none.

    What is captured of a step comes before the step is said to end, so it is then that it is looked for: a file that
    breaks off in a step may lack of it what it will. What a plan does not ask for is not there either.
    """

    def __init__(self, continuity: Continuity) -> None:
        self._continuity = continuity
        self._all = 0
        self._requests: dict[str, _Asked] = {}
        self._rows: dict[int, tuple[int, list[tuple[str, int, int]]]] = {}
        """Of the steps under way: how many rows each has, and those of known requests."""
        self._chose: set[tuple[int, str]] = set()
        self._lacks: list[_Lack] = []
        self._writes = False
        """Whether it is known of this model what its attention writes."""
        self._tally = Tally("captured, or said to be absent")

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.kind == "run.header":
            self._all = _bits(range(_checked(fields["model"].get("layers", 0))))
        elif frame.kind == "step.started":
            rows = [(row["request"], row["from"], row["to"]) for row in fields["rows"]]
            self._rows[fields["step"]] = len(rows), [row for row in rows if row[0] in self._requests]
        elif frame.kind == "step.finished":
            self._finished(fields["step"], fields["unused_rows"])
        elif frame.kind == "request.arrived" and frame.request is not None:
            plan = fields["capture"]
            tensors = plan.get("tensors")
            asked = CapturePlan(level=plan["level"], tensors=None if tensors is None else tuple(tensors))
            self._requests[frame.request] = _Asked(asked.wanted)
        elif frame.request in self._requests:
            self._of_request(self._requests[frame.request], frame, fields, array)

    def _of_request(self, asked: _Asked, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.kind == "request.tokenized":
            asked.tokens = len(fields["tokens"])
        elif frame.kind == "token":
            asked.tokens += 1
            self._chose.add((fields["step"], str(frame.request)))
        elif frame.kind == "request.finished":
            asked.ended = True
        elif frame.kind == "absent":
            asked.absent.append(fields)
        elif frame.kind in _CAPTURED and array is not None:
            self._captured(asked, frame, fields, array)

    def _captured(self, asked: _Asked, frame: Frame, fields: Fields, array: np.ndarray) -> None:
        kind, position = frame.kind, fields["position"]
        where = f"{kind} of {frame.request} position {position}"
        self._tally.expect(_CAPTURED[kind] in asked.wanted, f"{where} is here, and its plan does not ask for it")
        if _CAPTURED[kind] != "attention":
            seen = asked.vectors.setdefault(kind, set())
            self._tally.expect(position not in seen, f"{where} comes a second time")
            seen.add(position)
            self._writes |= kind == "attention_out"
            return
        first = fields.get("layer", 0)
        layers = _bits(fields["layers"] or range(first, _checked(first + array.shape[0])))
        of_kind = asked.attention.setdefault(kind, {})
        known = of_kind.get(position, 0)
        self._tally.expect(not known & layers, f"{where} comes a second time for {_named(known & layers)}")
        of_kind[position] = known | layers

    def _finished(self, step: int, unused: int) -> None:
        """What a step captured has come by now."""
        count, rows = self._rows.pop(step, (0, []))
        for request, start, stop in rows if unused < count else []:
            asked = self._requests[request]
            if asked.ended and (step, request) not in self._chose:
                continue  # nobody needed the row's result: its request had ended when it came, or ended with an error
            for position in range(max(0, start), min(stop, asked.tokens)):
                for lack in _lacking(asked, request, position, self._all):
                    self._lacks.append(lack)
                self._tally.checked += bool(asked.wanted)
        self._chose = {(chosen, request) for chosen, request in self._chose if chosen > step}

    def results(self) -> Iterator[Check]:
        lacks = [lack for lack in self._lacks if lack.what != "attention_out" or self._writes]
        # A copy that leaves a kind out says so at its end, of the whole request.
        lacks = [lack for lack in lacks if not _left_out(self._requests[lack.request], lack.what)]
        lacks.sort(key=lambda lack: (lack.request, lack.what, lack.layers, lack.position))
        for (request, what, layers), group in groupby(lacks, key=lambda lack: (lack.request, lack.what, lack.layers)):
            positions = [lack.position for lack in group]
            several = f" and {len(positions) - 1} more" if len(positions) > 1 else ""
            of = f", of {_named(layers)}" if layers else ""
            self._tally.expect(False, f"{what} of {request} position {positions[0]}{several}{of} is missing unsaid")
        held = 0
        for asked in self._requests.values():
            held += sum(len(of_kind) for of_kind in (*asked.attention.values(), *asked.vectors.values()))
        detail = f"{held} arrays of positions" if self._tally.checked else "nothing was to be captured"
        yield self._tally.check(detail, unknown=self._continuity.own_unknown)


def _lacking(asked: _Asked, request: str, position: int, all_layers: int) -> Iterator[_Lack]:
    for what in ("residual", "attention_out"):
        if what in asked.wanted and position not in asked.vectors.get(what, ()):
            # Of what attention writes nothing is said of its own: it goes with the residual.
            said = "residual" if what == "attention_out" and "residual" in asked.wanted else what
            if not any(event["layers"] is None for event in asked.said(said, position)):
                yield _Lack(request, what, position)
    if "attention" not in asked.wanted:
        return
    said_layers, kind = 0, "attention"
    for event in asked.said("attention", position):
        if event["layers"] is not None:
            said_layers |= _bits(event["layers"])
        elif event.get("instead") is None:
            return
        else:
            kind = event["instead"]
    here = asked.attention.get(kind, {}).get(position, 0)
    missing = all_layers & ~said_layers & ~here
    if missing or (not here and not all_layers):
        yield _Lack(request, kind, position, missing if here else 0)


def _left_out(asked: _Asked, what: str) -> bool:
    return any(
        event["what"] == what and event["positions"] is None and event["layers"] is None and event["heads"] is None
        for event in asked.absent
    )


def _checked(layers: int) -> int:
    if not 0 <= layers <= _MOST_LAYERS:
        raise ValueError(f"{layers} layers")
    return layers


def _bits(layers: list[int] | range) -> int:
    """A set of layers, a bit each."""
    bits = 0
    for layer in layers:
        bits |= 1 << _checked(layer)
    return bits


def _named(layers: int) -> str:
    numbers = [str(layer) for layer in range(layers.bit_length()) if layers >> layer & 1]
    return f"layer{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
