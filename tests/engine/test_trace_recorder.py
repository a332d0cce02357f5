from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from mcap.reader import NonSeekingReader, make_reader

from engine.bus import EventBus
from engine.codec import Frame
from engine.errors import TraceError
from engine.events import KINDS
from engine.trace import Recorder, layout, open_trace
from engine.trace import writer as writer_module
from tests.engine import trace_run

ROOT = Path(__file__).resolve().parents[2]


def test_a_file_that_is_deleted_ends_the_recording_and_says_so(tmp_path: Path) -> None:
    told: list[str] = []
    recorder = Recorder(tmp_path / "t.mcap", on_failure=told.append)
    sequence = trace_run.frames()
    for frame in sequence[:20]:
        recorder(frame)
    recorder.flush()
    assert recorder.failure is None
    (tmp_path / "t.mcap").unlink()
    recorder.flush()
    assert recorder.failure is not None
    assert told == [recorder.failure]
    assert "the file was deleted" in told[0]
    for frame in sequence[20:]:
        recorder(frame)
    recorder.close()
    assert list(tmp_path.iterdir()) == []


def test_what_is_read_is_byte_for_byte_what_was_recorded(tmp_path: Path) -> None:
    sequence = trace_run.frames()
    with open_trace(trace_run.record(tmp_path / "t.mcap", sequence)) as trace:
        assert list(trace.frames()) == sequence
        assert trace.complete
        assert trace.damage == []


def test_a_trace_equals_what_a_live_listener_got(tmp_path: Path) -> None:
    bus, live = EventBus(), []
    recorder = Recorder(tmp_path / "t.mcap")
    bus.subscribe(recorder)
    bus.subscribe(live.append)
    for event in trace_run.run_events():
        bus.emit(event)
    bus.close()
    recorder.close()
    with open_trace(tmp_path / "t.mcap") as trace:
        assert list(trace.frames()) == live


@pytest.mark.parametrize("make", [make_reader, NonSeekingReader])
def test_mcaps_own_reader_reads_it_with_every_checksum(tmp_path: Path, make: Any) -> None:
    sequence = trace_run.frames()
    path = trace_run.record(tmp_path / "t.mcap", sequence)
    with path.open("rb") as stream:
        found = list(make(stream, validate_crcs=True).iter_messages())
    assert [message.data for _, _, message in found] == [frame.payload for frame in sequence]
    for (schema, channel, message), frame in zip(found, sequence, strict=True):
        assert channel.topic == frame.kind
        assert channel.message_encoding == ("tokenwalk.tensor" if frame.binary else "json")
        assert (schema.name, schema.encoding) == (f"tokenwalk.{frame.kind}", "jsonschema")
        assert (message.log_time, message.sequence) == (frame.t_ns, frame.seq)


def test_the_index_lists_every_chunk_and_one_step_is_one_chunk(tmp_path: Path) -> None:
    path = trace_run.record(tmp_path / "t.mcap", trace_run.frames(steps=4))
    with path.open("rb") as stream:
        summary = make_reader(stream).get_summary()
    assert summary is not None
    assert summary.statistics is not None
    # 2 arrivals, 8 steps, 2 ends
    assert summary.statistics.chunk_count == len(summary.chunk_indexes) == 12
    assert summary.statistics.message_count == len(trace_run.frames(steps=4))
    assert {channel.topic for channel in summary.channels.values()} <= set(KINDS)


def test_a_seq_beyond_32_bits_survives(tmp_path: Path) -> None:
    import dataclasses

    sequence = trace_run.frames()
    late = dataclasses.replace(sequence[-1], seq=2**40 + 7)
    payload = late.payload.replace(f'"seq":{sequence[-1].seq}'.encode(), f'"seq":{2**40 + 7}'.encode())
    late = dataclasses.replace(late, parts=(payload,))
    with open_trace(trace_run.record(tmp_path / "t.mcap", [*sequence[:-1], late])) as trace:
        assert list(trace.frames())[-1] == late
        assert trace.last_seq == 2**40 + 7


