"""The estimate of what a plan captures, against what a real request sends; plans over HTTP."""

from __future__ import annotations

import json
import math
import secrets
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.bus import EventBus
from engine.codec import parse
from engine.trace import open_trace
from tests.backend.conftest import serving
from tests.server import Server


def post(server: Server, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=60)


def captured(server: Server, request: str) -> dict[str, dict[str, dict[str, int]]]:
    """Positions and bytes of arrays of a finished request, as its trace has them, in the estimate's shape."""
    name = httpx.get(f"{server.url}/health").json()["run"]
    httpx.get(f"{server.url}/v1/traces/{name}/info")  # flushes the recording
    found: dict[str, dict[str, dict[str, int]]] = {}
    prompt_tokens = 0
    with open_trace(server.traces / f"{name}.mcap") as trace:
        for frame in trace.frames(request=request):
            fields, array = parse(frame.payload, binary=frame.binary)
            if frame.kind == "request.tokenized":
                prompt_tokens = len(fields["tokens"])
            if array is not None:
                part = "prompt" if fields["position"] < prompt_tokens - 1 else "generated"
                entry = found.setdefault(frame.kind, {}).setdefault(part, {"positions": 0, "bytes": 0})
                entry["positions"] += 1
                entry["bytes"] += array.nbytes
    return found


@pytest.mark.parametrize(
    "plan",
    [
        "follow",
        {"layers": [1], "heads": [0, [2, 4]]},
        {"max_bytes": 100_000, "dtype": "f16"},
        {"positions": ["prompt"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("chat", [True, False])
def test_the_estimate_of_a_body_is_what_the_same_body_captures(tiny_server: Server, plan: Any, chat: bool) -> None:
    text = f"{secrets.token_hex(8)} begins like no other prompt, so that nothing of it is cached"
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
    body |= {"model": "tiny", "max_tokens": 9, "temperature": 0, "logit_bias": {"256": -100, "257": -100, "258": -100}}
    body["tokenwalk"] = {"capture": plan}
    told = post(tiny_server, "/v1/capture/estimate", body).json()
    answer = post(tiny_server, "/v1/chat/completions" if chat else "/v1/completions", body).json()
    assert answer["usage"]["prompt_tokens"] == told["prompt_tokens"]
    assert answer["usage"]["completion_tokens"] == told["max_tokens"] == 9
    cached = answer["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0)
    found = captured(tiny_server, answer["tokenwalk"]["request"])
    for kind, parts in told["tensors"].items():
        for part, numbers in parts.items():
            got = found.get(kind, {}).get(part, {"positions": 0, "bytes": 0})
            if not (cached and part == "prompt"):  # a chat's template begins alike: its block is found
                assert got == numbers, (kind, part)
    assert told["bytes"] == sum(numbers["bytes"] for parts in told["tensors"].values() for numbers in parts.values())


def test_a_number_of_tokens_is_enough(tiny_server: Server) -> None:
    body = {"prompt_tokens": 4000, "max_tokens": 90, "tokenwalk": {"capture": "follow"}}
    told = post(tiny_server, "/v1/capture/estimate", body).json()
    assert told["needed_bytes"] > told["budget_bytes"] >= told["bytes"]
    assert told["over_budget"]["summarised"]
    assert told["tensors"]["attention"]["generated"]["positions"] == 90


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "x", "prompt_tokens": 1}, "prompt"),
        ({"prompt_tokens": 5}, "max_tokens"),
        ({"prompt_tokens": 0, "max_tokens": 5}, "prompt_tokens"),
        ({"prompt": "x", "tokenwalk": {"capture": {"heads": [9]}}}, "tokenwalk.capture.heads"),
        ({"prompt": "x", "max_tokens": 10**6}, "max_tokens"),
        ({"prompt_tokens": 5, "max_tokens": 10**12}, "max_tokens"),
        ({"prompt_tokens": 10**12, "max_tokens": 5}, "prompt"),
    ],
)
def test_what_cannot_be_estimated_says_which_field(tiny_server: Server, body: dict[str, Any], param: str) -> None:
    reply = post(tiny_server, "/v1/capture/estimate", body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


def test_a_plan_that_would_be_refused_is_told_with_the_refusals_words(tiny_server: Server) -> None:
    body = {"prompt": "Hello", "max_tokens": 5, "tokenwalk": {"capture": {"max_bytes": 5_000, "over_budget": "refuse"}}}
    told = post(tiny_server, "/v1/capture/estimate", body).json()
    error = post(tiny_server, "/v1/completions", body)
    assert error.status_code == 400
    assert error.json()["error"]["message"] == told["refused"]
    assert error.json()["error"]["code"] == "capture_budget_exceeded"
    assert json.dumps(told["needed_bytes"]) in told["refused"].replace(",", "")


def broken_engine(bus: EventBus) -> Any:
    """The real engine on `tiny` with NaN in one layer's MLP."""
    from engine.device import mx

    from engine.config import EngineConfig
    from engine.engine import Engine
    from engine.models import load

    def loader() -> Any:
        loaded = load("tiny")
        module = loaded.model.layers[2].mlp.down_proj
        module.weight = mx.full(module.weight.shape, math.nan)
        return loaded

    return Engine(loader, EngineConfig(slots=2, kv_memory=2**22), bus)


@pytest.mark.parametrize("capture", ["light", "follow"])
def test_a_model_that_computes_nan_answers_with_an_error_and_the_server_goes_on(tmp_path: Path, capture: str) -> None:
    with serving(tmp_path, engine=broken_engine) as server:
        for _ in range(2):
            reply = httpx.post(
                f"{server.url}/v1/completions",
                json={"prompt": "Hello there", "max_tokens": 5, "tokenwalk": {"capture": capture}},
                timeout=60,
            )
            assert reply.status_code == 500
            assert "nan" in reply.json()["error"]["message"].lower()
        assert httpx.get(f"{server.url}/health").status_code == 200
        with httpx.stream(
            "POST", f"{server.url}/v1/completions", json={"prompt": "Hi", "max_tokens": 5, "stream": True}, timeout=60
        ) as stream:
            lines = [line for line in stream.iter_lines() if line.startswith("data: ")]
        assert any("nan" in line.lower() and "error" in line for line in lines)
        frames = httpx.get(f"{server.url}/v1/traces/run/frames")
        assert frames.status_code == 200
        requests = httpx.get(f"{server.url}/v1/requests").json()
        assert "error" in json.dumps(requests)
