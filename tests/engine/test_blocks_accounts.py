"""What the block pool says of itself, and what it says when its accounts do not agree."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import pytest

from engine.blocks import BlockPool, BrokenInvariant, CacheMirror
from engine.blocks.extents import Extent
from engine.blocks.table import BlockTable
from engine.events import BlockAllocated, BlockStored
from tests.engine.blocks_world import World, count


def test_waste_is_the_share_of_positions_that_held_blocks_have_for_nothing() -> None:
    world = World(8)
    assert world.pool.waste() == 0
    world.open("a", count(0, 6))
    world.run("a", 6)
    assert world.pool.waste() == pytest.approx(2 / 8)
    world.fork("a", "b", 5)
    assert world.pool.waste() == pytest.approx(2 / 8), "a shared block counts once, with what its longest holder has"
    world.close("a")
    assert world.pool.waste() == pytest.approx(3 / 8)
    world.close("b")
    assert world.pool.waste() == 0


def test_fragmentation_counts_stretches_of_free_blocks_and_runs_of_tables() -> None:
    world = World(10)
    for name in "abc":
        world.open(name, count(ord(name) * 100, 4), 8)
        world.run(name, 4)
    world.open("d", count(0, 4), 4)
    world.run("d", 4)
    world.close("b", keep=False)
    broken = world.pool.fragmentation()
    assert list(world.pool.table("d")) == [6]
    assert (broken.free, broken.extents, broken.largest) == (7, 3, 3)
    assert (broken.tables, broken.runs, broken.most_runs) == (3, 3, 1)
    assert broken.external == pytest.approx(1 - 3 / 7)


def test_2000_requests_leave_nothing_behind_but_the_cache() -> None:
    world, rng = World(16), random.Random(1)
    for i in range(2000):
        world.answer(f"r{i}", [rng.randrange(3) for _ in range(rng.randrange(1, 40))])
        if len(world.events) > 1000:
            world.events = world.events[-1000:]  # only their order matters here
    assert world.pool.available == 16
    assert sum(1 for _ in world.pool._prefixes) == world.pool.cached
    world.pool.check()


def test_the_state_is_ready_for_json_and_says_all_of_a_block() -> None:
    world = World(3)
    world.open("a", count(0, 5))
    world.run("a", 5)
    world.fork("a", "b", 4)
    first, second, third = json.loads(json.dumps(world.pool.state()))
    stored = next(event for event in world.events if isinstance(event, BlockStored))
    assert first == {
        "block": 0,
        "state": "held",
        "refs": 2,
        "holders": ["a", "b"],
        "logical": 0,
        "positions": [0, 4],
        "prefix_hash": stored.prefix_hash,
        "parent_hash": None,
        "last_use_ns": world.events[-1].t_ns,
    }
    assert (second["positions"], second["prefix_hash"]) == ([4, 8], None)
    assert (third["state"], third["logical"], third["last_use_ns"]) == ("free", None, None)


def test_the_mirror_refuses_events_that_contradict_each_other() -> None:
    allocated = {"kind": "block.allocated", "seq": 1, "t_ns": 1, "block": 0, "request": "a", "refs": 1}
    allocated |= {"logical": 0, "positions": [0, 4], "prefix_hash": None, "parent_hash": None}
    mirror = CacheMirror(2)
    mirror.apply({"kind": "step.started", "seq": 0})
    mirror.apply(allocated)
    with pytest.raises(ValueError, match="was not free"):
        mirror.apply(allocated)
    with pytest.raises(ValueError, match="2 refs"):
        mirror.apply({**allocated, "kind": "block.stored", "refs": 2})


def exchange(one: BlockTable, other: BlockTable) -> None:
    one.ahead, other.ahead = other.ahead, one.ahead


CORRUPTIONS: list[tuple[str, Callable[[World], object]]] = [
    ("its holders are", lambda w: w.pool._ledger.blocks[w.pool.table("a")[0]].holders.update(ghost=None)),
    ("its holders are", lambda w: w.pool._ledger.blocks[w.pool.table("a")[0]].holders.clear()),
    ("blocks for", lambda w: setattr(w.pool._tables["a"], "length", 1)),
    ("holds a block twice", lambda w: w.pool._tables["a"].append(w.pool.table("a")[0])),
    ("runs", lambda w: w.pool._tables["a"].runs.pop()),
    ("but a has it at", lambda w: setattr(w.pool._ledger.blocks[w.pool.table("a")[0]], "logical", 3)),
    ("free and held", lambda w: w.pool._room.give(w.pool.table("a")[0])),
    ("neither free, cached nor held", lambda w: w.pool._room.open.take(max(w.pool._room.open).start, 1)),
    ("neither free, cached nor held", lambda w: w.pool._ledger.cached.popitem()),
    ("counted as held", lambda w: setattr(w.pool._ledger, "held", 0)),
    ("views of the open extents differ", lambda w: w.pool._room.open._by_size.append((1, 1))),
    ("neither free, cached nor held", lambda w: w.pool._room.keepers.clear()),
    ("ahead; keepers", lambda w: w.pool._room.keepers.update({w.pool._tables["bare"]: None})),
    ("still have room ahead", lambda w: w.pool._room.keepers.update({BlockTable("ghost", 4, 1, 1): None})),
    ("its next block would be", lambda w: exchange(w.pool._tables["a"], w.pool._tables["b"])),
    ("overlap", lambda w: setattr(w.pool._tables["b"], "ahead", Extent(11, 14))),
    ("would be evicted after", lambda w: w.pool._ledger.cached.move_to_end(next(iter(w.pool._ledger.cached)))),
    ("nothing leads to", lambda w: w.pool._prefixes._nodes.pop(next(w.pool._prefixes.walk(count(0, 9))).hash)),
    ("not in the index", lambda w: w.pool._prefixes._nodes.pop([*w.pool._prefixes.walk(count(0, 9))][1].hash)),
    ("which does not know it", lambda w: w.pool._prefixes._nodes.pop(next(w.pool._prefixes.walk(count(90, 5))).hash)),
    ("does not know that it is", lambda w: next(w.pool._prefixes.walk(count(90, 5))).blocks.update({0: None})),
    ("has no block", lambda w: w.pool._prefixes.add(None, [7, 7, 7, 7])),
    ("nothing leads to", lambda w: next(w.pool._prefixes.walk(count(0, 9))).children.clear()),
    ("not the hash of", lambda w: setattr(next(w.pool._prefixes.walk(count(0, 9))), "tokens", (1, 2))),
    ("is distrusted", lambda w: setattr(w.pool._ledger.blocks[w.states("cached")[0]], "distrusted", True)),
]


@pytest.mark.parametrize(("message", "corrupt"), CORRUPTIONS)
def test_check_names_what_does_not_agree(message: str, corrupt: Callable[[World], object]) -> None:
    world = World(16)
    world.answer("old", count(0, 8))
    world.answer("other", count(90, 4))
    for name, size in (("a", 50), ("b", 70)):
        world.open(name, count(size, 10), 20)
        world.run(name, 10)
    world.open("bare", [])
    world.settle()
    corrupt(world)
    with pytest.raises(BrokenInvariant, match=message):
        world.pool.check()


def test_calls_that_make_no_sense_are_refused_in_words() -> None:
    world = World(4)
    world.open("a", count(0, 4))
    world.run("a", 4)
    with pytest.raises(ValueError, match="has a block table already"):
        world.pool.open("a", [1])
    with pytest.raises(KeyError, match="b has no block table"):
        world.pool.grow("b", 1)
    with pytest.raises(ValueError, match="holds 4 positions; it cannot be forked at 5"):
        world.pool.fork("a", "b", 5)
    with pytest.raises(ValueError, match="holds 4 positions; it cannot be cut to 5"):
        world.pool.truncate("a", 5)
    with pytest.raises(ValueError, match="expected at least 1"):
        BlockPool(0, 16, lambda event: None)
    world.settle()


def test_growing_to_a_length_it_has_changes_nothing() -> None:
    world = World(4)
    world.open("a", count(0, 6))
    world.run("a", 6)
    since = len(world.events)
    assert world.pool.grow("a", 6) == world.pool.grow("a", 2) == []
    assert world.events[since:] == []
    assert len(world.pool.runs("a", 6)) == 1


def test_events_of_one_request_name_its_blocks_in_order() -> None:
    world = World(8)
    world.open("a", count(0, 13))
    world.run("a", 13)
    allocated = [event for event in world.events if isinstance(event, BlockAllocated)]
    assert [event.logical for event in allocated] == [0, 1, 2, 3]
    assert all(before.positions[1] == after.positions[0] for before, after in pairwise(allocated))


def test_the_pool_can_be_imported_where_no_model_can_run() -> None:
    code = "import sys, engine.blocks; print(any(name.split('.')[0] == 'mlx' for name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
