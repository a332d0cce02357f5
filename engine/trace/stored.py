"""A chunk that holds its content as it is, put together in memory as it goes to the file.

What is recorded while it happens is not worth compressing: arrays lose little by it (`engine.trace.writer`). The
content is a zstd frame of raw blocks, and not MCAP's chunk without compression, because a chunk is found again behind
damage by the name of its compression. Format: RFC 8878.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator

import numpy as np
from zlib_ng import zlib_ng

from engine.codec import Part, joined
from engine.trace.sink import BLOCK

_MAGIC = (0xFD2FB528).to_bytes(4, "little")
_SIZE_OF_8_BYTES_IN_ONE_SEGMENT = b"\xe0"
_END = b"\x01\0\0"
"""The last block is empty: which of the others is last need not be known."""

_MOST = 1 << 17
"""Bytes in a block."""

KEPT_BYTES = 8 * 2**20
"""Memory that is kept for the next chunk: few are larger."""


class Stage:
    """Memory in which one chunk after the other is put together.

    Each array is copied once, from where the device left it, and summed up while it is in the processor's cache. What
    is put together lies as far behind a page of memory as it will in the file, so that it can go past the system's
    cache as it is (`engine.trace.sink`).
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def put_together(self, parts: list[Part], size: int, *, head: int, at: int) -> tuple[memoryview, int]:
        """Store parts in a frame.

        Args:
            parts: the content, `size` bytes together.
            head: bytes that are left free before the frame.
            at: where in the file all of it will be.

        Returns:
            The head and the frame, which lie there until the next call, and the content's CRC-32.
        """
        begin = at % BLOCK
        opening = _MAGIC + _SIZE_OF_8_BYTES_IN_ONE_SEGMENT + size.to_bytes(8, "little")
        blocks = 2 * (size // _MOST) + 3  # at most: any two neighbours hold more than one could
        self._make_room(begin + head + len(opening) + size + 3 * blocks + len(_END))
        memory = self._memory
        view = memory.data
        start = begin + head + len(opening)
        view[begin + head : start] = opening
        crc, end = 0, start + 3
        for part in _pieces(parts):
            length = part.size if isinstance(part, np.ndarray) else len(part)
            if end + length > start + 3 + _MOST:
                start, crc = _block(view, start, end, crc)
                end = start + 3
            if isinstance(part, np.ndarray):
                np.copyto(memory[end : end + length].reshape(part.shape), part)
            else:
                view[end : end + length] = part
            end += length
        start, crc = _block(view, start, end, crc)
        view[start : start + len(_END)] = _END
        return view[begin : start + len(_END)], crc

    def let_go(self) -> None:
        """Of memory that a large chunk took."""
        if len(self._memory) > KEPT_BYTES:
            self._memory = np.empty(0, np.uint8)

    def _make_room(self, size: int) -> None:
        if len(self._memory) < size:
            self._memory = np.frombuffer(mmap.mmap(-1, max(size, KEPT_BYTES)), np.uint8)


def _pieces(parts: Iterable[Part]) -> Iterator[Part]:
    """Parts, none larger than a block."""
    for part in parts:
        if isinstance(part, np.ndarray):
            rows = _MOST // part.shape[1]
            if rows >= len(part):
                yield part
            elif rows:
                yield from (part[start : start + rows] for start in range(0, len(part), rows))
            else:
                yield from _pieces([joined([part])])
        elif len(part) > _MOST:
            whole = memoryview(part)
            yield from (whole[start : start + _MOST] for start in range(0, len(whole), _MOST))
        else:
            yield part


def _block(view: memoryview, start: int, end: int, crc: int) -> tuple[int, int]:
    """Finish the block whose header is at `start`, if it holds anything.

    Returns:
        Where the next one begins, and the CRC with its content.
    """
    length = end - start - 3
    if not length:
        return start, crc
    view[start : start + 3] = (length << 3).to_bytes(3, "little")  # a raw block, not the last
    return end, zlib_ng.crc32(view[start + 3 : end], crc)
