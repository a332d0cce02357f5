import json
from queue import SimpleQueue
from typing import Any

import pytest

from engine.codec import Frame
from tests.backend.conftest import Running
from tests.backend.fake_engine import ANSWER
from tests.backend.test_chat import sse


def test_a_text_is_continued_whole_and_streamed(server: Running) -> None:
    body = server.complete().json()
    assert body["object"] == "text_completion"
    assert body["choices"] == [{"index": 0, "text": ANSWER, "logprobs": None, "finish_reason": "stop"}]
    chunks = sse(server.complete(stream=True))
    assert {chunk["object"] for chunk in chunks[:-1]} == {"text_completion"}
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1]) == ANSWER
    assert chunks[-1] == "[DONE]"


def test_without_a_limit_sixteen_tokens_are_made_as_openai_does(server: Running) -> None:
    assert server.complete(max_tokens=None).json()["usage"]["completion_tokens"] == 16


def test_logprobs_have_the_older_shape(server: Running) -> None:
    logprobs = server.complete(logprobs=1).json()["choices"][0]["logprobs"]
    # 'ü' is two tokens, neither of which is a character: they are spelled out, so that keys stay apart
    assert logprobs["tokens"][:8] == ["H", "i", "!", " ", "G", "r", "bytes:\\xc3", "bytes:\\xbc"]
    assert logprobs["text_offset"][:9] == [0, 1, 2, 3, 4, 5, 6, 6, 7]
    assert logprobs["token_logprobs"][0] == -0.5
    assert logprobs["top_logprobs"][0] == {"H": -0.5}
    assert server.complete(logprobs=0).json()["choices"][0]["logprobs"]["top_logprobs"] is None
    streamed: dict[str, list[Any]] = {"tokens": [], "text_offset": [], "token_logprobs": [], "top_logprobs": []}
    for chunk in sse(server.complete(logprobs=1, stream=True))[:-1]:
        for key, values in (chunk["choices"][0]["logprobs"] or {}).items():
            streamed[key] += values
    assert streamed == logprobs


@pytest.mark.parametrize("prompt", ["Hello", [72, 101], ["Hello"], [[72, 101]]])
def test_a_prompt_may_be_a_text_or_token_ids_alone_or_in_a_list(server: Running, prompt: object) -> None:
    assert server.complete(prompt=prompt, max_tokens=2).json()["choices"][0]["text"] == "Hi"


def test_every_prompt_of_a_list_gets_its_choices_and_is_counted_once(server: Running) -> None:
    body = server.complete(prompt=["Hello", "Good day"], n=2, max_tokens=1).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert body["usage"]["prompt_tokens"] == len("Hello") + len("Good day")
    server.live.bus.flush()
    arrived = [json.loads(frame.payload) for frame in server.live.frames(0, None, frozenset({"request.arrived"}), None)]
    assert [event["text"] for event in arrived] == ["Hello", "Hello", "Good day", "Good day"]


def test_what_tokenwalk_adds_reaches_the_engine(server: Running) -> None:
    extras = {"capture": {"level": "light", "max_bytes": 5}, "name": "my request", "priority": 3}
    assert server.complete(tokenwalk=extras).status_code == 200
    server.live.bus.flush()
    (frame,) = server.live.frames(0, None, frozenset({"request.arrived"}), None)
    event = json.loads(frame.payload)
    assert event["name"] == "my request"
    assert event["priority"] == 3
    assert event["capture"] == {"level": "light", "dtype": "auto", "budget_bytes": 5}
    assert event["source"] == "completions"


def test_every_sampling_parameter_reaches_the_engine(server: Running) -> None:
    given = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "min_p": 0.1,
        "seed": 11,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
    }
    assert server.complete(**given, logit_bias={"65": -5}, user="somebody").status_code == 200
    server.live.bus.flush()
    (frame,) = server.live.frames(0, None, frozenset({"request.arrived"}), None)
    event = json.loads(frame.payload)
    assert {name: event["sampling"][name] for name in given} == given
    assert event["sampling"]["logit_bias"] == {"65": -5}
    assert event["name"] == "somebody"


def test_stream_sent_says_what_was_handed_to_the_socket(server: Running) -> None:
    response = server.complete(stream=True)
    request = response.headers["x-tokenwalk-request"]
    server.live.bus.flush()
    sent = [
        json.loads(frame.payload)
        for frame in server.live.frames(0, None, frozenset({"stream.sent"}), None)
        if frame.request == request
    ]
    chunks = response.content.split(b"\n\n")[:-1]
    assert [event["chunk"] for event in sent] == list(range(len(chunks)))
    assert [event["chunk_bytes"] for event in sent] == [len(chunk) + 2 for chunk in chunks]
    assert sum(event["text_bytes"] for event in sent) == len(ANSWER.encode())
    assert all(event["queued_ns"] <= event["sent_ns"] <= event["t_ns"] for event in sent)
    assert {event["to"] for event in sent} == {"sse"}
    positions = [event["position"] for event in sent if event["position"] is not None]
    assert positions == sorted(set(positions))

    # Said behind the body's last byte, so the client may have it before.
    frames: SimpleQueue[Frame] = SimpleQueue()
    server.live.bus.subscribe(frames.put)
    whole = server.complete()
    while (frame := frames.get(timeout=30)).kind != "stream.sent":
        pass
    assert frame.request == whole.headers["x-tokenwalk-request"]
    event = json.loads(frame.payload)
    assert event["to"] == "json"
    assert event["chunk_bytes"] == len(whole.content)
    assert event["text_bytes"] == len(ANSWER.encode())
