"""What the block pool says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict


class BlockState(TypedDict):
    """One block as `GET /v1/cache` shows it."""

    block: int
    state: Literal["free", "cached", "held"]
    refs: int
    """How many requests hold it."""
    holders: list[str]
    """Their ids, in the order in which they came to hold it."""
    logical: int | None
    """Its index in their block tables."""
    positions: list[int] | None
    """[from, to) token positions that it is for."""
    prefix_hash: str | None
    """Hash chained over all tokens up to its end; None when it cannot be found by its content."""
    parent_hash: str | None
    """`prefix_hash` of the block before; None for the first."""
    last_use_ns: int | None
    """When it last changed hands or was stored, on the run's clock; None when free."""


def blank(block: int) -> BlockState:
    """A free block."""
    return BlockState(
        block=block,
        state="free",
        refs=0,
        holders=[],
        logical=None,
        positions=None,
        prefix_hash=None,
        parent_hash=None,
        last_use_ns=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """How broken up the pool is."""

    free: int
    """Free blocks, those kept for a request's next ones included."""
    extents: int
    """Unbroken stretches of them."""
    largest: int
    """Blocks in the largest stretch."""
    tables: int
    """Requests that hold blocks."""
    runs: int
    """Unbroken runs of all their tables together; equal to `tables` at best."""
    most_runs: int
    """Runs of the table that is broken up most."""

    @property
    def external(self) -> float:
        """Share of the free blocks that are outside the largest stretch."""
        return 1 - self.largest / self.free if self.free else 0.0


@dataclass(frozen=True, slots=True)
class Copy:
    """All slots of block `source` must be copied to block `target`, before anything more is written."""

    source: int
    target: int
