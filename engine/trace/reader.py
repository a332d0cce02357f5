"""Reads a trace file: whole, cut off, damaged or still being written."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Self

from mcap.records import Channel

from engine.codec import Frame, encode, misfit, parse
from engine.errors import TraceError
from engine.events import SCHEMA_VERSION, Gap
from engine.trace import layout
from engine.trace.chunks import load_chunk, lost_messages, messages
from engine.trace.filter import RequestFilter
from engine.trace.index import read_index
from engine.trace.source import Damaged, open_source

_ARRIVALS_AND_ENDS = frozenset({"request.arrived", "request.finished", "request.rejected"})


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a trace. Reads its index and its first chunk only, whatever its size.

    A file that was cut off (by a crash, by a full disk, or because it is still being written) opens too; its
    `Trace.complete` is False.

    Raises:
        TraceError: when it is not there, is not a trace, or not even its beginning is there.
    """
    return Trace(path)


class Trace:
    """A trace file opened for reading; `frames` may be called from any thread, several at once.

    Attributes:
        header: fields of the run.header event.
        metadata: facts about the file: `part`, and `slice_of`, `recovered`, `baked` where they apply.
        complete: whether the file was closed properly and has its index.
        damage: what was found wrong so far, one line each; reading on may find more.
        lost_bytes: bytes at a torn end, or skipped in the middle, that belong to no whole record.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._source = open_source(self.path)
        try:
            self._index = read_index(self._source)
            self.complete = self._index.complete
            self.damage, self.lost_bytes = self._index.damage, self._index.lost_bytes
            self._header_frame, self.header = self._run_header()
        except (Damaged, TraceError) as reason:
            self._source.close()
            raise TraceError(f"{self.path} cannot be read: {reason}") from reason
        self.metadata = {
            name: value
            for name, value in self._index.metadata.get(layout.RUN_METADATA, {}).items()
            if name not in ("schema_version", "epoch", "run_header")
        }
        self.size_bytes = self._source.size
        self._edges: dict[int, tuple[int, int] | None] = {}
        self._requests: list[dict[str, Any]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def frames(
        self,
        from_seq: int = 0,
        to_seq: int | None = None,
        kinds: Collection[str] | None = None,
        request: str | None = None,
    ) -> Iterator[Frame]:
        """The frames with `from_seq` ≤ seq ≤ `to_seq` in order, read chunk by chunk as they are asked for.

        With `kinds`, those kinds only. With `request`, run.header, the request's own events, and the steps, slots and
        blocks that touched it. Where a part of the file is damaged, a `gap` stands for what it held.
        """
        if request is None:
            yield from self._read(from_seq, to_seq, kinds)
            return
        keep = RequestFilter(request)
        # From its arrival, wherever the window begins: the filter must see its steps and blocks from their beginning.
        arrived = next((known["arrived_seq"] for known in self.requests() if known["id"] == request), None) or 0
        if from_seq <= self._header_frame.seq < arrived and (kinds is None or "run.header" in kinds):
            yield self._header_frame
        for frame in self._read(arrived, to_seq, None):
            if keep(frame) and frame.seq >= from_seq and (kinds is None or frame.kind in kinds or frame.kind == "gap"):
                yield frame

    def requests(self) -> list[dict[str, Any]]:
        """The requests that the file knows of, in order: how each arrived and ended (None: the file does not say).

        Fields: id, name, source, text, messages, sampling, max_tokens, capture, arrived_seq, arrived_ns; reason,
        detail, prompt_tokens, completion_tokens, timings, finished_ns.
        """
        if self._requests is None:
            found: dict[str, dict[str, Any]] = {}
            for frame in self._read(0, None, _ARRIVALS_AND_ENDS):
                fields = parse(frame.payload, binary=frame.binary)[0]
                if wrong := misfit(fields):
                    self._note(Damaged(f"{frame.kind} {frame.seq} is not as the format has it: {wrong}"))
                elif frame.request is not None:
                    _note_request(found.setdefault(frame.request, _unknown_request(frame.request)), frame, fields)
            self._requests = list(found.values())
        return self._requests

    def info(self) -> dict[str, Any]:
        """What the file is and holds, ready for JSON. Reads few chunks, or all of a file that lacks its index."""
        counts, last = self._counts(), self._last_frame()
        return {
            "path": str(self.path),
            "size_bytes": self.size_bytes,
            "complete": self.complete,
            "schema_version": self.header.get("schema_version"),
            "schema_known": self.header.get("schema_version") == SCHEMA_VERSION,
            **{name: self.header.get(name) for name in ("epoch", "engine_version", "started_at", "model", "machine")},
            "file": self.metadata,
            "frames": sum(counts.values()),
            "kinds": counts,
            "last_seq": last.seq,
            "duration_ns": last.t_ns,
            "chunks": len(self._index.chunks),
            "requests": self.requests(),
            "damage": list(self.damage),
            "lost_bytes": self.lost_bytes,
        }

    @property
    def open_end(self) -> str | None:
        """Why requests may be under way at the file's end; None where each has to have ended."""
        facts = self.metadata
        if not self.complete:
            return "the file was cut off, or is still being written"
        if "recovered" in facts or "open_end" in facts:
            return facts.get("open_end", "it was made of a file that was cut off or damaged")
        stated = facts.get("part_bytes", "")
        part_bytes = int(stated) if stated.isdecimal() and len(stated) < 20 else layout.PART_BYTES
        return "the run may go on in a next file" if self.size_bytes > part_bytes else None

    @property
    def last_seq(self) -> int:
        """Seq of the last frame that can be read."""
        return self._last_frame().seq

    # --- the run's header ---------------------------------------------------------------------------------------------

    def _run_header(self) -> tuple[Frame, dict[str, Any]]:
        """The run.header frame: from the first chunk, which has a checksum, or else from the metadata record."""
        frame: Frame | None = None
        for place in range(len(self._index.chunks)):
            try:
                frame = next(self._chunk(place, None), None)
            except Damaged as reason:
                self._note(reason)
            if frame is not None:
                break
        stored = self._index.metadata.get(layout.RUN_METADATA, {}).get("run_header")
        if (frame is None or frame.kind != "run.header") and stored is not None:
            frame = layout.frame_of(stored.encode(), binary=False)
        if frame is None or frame.kind != "run.header":
            raise TraceError("the run's header is damaged or was cut off, and nothing makes sense without it")
        header = parse(frame.payload, binary=False)[0]
        if wrong := misfit(header):
            raise TraceError(f"in the run's header, {wrong}")
        return frame, header

    # --- frames -------------------------------------------------------------------------------------------------------

    def _read(self, from_seq: int, to_seq: int | None, kinds: Collection[str] | None) -> Iterator[Frame]:
        header = self._header_frame
        if from_seq <= header.seq <= (header.seq if to_seq is None else to_seq) and (
            kinds is None or header.kind in kinds
        ):
            yield header
        damaged: int | None = None  # the first of the damaged chunks just passed
        for place in range(self._place_of(from_seq), len(self._index.chunks)):
            edges = None if damaged is None else self._edges_of(place)
            if damaged is not None and edges is not None:
                yield from self._gap(damaged, edges[0] - 1, from_seq, to_seq)
                damaged = None
            try:
                for frame in self._chunk(place, kinds):
                    if to_seq is not None and frame.seq > to_seq:
                        return
                    if frame.seq >= from_seq and not (frame.kind == header.kind and frame.seq == header.seq):
                        yield frame
            except Damaged as reason:
                self._note(reason)
                damaged = place if damaged is None else damaged
        if damaged is not None:
            lost = sum(lost_messages(self._source, place) for place in self._index.chunks[damaged:])
            yield from self._gap(damaged, self._seq_before(damaged) + lost, from_seq, to_seq)

    def _chunk(self, place: int, kinds: Collection[str] | None) -> Iterator[Frame]:
        channels, chunk = self._index.channels, self._index.chunks[place]
        known = chunk.channels is not None and chunk.channels <= channels.keys()
        if kinds is not None and known and not any(channels[n].topic in kinds for n in chunk.channels or ()):
            return
        for number, payload in messages(load_chunk(self._source, chunk), channels):
            channel = channels.get(number)  # None where its record is damaged: the payload tells as much
            if channel is not None and kinds is not None and channel.topic not in kinds:
                continue
            try:
                frame = layout.frame_of(payload, binary=_is_tensor(channel, payload))
            except TraceError as reason:
                raise Damaged(f"in the chunk at byte {chunk.offset}, {reason}") from reason
            if kinds is None or frame.kind in kinds:
                yield frame

    def _gap(self, damaged: int, last: int, from_seq: int, to_seq: int | None) -> Iterator[Frame]:
        """What stands for the chunks from `damaged` on, up to seq `last`, as far as it lies in the window."""
        first = max(self._seq_before(damaged) + 1, from_seq)
        last = last if to_seq is None else min(last, to_seq)
        if first <= last:
            yield encode(Gap(seq=last, from_seq=first, to_seq=last, reason="damaged_file"))

    def _place_of(self, seq: int) -> int:
        """The last chunk that begins at or before `seq`, found by bisection: each probe reads one chunk."""
        low, high = 0, len(self._index.chunks) if seq > self._header_frame.seq + 1 else 0
        while high - low > 1:
            middle = (low + high) // 2
            probe = next((place for place in range(middle, high) if self._edges_of(place)), None)
            edges = None if probe is None else self._edges_of(probe)
            if probe is None or edges is None or edges[0] > seq:
                high = middle
            else:
                low = probe
        return low

    def _seq_before(self, place: int) -> int:
        edges = (self._edges_of(before) for before in range(place, -1, -1))
        return next((last for found in edges if found is not None for _, last in [found]), self._header_frame.seq)

    def _edges_of(self, place: int) -> tuple[int, int] | None:
        """Seq of a chunk's first and last frame that can be read, run.header aside; None when there is none."""
        if place not in self._edges:
            seqs: list[int] = []
            try:
                seqs.extend(frame.seq for frame in self._chunk(place, None) if frame.kind != self._header_frame.kind)
            except Damaged as reason:
                self._note(reason)
            self._edges[place] = (seqs[0], seqs[-1]) if seqs else None
        return self._edges[place]

    def _note(self, reason: Damaged) -> None:
        if str(reason) not in self.damage:
            self.damage.append(str(reason))

    # --- facts --------------------------------------------------------------------------------------------------------

    def _counts(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        if self._index.counts:
            for number, count in self._index.counts.items():
                channel = self._index.channels.get(number)
                topic = channel.topic if channel is not None else f"channel {number}"
                counts[topic] = counts.get(topic, 0) + count
        else:
            for frame in self.frames():
                counts[frame.kind] = counts.get(frame.kind, 0) + 1
        return dict(sorted(counts.items()))

    def _last_frame(self) -> Frame:
        for place in range(len(self._index.chunks) - 1, -1, -1):
            last: Frame | None = None
            try:
                for frame in self._chunk(place, None):
                    last = frame
            except Damaged as reason:
                self._note(reason)
            if last is not None:
                return last
        return self._header_frame


def _is_tensor(channel: Channel | None, payload: bytes) -> bool:
    if channel is not None:
        return channel.message_encoding == layout.TENSOR_ENCODING
    return payload[:1] != b"{" or payload[4:5] == b"{"  # a tensor frame's JSON begins behind its length


def _unknown_request(request: str) -> dict[str, Any]:
    arrival = ("name", "source", "text", "messages", "sampling", "max_tokens", "capture", "arrived_seq", "arrived_ns")
    end = ("reason", "detail", "prompt_tokens", "completion_tokens", "timings", "finished_ns")
    return {"id": request, **dict.fromkeys(arrival + end)}


def _note_request(known: dict[str, Any], frame: Frame, fields: dict[str, Any]) -> None:
    known |= {name: value for name, value in fields.items() if name in known and name != "id"}
    if frame.kind == "request.arrived":
        known |= {"arrived_seq": frame.seq, "arrived_ns": frame.t_ns}
    else:
        known["finished_ns"] = frame.t_ns
