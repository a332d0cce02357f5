"""Writes a trace file, chunk by chunk.

`mcap.writer.Writer` would put channels into the first chunk only, so that losing it loses all, and gives no say in the
compression; hence this one, on the same package's records. What it writes is read by `mcap`'s own reader in the tests.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import zstandard
from mcap.opcode import Opcode
from mcap.records import (
    Channel,
    ChunkIndex,
    DataEnd,
    Footer,
    Header,
    MessageIndex,
    Metadata,
    MetadataIndex,
    Schema,
    Statistics,
    SummaryOffset,
)
from zlib_ng import zlib_ng

from engine import schema
from engine.codec import Frame, Part, joined, parse
from engine.errors import TraceError
from engine.events import KINDS
from engine.trace import layout
from engine.trace.sink import Sink
from engine.trace.stored import Stage

# Level 1 costs 1.1 ms a megabyte and saves 6–25 % of arrays and 80 % of JSON; level 3 costs up to four times as much
# for nothing more.
_LEVEL = 1

CHUNK_ENDS = frozenset({"step.finished", "request.arrived", "request.finished", "request.rejected"})
"""Kinds after which a chunk is written out: `kill -9` loses at most what came since, which is one step."""


@dataclass(slots=True)
class _Chunk:
    """Messages that are not written yet."""

    parts: list[Part] = field(default_factory=list)
    size: int = 0
    array_bytes: int = 0
    """How much of it are tensor frames."""
    index: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By channel: (log time, offset in the chunk) of each message."""
    start_ns: int = 2**63
    end_ns: int = 0

    def add(self, channel: int, frame: Frame) -> None:
        time = frame.t_ns
        size = frame.size
        head = (Opcode.MESSAGE, 22 + size, channel, frame.seq & 0xFFFFFFFF, time, time)
        self.index.setdefault(channel, []).append((time, self.size))
        self.parts += (layout.MESSAGE.pack(*head), *frame.parts)
        self.size += layout.MESSAGE.size + size
        self.array_bytes += frame.binary * size
        self.start_ns, self.end_ns = min(self.start_ns, time), max(self.end_ns, time)


