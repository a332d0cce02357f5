from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine.codec import encode, parse
from engine.errors import TraceError
from engine.events import BlockAllocated, BlockEvicted, BlockFreed, BlockRefChanged, BlockReused, Event
from engine.trace import Recorder, chunks, open_trace
from engine.trace.filter import RequestFilter
from tests.engine import trace_run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return trace_run.record(tmp_path / "t.mcap", trace_run.frames(steps=6))


def test_a_window_of_seqs_has_both_its_ends(path: Path) -> None:
    sequence = trace_run.frames(steps=6)
    last = sequence[-1].seq
    with open_trace(path) as trace:
        for first in range(last + 2):
            for end in (first, first + 4, None):
                wanted = [frame for frame in sequence if first <= frame.seq <= (last if end is None else end)]
                assert list(trace.frames(first, end)) == wanted


def test_seeking_reads_few_chunks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.trace import reader

    sequence, loaded = trace_run.frames(steps=200), []
    trace_run.record(path, sequence)

    def count(source: object, place: chunks.ChunkPlace) -> bytes:
        loaded.append(place)
        return chunks.load_chunk(source, place)  # type: ignore[arg-type]

    monkeypatch.setattr(reader, "load_chunk", count)
    with open_trace(path) as trace:
        assert [frame.seq for frame in trace.frames(1000, 1003)] == [1000, 1001, 1002, 1003]
    assert len(loaded) <= 14, "400 chunks: nine probes, then the one or two wanted"


def test_kinds_choose_events_and_skip_chunks_without_them(path: Path) -> None:
    sequence = trace_run.frames(steps=6)
    with open_trace(path) as trace:
        found = list(trace.frames(kinds={"token", "run.header"}))
        assert found == [frame for frame in sequence if frame.kind in ("token", "run.header")]
        assert list(trace.frames(from_seq=20, kinds=["request.finished"])) == [
            frame for frame in sequence if frame.kind == "request.finished"
        ]


def test_a_request_brings_its_steps_slots_and_blocks_and_no_others(path: Path) -> None:
    sequence = trace_run.frames(steps=6)
    with open_trace(path) as trace:
        found = list(trace.frames(request="r1"))
    assert [frame.kind for frame in found].index("run.header") == 0
    assert len({frame.seq for frame in found}) == len(found)
    assert {frame.request for frame in found} == {None, "r1", "r2"}
    # Of r2 only what happened to block 7, which r1 holds too.
    assert [frame.kind for frame in found if frame.request == "r2"] == ["block.reused"]
    steps = {frame.step for frame in sequence if frame.kind == "token" and frame.request == "r1"}
    for kind in ("step.started", "step.finished"):
        assert {frame.step for frame in found if frame.kind == kind} == steps
    own = [frame for frame in sequence if frame.request == "r1"]
    assert [frame for frame in found if frame.request == "r1"] == own


def test_a_blocks_events_belong_to_a_request_only_while_it_holds_the_block() -> None:
    keep = RequestFilter("a")
    story: list[tuple[Event, bool]] = [
        (BlockReused(block=3, request="b", refs=1), False),
        (BlockRefChanged(block=3, request="a", refs=2), True),  # a takes it too
        (BlockRefChanged(block=3, request="b", refs=1), True),  # b gives it back: a still holds it
        (BlockEvicted(block=3, request=None, refs=1), True),  # not to be found any more, but still held
        (BlockRefChanged(block=3, request="a", refs=0), True),  # a gives it back
        (BlockReused(block=3, request="b", refs=1), False),
        (BlockAllocated(block=4, request="a", refs=1), True),
        (BlockFreed(block=4, refs=0), True),
        (BlockAllocated(block=4, request="b", refs=1), False),
    ]
    assert [keep(encode(event)) for event, _ in story] == [kept for _, kept in story]


def test_a_window_of_a_request_knows_the_steps_that_began_before_it(path: Path) -> None:
    sequence = trace_run.frames(steps=6)
    token = next(frame for frame in sequence[30:] if frame.kind == "token" and frame.request == "r1")
    with open_trace(path) as trace:
        found = list(trace.frames(token.seq, token.seq + 4, request="r1"))
        assert [frame.kind for frame in found] == ["token", "attention", "residual", "step.finished"]
        assert next(trace.frames(kinds={"token"}, request="r1", from_seq=token.seq)) == token


def test_a_request_that_is_not_there_leaves_the_header(path: Path) -> None:
    with open_trace(path) as trace:
        assert [frame.kind for frame in trace.frames(request="nobody")] == ["run.header"]


def test_requests_tell_how_each_arrived_and_ended(path: Path) -> None:
    with open_trace(path) as trace:
        first, second = trace.requests()
    assert (first["id"], second["id"]) == ("r1", "r2")
    assert first["text"] == "Hi"
    assert first["arrived_ns"] == first["arrived_seq"] * 1000
    assert (first["reason"], first["prompt_tokens"], first["completion_tokens"]) == ("length", 2, 6)


def test_a_request_that_has_not_ended_says_so(tmp_path: Path) -> None:
    path = trace_run.record(tmp_path / "t.mcap", trace_run.frames()[:12])
    with open_trace(path) as trace:
        assert [request["reason"] for request in trace.requests()] == [None, None]


