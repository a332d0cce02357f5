from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backend import cli
from engine.trace import open_trace
from tests.engine import trace_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return trace_run.record(tmp_path / "t.mcap", trace_run.frames(steps=4))


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    """Runs `tokenwalk trace …` in this process: (exit status, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["trace", *map(str, arguments)])
        out, err = capfdbinary.readouterr()
        return int(ended.value.code or 0), out.decode(), err.decode()

    return call


def test_info_says_what_a_person_wants_to_know(run: Any, path: Path) -> None:
    status, out, _ = run("info", path)
    assert status == 0
    for part in ("whole", "made-up", "3 layers × 2 heads", "r1 (test): 2 + 4 tokens, length", "'Paris \U0001f5fcPa'"):
        assert part in out


def test_info_as_json_is_what_the_library_says_with_the_answers(run: Any, path: Path) -> None:
    status, out, _ = run("info", path, "--json")
    facts = json.loads(out)
    assert status == 0
    answers = [request.pop("answer") for request in facts["requests"]]
    assert answers == ["Paris \U0001f5fcPa"] * 2
    with open_trace(path) as trace:
        assert facts == json.loads(json.dumps(trace.info()))


def test_events_are_one_line_each_and_can_be_chosen(run: Any, path: Path) -> None:
    everything = run("events", path)[1].splitlines()
    assert len(everything) == len(trace_run.frames(steps=4))
    assert "run.header" in everything[0]
    tokens = run("events", path, "--kind", "token", "--request", "r2", "--limit", "2")[1].splitlines()
    assert len(tokens) == 2
    assert all("r2" in line and " token " in line for line in tokens)
    window = run("events", path, "--from", 5, "--to", 7)[1].splitlines()
    assert [int(line.split()[0]) for line in window] == [5, 6, 7]


def test_events_as_json_are_the_events_and_numbers_come_when_asked_for(run: Any, path: Path) -> None:
    lines = run("events", path, "--json")[1].splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [frame.seq for frame in trace_run.frames(steps=4)]
    (line,) = run("events", path, "--json", "--kind", "attention", "--limit", "1")[1].splitlines()
    assert "data" not in json.loads(line)
    (line,) = run("events", path, "--json", "--data", "--kind", "attention", "--limit", "1")[1].splitlines()
    event = json.loads(line)
    assert event["shape"] == [3, 2, 2]
    assert [len(event["data"]), len(event["data"][0]), len(event["data"][0][0])] == [3, 2, 2]
    assert sum(event["data"][0][0]) == pytest.approx(1, abs=1e-6)


def test_events_escape_what_could_play_tricks_on_a_terminal(run: Any, tmp_path: Path) -> None:
    sequence = trace_run.frames()
    hostile = sequence[1].payload.replace(b'"request":"r1"', b'"request":"\\u001b[31mred\\u0007"')
    import dataclasses

    sequence[1] = dataclasses.replace(sequence[1], parts=(hostile,))
    out = run("events", trace_run.record(tmp_path / "h.mcap", sequence), "--limit", "2")[1]
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "\\x1b[31mred" in out


def test_verify_prints_a_line_a_check_and_tells_by_its_status(run: Any, path: Path) -> None:
    status, out, _ = run("verify", path)
    assert status == 0
    assert "ok     attention rows sum to 1" in out
    content = bytearray(path.read_bytes())
    content[content.rindex(b"zstd") // 2] ^= 0xFF
    path.write_bytes(content)
    status, out, _ = run("verify", path)
    assert status == 1
    assert "FAILED all chunks readable" in out
    status, out, _ = run("verify", path, "--json")
    assert status == 1
    assert {check["name"]: check["ok"] for check in json.loads(out)[str(path)]}["all chunks readable"] is False


def test_recover_makes_a_cut_file_whole_and_says_what_is_lost(run: Any, path: Path, tmp_path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    status, out, _ = run("recover", path, "--json")
    assert status == 0
    facts = json.loads(out)
    assert facts["path"] == str(tmp_path / "t.recovered.mcap")
    assert facts["lost_bytes"] > 0
    assert facts["damage"]
    with open_trace(facts["path"]) as trace:
        assert trace.complete
        assert trace.metadata["recovered"] == "yes"
        assert len(list(trace.frames())) == facts["frames"]


def test_slice_cuts_out_one_request(run: Any, path: Path, tmp_path: Path) -> None:
    output = tmp_path / "r1.mcap"
    options = ("--dtype", "f16", "--drop", "residual", "--strip-paths")
    status, out, _ = run("slice", path, "--request", "r1", "-o", output, *options)
    assert status == 0
    assert "r1.mcap" in out
    with open_trace(output) as trace:
        assert trace.metadata["slice_of"] == "r1"
        assert trace.header["model"]["path"] == "b.gguf"
        kinds = {frame.kind for frame in trace.frames()}
    assert "attention" in kinds
    assert "residual" not in kinds


def test_export_writes_every_event_as_a_line_of_json(run: Any, path: Path, tmp_path: Path) -> None:
    output = tmp_path / "t.jsonl"
    assert run("export", path, "-o", output)[0] == 0
    events = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert [event["seq"] for event in events] == [frame.seq for frame in trace_run.frames(steps=4)]
    assert all("data" in event for event in events if event["kind"] in ("attention", "residual"))
    status, out, _ = run("export", path, "--no-data")
    assert status == 0
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [event["seq"] for event in events]


def test_bake_refuses_a_model_that_is_not_the_recorders(run: Any, path: Path) -> None:
    status, _, err = run("bake", path, "--model", "tiny")
    assert status == 1
    assert "is another model" in err
    status, _, err = run("bake", path)
    assert status == 1
    assert "pass it with --model" in err


def test_an_export_that_the_disk_does_not_take_leaves_nothing(
    run: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(frame: Any, *, data: bool) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = set(tmp_path.iterdir())
    monkeypatch.setattr("backend.commands.trace.json_line", full)
    status, _, err = run("export", path, "-o", tmp_path / "x.jsonl")
    assert status == 1
    assert "No space left on device" in err
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("command", ["info", "events", "verify", "recover", "slice", "bake", "export"])
def test_every_command_has_help_with_an_example(run: Any, command: str) -> None:
    status, out, _ = run(command, "--help")
    assert status == 0
    assert f"Example: tokenwalk trace {command}" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["info", "none.mcap"], 1, "is not there"),
        (["info", __file__], 1, "expected an MCAP file, found text"),
        (["info"], 2, "Missing argument"),
        (["events", "T", "--kind", "weather"], 2, "no kind weather"),
        (["events", "T", "--data"], 2, "add --json"),
        (["events", "T", "--from", "x"], 2, "'--from'"),
        (["events", "T", "--request", "r9"], 1, "has no request r9; it has r1, r2"),
        (["slice", "T", "--request", "r9"], 1, "has no request r9; it has r1, r2"),
        (["slice", "T"], 2, "Missing option"),
        (["slice", "T", "--request", "r1", "--dtype", "f8"], 2, "f8"),
        (["slice", "T", "--request", "r1", "--drop", "token"], 1, "cannot drop token"),
        (["export", "T", "--format", "pdf"], 2, "pdf"),
        (["recover", "T", "-o", "T"], 1, "is there already"),
        (["export", "T", "-o", "/none/x.jsonl"], 1, "cannot write /none/x.jsonl"),
    ],
)
def test_errors_are_short_and_say_what_to_do(
    run: Any, path: Path, arguments: list[str], status: int, message: str
) -> None:
    found, out, err = run(*[str(path) if argument == "T" else argument for argument in arguments])
    assert found == status
    assert message in err
    assert out == ""
    assert len(err.strip().splitlines()) <= 2
    assert "Traceback" not in err


def test_a_closed_pipe_is_no_error(path: Path) -> None:
    trace_run.record(path, trace_run.frames(steps=1500))
    command = f"{sys.executable} -m backend trace events {path} | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "run.header" in done.stdout


def test_looking_at_a_trace_imports_no_mlx(path: Path) -> None:
    script = (
        "import sys\n"
        "from engine.trace import open_trace\n"
        "from engine.trace.verify import verify\n"
        "from engine.trace.rewrite import rewrite\n"
        f"verify(open_trace({str(path)!r}))\n"
        "assert not [name for name in sys.modules if name.startswith(('mlx', 'transformers'))]\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
