"""Whatever a client sends, it gets the documented error at once, and the server goes on."""

import socket
from typing import Any

import pytest

from tests.backend.conftest import Running, Serve
from tests.backend.fake_engine import FakeEngine

USER = [{"role": "user", "content": "Hello"}]
DEEP = b'{"messages": [{"role": "user", "content": "x"}], "tokenwalk": {"capture": {"level": %s}}}' % (
    b"[" * 1000 + b"]" * 1000
)
"""JSON that its parser takes, and that is too deep for Python to print."""


def assert_error(response: Any, status: int, param: str | None = None, says: str = "") -> None:
    error = response.json()["error"]
    assert response.status_code == status, error
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param, error
    assert says in error["message"]


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"messages": []}, "messages", "at least 1"),
        ({}, "messages", "required"),
        ({"messages": "Hello"}, "messages", "list"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "required"),
        ({"messages": [{"role": "pope", "content": "x"}]}, "messages[0].role", "pope"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "tool calls"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]}, "messages[0].tool_calls", "supported"),
        ({"messages": [{"role": "user", "content": "x", "colour": 1}]}, "messages[0].colour", "no parameter"),
        ({"messages": USER, "max_tokens": 0}, "max_tokens", "max_tokens is 0"),
        ({"messages": USER, "max_tokens": -3}, "max_tokens", "-3"),
        ({"messages": USER, "max_tokens": "5"}, "max_tokens", "'5'"),
        ({"messages": USER, "max_tokens": 2.5}, "max_tokens", "integer"),
        ({"messages": USER, "max_tokens": True}, "max_tokens", "true"),
        ({"messages": USER, "max_tokens": 10**6}, "max_tokens", "room"),
        ({"messages": USER, "max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "give one"),
        ({"messages": USER, "temperature": -1}, "temperature", "-1"),
        ({"messages": USER, "temperature": "hot"}, "temperature", "'hot'"),
        ({"messages": USER, "top_p": 1.5}, "top_p", "1.5"),
        ({"messages": USER, "top_k": -1}, "top_k", "-1"),
        ({"messages": USER, "min_p": 2}, "min_p", "2"),
        ({"messages": USER, "n": 0}, "n", "0"),
        ({"messages": USER, "n": 1000}, "n", "1000"),
        ({"messages": USER, "seed": 1.5}, "seed", "1.5"),
        ({"messages": USER, "seed": 2**64}, "seed", "at most 64 bits"),
        ({"messages": USER, "stop": ""}, "stop", "empty"),
        ({"messages": USER, "stop": [1]}, "stop", "texts"),
        ({"messages": USER, "stop": ["x"] * 65}, "stop", "65 texts"),
        ({"messages": USER, "stop": ["x" * 1001]}, "stop", "1,001 characters"),
        ({"messages": USER, "user": "x" * 201}, "user", "at most 200"),
        ({"messages": USER, "logit_bias": {"a": 1}}, "logit_bias", "'a'"),
        ({"messages": USER, "logit_bias": {"9" * 5000: 1}}, "logit_bias", "is not a token id"),
        ({"messages": USER, "logit_bias": {"99999": 1}}, "logit_bias", "99999"),
        ({"messages": USER, "logit_bias": {"5": 1000}}, "logit_bias", "1000"),
        ({"messages": USER, "top_logprobs": 3}, "top_logprobs", "logprobs"),
        ({"messages": USER, "logprobs": True, "top_logprobs": 21}, "top_logprobs", "21"),
        ({"messages": USER, "logprobs": True, "tokenwalk": {"capture": "off"}}, "logprobs", "capture"),
        ({"messages": USER, "stream_options": {}}, "stream_options", "stream"),
        ({"messages": USER, "stream": True, "stream_options": {"x": 1}}, "stream_options.x", "no parameter"),
        ({"messages": USER, "tokenwalk": {"capture": "everything"}}, "tokenwalk.capture.level", "everything"),
        ({"messages": USER, "tokenwalk": {"capture": 3}}, "tokenwalk.capture", "3"),
        ({"messages": USER, "tokenwalk": {"colour": 3}}, "tokenwalk.colour", "no parameter"),
        ({"messages": USER, "tools": [{}]}, "tools", "not supported"),
        ({"messages": USER, "response_format": {"type": "json_object"}}, "response_format", "not supported"),
        ({"messages": USER, "echo": True}, "echo", "not supported"),
        ({"messages": USER, "frobnicate": 1}, "frobnicate", "no parameter"),
        ({"messages": USER, "frobnicate": None}, "frobnicate", "no parameter"),
        ({"messages": [{"role": "user", "content": "x" * 1000}]}, "messages", "512"),
    ],
)
def test_a_wrong_field_is_a_400_that_names_it(shared: Running, body: Any, param: str, says: str) -> None:
    assert_error(shared.http.post("/v1/chat/completions", json=body), 400, param, says)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [300]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": {"text": "x"}}, "prompt"),
        ({"prompt": "x", "best_of": 3}, "best_of"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "logprobs": True}, "logprobs"),
    ],
)
def test_a_wrong_text_completion_is_a_400_that_names_the_field(shared: Running, body: Any, param: str) -> None:
    assert_error(shared.http.post("/v1/completions", json=body), 400, param)


