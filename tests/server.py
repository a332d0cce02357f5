"""A Tokenwalk server in a process of its own, for tests that talk to it as a user would."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SEED = 1
"""The seed of requests that give none: a test that leaves it out sees the same answer every time it runs."""
SEEDED = {"TOKENWALK_SEED": str(SEED)}
ENDLESS = {"256": -100, "258": -100}
"""A `logit_bias` with which the tiny model, which says anything, does not end its answer by chance."""


@dataclass(frozen=True)
class Server:
    """One running server. `output` is the file that takes what it prints, `traces` the folder it records to."""

    url: str
    port: int
    traces: Path
    output: Path
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def start_server(
    *arguments: str, folder: Path, environment: dict[str, str] | None = None, seconds: float = 120
) -> Iterator[Server]:
    """Run ``tokenwalk ARGUMENTS`` on a free port of 127.0.0.1 until the block is left; yields once it answers.

    Args:
        arguments: the command and its options, without host, port and traces folder.
        folder: takes the server's output and traces.
        environment: variables on top of this process's; `TOKENWALK_…` of this process are not passed on.
        seconds: how long it may take until /health answers 200.

    Raises:
        AssertionError: it ended, or did not answer in time; with what it printed.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    traces, output = folder / "traces", folder / "output.txt"
    command = [sys.executable, "-m", "backend", *arguments, "--host", "127.0.0.1", "--port", str(port)]
    if arguments[0] == "serve":
        command += ["--traces", str(traces)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOKENWALK_")}
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=inherited | SEEDED | (environment or {}),
        )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_healthy(url, process, output, seconds)
            yield Server(url, port, traces, output, process)
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until_healthy(url: str, process: subprocess.Popen[bytes], output: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        printed = output.read_text(errors="replace")
        assert process.poll() is None, f"the server ended with status {process.returncode} and printed:\n{printed}"
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.05)
    raise AssertionError(
        f"the server did not answer within {seconds:.0f} s and printed:\n{output.read_text(errors='replace')}"
    )
