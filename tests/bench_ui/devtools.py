"""A page in a Chromium of its own, asked over the DevTools protocol without anything that would watch its network.

Playwright has the browser report all that every page receives. Each byte of a stream of 26 MB/s then goes twice more,
in base64, through the page's process, the browser's and Playwright's: on two cores that left 15 frames/s of 32.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from tests import chromium

START_SECONDS = 60


class DevToolsPage:
    """One page, by its DevTools connection."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to one command.

        Raises:
            RuntimeError: with the browser's message.
        """
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (message := json.loads(self._connection.recv())).get("id") != number:
            pass
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        result: dict[str, Any] = message["result"]
        return result

    def evaluate(self, expression: str) -> Any:
        """What an expression, or the promise that it makes, comes to."""
        found = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression[:100]}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait_until(self, expression: str, seconds: float = 60) -> None:
        """Until an expression is true."""
        until = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > until:
                raise TimeoutError(f"not within {seconds:g} s: {expression}")
            time.sleep(0.05)


@contextlib.contextmanager
def devtools_page(path: Path, url: str) -> Iterator[DevToolsPage]:
    """A page on `url` in a fresh profile, 1440 × 900."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            str(path),
            *chromium.ARGUMENTS,
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with connect(_address(process, Path(profile)), max_size=None, compression=None) as connection:
                page = DevToolsPage(connection)
                page.send(
                    "Emulation.setDeviceMetricsOverride", width=1440, height=900, deviceScaleFactor=1, mobile=False
                )
                page.send("Page.navigate", url=url)
                yield page
        finally:
            process.terminate()
            process.wait(30)


def _address(process: subprocess.Popen[bytes], profile: Path) -> str:
    """Where the browser's one page can be asked."""
    said = profile / "DevToolsActivePort"
    until = time.monotonic() + START_SECONDS
    while not (said.is_file() and said.read_text().count("\n")):
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"{process.args} did not open a DevTools port")
        time.sleep(0.02)
    port = said.read_text().split()[0]
    targets = httpx.get(f"http://127.0.0.1:{port}/json").json()
    return str(next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page"))
