"""The requests of a run: those under way, the latest that have ended, and of earlier ones that they were there."""

from __future__ import annotations

import threading
from collections import OrderedDict

from engine.sequence import Sequence

REMEMBERED = 200
"""Requests that are still listed when they have ended."""

KNOWN_OF = 10_000
"""Requests, no longer listed, of which it is still known that they were there, and how many tokens they had."""


class Remembered:
    """Written by whoever submits a request, read by all: every method may be called from any thread."""

    def __init__(self) -> None:
        self._sequences: OrderedDict[str, Sequence] = OrderedDict()
        self._known_of: OrderedDict[str, int] = OrderedDict()
        self._closed = False
        self._lock = threading.Lock()

    @property
    def closed(self) -> bool:
        """Whether the engine that runs them has ended."""
        return self._closed

    def add(self, sequence: Sequence) -> bool:
        """Remember a request, and forget what is too old. False when the engine has ended and will not run it."""
        with self._lock:
            self._sequences[sequence.id] = sequence
            while len(self._sequences) > REMEMBERED and next(iter(self._sequences.values())).finished:
                forgotten, its = self._sequences.popitem(last=False)
                self._known_of[forgotten] = len(its.tokens)
            while len(self._known_of) > KNOWN_OF:
                self._known_of.popitem(last=False)
            return not self._closed

    def close(self) -> list[Sequence]:
        """The engine ends: those that have not are returned, and no others are taken."""
        with self._lock:
            self._closed = True
            return [sequence for sequence in self._sequences.values() if not sequence.finished]

    def find(self, request_id: str) -> Sequence | None:
        """A request, unless it has been forgotten or never was."""
        with self._lock:
            return self._sequences.get(request_id)

    def tokens_of(self, request_id: str) -> int | None:
        """How many tokens a request has or had; None when nothing is known of it."""
        sequence = self.find(request_id)
        return self._known_of.get(request_id) if sequence is None else len(sequence.tokens)

    def newest_first(self) -> list[Sequence]:
        """All that are remembered."""
        with self._lock:
            return list(reversed(self._sequences.values()))
