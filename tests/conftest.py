"""What all tests share: a Chromium, free ports, running servers, and a loud word about every test that could not run.

Tests marked `browser` or `model` need something that a machine may lack. There they are skipped and listed at the end,
unless TOKENWALK_REQUIRE_BROWSER=1 or TOKENWALK_REQUIRE_MODEL=1 says that this machine must have it: then they fail.
"""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import chromium, node
from tests.server import SEED, Server, start_server

# What was counted for each needy marker: node ids that ran, and those that were skipped for lack of what they need.
ran: dict[str, set[str]] = defaultdict(set)
lacking: dict[str, set[str]] = defaultdict(set)


def lack_of_browser() -> str | None:
    """Why browser tests cannot run here, or None."""
    if (reason := node.trouble()) is not None:
        return reason
    try:
        return None if chromium.find() else f"no Chromium on this machine. {chromium.REMEDY}"
    except FileNotFoundError as error:
        return str(error)


def lack_of_model() -> str | None:
    """Why tests of the built-in model cannot run here, or None."""
    from engine.models import builtin

    return (
        None
        if builtin.find()
        else "the built-in model is not on this machine. `tokenwalk models fetch smollm2` gets it."
    )


NEEDS: dict[str, tuple[Callable[[], str | None], str]] = {
    "browser": (lack_of_browser, "TOKENWALK_REQUIRE_BROWSER"),
    "model": (lack_of_model, "TOKENWALK_REQUIRE_MODEL"),
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, (lack, variable) in NEEDS.items():
        if item.get_closest_marker(marker) is None or (reason := lack()) is None:
            continue
        lacking[marker].add(item.nodeid)
        if os.environ.get(variable) == "1":
            pytest.fail(f"{reason} (It was required by {variable}=1.)", pytrace=False)
        pytest.skip(reason)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        for marker in NEEDS:
            if marker in report.keywords and not report.skipped:
                ran[marker].add(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for marker, (lack, _) in NEEDS.items():
        if lacking[marker]:
            terminalreporter.section(f"NOT RUN: {len(lacking[marker])} {marker} tests", red=True, bold=True)
            terminalreporter.line(str(lack()), red=True)
            for nodeid in sorted(lacking[marker]):
                terminalreporter.line(f"  {nodeid}")
    for marker in NEEDS:
        terminalreporter.line(f"{marker} tests: {len(ran[marker])} ran, {len(lacking[marker])} could not run")


@pytest.fixture(scope="session", autouse=True)
def _no_seed_is_drawn() -> Iterator[None]:
    """Engines in this process give requests without a seed what servers in processes of their own give them.

    The tiny model may say anything, the end of its answer among it: no test may hold in most draws and fail in some.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.sampling.drawn_seed", lambda: SEED)
        yield


@pytest.fixture(scope="session")
def chromium_path() -> Path:
    """The Chromium to drive. Tests that ask for it carry the marker `browser`, which skips them where there is none."""
    path = chromium.find()
    assert path is not None, "a test that uses chromium_path must carry the marker `browser`"
    return path


@pytest.fixture
def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listened on a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def tiny_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server with the `tiny` model: starts in about a second, says nothing sensible."""
    with start_server("serve", "--model", "tiny", folder=tmp_path_factory.mktemp("tiny")) as server:
        yield server


@pytest.fixture(scope="session")
def model_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server with the built-in model. Tests that ask for it carry the marker `model`."""
    with start_server("serve", "--model", "smollm2", folder=tmp_path_factory.mktemp("smollm2")) as server:
        yield server
