"""What the scheduler asks before it lets a request go on: is there memory for it?

The block manager answers for the paged store. For stores without blocks the answer is always yes.
"""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from typing import Protocol

from engine.blocks import Copy


class Memory(Protocol):
    """KV memory, as far as the scheduler is concerned. Requests are named by their ids."""

    def match_prefix(self, tokens: Tokens[int]) -> int:
        """How many leading tokens are there already, to be found by whoever begins alike."""

    def whole_blocks(self, tokens: int) -> int:
        """The largest number of tokens ≤ `tokens` that can be found by others: what fills whole blocks."""

    def can_open(self, tokens: Tokens[int], *, spare: int = 0) -> bool:
        """Whether these tokens can be held now, leaving `spare` blocks for those who run."""

    def open(self, request: str, tokens: Tokens[int], expected_tokens: int = 0) -> int:
        """Begin to hold a request; returns how many leading tokens were found in the prefix cache."""

    def fork(self, parent: str, child: str, length: int, expected_tokens: int = 0) -> int:
        """Let `child` share what `parent` holds of positions < length; returns how many it shares."""

    def can_grow(self, request: str, length: int) -> bool:
        """Whether positions < length can be made writable."""

    def grow(self, request: str, length: int) -> list[Copy]:
        """Make positions < length writable."""

    def most(self, request: str, length: int) -> int:
        """The largest length ≤ `length` that the request can grow to."""

    def runs(self, request: str, length: int) -> list[tuple[int, int]]:
        """Slots of positions < length, as unbroken runs."""

    def limit(self, request: str, beyond: int) -> int:
        """The slot behind its last run from which on another request may write in the next step, or at which the memory
        ends; found by looking no further than `beyond` slots."""

    def unheld(self) -> list[tuple[int, int]]:
        """Slots that hold no request's position, as unbroken runs."""

    def computed_by(self, request: str, length: int) -> list[tuple[str, int, int]]:
        """Whose passes wrote what it found of positions < length: request, from, to; what nobody knows is missing."""

    def stored(self, request: str, tokens: Tokens[int], computed: int) -> None:
        """Positions < computed hold the KV of these tokens."""

    def close(self, request: str, *, keep: bool = True) -> None:
        """Give everything back; `keep` leaves whole blocks in the prefix cache."""


class Unlimited:
    """Memory that nobody counts, for stores without blocks."""

    def match_prefix(self, tokens: Tokens[int]) -> int:
        return 0

    def whole_blocks(self, tokens: int) -> int:
        return 0

    def can_open(self, tokens: Tokens[int], *, spare: int = 0) -> bool:
        return True

    def open(self, request: str, tokens: Tokens[int], expected_tokens: int = 0) -> int:
        return 0

    def fork(self, parent: str, child: str, length: int, expected_tokens: int = 0) -> int:
        """Nothing is shared: the child computes everything again."""
        return 0

    def can_grow(self, request: str, length: int) -> bool:
        return True

    def grow(self, request: str, length: int) -> list[Copy]:
        return []

    def most(self, request: str, length: int) -> int:
        return length

    def runs(self, request: str, length: int) -> list[tuple[int, int]]:
        return []

    def limit(self, request: str, beyond: int) -> int:
        return 0

    def unheld(self) -> list[tuple[int, int]]:
        return []

    def computed_by(self, request: str, length: int) -> list[tuple[str, int, int]]:
        return []

    def stored(self, request: str, tokens: Tokens[int], computed: int) -> None:
        """Nothing is shared, so nothing is remembered."""

    def close(self, request: str, *, keep: bool = True) -> None:
        """There is nothing to give back."""