def test_info_counts_without_reading_everything_and_with_the_same_result(path: Path) -> None:
    sequence = trace_run.frames(steps=6)
    with open_trace(path) as trace:
        facts = trace.info()
    assert facts["frames"] == len(sequence)
    assert facts["kinds"]["attention"] == 12
    assert facts["last_seq"] == len(sequence)
    assert facts["duration_ns"] == len(sequence) * 1000
    assert facts["schema_known"]
    path.write_bytes(path.read_bytes()[:-20])
    with open_trace(path) as trace:
        cut = trace.info()
    assert not cut["complete"]
    assert {name: cut[name] for name in ("frames", "kinds", "last_seq")} == {
        name: facts[name] for name in ("frames", "kinds", "last_seq")
    }


def test_a_newer_schema_opens_and_says_that_it_is_not_known(tmp_path: Path) -> None:
    import dataclasses

    sequence = trace_run.frames()
    newer = dataclasses.replace(
        sequence[0], parts=(sequence[0].payload.replace(b'"schema_version":1', b'"schema_version":99'),)
    )
    with open_trace(trace_run.record(tmp_path / "t.mcap", [newer, *sequence[1:]])) as trace:
        assert trace.header["schema_version"] == 99
        assert not trace.info()["schema_known"]
        assert len(list(trace.frames())) == len(sequence)


def test_two_iterations_at_once_do_not_disturb_each_other(path: Path) -> None:
    sequence = trace_run.frames(steps=6)
    with open_trace(path) as trace:
        pairs = list(zip(trace.frames(), trace.frames(), strict=True))
    assert pairs == [(frame, frame) for frame in sequence]


def test_a_file_that_is_being_written_reads_as_a_growing_prefix(tmp_path: Path) -> None:
    sequence = trace_run.frames(steps=150)
    recorder = Recorder(tmp_path / "t.mcap")
    recorder(sequence[0])
    recorder.flush()

    def write() -> None:
        for frame in sequence[1:]:
            recorder(frame)
        recorder.close()

    writing = threading.Thread(target=write)
    writing.start()
    lengths = []
    while True:
        alive = writing.is_alive()
        with open_trace(tmp_path / "t.mcap") as trace:
            found = list(trace.frames())
            assert found == sequence[: len(found)]
            lengths.append(len(found))
            if not alive:
                assert trace.complete
                break
    writing.join()
    assert lengths == sorted(lengths)
    assert lengths[-1] == len(sequence)


def test_a_file_rewritten_by_another_mcap_tool_still_opens(path: Path, tmp_path: Path) -> None:
    """Such tools keep the messages, and may drop our metadata, move channels into chunks and compress with lz4."""
    from mcap.reader import make_reader
    from mcap.writer import CompressionType, Writer

    sequence = trace_run.frames(steps=6)
    for compression in CompressionType:
        other = tmp_path / f"{compression.name}.mcap"
        with path.open("rb") as source, other.open("wb") as sink:
            writer = Writer(sink, chunk_size=5000, compression=compression)
            writer.start(profile="tokenwalk")
            channels: dict[int, int] = {}
            for schema, channel, message in make_reader(source).iter_messages():
                if channel.id not in channels:
                    assert schema is not None
                    number = writer.register_schema(schema.name, schema.encoding, schema.data)
                    channels[channel.id] = writer.register_channel(channel.topic, channel.message_encoding, number)
                writer.add_message(channels[channel.id], message.log_time, message.data, message.publish_time)
            writer.finish()
        with open_trace(other) as trace:
            assert list(trace.frames()) == sequence
            assert trace.header["epoch"] == "e1"
        other.write_bytes(other.read_bytes()[:-30])
        with open_trace(other) as trace:
            assert list(trace.frames()) == sequence


def test_the_json_schema_in_the_file_describes_the_payload(path: Path) -> None:
    import orjson
    from mcap.reader import make_reader

    with path.open("rb") as stream:
        for schema, _channel, message in make_reader(stream).iter_messages():
            assert schema is not None
            described = orjson.loads(schema.data)
            binary = described["title"] in ("attention", "residual")
            head = message.data[4 : 4 + int.from_bytes(message.data[:4], "little")] if binary else message.data
            assert set(orjson.loads(head)) == set(described["required"])
            parse(message.data, binary=binary)


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("empty.mcap", b"", "is empty"),
        ("text.mcap", b"hello, this is no trace\n", "expected an MCAP file, found text \\('hello"),
        ("image.mcap", b"\x89PNG\r\n\x1a\n" + bytes(50), "found a PNG image"),
        ("model.mcap", b"GGUF\x03\x00\x00\x00" + bytes(50), "found a GGUF model"),
        ("noise.mcap", bytes(range(200, 256)) * 4, "found bytes that begin with c8 c9 ca"),
        ("magic.mcap", b"\x89MCAP0\r\n", "was cut off before the run's header"),
        ("half-magic.mcap", b"\x89MCA", "was cut off before the run's header"),
    ],
)
def test_what_is_not_a_trace_is_one_clear_line(tmp_path: Path, name: str, content: bytes, what: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=what) as raised:
        open_trace(tmp_path / name)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_and_a_folder_say_so(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is not there"):
        open_trace(tmp_path / "none.mcap")
    with pytest.raises(TraceError, match="is not a file"):
        open_trace(tmp_path)


def test_an_mcap_file_of_something_else_names_its_profile(tmp_path: Path) -> None:
    from mcap.writer import Writer

    with (tmp_path / "robot.mcap").open("wb") as sink:
        writer = Writer(sink)
        writer.start(profile="ros2")
        writer.finish()
    with pytest.raises(TraceError, match="is an MCAP file but not a Tokenwalk trace: its profile is 'ros2'"):
        open_trace(tmp_path / "robot.mcap")
