"""The server around the real engine: the `tiny` model, and the built-in one where it is here."""

import json
import socket
import time
from typing import Any

import httpx
import openai
import pytest
from websockets.sync.client import connect

from engine.codec import parse
from engine.trace import open_trace
from tests.server import ENDLESS, SEED, Server

USER = [{"role": "user", "content": "What is the capital of France?"}]


def fields_of(message: str | bytes) -> dict[str, Any]:
    payload, binary = (message, True) if isinstance(message, bytes) else (message.encode(), False)
    return parse(payload, binary=binary)[0]


@pytest.fixture(scope="module")
def client(tiny_server: Server) -> Any:
    with openai.OpenAI(base_url=f"{tiny_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_streamed_and_whole_answers_are_the_same(client: openai.OpenAI) -> None:
    common: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 40, "logprobs": True, "top_logprobs": 3}
    whole = client.chat.completions.create(messages=USER, **common).choices[0]  # type: ignore[call-overload]
    text, entries = "", []
    for chunk in client.chat.completions.create(messages=USER, stream=True, **common):  # type: ignore[call-overload]
        text += chunk.choices[0].delta.content or ""
        entries += chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else []
    assert text == whole.message.content
    assert [entry.token for entry in entries] == [entry.token for entry in whole.logprobs.content]
    # The second request finds its prompt in the prefix cache: other shapes in the matrix products, other rounding.
    expected = [entry.logprob for entry in whole.logprobs.content]
    assert [entry.logprob for entry in entries] == pytest.approx(expected, abs=1e-4)
    assert len(entries) == 40


def test_log_probabilities_are_of_the_model_and_in_falling_order(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt="Hello", temperature=0, max_tokens=8, logprobs=5)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    for chosen, ranking in zip(logprobs.token_logprobs or [], logprobs.top_logprobs or [], strict=True):
        assert len(ranking) == 5
        assert list(ranking.values()) == sorted(ranking.values(), reverse=True)
        assert chosen == max(ranking.values())  # greedy


def test_a_seed_gives_the_same_text_alone_and_among_others(client: openai.OpenAI) -> None:
    alone = client.completions.create(model="tiny", prompt="Hello", seed=5, max_tokens=20).choices[0].text
    several = client.completions.create(model="tiny", prompt="Hello", seed=4, n=3, max_tokens=20).choices
    assert several[1].text == alone
    assert len({choice.text for choice in several}) == 3


def test_a_server_with_a_seed_gives_each_prompt_the_same_answer(tiny_server: Server, client: openai.OpenAI) -> None:
    assert httpx.get(f"{tiny_server.url}/health").json()["seed_default"] == SEED

    def texts(**parameters: Any) -> list[str]:
        answer = client.completions.create(model="tiny", prompt="Hello", max_tokens=20, **parameters)
        return [choice.text for choice in answer.choices]

    assert texts() == texts() == texts(seed=SEED)
    assert texts(seed=SEED + 1) != texts()
    assert len(set(texts(n=3))) == 3


@pytest.mark.parametrize("capture", ["off", "light", "follow", "full"])
def test_what_is_captured_changes_nothing_in_the_answer(client: openai.OpenAI, capture: str) -> None:
    def answer(**extra: Any) -> str:
        extra_body = {"tokenwalk": extra}
        return (
            client.completions.create(model="tiny", prompt="Hello", seed=5, max_tokens=20, extra_body=extra_body)
            .choices[0]
            .text
        )

    assert answer(capture=capture) == answer()


def test_a_live_client_gets_exactly_what_is_recorded(tiny_server: Server, client: openai.OpenAI) -> None:
    request = client.completions.create(model="tiny", prompt="Hello", max_tokens=10).model_dump()["tokenwalk"][
        "request"
    ]
    name = httpx.get(f"{tiny_server.url}/health").json()["run"]
    with connect(f"ws://127.0.0.1:{tiny_server.port}/ws", compression=None, max_size=None) as stream:
        stream.send('{"kind": "hello"}')
        live: list[str | bytes] = []
        while not live or (fields_of(live[-1])["kind"], fields_of(live[-1]).get("request")) != ("stream.sent", request):
            live.append(stream.recv(timeout=20))
    last = fields_of(live[-1])["seq"]
    assert httpx.get(f"{tiny_server.url}/v1/traces/{name}/info").json()["last_seq"] >= last  # flushes the recording
    with open_trace(tiny_server.traces / f"{name}.mcap") as trace:
        recorded = [frame.payload if frame.binary else frame.payload.decode() for frame in trace.frames(to_seq=last)]
    assert recorded == live
    assert {"attention", "residual", "token"} <= {fields_of(message)["kind"] for message in live}


