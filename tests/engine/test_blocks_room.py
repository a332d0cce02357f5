"""What the block pool promises about space: which block comes next, and which one has to go."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import mean

import pytest

from engine.blocks import NoBlocks
from engine.events import BlockEvicted, BlockStored
from tests.engine.blocks_world import World, count

# --- one block after the other ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [20, 0], ids=["told", "untold"])
def test_eight_requests_that_grow_in_turn_stay_in_one_or_two_runs_each(expected: int) -> None:
    world = World(64)
    names = [f"r{i}" for i in range(8)]
    for i, name in enumerate(names):
        world.open(name, count(100 * i, 6), expected)
    for length in range(1, 21):
        for name in names:
            world.run(name, length)
            world.settle()
    runs = [len(world.pool.runs(name, 20)) for name in names]
    assert max(runs) <= (1 if expected else 2)


def test_requests_that_all_expect_more_than_there_is_share_the_room_by_halves() -> None:
    world = World(64)
    names = [f"r{i}" for i in range(8)]
    for i, name in enumerate(names):
        world.open(name, count(100 * i, 4), 100_000)
    for length in range(4, 29, 4):
        for name in names:
            world.run(name, length)
    assert [len(world.pool.runs(name, 28)) for name in names] == [1] * 8
    world.settle()


def test_what_is_kept_for_one_request_goes_to_another_when_nothing_else_is_free() -> None:
    world = World(8)
    world.open("greedy", count(0, 4), 32)
    world.run("greedy", 4)
    world.open("other", count(50, 4), 4)
    world.run("other", 28)
    assert world.pool.available == 0
    world.settle()


def test_a_request_takes_the_smallest_stretch_that_is_long_enough_where_none_is_behind_the_newest() -> None:
    world = World(13)
    for name, size in (("a", 12), ("b", 4), ("c", 8), ("d", 4), ("e", 16), ("f", 8)):
        world.open(name, count(ord(name) * 100, size), size)
        world.run(name, size, store=False)
    for name in "ace":
        world.close(name)  # free: 0–2, 4–5 and 7–10, and f has the last two
    world.open("g", count(0, 8), 8)
    world.run("g", 8)
    assert list(world.pool.table("g")) == [4, 5]
    world.open("h", count(50, 16), 16)
    world.run("h", 16)
    assert list(world.pool.table("h")) == [7, 8, 9, 10]


def test_who_begins_goes_behind_who_began_last_also_where_another_stretch_fits_better() -> None:
    world = World(16)
    for name in "abc":
        world.open(name, count(ord(name) * 100, 4), 8)
        world.run(name, 4)
    world.close("a", keep=False)  # free: 0 and 1, just what the next one looks for, and 6–15
    world.open("d", count(0, 8), 8)
    world.run("d", 8)
    assert list(world.pool.table("d")) == [6, 7]


@pytest.mark.parametrize("before", [5, 7])
def test_requests_that_come_together_when_all_others_have_ended_lie_evenly_apart(before: int) -> None:
    """In the smallest stretch that holds the first of them the last ones might find no room."""
    world, names = World(44), [f"r{i}" for i in range(4)]
    world.answer("kept", count(0, 4 * before))  # which stays cached, and divides the pool
    world.open("gone", count(1000, 60), 60)
    world.run("gone", 60, store=False)
    world.answer("kept, too", count(2000, 4))
    world.close("gone")
    for i, name in enumerate(names):
        world.open(name, count(3000 + 100 * i, 4), 17)
        world.run(name, 4)
    starts = [world.pool.runs(name, 4)[0][0] for name in names]
    assert [after - start for start, after in pairwise(starts)] == [20, 20, 20]


def test_a_request_goes_on_right_behind_its_last_block_where_it_can_though_another_stretch_fits_better() -> None:
    world = World(16)
    for name, size in (("a", 4), ("b", 16), ("c", 12), ("d", 8)):
        world.open(name, count(ord(name) * 100, size), size)
        world.run(name, size, store=False)
    world.close("b")  # free: 1–4 behind a
    world.close("d")  # and 8–15
    world.open("e", count(0, 32), 32)
    world.run("e", 32, store=False)  # which takes those
    world.truncate("e", 24)  # free: 14 and 15, just what a looks for
    world.run("a", 5)
    assert list(world.pool.table("a")) == [0, 1]


def test_runs_are_the_slots_of_the_positions_merged_where_blocks_follow_each_other() -> None:
    world = World(6)
    world.open("a", count(0, 4), 4)
    world.run("a", 4)
    world.open("b", count(50, 4), 4)
    world.run("b", 4)
    world.run("a", 10)
    assert list(world.pool.table("a")) == [0, 2, 3]
    assert world.pool.runs("a", 10) == [(0, 4), (8, 14)]
    assert world.pool.runs("a", 4) == [(0, 4)]
    assert world.pool.runs("a", 3) == [(0, 3)]
    assert world.pool.runs("a", 0) == []


def test_a_pool_full_of_cached_blocks_still_hands_them_out_in_runs() -> None:
    """A free list that evicts one block at a time, as others have it, leaves 14 runs a request here."""
    world, rng = World(120, block_size=4), random.Random(5)
    runs = []
    for round_ in range(40):
        names = [f"r{round_}.{i}" for i in range(4)]
        lengths = [rng.randrange(8, 80) for _ in names]
        for name, length in zip(names, lengths, strict=True):
            world.open(name, [rng.randrange(10**6) for _ in range(length)], length + 20)
        for share in range(1, 21):
            for name, length in zip(names, lengths, strict=True):
                world.run(name, length if share == 1 else length + share)
        runs += [len(world.pool.runs(name, 10**6)) for name in names]
        for name in rng.sample(names, 4):
            world.close(name)
    world.settle()
    assert "evicted" in world.kinds()
    assert mean(runs) < 2


# --- eviction ---------------------------------------------------------------------------------------------------------


def test_the_block_that_was_left_longest_ago_goes_first_and_a_longer_prefix_before_the_shorter() -> None:
    world = World(6)
    world.answer("old", count(0, 8))
    world.answer("new", count(100, 8))
    world.answer("old again", count(0, 5))
    world.open("big", count(200, 24))
    since = len(world.events)
    world.run("big", 24)
    evicted = [event for event in world.events[since:] if isinstance(event, BlockEvicted)]
    names = {event.prefix_hash: event for event in world.events if isinstance(event, BlockStored)}
    assert [(names[event.prefix_hash].request, event.logical) for event in evicted] == [
        ("old", 1),
        ("new", 1),
        ("new", 0),
        ("old", 0),
    ]
    assert all((event.request, event.refs, event.reason) == ("big", 0, "room") for event in evicted)
    world.settle()


def test_nothing_is_evicted_while_a_free_stretch_will_do() -> None:
    world = World(10)
    world.answer("old", count(0, 16))
    world.open("a", count(100, 24))
    world.run("a", 24)
    assert "evicted" not in world.kinds()
    world.run("a", 25)
    assert "evicted" in world.kinds()


def test_a_request_that_expects_far_too_much_does_not_empty_the_cache() -> None:
    world = World(40)
    for i in range(10):
        world.answer(f"old{i}", count(100 * i, 16))
    assert world.pool.cached == 40
    world.open("a", count(5000, 16), 100_000)
    world.run("a", 16)
    assert world.pool.cached == 32, "room for its prompt, and as much again"
    world.run("a", 32)
    assert world.pool.cached == 32
    world.run("a", 33)
    assert world.pool.cached == 28, "four blocks were enough to let it go on right behind its last one"
    assert len(world.pool.runs("a", 33)) == 1


def test_a_block_that_somebody_holds_is_never_evicted() -> None:
    world = World(6)
    world.answer("old", count(0, 16))
    assert world.open("reader", count(0, 17)) == 16
    world.open("other", count(100, 12))
    assert not world.pool.can_grow("other", 12)
    with pytest.raises(NoBlocks, match="other needs 3 more of 6 blocks; 2 are available"):
        world.pool.grow("other", 12)
    world.settle()


def test_a_cached_block_that_the_request_itself_reuses_is_not_counted_as_room_for_it() -> None:
    world = World(4)
    world.answer("old", count(0, 12))
    assert world.pool.can_open(count(0, 13))
    assert not world.pool.can_open(count(0, 13), length=17)
    assert not world.pool.can_open(count(0, 13), spare=1)
    assert world.pool.can_open(count(100, 13))
