"""Tokenwalk in a process of its own, as a person runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from tests.server import SEEDED

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TOKENWALK_")} | SEEDED


def run(
    *arguments: str, stdin: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "backend", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        env=ENVIRONMENT | (environment or {}),
        check=False,
    )


@contextmanager
def started(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on; ended by force if the test does not end it."""
    command = [sys.executable, "-m", "backend", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    with subprocess.Popen(command, env=ENVIRONMENT, **pipes) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def line_with(stream: IO[str], word: str) -> str:
    """The next line that holds a word."""
    for line in stream:
        if word in line:
            return line
    raise AssertionError(f"nothing printed says {word!r}")