def test_the_lens_is_computed_on_request(tiny_server: Server, client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="tiny", prompt="Hello", max_tokens=5, temperature=0, extra_body={"tokenwalk": {"capture": "follow"}}
    )
    request = answer.model_dump()["tokenwalk"]["request"]
    with connect(f"ws://127.0.0.1:{tiny_server.port}/ws", compression=None, max_size=None) as stream:
        stream.send('{"kind": "hello", "last_seq": null}')
        stream.send(json.dumps({"kind": "lens", "request": request, "positions": [5]}))
        while (event := fields_of(stream.recv(timeout=20)))["kind"] != "lens":
            pass
    assert event["position"] == 5
    assert [layer["layer"] for layer in event["layers"]] == list(range(4))
    assert event["layers"][-1]["rank"] == 1  # the last layer's best guess is what greedy decoding chose


def test_attribution_is_computed_on_request(tiny_server: Server, client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="tiny", prompt="Hello", max_tokens=5, temperature=0, extra_body={"tokenwalk": {"capture": "follow"}}
    )
    request = answer.model_dump()["tokenwalk"]["request"]
    logits: dict[int, float] = {}
    with connect(f"ws://127.0.0.1:{tiny_server.port}/ws", compression=None, max_size=None) as stream:
        stream.send('{"kind": "hello"}')
        stream.send(json.dumps({"kind": "attribution", "request": request, "positions": [5]}))
        while (event := fields_of(stream.recv(timeout=20)))["kind"] != "attribution" or event["request"] != request:
            if event["kind"] == "token" and event["request"] == request:
                logits[event["position"]] = event["top"][0]["logit"]
    assert event["position"] == 5
    assert sum(part["value"] for part in event["components"]) == pytest.approx(logits[6], abs=1e-4)


@pytest.mark.parametrize("way", ["http", "socket"])
def test_steps_are_timed_on_request(tiny_server: Server, client: openai.OpenAI, way: str) -> None:
    with connect(f"ws://127.0.0.1:{tiny_server.port}/ws", compression=None, max_size=None) as stream:
        stream.send('{"kind": "hello"}')
        if way == "http":
            assert httpx.post(f"{tiny_server.url}/v1/kernels", json={"steps": 2}).json() == {"steps": 2}
        else:
            stream.send('{"kind": "time", "steps": 2}')
            after = httpx.get(f"{tiny_server.url}/v1/cache")  # the engine answers once it has obeyed the command
            assert after.status_code == 200
        answer = client.completions.create(model="tiny", prompt="Hello", max_tokens=5, temperature=0)
        request = answer.model_dump()["tokenwalk"]["request"]
        events = []
        while not events or events[-1]["kind"] != "request.finished" or events[-1]["request"] != request:
            events.append(fields_of(stream.recv(timeout=20)))
    arrived = next(i for i, event in enumerate(events) if event.get("request") == request)
    timed = [event["timing"] for event in events[arrived:] if event["kind"] == "step.finished"]
    assert timed[:3] == ["barriers", "barriers", None]
    assert {event["layer"] for event in events[arrived:] if event["kind"] == "kernel"} == {None, 0, 1, 2, 3}


def test_a_prompt_that_is_too_long_is_refused_with_numbers(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt="x" * 5000, max_tokens=5)
    assert caught.value.code == "context_length_exceeded"
    assert "4096" in caught.value.message
    near = client.completions.create(model="tiny", prompt="x" * 4090)  # 16 tokens are usual; there is room for 6
    assert near.usage is not None
    assert near.usage.completion_tokens <= 6
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt="")
    assert caught.value.code == "empty_prompt"


def test_a_client_that_leaves_ends_its_request(tiny_server: Server) -> None:
    given = {
        "prompt": "Hello",
        "max_tokens": 3000,
        "stream": True,
        "logit_bias": ENDLESS,
        "tokenwalk": {"name": "left"},
    }
    body = json.dumps(given).encode()
    with socket.create_connection(("127.0.0.1", tiny_server.port), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (tiny_server.port, len(body), body)
        )
        assert b"200 OK" in connection.recv(1 << 16)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        views = httpx.get(f"{tiny_server.url}/v1/requests").json()["data"]
        (left,) = [view for view in views if view["name"] == "left"]
        if left["state"] == "finished":
            break
        time.sleep(0.05)
    assert left["finish_reason"] == "cancelled"
    assert left["completion_tokens"] < 3000


@pytest.mark.model
def test_the_built_in_model_knows_the_capital_of_france(model_server: Server) -> None:
    body = {"messages": USER, "temperature": 0, "max_tokens": 16}
    answer = httpx.post(f"{model_server.url}/v1/chat/completions", json=body, timeout=120).json()
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    health = httpx.get(f"{model_server.url}/health").json()
    assert health["model"]["name"] == "SmolLM2-135M-Instruct"
