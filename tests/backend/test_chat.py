import json
from typing import Any

import httpx
import openai
import pytest

from tests.backend.conftest import Running, Serve
from tests.backend.fake_engine import ANSWER, FakeEngine


def sse(response: httpx.Response) -> list[Any]:
    """The data of all events; [DONE] as it is."""
    events = [event.removeprefix("data: ") for event in response.text.split("\n\n") if event]
    return [event if event == "[DONE]" else json.loads(event) for event in events]


def content(chunks: list[Any]) -> str:
    return "".join(
        choice["delta"].get("content", "") for chunk in chunks[:-1] for choice in chunk["choices"] if "delta" in choice
    )


def test_a_whole_answer_has_openai_s_shape_and_ours(server: Running) -> None:
    response = server.chat()
    body = response.json()
    assert response.status_code == 200
    assert body["object"] == "chat.completion"
    assert body["model"] == "fake"
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": ANSWER},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    tokens = len(ANSWER.encode()) + 1
    assert body["usage"]["completion_tokens"] == tokens
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + tokens
    request = response.headers["x-tokenwalk-request"]
    assert body["tokenwalk"]["request"] == request
    assert body["tokenwalk"]["url"] == f"{server.url}/#run=run&request={request}"
    assert body["tokenwalk"]["timings"]["total_ns"] == 4 * 10**9


def test_a_streamed_answer_is_the_whole_one_in_pieces(server: Running) -> None:
    response = server.chat(stream=True)
    chunks = sse(response)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[-1] == "[DONE]"
    assert content(chunks) == ANSWER
    assert "\ufffd" not in response.text
    last = chunks[-2]
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["tokenwalk"]["request"] == response.headers["x-tokenwalk-request"]
    assert all("usage" not in chunk for chunk in chunks[:-1])
    assert len({chunk["id"] for chunk in chunks[:-1]}) == 1


def test_usage_comes_in_a_chunk_of_its_own_when_asked_for(server: Running) -> None:
    chunks = sse(server.chat(stream=True, stream_options={"include_usage": True}))
    assert [chunk["usage"] for chunk in chunks[:-2]] == [None] * (len(chunks) - 2)
    assert chunks[-2]["choices"] == []
    assert chunks[-2]["usage"]["completion_tokens"] == len(ANSWER.encode()) + 1
    assert "tokenwalk" in chunks[-2]


def test_logprobs_describe_the_text_byte_by_byte_streamed_or_not(server: Running) -> None:
    whole = server.chat(logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]["content"]
    assert bytes(byte for entry in whole for byte in entry["bytes"]).decode() == ANSWER
    assert whole[0]["token"] == "H"
    assert whole[0]["logprob"] == -0.5
    assert whole[0]["top_logprobs"] == [
        {"token": "H", "logprob": -0.5, "bytes": [72]},
        {"token": "A", "logprob": -9999.0, "bytes": [65]},  # −infinity is no JSON
    ]
    chunks = sse(server.chat(logprobs=True, top_logprobs=2, stream=True))
    streamed = [
        entry
        for chunk in chunks[:-1]
        for choice in chunk["choices"]
        if choice["logprobs"]
        for entry in choice["logprobs"]["content"]
    ]
    assert streamed == whole


def test_a_stop_text_is_not_sent_nor_its_beginning_nor_its_logprobs(server: Running) -> None:
    for stream in (False, True):
        response = server.chat(stop=["rüß", "never"], logprobs=True, stream=stream)
        if stream:
            chunks = sse(response)
            text, reason = content(chunks), chunks[-2]["choices"][0]["finish_reason"]
            entries = [
                e for c in chunks[:-1] if c["choices"][0]["logprobs"] for e in c["choices"][0]["logprobs"]["content"]
            ]
        else:
            choice = response.json()["choices"][0]
            text, reason, entries = choice["message"]["content"], choice["finish_reason"], choice["logprobs"]["content"]
        assert text == "Hi! G"
        assert reason == "stop"
        assert "".join(entry["token"] for entry in entries) == "Hi! G"