class TraceWriter:
    """One trace file. Frames gather in a chunk, which goes to the operating system whole when a step has ended.

    The first frame must be run.header. Not thread-safe.

    Raises:
        TraceError: when the file cannot be created.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, facts: Mapping[str, str] | None = None, live: bool = False
    ) -> None:
        """Open the file.

        Args:
            facts: go into the metadata record, such as the number of the part or the request that was cut out.
            live: whether a run is written while it happens, which compressing its arrays would slow down: they are
                stored as they are, and past the system's cache.
        """
        self.path = Path(path)
        self.hurry = False
        """Whether more waits to be written than should: then memory takes what the disk would take a while for."""
        self.bytes_written = 0
        self.frames_written = 0
        """Frames in chunks that have been written whole."""
        self._facts = dict(facts or {})
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self._live = live
        self._schemas: list[Schema] = []
        self._channels: dict[tuple[str, bool], Channel] = {}
        self._counts: dict[int, int] = {}
        self._start_ns, self._end_ns = 2**63, 0
        self._chunk_indexes = bytearray()
        self._chunks = 0
        self._metadata_index: MetadataIndex | None = None
        self._chunk = _Chunk()
        self._stage = Stage()
        try:
            # A new file rather than the old one emptied: somebody may be reading that. An empty one holds the name.
            if self.path.is_file() and self.path.stat().st_size:
                self.path.unlink()
            mode = "r+b" if self.path.is_file() else "xb"
            self._file = open(self.path, mode, buffering=0)  # noqa: SIM115 - closed by finish and abandon
        except OSError as error:
            raise TraceError(f"cannot write the trace {self.path}: {error.strerror}; give another path") from error
        self._sink = Sink(self._file, cached=not live)

    def add(self, frame: Frame) -> None:
        """Put a frame into the open chunk.

        Raises:
            OSError: when the disk does not take it.
            TraceError: when the first frame is not run.header, or one is larger than any reader would accept.
        """
        if self._metadata_index is None:
            self._begin(frame)
        size = frame.size
        if size > layout.MAX_CHUNK_BYTES - layout.MESSAGE.size:
            raise TraceError(f"a {frame.kind} frame of {size} bytes is more than a trace can hold")
        if self._chunk.size + size > layout.CHUNK_BYTES:
            self.end_chunk()
        channel = self._channels.get((frame.kind, frame.binary)) or self._new_channel(frame.kind, frame.binary)
        self._chunk.add(channel.id, frame)
        if frame.kind in CHUNK_ENDS:
            self.end_chunk()

    def end_chunk(self) -> None:
        """Write the open chunk, if it holds anything. After this, `kill -9` cannot lose it.

        Raises:
            OSError: when the disk does not take it.
        """
        chunk = self._chunk
        if not chunk.size:
            return
        at, head = self.bytes_written, layout.CHUNK.size
        staged = self._live and 2 * chunk.array_bytes > chunk.size
        if staged:
            record, crc = self._stage.put_together(chunk.parts, chunk.size, head=head, at=at)
        else:
            content = joined(chunk.parts)
            record = memoryview(bytearray(head) + self._compressor.compress(content))
            crc = zlib_ng.crc32(content)
        length, packed_size = len(record), len(record) - head
        stated = (chunk.start_ns, chunk.end_ns, chunk.size, crc, 4, b"zstd", packed_size)
        layout.CHUNK.pack_into(record, 0, Opcode.CHUNK, length - layout.RECORD.size, *stated)
        offsets, indexes, place = {}, [], at + length
        for channel, entries in chunk.index.items():
            indexes.append(layout.record_bytes(MessageIndex(channel, entries)))
            offsets[channel] = place
            place += len(indexes[-1])
        entry = ChunkIndex(
            chunk_length=length,
            chunk_start_offset=at,
            compression="zstd",
            compressed_size=packed_size,
            message_end_time=chunk.end_ns,
            message_index_length=sum(map(len, indexes)),
            message_index_offsets=offsets,
            message_start_time=chunk.start_ns,
            uncompressed_size=chunk.size,
        )
        self._sink.write(record, at, staged=staged, hurry=self.hurry)
        self._sink.write(b"".join(indexes), at + length)
        self.bytes_written = place  # of what is there whole: `abandon` cuts off the rest
        self._stage.let_go()
        self._chunk = _Chunk()
        self._chunks += 1
        self._chunk_indexes += layout.record_bytes(entry)
        self._start_ns, self._end_ns = min(self._start_ns, chunk.start_ns), max(self._end_ns, chunk.end_ns)
        for channel, entries in chunk.index.items():
            self._counts[channel] = self._counts.get(channel, 0) + len(entries)
            self.frames_written += len(entries)

    def finish(self) -> None:
        """Write what is left and the index, and close the file: from now on it is whole.

        Raises:
            OSError: when the disk does not take it.
        """
        try:
            self.end_chunk()
            if self._metadata_index is not None:
                self._write(layout.record_bytes(DataEnd(data_section_crc=0)))
                self._write(self._summary())
        finally:
            self._sink.close()

    @property
    def taken(self) -> int:
        """Bytes that the operating system has taken, those of a chunk that is being written included."""
        return self._sink.taken

    @property
    def deleted(self) -> bool:
        """Whether the file being written has no name any more."""
        try:
            return os.fstat(self._file.fileno()).st_nlink == 0
        except (OSError, ValueError):  # it has been closed
            return False

    def abandon(self) -> None:
        """Close the file after a failure, cut back to its last whole chunk. Never raises."""
        if not self._file.closed:
            with suppress(OSError):  # the reader copes with a torn end
                self._file.truncate(self.bytes_written)
            with suppress(OSError):
                self._sink.close()

    def _begin(self, frame: Frame) -> None:
        if frame.kind != "run.header":
            raise TraceError(f"a trace begins with run.header, not with {frame.kind}: pass the run's header first")
        header, _ = parse(frame.payload, binary=False)
        facts = {
            "schema_version": str(header["schema_version"]),
            "epoch": str(header["epoch"]),
            **self._facts,
            "run_header": frame.payload.decode(),
        }
        library = f"tokenwalk {header['engine_version']}"
        opening = layout.MAGIC + layout.record_bytes(Header(profile=layout.PROFILE, library=library))
        metadata = layout.record_bytes(Metadata(name=layout.RUN_METADATA, metadata=facts))
        self._metadata_index = MetadataIndex(offset=len(opening), length=len(metadata), name=layout.RUN_METADATA)
        self._write(opening + metadata)

    def _new_channel(self, kind: str, binary: bool) -> Channel:
        # Outside the chunks, just before the first that needs it: a damaged chunk takes no channel with it.
        described = schema.json_schema(kind) if kind in KINDS else {"title": kind, "type": "object"}
        number = len(self._channels) + 1
        name = f"tokenwalk.{kind}"
        entry = Schema(id=number, data=orjson.dumps(described), encoding=layout.SCHEMA_ENCODING, name=name)
        encoding = layout.TENSOR_ENCODING if binary else layout.JSON_ENCODING
        channel = Channel(id=number, topic=kind, message_encoding=encoding, metadata={}, schema_id=number)
        self._schemas.append(entry)
        self._channels[kind, binary] = channel
        self._write(layout.record_bytes(entry, channel))
        return channel

    def _summary(self) -> bytes:
        assert self._metadata_index is not None
        statistics = Statistics(
            attachment_count=0,
            channel_count=len(self._channels),
            channel_message_counts=self._counts,
            chunk_count=self._chunks,
            message_count=sum(self._counts.values()),
            message_end_time=self._end_ns,
            message_start_time=self._start_ns,
            metadata_count=1,
            schema_count=len(self._schemas),
        )
        groups = {
            Opcode.SCHEMA: layout.record_bytes(*self._schemas),
            Opcode.CHANNEL: layout.record_bytes(*self._channels.values()),
            Opcode.STATISTICS: layout.record_bytes(statistics),
            Opcode.CHUNK_INDEX: bytes(self._chunk_indexes),
            Opcode.METADATA_INDEX: layout.record_bytes(self._metadata_index),
        }
        start = at = self.bytes_written
        offsets = []
        for opcode, group in groups.items():
            offsets.append(SummaryOffset(group_opcode=opcode, group_start=at, group_length=len(group)))
            at += len(group)
        body = b"".join(groups.values()) + layout.record_bytes(*offsets)
        footer = layout.record_bytes(Footer(summary_start=start, summary_offset_start=at, summary_crc=0))
        crc = zlib_ng.crc32(footer[:-4], zlib_ng.crc32(body))  # of everything up to the crc itself
        footer = layout.record_bytes(Footer(summary_start=start, summary_offset_start=at, summary_crc=crc))
        return body + footer + layout.MAGIC

    def _write(self, data: bytes) -> None:
        self._sink.write(data, self.bytes_written)
        self.bytes_written += len(data)