def test_what_asks_for_nothing_is_accepted(shared: Running) -> None:
    assert (
        shared.chat(tools=[], response_format={"type": "text"}, store=False, tool_choice=None, n=None).status_code
        == 200
    )
    assert shared.complete(echo=False, best_of=1, suffix=None).status_code == 200


def test_an_error_quotes_no_more_than_it_must(shared: Running) -> None:
    long = "x" * 100_000
    answers = [
        shared.http.post("/v1/completions", json={"prompt": "Hi", long: 1}),
        shared.http.post("/v1/completions", json={"prompt": "Hi", "tokenwalk": {"capture": {"layers": [7] * 100_000}}}),
        shared.http.post("/v1/completions", json={"prompt": "Hi", "model": long}),
        shared.http.post("/v1/completions", json={"prompt": "Hi", "logit_bias": {long: 1}}),
        shared.http.get(f"/v1/requests/{long[:9000]}"),
        shared.http.get(f"/v1/traces/{long[:9000]}"),
        shared.http.get(f"/v1/traces/x/frames?from={long[:9000]}"),
        shared.http.get(f"/{long[:9000]}"),
        shared.http.put(f"/v1/requests/{long[:9000]}"),
        shared.http.post("/v1/completions", content="{}", headers={"content-type": long[:9000]}),
        shared.http.post(
            f"/v1/traces?name={long[:9000]}", content="x", headers={"content-type": "application/octet-stream"}
        ),
    ]
    for answer in answers:
        assert answer.status_code in (400, 404, 405, 415)
        assert answer.json()["error"]["message"]
        assert len(answer.content) < 2000


def test_a_text_of_too_many_tokens_is_not_described(shared: Running) -> None:
    for body in ({"text": "x" * 300_000}, {"messages": [{"role": "user", "content": "x" * 300_000}]}):
        answer = shared.http.post("/v1/tokenize", json=body)
        assert_error(answer, 400, next(iter(body)), "at most 262,144 are described at once")


def test_another_model_is_not_found(shared: Running) -> None:
    response = shared.chat(model="gpt-9")
    assert_error(response, 404, "model", "gpt-9")
    assert response.json()["error"]["code"] == "model_not_found"


def test_a_body_that_is_no_json_object_is_a_400(shared: Running) -> None:
    for content in (b"hello", b"", b"[1]", b'"x"', b'{"messages": NaN}', b'{"a":' * 5000, b"\xff\xfe", DEEP):
        response = shared.http.post(
            "/v1/chat/completions", content=content, headers={"content-type": "application/json"}
        )
        assert_error(response, 400)
        assert response.json()["error"]["code"] == "invalid_json"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is empty"),
        (b'{"a": 1,\n  b}', "it goes wrong at line 2, column 3"),
        (b'{"a": "\xff"}', "byte 7 (0xff) is not UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "byte 7 (0xed) is not UTF-8"),
        (b'{"a": "\\ud800"}', "it goes wrong at line 1, column "),
    ],
)
def test_where_a_body_is_no_json_is_said_without_the_parsers_words(shared: Running, content: bytes, says: str) -> None:
    response = shared.http.post("/v1/completions", content=content, headers={"content-type": "application/json"})
    assert response.json()["error"]["message"].removeprefix("the body is not valid JSON: ").startswith(says)


def test_another_content_type_is_a_415(shared: Running) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = shared.http.post("/v1/completions", content=b"{}", headers={"content-type": content_type})
        assert_error(response, 415, says="application/json")


def test_a_body_too_large_is_a_413_and_is_not_kept(shared: Running) -> None:
    headers = {"content-type": "application/json"}
    assert_error(shared.http.post("/v1/completions", content=b"x" * 10_000_000, headers=headers), 413)
    pieces = (b"x" * 1_000_000 for _ in range(10))  # no declared length
    assert_error(shared.http.post("/v1/completions", content=pieces, headers=headers), 413)
    assert shared.complete().status_code == 200


