"""Follows each request from its arrival to its end: once each, in order, with counts and times that add up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.codec import Frame
from engine.trace.checking import Check, Checker, Continuity, Fields, Tally

_OF_ONE_REQUEST = frozenset(
    {"request.tokenized", "request.scheduled", "request.preempted", "request.finished", "token"}
    | {"slot.assigned", "slot.released"}
)
"""What a request has between its arrival and its end. (What was captured of its last pass, or is read, comes later.)"""


@dataclass(slots=True)
class _Life:
    """What a request has been through."""

    tokenized: bool = False
    slot: int | None = None
    let_go: bool = False
    """It gave its slot back, and why is still to be said."""
    finished: Fields | None = None


class Lives(Checker):
    """Each request that arrives is tokenized once and ends once; nothing of it runs before or after.

    A slot is given back when its request ends or gives way, and which of the two is said at once.
    """

    def __init__(self, continuity: Continuity, open_end: str | None) -> None:
        self._continuity = continuity
        self._open_end = open_end
        self._lives: dict[str, _Life] = {}
        self._tally = Tally("requests end once")

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.kind == "step.started":
            for row in fields["rows"]:
                life = self._lives.get(row["request"])
                ended = life is not None and life.finished is not None
                self._tally.expect(not ended, f"step {frame.step} runs {row['request']}, which has ended")
        elif frame.request is None:
            return
        elif frame.kind == "request.arrived":
            self._tally.expect(frame.request not in self._lives, f"{frame.request} arrives a second time")
            self._lives[frame.request] = _Life()
        elif frame.kind in _OF_ONE_REQUEST:
            self._happens(frame, fields, frame.request)

    def _happens(self, frame: Frame, fields: Fields, request: str) -> None:
        life = self._lives.get(request)
        what = f"event {frame.seq}: {frame.kind} of {request}"
        self._tally.expect(life is not None, f"{what}, which never arrived")
        if life is None:
            return
        self._tally.expect(life.finished is None, f"{what}, which has ended")
        self._tally.expect(
            life.tokenized == (frame.kind != "request.tokenized"),
            f"{what}, which {'was tokenized already' if life.tokenized else 'was not tokenized'}",
        )
        explains = frame.kind in ("request.finished", "request.preempted")
        self._tally.expect(explains or not life.let_go, f"{what}, which has given its slot back and not said why")
        life.let_go = frame.kind == "slot.released"
        if frame.kind == "request.tokenized":
            life.tokenized = True
        elif frame.kind == "slot.assigned":
            life.slot = fields["slot"]
        elif frame.kind == "slot.released":
            life.slot = None
        elif explains:
            kept = life.slot is not None and fields.get("reason") != "error"  # the engine may have broken down
            self._tally.expect(not kept, f"{what}, which still holds slot {life.slot}")
        if frame.kind == "request.finished":
            life.finished = fields

    def results(self) -> Iterator[Check]:
        running = [request for request, life in self._lives.items() if life.finished is None]
        if self._open_end is None:
            for request in running:
                self._tally.expect(False, f"{request} arrived, and how it ended is not said")
        ended = len(self._lives) - len(running)
        detail = f"{ended} requests" + (f", and {len(running)} open: {self._open_end}" if running else "")
        yield self._tally.check(detail if self._lives else "none arrived", unknown=self._continuity.own_unknown)


class Choices(Checker):
    """Each row of a step that reached the end of what was known of its request chose the next token."""

    def __init__(self, continuity: Continuity) -> None:
        self._continuity = continuity
        self._known: dict[str, int] = {}
        """How many tokens of each request there are so far."""
        self._ended: dict[str, str] = {}
        """Why each of those that have ended did."""
        self._steps: dict[int, list[Fields]] = {}
        self._chose: set[tuple[int, str]] = set()
        self._tally = Tally("steps choose their tokens")

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        request = frame.request
        if frame.kind == "step.started":
            self._steps[fields["step"]] = fields["rows"]
        elif frame.kind == "step.finished":
            self._finished(fields)
        elif request is None:
            return
        elif frame.kind == "request.tokenized":
            self._known[request] = len(fields["tokens"])
        elif frame.kind == "request.finished":
            self._ended[request] = fields["reason"]
        elif frame.kind == "token" and request in self._known:
            self._chose.add((fields["step"], request))
            self._known[request] += 1

    def _finished(self, fields: Fields) -> None:
        step = fields["step"]
        rows = self._steps.pop(step, None)
        if rows is None:
            return
        gone: list[str] = []  # whose rows nobody needed, or ended with an error in this very step
        for row in rows:
            request = row["request"]
            if request in self._ended:
                gone += [] if (step, request) in self._chose else [request]
            elif request in self._known:
                left = row["to"] == self._known[request]
                self._tally.expect(not left, f"step {step} chose no token for {request} position {row['to']}")
        unused, errors = fields["unused_rows"], sum(self._ended[request] == "error" for request in gone)
        if all(row["request"] in self._known for row in rows):
            right = len(gone) - errors <= unused <= len(gone)
            self._tally.expect(right, f"step {step} says {unused} unused rows, and {len(gone)} of its requests ended")
        self._chose = {(chosen, request) for chosen, request in self._chose if chosen > step}

    def results(self) -> Iterator[Check]:
        yield self._tally.check(f"{self._tally.checked} rows and steps", unknown=self._continuity.own_unknown)


class Times(Checker):
    """What a request's end says of its time is what its phases add up to."""

    def __init__(self) -> None:
        self._waited: dict[str, int] = {}
        self._arrived: dict[str, int] = {}
        self._tally = Tally("request times add up")

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.kind == "request.arrived" and frame.request is not None:
            self._arrived[frame.request] = frame.t_ns
        elif frame.kind == "request.scheduled" and frame.request is not None:
            self._waited.setdefault(frame.request, fields["waited_ns"])
        elif frame.kind == "request.finished" and frame.request in self._arrived:
            self._finished(frame.request, fields["timings"])

    def _finished(self, request: str, timings: Fields) -> None:
        names = ("queue_ns", "prefill_ns", "decode_ns", "total_ns", "ttft_ns")
        queue, prefill, decode, total, first = (timings.get(name) for name in names)
        if queue is not None and request in self._waited:
            waited = self._waited[request]
            self._tally.expect(queue == waited, f"{request} waited {waited} ns, and is said to have waited {queue}")
        if queue is not None and prefill is not None and first is not None:
            self._tally.expect(
                queue + prefill == first, f"{request}: {queue} + {prefill} ns are not {first} to a token"
            )
        if queue is not None and prefill is not None and decode is not None and total is not None:
            parts = f"{queue} + {prefill} + {decode}"
            self._tally.expect(queue + prefill + decode == total, f"{request}: {parts} ns are not {total}")

    def results(self) -> Iterator[Check]:
        yield self._tally.check(f"{self._tally.checked} sums" if self._tally.checked else "no request says")
