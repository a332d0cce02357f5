"""Many clients on real sockets, and a KV memory too small for all of them: nothing is lost, and everything is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from engine.blocks import CacheMirror
from engine.codec import parse
from tests.server import ENDLESS, Server, start_server

SLOTS, QUEUE, BLOCKS, BLOCK_SIZE = 4, 4, 32, 16


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose KV memory holds 512 tokens: less than half of what its four slots may come to need."""
    options = ["--max-slots", str(SLOTS), "--max-queue", str(QUEUE), "--kv-memory", "512KiB", "--capture", "light"]
    with start_server("serve", "--model", "tiny", *options, folder=tmp_path_factory.mktemp("small")) as server:
        kv = httpx.get(f"{server.url}/health").json()["kv"]
        assert (kv["blocks"], kv["block_size"]) == (BLOCKS, BLOCK_SIZE)
        yield server


@pytest.fixture
def http(small: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=small.url, timeout=120) as client:
        yield client


def wait_until_idle(http: httpx.Client, seconds: float = 30) -> None:
    """Wait until no slot and no block is held: what was cancelled gives them back within a step."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        slots, cache = http.get("/v1/slots").json()["data"], http.get("/v1/cache").json()
        assert len(slots) == SLOTS
        if all(slot["request"] is None for slot in slots) and all(not block["refs"] for block in cache["map"]):
            return
        time.sleep(0.05)
    raise AssertionError(f"held still: {slots}, {[block for block in cache['map'] if block['refs']]}")


def metrics(http: httpx.Client) -> dict[str, float]:
    """The metrics without labels, by name."""
    lines = [line.split() for line in http.get("/metrics").text.splitlines() if line and line[0] != "#"]
    return {name.removeprefix("tokenwalk_"): float(value) for name, value in lines}


class Watcher(threading.Thread):
    """A client of the event stream that keeps every event it gets."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []
        self.until: int | None = None
        self._url = f"ws://127.0.0.1:{server.port}/ws"

    def run(self) -> None:
        with connect(self._url, compression=None, max_size=None) as stream:
            stream.send('{"kind": "hello"}')  # from the run's first event on
            while self.until is None or not self.events or self.events[-1]["seq"] < self.until:
                try:
                    message = stream.recv(timeout=0.2)
                except TimeoutError:
                    continue
                payload, binary = (message, True) if isinstance(message, bytes) else (message.encode(), False)
                self.events.append(parse(payload, binary=binary)[0])


def complete(http: httpx.Client, number: int) -> str:
    """A client that stays. Half of them begin alike, so that they find each other's blocks."""
    prompt = f"{'The same beginning of some length. ' if number % 2 else ''}Client {number} says hello."
    body = {"prompt": prompt, "max_tokens": 200, "seed": number, "logit_bias": ENDLESS}
    answer = http.post("/v1/completions", json=body)
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["finish_reason"])


def start_and_leave(http: httpx.Client) -> str:
    """A client that closes its connection in the middle of its answer."""
    body = {"prompt": "I shall leave.", "max_tokens": 400, "stream": True, "logit_bias": ENDLESS}
    with http.stream("POST", "/v1/completions", json=body) as response:
        lines = response.iter_lines()
        for _ in range(10):
            next(lines)
        return response.headers["x-tokenwalk-request"]


def start_and_cancel(http: httpx.Client) -> str:
    """A client that has its request cancelled, and reads to the end."""
    body = {"prompt": "I shall be cancelled.", "max_tokens": 400, "stream": True, "logit_bias": ENDLESS}
    with http.stream("POST", "/v1/completions", json=body) as response:
        request = response.headers["x-tokenwalk-request"]
        lines = response.iter_lines()
        next(lines)
        assert http.post(f"/v1/requests/{request}/cancel").json()["cancelled"] is True
        assert '"finish_reason":"cancelled"' in "".join(lines)
        return str(request)


def test_the_block_map_is_what_the_events_say_at_any_moment_under_load(small: Server, http: httpx.Client) -> None:
    watcher = Watcher(small)
    watcher.start()
    snapshots: list[dict[str, Any]] = []
    try:
        with ThreadPoolExecutor(SLOTS + QUEUE) as pool:
            leaving, cancelled = pool.submit(start_and_leave, http), pool.submit(start_and_cancel, http)
            staying = [pool.submit(complete, http, number) for number in range(6)]
            while not all(future.done() for future in (leaving, cancelled, *staying)):
                snapshots.append(http.get("/v1/cache").json())
            assert [future.result() for future in staying] == ["length"] * 6
            ended = {http.get(f"/v1/requests/{left.result()}").json()["finish_reason"] for left in (leaving, cancelled)}
        wait_until_idle(http)
        snapshots.append(http.get("/v1/cache").json())
    finally:
        watcher.until = snapshots[-1]["seq"] if snapshots else 0
        watcher.join(timeout=30)
    assert ended == {"cancelled"}
    kinds = [event["kind"] for event in watcher.events]
    assert "gap" not in kinds
    assert {"request.preempted", "block.evicted", "block.reused"} <= set(kinds)  # it was tight

    # The metrics say the same: they count these very events.
    first_starts: dict[str, int] = {}
    for event in watcher.events:
        if event["kind"] == "request.scheduled":
            first_starts.setdefault(event["request"], event["cached_tokens"])
    expected = {
        "num_preemptions_total": kinds.count("request.preempted"),
        "prefix_cache_hits_total": sum(first_starts.values()),
        "generation_tokens_total": kinds.count("token"),
        "kv_cache_usage_perc": 0,
        "num_requests_running": 0,
    }
    assert {name: value for name, value in metrics(http).items() if name in expected} == expected

    mirror, states = CacheMirror(BLOCKS), {}
    wanted = {snapshot["seq"] for snapshot in snapshots}
    for event in watcher.events:
        mirror.apply(event)
        if event["seq"] in wanted:
            states[event["seq"]] = [dict(block) for block in mirror.state]
    for snapshot in snapshots:
        assert snapshot["map"] == states[snapshot["seq"]]
    assert any(sum(block["refs"] > 0 for block in snapshot["map"]) > BLOCKS // 2 for snapshot in snapshots)


def test_a_full_queue_says_when_to_come_again(http: httpx.Client) -> None:
    open_streams = []
    try:
        for number in range(SLOTS + QUEUE):
            body = {"prompt": f"Number {number}", "max_tokens": 450, "stream": True, "logit_bias": ENDLESS}
            request = http.build_request("POST", "/v1/completions", json=body)
            open_streams.append(http.send(request, stream=True))
            assert open_streams[-1].status_code == 200
        refused = http.post("/v1/completions", json={"prompt": "One too many", "max_tokens": 1})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["code"] == "queue_full"
    finally:
        for response in open_streams:
            response.close()
    wait_until_idle(http)
    assert http.post("/v1/completions", json={"prompt": "Now", "max_tokens": 1}).status_code == 200


def test_what_can_never_fit_is_refused_with_the_numbers(http: httpx.Client) -> None:
    refused = http.post("/v1/completions", json={"prompt": "x" * 100, "max_tokens": 1000})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["code"] == "kv_memory_exceeded"
    assert "1099" in error["message"]
    assert "512" in error["message"]
