"""Finds the chunks of a trace file: through its index when it is whole, by walking over its records when it is not."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from mcap.opcode import Opcode
from mcap.records import Channel, Metadata, Statistics
from zlib_ng import zlib_ng

from engine.trace import layout
from engine.trace.chunks import ChunkPlace
from engine.trace.source import Damaged, Source, read_record, records

_FOOTER = struct.Struct("<BQQQI")
_WINDOW = 1 << 20


@dataclass(slots=True)
class Index:
    """What is known of a file before its chunks are read."""

    chunks: list[ChunkPlace] = field(default_factory=list)
    channels: dict[int, Channel] = field(default_factory=dict)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    """Messages by channel; empty where the file was not closed."""
    complete: bool = True
    damage: list[str] = field(default_factory=list)
    """What is wrong, one line each."""
    lost_bytes: int = 0
    """Bytes that belong to no whole record."""


def read_index(source: Source) -> Index:
    """The index of a file that has one that can be trusted; otherwise what a walk over its records finds."""
    try:
        return _read_summary(source)
    except Damaged as reason:
        index = _walk(source)
        index.damage.insert(0, str(reason))
        index.complete = False
        return index


# --- a whole file -----------------------------------------------------------------------------------------------------


def _read_summary(source: Source) -> Index:
    at = source.size - _FOOTER.size - len(layout.MAGIC)
    if at < len(layout.MAGIC) or source.read(source.size - len(layout.MAGIC), len(layout.MAGIC)) != layout.MAGIC:
        raise Damaged("the file was cut off: it does not end as a trace does")
    footer = source.read(at, _FOOTER.size)
    opcode, length, start, _, crc = _FOOTER.unpack(footer)
    if opcode != Opcode.FOOTER or length != _FOOTER.size - layout.RECORD.size or not 0 < start <= at:
        raise Damaged("the file has no index")
    summary = source.read(start, at - start)
    if crc and zlib_ng.crc32(footer[:-4], zlib_ng.crc32(summary)) != crc:
        raise Damaged("the file's index fails its checksum")
    index = Index()
    for opcode, body in _summary_records(summary):
        if opcode == Opcode.CHANNEL:
            channel = read_record(Channel.read, body)
            index.channels[channel.id] = channel
        elif opcode == Opcode.STATISTICS:
            index.counts = dict(read_record(Statistics.read, body).channel_message_counts)
        elif opcode == Opcode.CHUNK_INDEX:
            index.chunks.append(_chunk_place(body, start))
    index.chunks.sort(key=lambda place: place.offset)
    _read_opening(source, index)
    return index


def _summary_records(summary: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(summary):
        if at + layout.RECORD.size > len(summary):
            raise Damaged("the file's index ends within a record")
        opcode, length = layout.RECORD.unpack_from(summary, at)
        at += layout.RECORD.size
        if at + length > len(summary):
            raise Damaged("the file's index has a record that does not fit it")
        yield opcode, summary[at : at + length]
        at += length


def _chunk_place(body: bytes, limit: int) -> ChunkPlace:
    # Read here rather than by ChunkIndex.read: an hour's trace has 70,000 of them.
    try:
        _, _, offset, length, offsets_bytes = struct.unpack_from("<QQQQI", body)
        channels = [channel for channel, _ in struct.iter_unpack("<HQ", body[36 : 36 + offsets_bytes])]
    except struct.error:
        raise Damaged("the file's index has a torn entry") from None
    if length < layout.RECORD.size or offset + length > limit:
        raise Damaged("the file's index points beyond the file's data")
    return ChunkPlace(offset, length, frozenset(channels) or None)


def _read_opening(source: Source, index: Index) -> None:
    """Read the metadata that stands before the first chunk."""
    for opcode, at, length in records(source, len(layout.MAGIC)):
        if opcode == Opcode.METADATA:
            found = read_record(Metadata.read, source.read(at, length))
            index.metadata[found.name] = found.metadata
        elif opcode == Opcode.CHUNK:
            return


# --- a file that was cut off or damaged -------------------------------------------------------------------------------


def _walk(source: Source) -> Index:
    index, at = Index(), len(layout.MAGIC)
    while at < source.size:
        try:
            for opcode, body_at, length in records(source, at):
                _note(source, index, opcode, body_at, length)
                at = body_at + length
                if opcode == Opcode.DATA_END:
                    return index
        except Damaged as reason:
            _forget_channels(index)
            resume = _next_chunk(source, at + 1)
            index.lost_bytes += (resume or source.size) - at
            if resume is None:
                return index
            index.damage.append(f"{resume - at} bytes from byte {at} are skipped: {reason}")
            index.chunks.append(ChunkPlace(at, resume - at))  # fails to load, and so shows as a gap
            at = resume
    _forget_channels(index)
    return index


def _forget_channels(index: Index) -> None:
    """The last chunk's list of channels stands behind it and may be cut short."""
    if index.chunks:
        last = index.chunks[-1]
        index.chunks[-1] = ChunkPlace(last.offset, last.length)


def _note(source: Source, index: Index, opcode: int, at: int, length: int) -> None:
    if opcode == Opcode.CHUNK:
        index.chunks.append(ChunkPlace(at - layout.RECORD.size, length + layout.RECORD.size))
    elif opcode == Opcode.MESSAGE_INDEX and index.chunks and length >= 6:
        (channel,) = struct.unpack("<H", source.read(at, 2))
        last = index.chunks[-1]
        index.chunks[-1] = ChunkPlace(last.offset, last.length, (last.channels or frozenset()) | {channel})
    elif opcode == Opcode.CHANNEL:
        channel_record = read_record(Channel.read, source.read(at, length))
        index.channels[channel_record.id] = channel_record
    elif opcode == Opcode.METADATA:
        found = read_record(Metadata.read, source.read(at, length))
        index.metadata.setdefault(found.name, found.metadata)


def _next_chunk(source: Source, at: int) -> int | None:
    """Where the next plausible chunk record begins, at or after `at`."""
    overlap = layout.CHUNK.size
    while at < source.size:
        window = source.read(at, min(_WINDOW, source.size - at))
        found = window.find(layout.CHUNK_COMPRESSION)
        while found >= 0:
            start = at + found - layout.CHUNK_COMPRESSION_AT
            if found >= layout.CHUNK_COMPRESSION_AT and _is_chunk(source, start):
                return start
            found = window.find(layout.CHUNK_COMPRESSION, found + 1)
        if len(window) < _WINDOW:
            return None
        at += _WINDOW - overlap
    return None


def _is_chunk(source: Source, at: int) -> bool:
    if at + layout.CHUNK.size > source.size:
        return False
    head = layout.CHUNK.unpack(source.read(at, layout.CHUNK.size))
    opcode, length, packed = head[0], head[1], head[-1]
    fits = length == packed + layout.CHUNK.size - layout.RECORD.size
    return bool(opcode == Opcode.CHUNK and fits and at + layout.RECORD.size + length <= source.size)
