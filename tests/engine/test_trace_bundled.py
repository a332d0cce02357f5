"""The traces that come with Tokenwalk are what their page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.codec import parse
from engine.events import SCHEMA_VERSION
from engine.trace import open_trace
from engine.trace.verify import verify

FOLDER = Path(__file__).resolve().parents[2] / "traces"
BUNDLED = sorted(FOLDER.glob("*.mcap"))
ANSWERS = {"capital-of-france": "The capital of France is Paris.", "emoji-and-cjk": "你好，世界\U0001f30d\U0001f31f"}


def test_both_are_there() -> None:
    assert [path.stem for path in BUNDLED] == sorted(ANSWERS)


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_a_bundled_trace_is_small_whole_and_true(path: Path) -> None:
    assert path.stat().st_size <= 3_000_000
    with open_trace(path) as trace:
        assert trace.complete
        assert trace.header["schema_version"] == SCHEMA_VERSION
        checks = verify(trace)
    # What attention wrote was left out again, once it had been read: so its events are missing, on purpose.
    not_ok = [(check.name, check.ok) for check in checks if not check.ok]
    assert not_ok == [("no events missing", None)]


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_a_bundled_trace_has_every_position_and_the_answer_its_page_shows(path: Path) -> None:
    positions: dict[str, set[int]] = {}
    text = ""
    with open_trace(path) as trace:
        (request,) = trace.requests()
        for frame in trace.frames(kinds={"attention", "residual", "lens", "attribution", "token"}):
            positions.setdefault(frame.kind, set()).add(frame.position or 0)
            fields, array = parse(frame.payload, binary=frame.binary)
            text += fields.get("text", "")
            assert array is None or array.dtype.name == "float16"
    assert text == ANSWERS[path.stem]
    # The last token's own pass is never run.
    ran = set(range(request["prompt_tokens"] + request["completion_tokens"] - 1))
    assert positions["attention"] == positions["residual"] == positions["lens"] == positions["attribution"] == ran


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_a_bundled_trace_does_not_tell_where_it_was_recorded(path: Path) -> None:
    with open_trace(path) as trace:
        for frame in trace.frames():
            assert not re.search(rb'"~?/[\w.-]+/', frame.payload), f"{frame.kind} holds the path of a file"


def test_the_python_example_on_the_format_page_runs_as_it_stands() -> None:
    page = (FOLDER / "FORMAT.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    command = [sys.executable, "-W", "error", "-c", example, str(BUNDLED[0])]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "token  Paris" in out
    assert re.search(r"\d+ attention \(30, 9, 44\)", out)


def test_the_page_gives_the_commands_that_made_them() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    for name in ANSWERS:
        assert f"-o traces/{name}.mcap" in page
