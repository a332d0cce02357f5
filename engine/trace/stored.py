"""A zstd frame that holds its content as it is: what is recorded while it happens is not worth compressing.

Arrays lose little by it (`engine.trace.writer`), and nothing has to be put together in memory first: the blocks are the
parts themselves. Written so, and not as MCAP's chunk without compression, because a chunk is found again behind damage
by the name of its compression. Format: RFC 8878.
"""

from __future__ import annotations

from collections.abc import Iterable

_MAGIC = (0xFD2FB528).to_bytes(4, "little")
_SIZE_OF_8_BYTES_IN_ONE_SEGMENT = b"\xe0"
_MOST = 1 << 17  # bytes in a block
_JOINED = 1 << 12  # smaller parts are not worth a write of their own


def stored_frame(parts: Iterable[bytes | memoryview], size: int) -> list[bytes | memoryview]:
    """The frame in pieces to be written one after the other, of parts that have `size` bytes together."""
    pieces: list[bytes | memoryview] = []
    small = bytearray(_MAGIC + _SIZE_OF_8_BYTES_IN_ONE_SEGMENT + size.to_bytes(8, "little"))
    for part in parts:
        whole = memoryview(part)
        for start in range(0, len(whole), _MOST):
            block = whole[start : start + _MOST]
            small += (len(block) << 3).to_bytes(3, "little")  # a raw block, not the last
            if len(block) <= _JOINED:
                small += block
            else:
                pieces += [bytes(small), block]
                small.clear()
    small += b"\x01\0\0"  # the last block is empty: which of the others is last need not be known
    return [*pieces, bytes(small)]
