"""Forks: what if it had said something else?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine.trace import open_trace
from tests.server import Server


@pytest.fixture
def http(tiny_server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=tiny_server.url, timeout=60) as client:
        yield client


PROMPT = "The quick brown fox jumps over the lazy dog, and"


def first(http: httpx.Client, **parameters: Any) -> tuple[str, dict[str, Any]]:
    """A finished request to fork: its id, and its choice."""
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 24, "logprobs": 0} | parameters
    answer = http.post("/v1/completions", json=body).json()
    return answer["tokenwalk"]["request"], answer["choices"][0]


def fork(http: httpx.Client, parent: str, **body: Any) -> httpx.Response:
    return http.post(f"/v1/requests/{parent}/fork", json=body)


def event(server: Server, http: httpx.Client, kind: str, request: str) -> dict[str, Any]:
    """The recorded event of a kind that is about a request."""
    name = http.get("/health").json()["run"]
    http.get(f"/v1/traces/{name}/info")  # flushes the recording
    with open_trace(server.traces / f"{name}.mcap") as trace:
        (frame,) = trace.frames(kinds={kind}, request=request)
        return json.loads(frame.payload)  # type: ignore[no-any-return]


def test_a_fork_with_what_was_said_goes_on_as_it_did(tiny_server: Server, http: httpx.Client) -> None:
    parent, choice = first(http)
    position = len(PROMPT) + 8
    answer = fork(http, parent, position=position, text=choice["text"][8])  # a byte a token
    assert answer.status_code == 200
    body = answer.json()
    assert body["object"] == "text_completion"
    # Greedy and as long in all as its parent, without having been told either.
    assert body["choices"][0]["text"] == choice["text"][9:]
    assert body["choices"][0]["finish_reason"] == "length"
    request = answer.headers["x-tokenwalk-request"]
    assert request == body["tokenwalk"]["request"] != parent
    arrived = event(tiny_server, http, "request.arrived", request)
    assert arrived["forked_from"] == {"request": parent, "position": position}
    assert arrived["text"] == PROMPT + choice["text"][:9]
    # What its parent computed is there still, up to the last whole block before the position.
    assert event(tiny_server, http, "request.scheduled", request)["cached_tokens"] == position // 16 * 16


def test_another_token_gives_another_answer_streamed_or_not(http: httpx.Client) -> None:
    parent, choice = first(http)
    other = ord("Q")
    assert choice["text"][4] != "Q"
    body = {"position": len(PROMPT) + 4, "token": other, "max_tokens": 10}
    whole = fork(http, parent, **body).json()["choices"][0]["text"]
    streamed = ""
    with http.stream("POST", f"/v1/requests/{parent}/fork", json=body | {"stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        request = response.headers["x-tokenwalk-request"]
        data = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert data[-1] == "[DONE]"
    chunks = [json.loads(line) for line in data[:-1]]
    streamed = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert chunks[-1]["tokenwalk"]["request"] == request
    assert streamed == whole
    assert len(whole) == 10
    assert whole != choice["text"][5:15]


def test_the_prompt_s_end_can_be_replaced(http: httpx.Client) -> None:
    parent, _ = first(http)
    position = PROMPT.index("lazy")
    forked = fork(http, parent, position=position, text="busy cat, and", max_tokens=12).json()["choices"][0]["text"]
    _, asked = first(http, prompt=PROMPT[:position] + "busy cat, and", max_tokens=12)
    assert forked == asked["text"]


def test_sampling_is_the_parent_s_where_nothing_else_is_said(tiny_server: Server, http: httpx.Client) -> None:
    parent, _ = first(http, temperature=0.7, top_k=9, seed=5, stop=["zzz"], max_tokens=4)
    request = fork(http, parent, position=50, text="!", top_k=3).headers["x-tokenwalk-request"]
    sampling = event(tiny_server, http, "request.arrived", request)["sampling"]
    expected = {"temperature": 0.7, "top_k": 3, "seed": 5, "stop": ["zzz"]}
    assert {name: sampling[name] for name in expected} == expected


def test_a_running_request_is_forked_while_it_runs(http: httpx.Client) -> None:
    body = {"prompt": PROMPT, "max_tokens": 3000, "stream": True, "temperature": 0, "logit_bias": {"258": -100}}
    with http.stream("POST", "/v1/completions", json=body) as response:
        lines = response.iter_lines()
        for _ in range(6):
            next(lines)
        parent = response.headers["x-tokenwalk-request"]
        answer = fork(http, parent, position=len(PROMPT) + 2, text="X", max_tokens=5)
        assert answer.status_code == 200
        assert len(answer.json()["choices"][0]["text"]) == 5
        assert http.get(f"/v1/requests/{parent}").json()["state"] == "decode"


def test_several_continuations_at_once(http: httpx.Client) -> None:
    parent, _ = first(http, temperature=1, seed=3)
    choices = fork(http, parent, position=len(PROMPT), text="", n=3, max_tokens=16).json()["choices"]
    assert len({choice["text"] for choice in choices}) == 3


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({"position": 5}, "token", "neither"),
        ({"position": 5, "token": 65, "text": "A"}, "token", "both"),
        ({"position": 73, "text": "A"}, "position", "72 tokens"),
        ({"position": 0, "text": "A"}, "position", "position is 0; expected at least 1"),
        ({"text": "A"}, "position", "required"),
        ({"position": 5, "token": 264}, "token", "0 to 263"),
        ({"position": 5, "text": "A", "prompt": "A"}, "prompt", "no parameter"),
        ({"position": 5, "text": "A", "max_tokens": 5000}, "max_tokens", "4096"),
        ({"position": 5, "text": "A", "temperature": -1}, "temperature", "-1"),
    ],
)
def test_a_wrong_fork_is_refused_by_the_field(http: httpx.Client, body: dict[str, Any], param: str, said: str) -> None:
    parent, _ = first(http)
    refused = fork(http, parent, **body)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param
    assert said in refused.json()["error"]["message"]


def test_nobody_is_forked_who_is_not_there(http: httpx.Client) -> None:
    refused = fork(http, "r-nobody", position=1, text="A")
    assert refused.status_code == 404
    assert refused.json()["error"]["code"] == "not_found"
