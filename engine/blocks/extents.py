"""The free blocks as few unbroken stretches, as file systems keep them, rather than as a list of single ones."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple


class Extent(NamedTuple):
    """An unbroken stretch of blocks: start ≤ block < stop."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


NOTHING = Extent(0, 0)


class FreeSpace:
    """Extents of free blocks. Those that touch are merged, so an extent is always as long as it can be.

    Finding is O(log n). Taking and giving also shift a list of pairs: one `memmove` of at most 40 kB at 10,000 blocks,
    which costs less than any tree in Python would.
    """

    def __init__(self, blocks: int) -> None:
        self._by_start: dict[int, Extent] = {}
        self._by_stop: dict[int, Extent] = {}
        self._by_size: list[tuple[int, int]] = []  # (size, start), sorted
        self.give(Extent(0, blocks))

    def __bool__(self) -> bool:
        return bool(self._by_start)

    def __iter__(self) -> Iterator[Extent]:
        return iter(self._by_start.values())

    def __contains__(self, start: object) -> bool:
        """Whether an extent starts at this very block."""
        return start in self._by_start

    def size_at(self, start: int) -> int:
        """Blocks in the extent that starts at this very block; 0 when there is none."""
        return self._by_start.get(start, NOTHING).size

    @property
    def largest(self) -> int:
        """Blocks in the largest extent; 0 when nothing is free."""
        return self._by_size[-1][0] if self._by_size else 0

    def best_fit(self, size: int) -> int:
        """Where the smallest extent starts that holds `size` blocks, or else the largest there is.

        Raises:
            LookupError: when nothing is free.
        """
        if not self:
            raise LookupError("no block is free")
        place = bisect_left(self._by_size, (min(size, self.largest),))
        return self._by_size[place][1]

    def take(self, start: int, size: int) -> Extent:
        """Take up to `size` blocks from the front of the extent that starts there."""
        whole = self._remove(self._by_start[start])
        taken = Extent(start, min(whole.stop, start + size))
        if taken.stop < whole.stop:
            self._add(Extent(taken.stop, whole.stop))
        return taken

    def give(self, extent: Extent) -> None:
        """Add blocks that have become free."""
        if not extent.size:
            return
        start, stop = extent
        if before := self._by_stop.get(start):
            start = self._remove(before).start
        if after := self._by_start.get(stop):
            stop = self._remove(after).stop
        self._add(Extent(start, stop))

    @property
    def consistent(self) -> bool:
        """Whether the three views of the extents agree."""
        stops = {extent.stop: extent for extent in self}
        sizes = sorted((extent.size, extent.start) for extent in self)
        return stops == self._by_stop and sizes == self._by_size and all(size > 0 for size, _ in sizes)

    def _add(self, extent: Extent) -> None:
        self._by_start[extent.start] = self._by_stop[extent.stop] = extent
        insort(self._by_size, (extent.size, extent.start))

    def _remove(self, extent: Extent) -> Extent:
        del self._by_start[extent.start], self._by_stop[extent.stop]
        del self._by_size[bisect_left(self._by_size, (extent.size, extent.start))]
        return extent


def merged(extents: list[Extent]) -> list[Extent]:
    """The same blocks in as few extents as possible, in order."""
    result: list[Extent] = []
    for extent in sorted(extents):
        if result and extent.start <= result[-1].stop:
            result[-1] = Extent(result[-1].start, max(result[-1].stop, extent.stop))
        elif extent.size:
            result.append(extent)
    return result
