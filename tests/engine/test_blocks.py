"""What the block pool promises about sharing: what is found, what is written, what is not trusted."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from engine.blocks import BlockPool, Copy, NoBlocks
from engine.events import BlockCopied, BlockStored
from tests.engine.blocks_world import World, count

# --- finding what is there --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "cached"), [(1, 0), (4, 0), (5, 4), (7, 4), (8, 4), (9, 8), (12, 8), (13, 12)])
def test_a_prompt_that_is_wholly_in_the_cache_leaves_at_least_one_token_to_run(size: int, cached: int) -> None:
    world = World(8)
    world.answer("first", count(0, 16))
    assert world.pool.match_prefix(count(0, size)) == cached
    assert world.open("again", count(0, size)) == cached
    world.run("again", size)
    world.settle()


def test_no_prompt_at_all_matches_nothing() -> None:
    world = World(2)
    world.answer("first", count(0, 8))
    assert world.pool.match_prefix([]) == 0
    assert world.open("empty", []) == 0
    assert world.pool.runs("empty", 0) == []


def test_a_block_is_found_only_with_all_that_came_before_it() -> None:
    world = World(8)
    world.answer("first", count(0, 8) + count(100, 4))
    assert world.pool.match_prefix([*count(100, 4), 1]) == 0
    assert world.pool.match_prefix(count(0, 4) + count(100, 4) + [1]) == 4
    assert world.pool.match_prefix(count(0, 8) + count(100, 4) + [1]) == 12


def test_hashes_are_chained_over_the_tokens_and_seeded_by_the_model() -> None:
    world = World(4)
    world.open("a", count(0, 8))
    world.run("a", 8)
    chain = blake2b(b"a model", digest_size=16).digest()
    expected = []
    for block in (range(4), range(4, 8)):
        chain = blake2b(chain + b"".join(token.to_bytes(8, "little") for token in block), digest_size=16).digest()
        expected.append(chain.hex())
    first, second = (event for event in world.events if isinstance(event, BlockStored))
    assert [first.prefix_hash, second.prefix_hash] == expected
    assert (first.parent_hash, second.parent_hash) == (None, expected[0])
    other = BlockPool(4, 4, lambda event: None, b"another model")
    other.open("a", count(0, 4))
    other.grow("a", 4)
    other.stored("a", count(0, 4), 4)
    assert other.state()[0]["prefix_hash"] not in (None, expected[0])


def test_contents_whose_hashes_collide_are_told_apart_by_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(8)
    monkeypatch.setattr(world.pool._prefixes, "hash", lambda parent, block: "00" * 16)
    world.answer("a", count(0, 5))
    assert world.pool.match_prefix(count(100, 5)) == 0
    world.answer("b", count(100, 5))
    assert world.pool.match_prefix(count(100, 5)) == 0, "the first one keeps the place"
    assert world.pool.match_prefix(count(0, 5)) == 4
    assert world.pool.match_prefix([*count(0, 4), *count(0, 4), 1]) == 4, "the same tokens behind another beginning"
    world.settle()


def test_tokens_whose_ids_are_not_known_yet_are_not_findable_yet() -> None:
    world = World(4)
    world.open("a", count(0, 7))
    world.run("a", 8, store=False)
    world.store("a", known=7)
    assert world.kinds().count("stored") == 1
    world.store("a", known=8)
    assert world.kinds().count("stored") == 2


def test_the_same_content_computed_twice_stays_once() -> None:
    world = World(8)
    for name in ("a", "b"):
        world.open(name, count(0, 9))
    for name in ("a", "b"):
        world.run(name, 9)
    assert len({block["prefix_hash"] for block in world.pool.state()}) == 3, "two prefixes, and blocks without one"
    world.close("a")
    assert (world.pool.cached, world.pool.available) == (0, 5), "b still has the same"
    world.settle()
    world.close("b")
    assert (world.pool.cached, world.pool.available) == (2, 8)
    world.settle()


def test_a_cached_block_gives_way_to_the_same_content_in_the_hands_of_a_request() -> None:
    world = World(8)
    for name in ("a", "b"):
        world.open(name, count(0, 9))
    world.run("a", 9)
    world.close("a")
    assert world.pool.cached == 2
    world.run("b", 9)
    assert world.pool.cached == 0
    assert world.pool.match_prefix(count(0, 9)) == 8
    world.settle()


def test_of_two_blocks_with_the_same_content_the_one_that_prolongs_a_run_is_taken() -> None:
    world = World(8)
    world.open("a", count(0, 8), 8)
    world.open("b", count(0, 8), 8)
    world.run("a", 4)
    world.run("b", 8)  # b's second block is findable first, its first one second
    world.run("a", 8)
    world.open("c", count(0, 9))
    assert world.pool.table("c") == world.pool.table("a")
    assert len(world.pool.runs("c", 8)) == 1


def test_a_preempted_request_finds_its_own_blocks_again_and_has_no_more_than_it_needs() -> None:
    world = World(6)
    world.open("a", count(0, 10))
    world.run("a", 14)
    before = list(world.pool.table("a"))
    tokens = world.close("a")
    assert world.open("a", tokens) == 12
    assert list(world.pool.table("a")) == before[:3]
    world.run("a", 15)
    assert len(world.pool.table("a")) == 4
    world.settle()


# --- writing what others hold -----------------------------------------------------------------------------------------


def test_who_writes_a_shared_block_first_gets_a_copy_and_the_last_one_writes_in_place() -> None:
    world = World(8)
    world.open("a", count(0, 6))
    world.run("a", 6)
    for name in ("b", "c"):
        world.fork("a", name, 6, [90])
    first, shared = world.pool.table("a")
    assert world.pool.state()[shared]["holders"] == ["a", "b", "c"]
    since = len(world.events)
    assert world.run("b", 7) == [Copy(shared, world.pool.table("b")[1])]
    assert world.kinds(since) == ["copied", "ref_changed"]
    copied = next(event for event in world.events if isinstance(event, BlockCopied))
    assert (copied.block, copied.source, copied.request, copied.positions, copied.refs) == (
        world.pool.table("b")[1],
        shared,
        "b",
        [4, 8],
        1,
    )
    assert len(world.run("a", 7)) == 1
    assert world.run("c", 7) == []
    assert world.pool.table("c")[1] == shared
    assert [world.pool.table(name)[0] for name in "abc"] == [first] * 3
    world.settle()


def test_a_fork_at_the_end_of_a_block_copies_nothing() -> None:
    world = World(8)
    world.open("a", count(0, 8))
    world.run("a", 10)
    world.fork("a", "b", 8, [90])
    assert world.run("b", 9) == []
    world.settle()


def test_a_findable_block_is_copied_even_for_the_only_one_who_holds_it() -> None:
    world = World(8)
    world.open("a", count(0, 8))
    world.run("a", 8)
    world.fork("a", "b", 6, [90])
    world.close("a")
    assert len(world.run("b", 7)) == 1
    assert world.pool.match_prefix(count(0, 9)) == 8
    assert world.pool.match_prefix([*count(0, 6), 90, 7, 1]) == 4, "b's second block is not full yet"
    world.run("b", 8)
    assert world.pool.match_prefix([*count(0, 6), 90, 8, 1]) == 8
    world.settle()


def test_the_copy_counts_among_the_blocks_that_a_request_needs() -> None:
    world = World(2)
    world.open("a", count(0, 6))
    world.run("a", 6)
    world.fork("a", "b", 6)
    assert not world.pool.can_grow("b", 7)
    with pytest.raises(NoBlocks, match="b needs 1 more of 2 blocks; 0 are available"):
        world.pool.grow("b", 7)
    world.settle()
    world.close("a")
    assert world.run("b", 7) == []


def test_a_request_that_is_cut_gives_back_what_lies_beyond_and_writes_a_findable_block_anew_elsewhere() -> None:
    world = World(8)
    world.open("a", count(0, 12))
    world.run("a", 12)
    world.truncate("a", 6, [90, 91])
    assert world.pool.cached == 1
    assert len(world.run("a", 8)) == 1
    assert world.pool.match_prefix(count(0, 13)) == 12
    world.settle()


# --- what may be wrong ------------------------------------------------------------------------------------------------


def test_blocks_of_a_failed_request_are_never_found_again() -> None:
    world = World(8)
    world.open("bad", count(0, 9))
    world.run("bad", 9)
    world.close("bad", keep=False)
    assert world.pool.match_prefix(count(0, 9)) == 0
    assert world.pool.cached == 0
    assert world.pool.available == 8
    world.settle()


def test_what_a_failed_request_reused_and_what_others_put_behind_it_is_not_found_either() -> None:
    world = World(16)
    world.answer("before", count(0, 8))
    for name in ("bad", "sharer"):
        world.open(name, [*count(0, 8), 90, 91, 92, 93, 94])
        world.run(name, 13)
    world.answer("cached behind", count(0, 8) + count(100, 5))
    world.answer("apart", count(200, 5))
    world.close("bad", keep=False)
    world.settle()
    assert world.pool.match_prefix(count(0, 9)) == 0
    assert world.pool.match_prefix(count(200, 5)) == 4
    assert world.pool.cached == 1
    world.run("sharer", 20)
    world.close("sharer")
    assert world.pool.cached == 1, "nothing of it may become findable later"
    world.settle()


def test_the_same_content_in_another_request_does_not_become_findable_again_either() -> None:
    world = World(16)
    for name in ("bad", "twin"):
        world.open(name, count(0, 8))
    for name in ("bad", "twin"):
        world.run(name, 8)
    world.fork("twin", "child", 6, [90])
    world.close("bad", keep=False)
    world.run("child", 12)
    world.run("twin", 12)
    world.settle()
    assert world.pool.match_prefix(count(0, 8)) == 0
    for name in ("child", "twin"):
        world.close(name)
    assert world.pool.cached == 0


def test_a_block_shared_before_it_was_findable_does_not_become_so_when_its_owner_has_failed() -> None:
    world = World(8)
    world.open("bad", count(0, 6))
    world.run("bad", 6, store=False)
    for name in ("b", "c"):
        world.fork("bad", name, 3)  # inside the block: one of the two writes in a copy of it
    world.close("bad", keep=False)
    for name in ("b", "c"):
        world.run(name, 9)
    assert world.pool.match_prefix(count(0, 6)) == 0
    for name in ("b", "c"):
        world.close(name)
    assert world.pool.available == 8
    assert world.pool.cached == 0
    world.settle()
