"""`tokenwalk serve` in a process of its own: what it prints, how it ends."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from websockets.sync.client import connect

from backend.commands import site_server
from backend.commands.serve import new_trace
from backend.ending import WAITS
from backend.library import TraceLibrary
from backend.live import LiveRun
from backend.server import Server, bind
from backend.settings import Settings
from backend.site import Site
from engine.trace import Recorder, open_trace
from tests.backend.process import line_with, started
from tests.engine import trace_run
from tests.server import ENDLESS


def test_ctrl_c_ends_the_server_cleanly_with_a_whole_trace(tmp_path: Path) -> None:
    with started("serve", "--model", "tiny", "--port", "0", "--traces", str(tmp_path)) as process:
        assert process.stdout is not None
        url = next(word for word in line_with(process.stdout, "http").split() if word.startswith("http"))
        line_with(process.stdout, "ready")
        body = {"prompt": "Hello", "max_tokens": 2000, "stream": True, "logit_bias": ENDLESS}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=30) as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(signal.SIGINT)
            rest = list(lines)
        assert process.wait(timeout=30) == 0
        assert process.stderr is not None
        assert process.stderr.read().strip() in ("", WAITS)  # where the machine was busy, a step took long enough
    assert rest[-2] == "data: [DONE]"
    assert json.loads(rest[-4].removeprefix("data: "))["choices"][0]["finish_reason"] == "cancelled"
    (path,) = tmp_path.iterdir()
    with open_trace(path) as trace:
        assert trace.complete
        (request,) = trace.requests()
    assert request["reason"] == "cancelled"


def test_clients_that_do_not_read_do_not_hold_up_the_end(tmp_path: Path) -> None:
    with started("serve", "--model", "tiny", "--port", "0", "--traces", str(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = next(word for word in line_with(process.stdout, "http").split() if word.startswith("http"))
        line_with(process.stdout, "ready")
        # The attention rows of 600 positions, some 12 MB: more than the sockets' buffers hold.
        httpx.post(f"{url}/v1/completions", json={"prompt": "x" * 600, "max_tokens": 1}, timeout=60)
        with connect(url.replace("http", "ws") + "/ws", max_queue=1, close_timeout=0.1, compression=None) as stalled:
            stalled.send('{"kind": "hello"}')
            stalled.recv(timeout=10)
            with httpx.stream("GET", f"{url}/v1/traces/{next(tmp_path.iterdir()).stem}/frames"):
                process.send_signal(signal.SIGINT)
                assert process.wait(timeout=30) == 0
        assert process.stderr.read() == ""


def test_a_second_ctrl_c_is_obeyed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(BaseException):
        pass

    def end(status: int) -> None:
        raise Ended(status)

    async def nothing() -> None:
        pass

    monkeypatch.setattr("os._exit", end)
    with closing(bind("127.0.0.1", 0)) as listener:
        server = Server(lambda scope, receive, send: nothing(), listener, nothing)
        server.handle_exit(signal.SIGINT, None)
        assert server.should_exit
        with pytest.raises(Ended, match="130"):
            server.handle_exit(signal.SIGINT, None)


def test_a_second_ctrl_c_says_that_it_ended_at_once() -> None:
    process = subprocess.run(
        [sys.executable, "-c", "from backend.ending import end_at_once; end_at_once(130)"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 130
    assert process.stderr.strip().splitlines() == [
        "tokenwalk: ended at once; a trace that was being recorded lacks its end (tokenwalk trace recover)"
    ]


@pytest.mark.parametrize("slow", [True, False])
def test_an_end_that_waits_for_a_long_step_says_so(monkeypatch: pytest.MonkeyPatch, slow: bool) -> None:
    said: list[str] = []
    step_done = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        step_done.set()

    def stop() -> None:
        if slow:
            assert step_done.wait(30)

    monkeypatch.setattr(site_server.err, "print", say)
    site = Site(
        settings=Settings(host="127.0.0.1", port=1),
        library=TraceLibrary(Path("none"), Path("none")),
        live=cast(LiveRun, SimpleNamespace(stop=stop)),
    )
    with closing(bind("127.0.0.1", 0)) as listener:
        asyncio.run(site_server.server_of(site, listener)._before_end())
    expected = "  ends when the step under way is done, which cannot be stopped half way; Ctrl-C once more ends at once"
    assert said == ([expected] if slow else [])


def test_servers_that_start_together_record_to_files_of_their_own(tmp_path: Path) -> None:
    """Also where a model's name is longer than a file's may be."""
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: new_trace(tmp_path, "é" * 300), range(32)))
    assert len(set(paths)) == 32
    assert set(tmp_path.iterdir()) == set(paths)
    recorders = [Recorder(path) for path in paths[:2]]
    for recorder in recorders:
        for frame in trace_run.frames():
            recorder(frame)
    for recorder in recorders:
        recorder.close()
        with open_trace(recorder.path) as trace:
            assert trace.complete


def test_ctrl_c_while_the_model_loads_ends_the_server_at_once(tmp_path: Path) -> None:
    with started("serve", "--model", "tiny", "--port", "0", "--traces", str(tmp_path)) as process:
        assert process.stdout is not None
        line_with(process.stdout, "loading")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    assert list(tmp_path.iterdir()) == []


def test_the_token_is_printed_with_the_address_and_nowhere_else(tmp_path: Path) -> None:
    with started(
        "serve", "--model", "tiny", "--port", "0", "--traces", str(tmp_path), "--access-token", "s3cret"
    ) as process:
        assert process.stdout is not None
        url = next(word for word in line_with(process.stdout, "http").split() if word.startswith("http"))
        line_with(process.stdout, "ready")
        assert url.endswith("/?token=s3cret")
        with httpx.Client(follow_redirects=True) as client:
            assert client.get(url).status_code in (200, 404)
            assert client.get(url.partition("?")[0] + "health").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        assert process.stderr is not None
        assert "s3cret" not in process.stdout.read() + process.stderr.read()


def test_a_server_that_others_can_reach_says_so_and_answers_to_its_address(tmp_path: Path) -> None:
    with started("serve", "--model", "tiny", "--port", "0", "--host", "0.0.0.0", "--traces", str(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = next(word for word in line_with(process.stdout, "http").split() if word.startswith("http"))
        assert "--access-token" in line_with(process.stderr, "whoever")
        assert httpx.get(f"{url}/v1/traces").status_code == 200
        # 127.0.0.2 is this machine too, on Linux: the address itself is a Host to answer to, any name is not
        port = url.rpartition(":")[2]
        if sys.platform == "linux":
            assert httpx.get(f"http://127.0.0.2:{port}/v1/traces").status_code == 200
        assert httpx.get(f"{url}/v1/traces", headers={"host": f"evil.example:{port}"}).status_code == 403
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


def test_where_keys_and_values_live_is_said_at_the_start_and_after(tmp_path: Path) -> None:
    options = ("--max-slots", "3", "--kv-memory", "1MiB", "--block-size", "8", "--policy", "static")
    with started("serve", "--model", "tiny", "--port", "0", "--traces", str(tmp_path), *options) as process:
        assert process.stdout is not None
        url = next(word for word in line_with(process.stdout, "http").split() if word.startswith("http"))
        said = line_with(process.stdout, "KV")
        assert "3 slots; KV paged: 128 blocks × 8 positions = 1,024 tokens in 1 MiB" in said
        health = httpx.get(f"{url}/health").json()
        assert health["slots"] == 3
        assert {name: health["kv"][name] for name in ("store", "blocks", "block_size", "block_bytes")} == {
            "store": "paged", "blocks": 128, "block_size": 8, "block_bytes": 8192,
        }  # fmt: skip
        assert len(httpx.get(f"{url}/v1/cache").json()["map"]) == 128


def test_a_cache_without_blocks_says_so(tmp_path: Path) -> None:
    with started("serve", "--model", "tiny", "--port", "0", "--traces", str(tmp_path), "--kv", "concat") as process:
        assert process.stdout is not None
        url = next(word for word in line_with(process.stdout, "http").split() if word.startswith("http"))
        assert line_with(process.stdout, "KV").rstrip().endswith("8 slots; KV concat")
        cache = httpx.get(f"{url}/v1/cache").json()
        assert (cache["store"], cache["blocks"], cache["map"], cache["waste"]) == ("concat", None, [], None)
        assert "tokenwalk_kv_cache_usage_perc NaN" in httpx.get(f"{url}/metrics").text