def test_flush_puts_everything_on_disk_and_an_open_file_reads_as_unfinished(tmp_path: Path) -> None:
    sequence = trace_run.frames()
    recorder = Recorder(tmp_path / "t.mcap")
    for frame in sequence[:9]:
        recorder(frame)
    recorder.flush()
    with open_trace(tmp_path / "t.mcap") as trace:
        assert list(trace.frames()) == sequence[:9]
        assert not trace.complete
        assert trace.lost_bytes == 0
    assert recorder.bytes_written == (tmp_path / "t.mcap").stat().st_size
    recorder.close()


def test_an_unfinished_chunk_is_written_after_a_short_silence(tmp_path: Path) -> None:
    sequence = trace_run.frames()[:6]
    recorder = Recorder(tmp_path / "t.mcap")
    for frame in sequence:
        recorder(frame)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            with open_trace(tmp_path / "t.mcap") as trace:
                if list(trace.frames()) == sequence:
                    break
        except TraceError:
            pass
        time.sleep(0.02)
    else:
        pytest.fail("the frames did not reach the disk without a flush")
    recorder.close()


def test_the_header_can_be_given_to_a_recorder_that_comes_late(tmp_path: Path) -> None:
    sequence = trace_run.frames()
    with open_trace(trace_run.record(tmp_path / "t.mcap", sequence[5:], header=sequence[0])) as trace:
        assert list(trace.frames()) == [sequence[0], *sequence[5:]]


def test_a_header_that_is_given_and_published_is_written_once(tmp_path: Path) -> None:
    sequence = trace_run.frames()
    with open_trace(trace_run.record(tmp_path / "t.mcap", sequence, header=sequence[0])) as trace:
        assert list(trace.frames()) == sequence


def test_a_recorder_without_a_header_fails_with_a_reason_and_nothing_else_does(tmp_path: Path) -> None:
    told: list[str] = []
    recorder = Recorder(tmp_path / "t.mcap", on_failure=told.append)
    for frame in trace_run.frames()[1:]:
        recorder(frame)
    recorder.close()
    assert recorder.failure is not None
    assert "begins with run.header, not with request.arrived" in recorder.failure
    assert told == [recorder.failure]


def test_a_long_run_continues_in_next_files_that_each_begin_with_the_header(tmp_path: Path) -> None:
    sequence = trace_run.frames(steps=40)
    recorder = Recorder(tmp_path / "run.mcap", part_bytes=20_000)
    for frame in sequence:
        recorder(frame)
    recorder.close()
    assert [path.name for path in recorder.paths[:3]] == ["run.mcap", "run-2.mcap", "run-3.mcap"]
    joined: list[Frame] = []
    for number, path in enumerate(recorder.paths, start=1):
        with open_trace(path) as trace:
            assert trace.complete
            assert trace.metadata["part"] == str(number)
            found = list(trace.frames())
            assert found[0] == sequence[0]
            joined += found if number == 1 else found[1:]
    assert joined == sequence
    assert recorder.bytes_written == sum(path.stat().st_size for path in recorder.paths)


def test_a_file_that_is_there_is_replaced_while_its_readers_keep_the_old_one(tmp_path: Path) -> None:
    sequence = trace_run.frames()
    path = trace_run.record(tmp_path / "t.mcap", sequence)
    with open_trace(path) as old:
        trace_run.record(path, sequence[:2])
        assert list(old.frames()) == sequence
    with open_trace(path) as new:
        assert list(new.frames()) == sequence[:2]


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot write the trace .*/none/t\.mcap: No such file or directory"):
        Recorder(tmp_path / "none" / "t.mcap")
    with pytest.raises(TraceError, match="cannot write the trace"):
        Recorder(tmp_path)


def test_a_run_without_events_leaves_no_file(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "t.mcap")
    recorder.close()
    recorder.close()
    assert not (tmp_path / "t.mcap").exists()