def test_what_was_held_back_as_a_possible_stop_text_comes_in_the_end(server: Running) -> None:
    assert server.chat(stop=".never").json()["choices"][0]["message"]["content"] == ANSWER
    assert content(sse(server.chat(stop=".never", stream=True))) == ANSWER


def test_max_tokens_ends_an_answer_with_length(server: Running) -> None:
    body = server.chat(max_tokens=1).json()
    assert body["choices"][0]["message"]["content"] == "H"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 1
    assert server.chat(max_tokens=None, max_completion_tokens=2).json()["choices"][0]["message"]["content"] == "Hi"


def test_several_choices_have_seeds_of_their_own_and_one_prompt_to_pay(server: Running) -> None:
    response = server.chat(n=3, seed=7, max_tokens=2)
    body = response.json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert body["usage"]["completion_tokens"] == 6
    single = server.chat(max_tokens=2).json()["usage"]["prompt_tokens"]
    assert body["usage"]["prompt_tokens"] == single
    ids = body["tokenwalk"]["requests"]
    assert ids[0] == response.headers["x-tokenwalk-request"]
    server.live.bus.flush()
    arrived = server.live.frames(0, None, frozenset({"request.arrived"}), None)
    seeds = {event["request"]: event["sampling"]["seed"] for event in (json.loads(frame.payload) for frame in arrived)}
    assert [seeds[request] for request in ids] == [7, 8, 9]


def test_several_choices_are_streamed_under_their_indexes(server: Running) -> None:
    chunks = sse(server.chat(n=2, stream=True))
    texts = ["", ""]
    for chunk in chunks[:-1]:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == [ANSWER, ANSWER]
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]].count("stop") == 2
    assert [chunk for chunk in chunks[:-1] if "tokenwalk" in chunk] == [chunks[-2]]


def test_when_one_of_several_choices_finds_no_place_none_runs(serve: Serve) -> None:
    with serve(engine=lambda bus: FakeEngine(bus, max_queue=2), prepare=FakeEngine.hold) as server:
        assert server.engine is not None
        response = server.chat(n=4)
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1
        assert response.json()["error"]["code"] == "queue_full"
        server.engine.wait_for_state("finished", count=2)
        assert {view.finish_reason for view in server.engine.requests()} == {"cancelled"}


def test_the_openai_client_is_served(server: Running) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        answer = client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": "Hello"}], logprobs=True, top_logprobs=1
        )
        assert answer.choices[0].message.content == ANSWER
        assert answer.choices[0].logprobs is not None
        follow_up = [answer.choices[0].message.model_dump(), {"role": "user", "content": "And?"}]
        with client.chat.completions.create(model="fake", messages=follow_up, stream=True) as stream:  # type: ignore[call-overload]
            pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
        assert "".join(pieces) == ANSWER
        text = client.completions.create(model="fake-spec", prompt="Hello", max_tokens=2)
        assert text.choices[0].text == "Hi"
        assert [model.id for model in client.models.list()] == ["fake"]
        with pytest.raises(openai.NotFoundError, match="gpt-9"):
            client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "x"}])


def test_a_generation_that_fails_is_an_error_before_and_in_a_stream(serve: Serve) -> None:
    def breaks(engine: FakeEngine) -> None:
        engine.breaks_at = 2

    with serve(prepare=breaks) as server:
        response = server.chat()
        assert response.status_code == 500
        assert response.json()["error"]["message"] == "the logits are not finite"
        assert "x-tokenwalk-request" in response.headers
        streamed = server.chat(stream=True)
        assert '"finish_reason":"stop"' not in streamed.text
        assert json.loads(streamed.text.split("data: ")[-1])["error"]["code"] == "generation_failed"
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            stream = client.chat.completions.create(
                model="fake", messages=[{"role": "user", "content": "x"}], stream=True
            )
            with pytest.raises(openai.APIError, match="not finite"):
                list(stream)


def test_messages_may_be_lists_of_texts_and_developer_means_system(server: Running) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
    ]
    assert server.chat(messages=messages).status_code == 200
    server.live.bus.flush()
    (arrived,) = server.live.frames(0, None, frozenset({"request.arrived"}), None)
    assert json.loads(arrived.payload)["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
    ]
