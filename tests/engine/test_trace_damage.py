from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader

from engine.codec import Frame, parse
from engine.errors import TraceError
from engine.trace import layout, open_trace
from engine.trace.source import Damaged, Source
from tests.engine import trace_run

SEQUENCE = trace_run.frames(steps=5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return trace_run.record(tmp_path_factory.mktemp("whole") / "t.mcap", SEQUENCE).read_bytes()


@pytest.fixture(scope="module")
def chunk_spans(whole: bytes, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, int]]:
    """(start, end) of each chunk record, as mcap's own reader finds them."""
    path = tmp_path_factory.mktemp("spans") / "t.mcap"
    path.write_bytes(whole)
    with path.open("rb") as stream:
        summary = make_reader(stream).get_summary()
    assert summary is not None
    return sorted((c.chunk_start_offset, c.chunk_start_offset + c.chunk_length) for c in summary.chunk_indexes)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[bytes], tuple[list[Frame], list[str], bool]]:
    """Writes bytes to a file and reads it: frames, damage, complete."""

    def open_bytes(content: bytes) -> tuple[list[Frame], list[str], bool]:
        (tmp_path / "t.mcap").write_bytes(content)
        with open_trace(tmp_path / "t.mcap") as trace:
            return list(trace.frames()), trace.damage, trace.complete

    return open_bytes


Opened = Callable[[bytes], tuple[list[Frame], list[str], bool]]


def test_every_prefix_opens_or_is_a_trace_error_and_loses_at_most_the_chunk_it_was_cut_in(
    whole: bytes, chunk_spans: list[tuple[int, int]], opened: Opened
) -> None:
    per_chunk = _frames_per_chunk(chunk_spans, whole)
    lengths = sorted(
        set(range(0, len(whole), 37))
        | {edge + shift for span in chunk_spans for edge in span for shift in (-1, 0, 1, 9, 40)}
        | set(range(len(whole) - 60, len(whole)))
    )
    header_end = _metadata_end(whole)
    for length in lengths:
        cut = whole[:length]
        if length < header_end:
            with pytest.raises(TraceError, match=r"is empty|cut off"):
                opened(cut)
            continue
        found, _, complete = opened(cut)
        assert not complete
        assert found == SEQUENCE[: len(found)]
        kept = sum(count for (_, end), count in zip(chunk_spans, per_chunk, strict=True) if end <= length)
        assert len(found) == max(kept, 1), f"cut at {length}"


def test_a_cut_file_lists_the_kinds_of_its_last_chunk_in_full(
    whole: bytes, chunk_spans: list[tuple[int, int]], tmp_path: Path
) -> None:
    """What kinds a chunk has is known from the indexes behind it, which may be cut short themselves."""
    (_, end), (following, _) = chunk_spans[5:7]
    for length in range(end, following, 7):
        (tmp_path / "t.mcap").write_bytes(whole[:length])
        with open_trace(tmp_path / "t.mcap") as trace:
            everything = list(trace.frames())
            for kind in ("step.started", "attention", "step.finished"):
                assert list(trace.frames(kinds={kind})) == [frame for frame in everything if frame.kind == kind]


