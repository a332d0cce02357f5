"""A server that is used in many ways at once, with real clients, leaves a trace in which everything is true."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.trace import open_trace
from engine.trace.verify import verify
from tests.server import Server, start_server

LONG = "Once upon a time there was a token that went from layer to layer, and looked back. " * 6


def failed(path: Path) -> list[tuple[str, str]]:
    with open_trace(path) as trace:
        return [(check.name, check.detail) for check in verify(trace) if check.ok is False]


def complete(server: Server, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/completions", json={"max_tokens": 24, "temperature": 0} | body, timeout=60)


def leave_early(server: Server, prompt: str) -> str:
    """Begin a streamed answer, read a little of it, and go."""
    body = {"prompt": prompt, "max_tokens": 400, "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as answer:
        for count, _ in enumerate(answer.iter_lines()):
            if count > 6:
                break
        return answer.headers["x-tokenwalk-request"]


def test_a_trace_of_everything_at_once_is_true_while_it_runs_and_when_it_is_closed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # So little KV memory that requests give way to one another.
    options = ("--kv-memory", "900KiB", "--max-slots", "4", "--prefill-budget", "64", "--time-every", "9")
    with start_server("serve", "--model", "tiny", *options, folder=tmp_path_factory.mktemp("used")) as server:
        with ThreadPoolExecutor(8) as pool:
            jobs = [
                pool.submit(complete, server, prompt=LONG, n=3, temperature=1.2, top_p=0.9, logit_bias={"65": 3}),
                pool.submit(complete, server, prompt=[LONG[:99], "Hi"], stop=["e"], tokenwalk={"capture": "full"}),
                pool.submit(complete, server, prompt="Hi", stream=True, max_tokens=200),
                pool.submit(complete, server, prompt=LONG[100:], tokenwalk={"capture": "off", "priority": 3}),
                pool.submit(complete, server, prompt=LONG[50:], max_tokens=300, frequency_penalty=1.0),
                pool.submit(leave_early, server, LONG[30:]),
                pool.submit(complete, server, prompt="", max_tokens=1),
            ]  # fmt: skip
            answers = [job.result() for job in jobs]
        parent = leave_early(server, "Hello")
        fork = {"position": 3, "text": "xé", "max_tokens": 9}
        assert httpx.post(f"{server.url}/v1/requests/{parent}/fork", json=fork).status_code == 200
        body = {"prompt": LONG[:80], "max_tokens": 700, "stream": True, "tokenwalk": {"detached": True}}
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as answer:
            running = answer.headers["x-tokenwalk-request"]
            next(answer.iter_lines())
            part = tmp_path / "part.mcap"
            part.write_bytes(httpx.get(f"{server.url}/v1/requests/{running}/trace").content)
        assert failed(part) == [], "a slice of a request that still runs"
        (path,) = server.traces.iterdir()
        copy = tmp_path / "copy.mcap"
        copy.write_bytes(path.read_bytes())
        assert [name for name, _ in failed(copy)] == ["file closed properly"]
    assert [answer.status_code for answer in answers if isinstance(answer, httpx.Response)] == [200] * 5 + [400]
    assert failed(path) == []
    with open_trace(path) as trace:
        kinds = trace.info()["kinds"]
        ends = {request["id"]: request["reason"] for request in trace.requests()}
    assert running in ends
    assert None not in ends.values(), "the server ended, and said so to what still ran"
    assert {"block.reused", "kernel", "lens", "attribution", "request.rejected"} <= kinds.keys()