def test_a_body_too_large_is_refused_before_it_is_sent(shared: Running) -> None:
    with socket.create_connection(("127.0.0.1", shared.site.settings.port), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: application/json\r\n"
            b"Content-Length: 10000000000\r\n\r\n" % shared.site.settings.port
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_an_unknown_path_or_method_is_answered_in_the_same_shape(shared: Running) -> None:
    assert_error(shared.http.get("/v1/nothing"), 404, says="/v1/nothing")
    assert_error(shared.http.delete("/v1/models"), 405, says="DELETE")
    assert_error(shared.http.get("/static/nothing.js"), 404)
    assert_error(shared.http.get("/static/%2e%2e/%2e%2e/pyproject.toml"), 404)
    assert_error(shared.http.get("/static/..%2f..%2fpyproject.toml"), 404)


def test_a_full_queue_is_a_429_and_the_others_are_served(serve: Serve) -> None:
    with serve(engine=lambda bus: FakeEngine(bus, max_queue=0), prepare=FakeEngine.hold) as server:
        response = server.complete()
        assert_error(response, 429)
        assert response.json()["error"]["type"] == "rate_limit_error"
        assert response.headers["retry-after"] == "1"


def test_while_the_model_loads_everything_says_so(serve: Serve) -> None:
    def slow(engine: FakeEngine) -> None:
        engine.may_load.clear()

    with serve(prepare=slow, ready=False) as server:
        assert server.engine is not None
        for path in ("/v1/models", "/v1/requests", "/v1/slots"):
            assert_error(server.http.get(path), 503, says="loading")
        assert_error(server.complete(), 503, says="loading")
        health = server.http.get("/health")
        assert health.status_code == 503
        assert health.json()["reason"] == "loading"
        assert server.http.get("/v1/traces").status_code == 200
        server.engine.may_load.set()


def test_health_follows_the_engine(server: Running) -> None:
    assert server.engine is not None
    body = server.http.get("/health").json()
    assert body["status"] == "ok"
    assert body["model"]["name"] == "fake"
    assert body["run"] == "run"
    assert "reference" in body["blas_warning"]
    server.engine.reason = "the engine thread has ended: MemoryError: no room"
    response = server.http.get("/health")
    assert response.status_code == 503
    assert response.json()["reason"] == server.engine.reason
    server.engine.reason = None


def test_a_fault_of_ours_is_a_500_in_the_same_shape(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    assert server.engine is not None

    def broken() -> list[Any]:
        raise ZeroDivisionError("oh no")

    server.engine.slots_view = broken  # type: ignore[method-assign]
    response = server.http.get("/v1/slots")
    assert_error(response, 500)
    assert "oh no" not in response.text
    assert "GET /v1/slots" in caplog.text


@pytest.mark.parametrize(
    ("body", "param", "known"),
    [
        ({"messages": USER, "capture": "light"}, "capture", "tokenwalk"),
        ({"messages": USER, "tokenwalk": {"level": "light"}}, "tokenwalk.level", "capture"),
    ],
)
def test_an_unknown_parameter_is_answered_with_those_there_are(
    server: Running, body: dict[str, object], param: str, known: str
) -> None:
    error = server.http.post("/v1/chat/completions", json=body).json()["error"]
    assert error["param"] == param
    assert known in error["message"].partition("expected one of ")[2].split(", ")


@pytest.mark.parametrize("head", [b"GET /", b"GET /health HTTP/1.1\r\nX: ", b"GET /health HTTP/1.1\r\n"])
def test_a_head_without_an_end_is_refused(server: Running, head: bytes) -> None:
    more = b"".join(b"H%d: x\r\n" % number for number in range(9000)) if head.endswith(b"\n") else b"a" * 2**16
    with socket.create_connection(("127.0.0.1", server.site.settings.port), timeout=30) as connection:
        connection.sendall(head + more[: 2**16 + 1 - len(head)])  # one byte more than may be
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400")
    assert server.http.get("/health").status_code == 200


def test_a_body_is_read_beside_an_upgrade_that_is_not_taken(server: Running) -> None:
    """As curl --http2 asks: HTTP/1.1 goes on, and the body is this request's, never a second request."""
    answer = server.http.post(
        "/v1/completions",
        json={"prompt": "Hello"},
        headers={"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMAAABkAAQAAP__"},
    )
    assert answer.status_code == 200