def test_no_more_is_read_than_the_file_has(whole: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.mcap").write_bytes(whole)
    source = Source(tmp_path / "t.mcap")
    assert source.read(len(whole) - 8, 8) == whole[-8:]
    for offset, length in ((len(whole) - 8, 9), (0, 2**62), (2**62, 1), (-1, 1), (0, -1)):
        with pytest.raises(Damaged, match="reach beyond"):
            source.read(offset, length)
    source.close()


def test_a_cut_file_names_itself_even_before_its_first_chunk(whole: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.mcap").write_bytes(whole[: _metadata_end(whole)])
    with open_trace(tmp_path / "t.mcap") as trace:
        assert trace.header["epoch"] == "e1"
        assert [frame.payload for frame in trace.frames()] == [SEQUENCE[0].payload]


def test_lost_bytes_are_those_of_the_torn_chunk(
    whole: bytes, chunk_spans: list[tuple[int, int]], tmp_path: Path
) -> None:
    start, end = chunk_spans[4]
    cut = (start + end) // 2
    (tmp_path / "t.mcap").write_bytes(whole[:cut])
    with open_trace(tmp_path / "t.mcap") as trace:
        assert trace.lost_bytes == cut - start
        assert "cut off" in trace.damage[0]


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("number", [0, 1, 5, 11])
def test_a_damaged_chunk_becomes_a_gap_and_the_rest_is_read(
    whole: bytes, chunk_spans: list[tuple[int, int]], opened: Opened, with_index: bool, number: int
) -> None:
    start, end = chunk_spans[number]
    content = bytearray(whole if with_index else whole[:-25])
    content[(start + end) // 2] ^= 0xFF
    found, damage, complete = opened(bytes(content))
    assert complete is with_index
    assert damage
    lost = _frames_in_chunk(number, chunk_spans, whole)
    if number == 0:
        lost.discard(SEQUENCE[0].seq)  # the header is in the metadata too
    gaps = [parse(frame.payload, binary=False)[0] for frame in found if frame.kind == "gap"]
    assert [(gap["from_seq"], gap["to_seq"], gap["reason"]) for gap in gaps] == [(min(lost), max(lost), "damaged_file")]
    assert [frame for frame in found if frame.kind != "gap"] == [f for f in SEQUENCE if f.seq not in lost]
    assert [frame.seq for frame in found] == sorted(frame.seq for frame in found)


def test_chunks_are_found_again_behind_a_record_whose_length_is_nonsense(
    whole: bytes, chunk_spans: list[tuple[int, int]], opened: Opened
) -> None:
    start, _ = chunk_spans[3]
    content = bytearray(whole[:-25])
    content[start + 1 : start + 9] = struct.pack("<Q", 2**60)
    found, damage, _ = opened(bytes(content))
    lost = _frames_in_chunk(3, chunk_spans, whole)
    assert [frame for frame in found if frame.kind != "gap"] == [f for f in SEQUENCE if f.seq not in lost]
    assert [frame.seq for frame in found if frame.kind == "gap"] == [max(lost)]
    assert any("are skipped" in line for line in damage)


def test_a_gap_is_cut_to_the_window_that_was_asked_for(
    whole: bytes, chunk_spans: list[tuple[int, int]], tmp_path: Path
) -> None:
    start, end = chunk_spans[5]
    content = bytearray(whole)
    content[(start + end) // 2] ^= 0xFF
    lost = _frames_in_chunk(5, chunk_spans, whole)
    (tmp_path / "t.mcap").write_bytes(content)
    with open_trace(tmp_path / "t.mcap") as trace:
        first, last = min(lost) + 1, max(lost) - 1
        (gap,) = trace.frames(first, last)
        fields = parse(gap.payload, binary=False)[0]
        assert (fields["from_seq"], fields["to_seq"]) == (first, last)
        assert [frame.kind for frame in trace.frames(kinds={"token"}, from_seq=first, to_seq=last)] == ["gap"]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_flipped_bytes_give_frames_of_the_run_or_a_trace_error(
    data: st.DataObject, whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "flipped.mcap"
    path.write_bytes(content)
    by_seq = {frame.seq: frame.payload for frame in SEQUENCE}
    try:
        with open_trace(path) as trace:
            found = list(trace.frames())
            trace.info()
    except TraceError:
        return
    for frame in found[1:]:  # the header may come from the metadata, which has no checksum
        assert frame.kind == "gap" or frame.payload == by_seq[frame.seq]


@settings(max_examples=100, deadline=None)
@given(tail=st.binary(max_size=300))
def test_any_bytes_after_a_good_beginning_are_harmless(
    tail: bytes, whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    beginning = whole[: _metadata_end(whole)]
    path = tmp_path_factory.getbasetemp() / "tail.mcap"
    path.write_bytes(beginning + tail)
    with open_trace(path) as trace:
        assert next(trace.frames()).kind == "run.header"
        list(trace.frames())


def test_a_decompression_bomb_is_refused_before_it_is_unpacked(
    whole: bytes, chunk_spans: list[tuple[int, int]], opened: Opened
) -> None:
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(1 << 30))
    assert len(bomb) < 100_000
    for stated in (1 << 30, 1000):  # an honest bomb, and one that lies about itself
        record = layout.CHUNK.pack(6, layout.CHUNK.size - 9 + len(bomb), 0, 1, stated, 0, 4, b"zstd", len(bomb)) + bomb
        content = whole[: chunk_spans[2][0]] + record
        tracemalloc.start()
        found, damage, _ = opened(content)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 20_000_000
        assert any("would take" in line or "states 1000 bytes" in line for line in damage)
        assert [frame for frame in found if frame.kind != "gap"] == SEQUENCE[
            : len(found) - sum(f.kind == "gap" for f in found)
        ]


@pytest.mark.parametrize("at", ["metadata length", "summary start", "chunk index"])
def test_absurd_sizes_are_checked_before_memory_is_taken(whole: bytes, opened: Opened, at: str) -> None:
    content = bytearray(whole)
    if at == "metadata length":
        offset = whole.index(layout.RUN_METADATA.encode()) + len(layout.RUN_METADATA)
        content[offset : offset + 4] = struct.pack("<I", 2**32 - 1)
    elif at == "summary start":
        content[-8 - 20 : -8 - 12] = struct.pack("<Q", 3)
    else:
        start = struct.unpack_from("<Q", whole, len(whole) - 28)[0]
        summary = bytearray(whole[start:-37])
        first = summary.index(b"\x08") if summary[0] == 8 else _record_offset(summary, 8)
        struct.pack_into("<Q", summary, first + 9 + 16, 2**62)  # a chunk's offset
        crc = zlib.crc32(whole[-37:-12], zlib.crc32(summary))
        content = bytearray(whole[:start]) + summary + whole[-37:-12] + struct.pack("<I", crc) + whole[-8:]
    tracemalloc.start()
    try:
        found, damage, _ = opened(bytes(content))
        assert damage
        assert found == SEQUENCE, "the chunks themselves are whole"
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 20_000_000


def _metadata_end(whole: bytes) -> int:
    at = len(layout.MAGIC) + _record_offset(whole[len(layout.MAGIC) :], 0x0C)
    end: int = at + 9 + struct.unpack_from("<Q", whole, at + 1)[0]
    return end


def _record_offset(records: bytes, wanted: int) -> int:
    at = 0
    while records[at] != wanted:
        at += 9 + struct.unpack_from("<Q", records, at + 1)[0]
    return at


def _frames_per_chunk(spans: list[tuple[int, int]], whole: bytes) -> list[int]:
    return [len(_frames_in_chunk(number, spans, whole)) for number in range(len(spans))]


def _frames_in_chunk(number: int, spans: list[tuple[int, int]], whole: bytes) -> set[int]:
    """Seqs in a chunk, found by unpacking it here: a message's record begins with opcode 5 and its length."""
    start, end = spans[number]
    data = zstandard.ZstdDecompressor().decompress(whole[start + layout.CHUNK.size : end])
    seqs, at = set(), 0
    while at < len(data):
        opcode, length, _, sequence = struct.unpack_from("<BQHI", data, at)
        assert opcode == 5
        seqs.add(sequence)
        at += 9 + length
    return seqs
