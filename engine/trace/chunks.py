"""Reads the chunks of a trace file: finding one is `engine.trace.index`'s part."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import lz4.frame  # type: ignore[import-untyped]
import zstandard
from mcap.opcode import Opcode
from mcap.records import Channel
from zlib_ng import zlib_ng

from engine.trace import layout
from engine.trace.source import Damaged, Source, read_record, records


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where a chunk is: `offset` and `length` of its record, in bytes; `channels` is None when unknown."""

    offset: int
    length: int
    channels: frozenset[int] | None = None


def load_chunk(source: Source, place: ChunkPlace) -> bytes:
    """The uncompressed records of a chunk.

    Raises:
        Damaged: when they are not there whole, or would take more than `layout.MAX_CHUNK_BYTES`.
    """
    record = source.read(place.offset, place.length)
    opcode, length = layout.RECORD.unpack_from(record)
    if opcode != Opcode.CHUNK or length != place.length - layout.RECORD.size:
        raise Damaged(f"no chunk at byte {place.offset}")
    try:
        size, crc, name_length = struct.unpack_from("<QII", record, 25)
        compression = record[41 : 41 + name_length]
        (packed_size,) = struct.unpack_from("<Q", record, 41 + name_length)
    except struct.error:
        raise Damaged(f"the chunk at byte {place.offset} ends within its head") from None
    packed = memoryview(record)[49 + name_length :]
    if packed_size != len(packed):
        raise Damaged(f"the chunk at byte {place.offset} states {packed_size} bytes and has {len(packed)}")
    if size > layout.MAX_CHUNK_BYTES:
        raise Damaged(
            f"the chunk at byte {place.offset} would take {size} bytes; at most {layout.MAX_CHUNK_BYTES} are read"
        )
    data = _decompress(compression, packed, size)
    if len(data) != size or (crc and zlib_ng.crc32(data) != crc):
        raise Damaged(f"the chunk at byte {place.offset} fails its checksum")
    return data


def messages(data: bytes, channels: dict[int, Channel]) -> Iterator[tuple[int, bytes]]:
    """The (channel, payload) of each message in a chunk. Channels met in it are added to `channels`.

    Raises:
        Damaged: where the records stop making sense.
    """
    at = 0
    while at < len(data):
        if at + layout.RECORD.size > len(data):
            raise Damaged("a chunk ends within a record")
        opcode, length = layout.RECORD.unpack_from(data, at)
        end = at + layout.RECORD.size + length
        if end > len(data) or (opcode == Opcode.MESSAGE and length < 22):
            raise Damaged(f"a record of {length} bytes does not fit its chunk")
        if opcode == Opcode.MESSAGE:
            (channel,) = struct.unpack_from("<H", data, at + layout.RECORD.size)
            yield channel, data[at + layout.MESSAGE.size : end]
        elif opcode == Opcode.CHANNEL:
            found = read_record(Channel.read, data[at + layout.RECORD.size : end])
            channels.setdefault(found.id, found)
        at = end


def lost_messages(source: Source, place: ChunkPlace) -> int:
    """How many messages a chunk held, by the message indexes that stand behind it; 0 when they do not tell."""
    count = 0
    try:
        for opcode, at, length in records(source, place.offset + place.length):
            if opcode != Opcode.MESSAGE_INDEX or length < 6:
                break
            count += struct.unpack("<HI", source.read(at, 6))[1] // 16
    except Damaged:
        pass
    return count


def _decompress(compression: bytes, packed: memoryview, size: int) -> bytes:
    try:
        if compression == b"zstd":
            # zstandard allocates what the frame states, whatever limit it is given.
            stated = zstandard.frame_content_size(packed)
            if stated not in (size, -1):
                raise Damaged(f"a chunk states {size} bytes and its data {stated}")
            return zstandard.ZstdDecompressor().decompress(packed, max_output_size=size) if size else b""
        if compression == b"lz4":
            data: bytes = lz4.frame.LZ4FrameDecompressor().decompress(packed, max_length=size)
            return data
        if compression == b"":
            return bytes(packed)
    except (zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise Damaged(f"a chunk cannot be decompressed: {error}") from error
    raise Damaged(f"a chunk is compressed by {compression[:16]!r}, which is not supported")
