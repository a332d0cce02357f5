"""A frame that stores its content is what any zstd reader takes, and holds it bit by bit."""

from __future__ import annotations

import zstandard
from hypothesis import given
from hypothesis import strategies as st

from engine.trace.stored import stored_frame


@given(st.lists(st.binary(max_size=300) | st.integers(0, 300_000).map(bytes), max_size=8))
def test_content_comes_back_from_any_reader(parts: list[bytes]) -> None:
    content = b"".join(parts)
    packed = b"".join(stored_frame(parts, len(content)))
    assert zstandard.frame_content_size(packed) == len(content)
    assert zstandard.ZstdDecompressor().decompress(packed) == content
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == content
    assert len(packed) <= len(content) + 3 * (len(content) // 2**17 + len(parts) + 1) + 13


def test_large_parts_are_not_copied() -> None:
    large = bytes(10_000)
    pieces = stored_frame([b"head", large, b"tail"], 10_008)
    assert [piece.obj for piece in pieces if isinstance(piece, memoryview)] == [large]
