"""`tokenwalk generate`: text to stdout, the rest to stderr, the run to a file."""

import errno
import io
import json
import os
import queue
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backend.cli import main
from backend.commands import generate
from engine.trace import open_trace
from tests.backend.process import ENVIRONMENT, run, started


def test_generate_writes_text_to_stdout_and_all_else_to_stderr() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "backend", "generate", "Hello", "--model", "tiny", "--max-tokens", "20"],
        capture_output=True,
        env=ENVIRONMENT,
        timeout=120,
        check=False,
    )
    as_json = json.loads(run("generate", "Hello", "--model", "tiny", "--max-tokens", "20", "--json").stdout)
    assert result.returncode == 0
    assert result.stdout.decode() == as_json["text"] + "\n"
    assert "20 tokens" in result.stderr.decode()
    assert as_json["finish_reason"] == "length"
    assert as_json["completion_tokens"] == 20


def test_generate_records_what_it_did_down_to_stdout(trace_file: Path) -> None:
    with open_trace(trace_file) as trace:
        assert trace.complete
        (request,) = trace.requests()
        frames = list(trace.frames())
    assert request["source"] == "generate"
    assert request["completion_tokens"] == 5
    kinds = [frame.kind for frame in frames]
    assert kinds.count("token") == 5
    assert "attention" in kinds
    sent = [json.loads(frame.payload) for frame in frames if frame.kind == "stream.sent"]
    assert {event["to"] for event in sent} == {"stdout"}
    assert [event["chunk"] for event in sent] == list(range(len(sent)))


def test_generate_reads_the_prompt_from_stdin_and_stops_at_a_text() -> None:
    whole = json.loads(
        run("generate", "-", "--model", "tiny", "--max-tokens", "30", "--raw", "--json", stdin="Hello").stdout
    )
    assert whole["prompt_tokens"] == 5
    stop = next(character for character in whole["text"][3:] if character not in whole["text"][:3])
    stopped = json.loads(
        run("generate", "Hello", "--model", "tiny", "--max-tokens", "30", "--raw", "--json", "--stop", stop).stdout
    )
    assert stopped["text"] == whole["text"].partition(stop)[0]
    assert (stopped["finish_reason"], stopped["detail"]) == ("stop", stop)


def test_a_prompt_that_is_no_utf8_is_refused() -> None:
    command = [sys.executable, "-m", "backend", "generate", "--model", "tiny"]
    for arguments, stdin in (([b"caf\xe9"], b""), ([b"-"], b"caf\xe9")):
        result = subprocess.run(
            [*command, *arguments], input=stdin, capture_output=True, env=ENVIRONMENT, timeout=60, check=False
        )
        assert result.returncode == 2
        assert b"UTF-8" in result.stderr


def test_an_empty_prompt_and_a_full_disk_are_one_clear_line() -> None:
    empty = run("generate", "", "--model", "tiny")
    assert (empty.returncode, "the prompt is empty" in empty.stderr) == (2, True)
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "backend", "generate", "Hello", "--model", "tiny", "--max-tokens", "5"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            timeout=120,
            check=False,
        )
    assert result.returncode == 1
    assert b"No space left on device" in result.stderr
    assert b"fault" not in result.stderr


def test_a_trace_that_is_there_already_is_kept(tmp_path: Path) -> None:
    trace = tmp_path / "mine.mcap"
    trace.write_bytes(b"what was there")
    result = run("generate", "Hi", "--model", "tiny", "--max-tokens", "1", "--trace", str(trace))
    assert result.returncode == 0
    assert "mine.mcap.old" in result.stderr
    assert (tmp_path / "mine.mcap.old").read_bytes() == b"what was there"
    with open_trace(trace) as recorded:
        assert recorded.complete


def test_the_same_seed_gives_the_same_text() -> None:
    arguments = ("generate", "Hello", "--model", "tiny", "--max-tokens", "12", "--temperature", "1", "--json", "--seed")
    first, again, other = (json.loads(run(*arguments, seed).stdout)["text"] for seed in ("1", "1", "2"))
    assert first == again != other


def test_ctrl_c_ends_generate_and_keeps_the_trace_so_far(tmp_path: Path) -> None:
    path = tmp_path / "cut.mcap"
    with started(
        "generate", "Hello", "--model", "tiny", "--max-tokens", "4000", "--trace", str(path), text=False
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    with open_trace(path) as trace:
        assert trace.complete
        (request,) = trace.requests()
    assert request["reason"] == "cancelled"
    assert 0 < request["completion_tokens"] < 4000


class FullDisk(io.FileIO):
    """Takes the first bytes of a trace, then no more."""

    def write(self, data: Any) -> int:
        if self.tell() > 20_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_a_trace_that_the_disk_does_not_take_fails_the_command_and_not_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(path: Any, mode: str, buffering: int) -> FullDisk:
        return FullDisk(path, mode)

    monkeypatch.setattr("engine.trace.writer.open", full, raising=False)
    arguments = ["generate", "Hello", "--model", "tiny", "--max-tokens", "40", "--trace", str(tmp_path / "t.mcap")]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capfd.readouterr()
    assert ended.value.code == 1
    assert len(out.strip()) > 10
    assert err.count("No space left on device") == 1
    assert "trace in" not in err
    assert "t.mcap is not whole: it lacks" in err.splitlines()[-1]


def test_a_second_ctrl_c_ends_generate_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The step under way takes long: the first says so and waits, the second does not."""
    cancelled: list[str] = []

    class Ended(Exception):
        pass

    class Presses:
        """A queue in which nothing arrives while Ctrl-C is pressed, then again after half a second."""

        def get(self, timeout: float | None = None) -> Any:
            if timeout is not None:
                raise queue.Empty
            raise KeyboardInterrupt

    def end(status: int) -> None:
        raise Ended(status)

    monkeypatch.setattr("backend.commands.generate.queue", SimpleNamespace(SimpleQueue=Presses, Empty=queue.Empty))
    monkeypatch.setattr("os._exit", end)
    engine = SimpleNamespace(submit=lambda request, deliver: "r-1", cancel=cancelled.append)
    with pytest.raises(Ended, match="130"):
        generate._run(cast(Any, engine), cast(Any, None), cast(Any, None), quiet=False)
    assert cancelled == ["r-1"]
    assert "ends when the step under way is done" in capsys.readouterr().err


def test_a_pipe_that_closes_ends_generate_quietly() -> None:
    with started("generate", "Hello", "--model", "tiny", "--max-tokens", "4000", text=False) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(timeout=30) == 1
        assert process.stderr.read() == b""


def test_generate_times_steps_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "t.mcap"
    run("generate", "Hello", "--model", "tiny", "--max-tokens", "6", "--time-every", "3", "--trace", str(path))
    with open_trace(path) as trace:
        frames = [json.loads(frame.payload) for frame in trace.frames() if not frame.binary]
    assert {frame["step"] for frame in frames if frame["kind"] == "kernel"} == {3, 6}
    assert [frame["step"] for frame in frames if frame["kind"] == "step.finished" and frame["timing"]] == [3, 6]


def test_a_gpu_trace_without_metal_is_one_clear_line(tmp_path: Path) -> None:
    name = str(tmp_path / "no" / "a.gputrace")  # no machine writes there
    result = run("generate", "Hello", "--model", "tiny", "--gputrace", name)
    assert result.returncode == 2
    assert "cannot be captured" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
