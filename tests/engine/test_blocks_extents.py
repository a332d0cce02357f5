"""Free stretches of blocks against a plain set of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.blocks.extents import Extent, FreeSpace, merged

BLOCKS = 24


def stretches(blocks: set[int]) -> list[Extent]:
    """The longest stretches of these blocks, found the slow way."""
    starts = [block for block in sorted(blocks) if block - 1 not in blocks]
    stops = [block + 1 for block in sorted(blocks) if block + 1 not in blocks]
    return [Extent(start, stop) for start, stop in zip(starts, stops, strict=True)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, BLOCKS - 1), st.integers(1, 6)), max_size=60))
def test_what_is_taken_and_given_is_what_is_there(actions: list[tuple[bool, int, int]]) -> None:
    space, free = FreeSpace(BLOCKS), set(range(BLOCKS))
    for give, block, size in actions:
        if give:
            extent = Extent(block, min(BLOCKS, block + size))
            if free.isdisjoint(range(*extent)):
                space.give(extent)
                free |= set(range(*extent))
        elif free:
            start = space.best_fit(size)
            sizes = {extent.start: extent.size for extent in stretches(free)}
            long_enough = [length for length in sizes.values() if length >= size]
            assert sizes[start] == (min(long_enough) if long_enough else max(sizes.values()))
            taken = space.take(start, size)
            assert taken == Extent(start, start + min(size, sizes[start]))
            free -= set(range(*taken))
        assert sorted(space) == stretches(free)
        assert space.largest == max((extent.size for extent in stretches(free)), default=0)
        assert bool(space) == bool(free)
        assert space.consistent


def test_of_equal_stretches_the_first_is_taken() -> None:
    space = FreeSpace(6)
    space.take(0, 6)
    for start in (4, 0, 2):
        space.give(Extent(start, start + 1))
    assert [space.best_fit(1), space.best_fit(5)] == [0, 0]


def test_looking_where_nothing_is_free_is_an_error() -> None:
    space = FreeSpace(1)
    space.take(0, 1)
    with pytest.raises(LookupError, match="no block is free"):
        space.best_fit(1)


def test_merging_joins_what_touches_or_overlaps_and_drops_what_is_empty() -> None:
    assert merged([Extent(5, 7), Extent(0, 2), Extent(2, 3), Extent(9, 9)]) == [Extent(0, 3), Extent(5, 7)]
