"""Who computed what is found in blocks, told by position."""

from __future__ import annotations

from engine.kv.blocks import BlockMemory

SIZE = 4


def memory() -> BlockMemory:
    return BlockMemory(32, SIZE, lambda event: None, b"model")


def computed(blocks: BlockMemory, request: str, tokens: list[int]) -> None:
    """Open a request and compute all of its tokens."""
    blocks.open(request, tokens)
    blocks.grow(request, len(tokens))
    blocks.stored(request, tokens, len(tokens))


def test_what_is_found_was_computed_by_whoever_wrote_it() -> None:
    blocks, tokens = memory(), list(range(20))
    computed(blocks, "a", tokens[:9])
    computed(blocks, "b", tokens[:17])
    assert blocks.open("c", tokens) == 16
    assert blocks.computed_by("c", 16) == [("a", 0, 8), ("b", 8, 16)]
    assert blocks.computed_by("c", 10) == [("a", 0, 8), ("b", 8, 10)]


def test_nobody_is_named_for_what_a_request_computed_after_what_it_found() -> None:
    blocks, tokens = memory(), list(range(20))
    computed(blocks, "a", tokens[:9])
    computed(blocks, "b", tokens)
    assert blocks.computed_by("b", 8) == [("a", 0, 8)]


def test_a_copied_block_was_written_by_the_parent_up_to_the_fork_and_by_the_child_from_there() -> None:
    blocks, tokens = memory(), list(range(20))
    computed(blocks, "parent", tokens[:12])
    blocks.fork("parent", "child", 10)
    assert blocks.computed_by("child", 10) == [("parent", 0, 10)]
    other = [*tokens[:10], 90, 91, 92, 93, 94, 95, 96]
    assert blocks.grow("child", len(other)), "the block that both hold is copied"
    blocks.stored("child", other, len(other))
    assert blocks.open("third", other) == 16
    assert blocks.computed_by("third", 16) == [("parent", 0, 10), ("child", 10, 16)]


def test_a_block_that_was_handed_out_again_is_its_new_writers() -> None:
    blocks = BlockMemory(4, SIZE, lambda event: None, b"model")
    computed(blocks, "a", [1] * 16)
    blocks.close("a")
    computed(blocks, "b", [2] * 16)
    blocks.close("b")
    assert blocks.open("c", [2] * 16) > 0
    assert {request for request, _, _ in blocks.computed_by("c", 12)} == {"b"}
