"""Our server and mlx-lm's, each in a process of its own, on the loopback address, for as long as they are measured."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from engine.errors import TokenwalkError

START_SECONDS = 300.0
END_SECONDS = 30.0

_PEER = "import engine.device, mlx_lm.server; mlx_lm.server.main()"
"""Importing engine.device first makes MLX multiply with the same BLAS as ours."""


@contextmanager
def our_server(model: str, folder: Path) -> Iterator[int]:
    """`tokenwalk serve` with light capture, recording to `folder`; yields its port once it answers."""
    port = _free_port()
    options = ["--model", model, "--port", str(port), "--host", "127.0.0.1", "--capture", "light", "--max-slots", "8"]
    command = [sys.executable, "-m", "backend", "serve", *options, "--traces", str(folder), "--access-token", ""]
    with _running("tokenwalk serve", command, port, folder / "tokenwalk.log"):
        yield port


@contextmanager
def peer_server(model: Path, folder: Path) -> Iterator[int]:
    """`mlx_lm.server` as it comes, on a model folder; yields its port once it answers."""
    port = _free_port()
    options = ["--model", str(model), "--port", str(port), "--host", "127.0.0.1", "--log-level", "ERROR"]
    with _running("mlx_lm.server", [sys.executable, "-c", _PEER, *options], port, folder / "mlx_lm.log"):
        yield port


@contextmanager
def _running(name: str, command: list[str], port: int, log: Path) -> Iterator[None]:
    """A server until the block is left.

    Raises:
        TokenwalkError: when it ends or does not answer in time; with the end of what it printed.
    """
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_healthy(name, process, port, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_healthy(name: str, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except (OSError, HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    last = " ".join(log.read_text(errors="replace").split())[-400:]
    what = "did not answer in time" if process.poll() is None else f"ended with status {process.returncode}"
    raise TokenwalkError(f"{name} {what}; it printed: {last}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
