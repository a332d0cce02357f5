"""A chunk that stores its content is what any zstd reader takes, and holds it bit by bit."""

from __future__ import annotations

import zlib

import numpy as np
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from engine.codec import Part, joined
from engine.trace.sink import BLOCK
from engine.trace.stored import KEPT_BYTES, Stage


def rows_apart(shape: tuple[int, int, int]) -> np.ndarray:
    """Bytes of rows, behind each of which others lie."""
    rows, width, gap = shape
    return np.random.default_rng(rows).integers(0, 256, (rows, width + gap), np.uint8)[:, :width]


parts = st.lists(
    st.binary(max_size=300)
    | st.integers(0, 300_000).map(lambda size: memoryview(bytes(size)))
    | st.tuples(st.integers(1, 9), st.sampled_from([1, 300, 9_000, 70_000, 200_000]), st.integers(1, 9)).map(
        rows_apart
    ),
    max_size=8,
)


@given(parts, st.integers(0, 200), st.integers(0, 3 * BLOCK))
def test_content_comes_back_from_any_reader(parts: list[Part], head: int, at: int) -> None:
    content = joined(parts)
    whole, crc = Stage().put_together(parts, len(content), head=head, at=at)
    packed = bytes(whole[head:])
    assert crc == zlib.crc32(content)
    assert zstandard.frame_content_size(packed) == len(content)
    assert zstandard.ZstdDecompressor().decompress(packed) == content
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == content
    assert len(packed) <= len(content) + 3 * (2 * (len(content) // 2**17) + 3) + 16
    address = np.frombuffer(whole, np.uint8).ctypes.data
    assert address % BLOCK == at % BLOCK, "as far behind a page of memory as it will be in the file"


def test_one_chunk_after_the_other_is_put_together_in_the_same_memory() -> None:
    stage = Stage()
    first, _ = stage.put_together([b"one"], 3, head=10, at=5)
    first[:10] = b"0123456789"
    second, _ = stage.put_together([b"another"], 7, head=0, at=5)
    assert first.obj is second.obj
    assert zstandard.ZstdDecompressor().decompress(second) == b"another"


def test_memory_for_a_large_chunk_is_not_kept() -> None:
    stage = Stage()
    usual, _ = stage.put_together([b"one"], 3, head=0, at=0)
    stage.let_go()
    again, _ = stage.put_together([b"one"], 3, head=0, at=0)
    assert usual.obj is again.obj
    large, _ = stage.put_together([bytes(KEPT_BYTES)], KEPT_BYTES, head=0, at=0)
    stage.let_go()
    small, _ = stage.put_together([b"one"], 3, head=0, at=0)
    assert small.obj is not large.obj
    assert small.nbytes <= KEPT_BYTES