class FullDisk:
    """A file that takes so many bytes and then says what a full disk says, after writing a part, as disks do."""

    def __init__(self, path: Any, room: int, code: int) -> None:
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115
        self._room, self._code = room, code

    def write(self, data: Any) -> int:
        if len(data) > self._room:
            self._file.write(data[: self._room])
            raise OSError(self._code, os.strerror(self._code))
        self._room -= len(data)
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_stops_the_recording_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    sequence, told = trace_run.frames(steps=30), []
    monkeypatch.setattr(writer_module, "open", lambda path, *_, **__: FullDisk(path, 30_000, code), raising=False)
    recorder = Recorder(tmp_path / "t.mcap", on_failure=told.append)
    for frame in sequence:
        recorder(frame)
    recorder.close()
    monkeypatch.undo()
    assert recorder.failure is not None
    assert os.strerror(code) in recorder.failure
    assert told == [recorder.failure]
    with open_trace(tmp_path / "t.mcap") as trace:
        kept = list(trace.frames())
        assert not trace.complete
        assert trace.lost_bytes == 0, "the torn end is cut away"
    assert 0 < len(kept) < len(sequence)
    assert kept == sequence[: len(kept)]
    assert recorder.frames_lost == len(sequence) - len(kept)


def test_a_disk_that_hangs_gives_back_pressure_and_then_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()

    class Hanging(FullDisk):
        def write(self, data: Any) -> int:
            released.wait()
            return super().write(data)

    monkeypatch.setattr(writer_module, "open", lambda path, *_, **__: Hanging(path, 10**9, 0), raising=False)
    recorder = Recorder(tmp_path / "t.mcap", queue_bytes=50_000, patience_s=0.2)
    start = time.monotonic()
    for frame in trace_run.frames(steps=200):
        recorder(frame)
    assert 0.2 <= time.monotonic() - start < 5, "it waited once, then recorded nothing more"
    assert recorder.failure is not None
    assert "the disk took nothing for 0.2 s" in recorder.failure
    recorder.close()
    released.set()


def test_a_slow_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(FullDisk):
        def write(self, data: Any) -> int:
            time.sleep(0.002)
            return super().write(data)

    monkeypatch.setattr(writer_module, "open", lambda path, *_, **__: Slow(path, 10**9, 0), raising=False)
    sequence = trace_run.frames(steps=60)
    path = trace_run.record(tmp_path / "t.mcap", sequence, queue_bytes=5_000, patience_s=5)
    with open_trace(path) as trace:
        assert list(trace.frames()) == sequence


def test_whoever_waits_for_room_in_a_step_is_served_at_once_and_the_step_stays_one_chunk(tmp_path: Path) -> None:
    path = trace_run.record(tmp_path / "t.mcap", trace_run.frames(steps=4), queue_bytes=1_000)
    with path.open("rb") as stream:
        summary = make_reader(stream).get_summary()
    assert summary is not None
    assert len(summary.chunk_indexes) == 12  # a silence would have ended more


def test_a_frame_larger_than_a_step_should_be_makes_further_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "CHUNK_BYTES", 2000)
    sequence = trace_run.frames(steps=4)
    path = trace_run.record(tmp_path / "t.mcap", sequence)
    with path.open("rb") as stream:
        summary = make_reader(stream).get_summary()
    assert summary is not None
    assert len(summary.chunk_indexes) > 12
    with open_trace(path) as trace:
        assert list(trace.frames()) == sequence


CHILD = """
import sys, time
from tests.engine import trace_run
from engine.trace import Recorder
recorder = Recorder(sys.argv[1])
for frame in trace_run.frames(steps=400):
    recorder(frame)
    if frame.kind == "step.finished":
        time.sleep(0.002)
        print(frame.seq, flush=True)
"""


def test_kill_9_loses_at_most_the_last_steps(tmp_path: Path) -> None:
    path = tmp_path / "t.mcap"
    command = [sys.executable, "-c", CHILD, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        said = [int(child.stdout.readline()) for _ in range(60)]
        time.sleep(0.3)  # the writer's thread may take a moment on a busy machine
        child.send_signal(signal.SIGKILL)
        child.wait()
    sequence = trace_run.frames(steps=400)
    with open_trace(path) as trace:
        found = list(trace.frames())
        assert not trace.complete
    assert found == sequence[: len(found)]
    assert found[-1].seq >= said[-1], "a step that had ended 300 ms before the kill is on disk"
