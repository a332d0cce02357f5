"""A client that leaves frees its place at once, streaming or not, running or waiting."""

import socket
from collections.abc import Iterator

import orjson
import pytest

from tests.backend.conftest import Running, Serve
from tests.backend.fake_engine import FakeEngine


def post(server: Running, **parameters: object) -> socket.socket:
    """Send a request and leave the answer unread."""
    body = orjson.dumps({"prompt": "Hello", "max_tokens": 100} | parameters)
    connection = socket.create_connection(("127.0.0.1", server.site.settings.port), timeout=10)
    connection.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (server.site.settings.port, len(body), body)
    )
    return connection


@pytest.fixture
def held(serve: Serve) -> Iterator[Running]:
    with serve(prepare=FakeEngine.hold) as server:
        yield server


@pytest.mark.parametrize("stream", [True, False])
def test_a_running_request_is_cancelled_when_its_client_leaves(held: Running, stream: bool) -> None:
    assert held.engine is not None
    connection = post(held, stream=stream)
    held.engine.allow(2)
    held.engine.wait_for_state("decode")
    connection.close()
    held.engine.wait_for_state("finished")
    (view,) = held.engine.requests()
    assert view.finish_reason == "cancelled"


def test_a_client_that_leaves_is_noticed_though_it_asked_for_more(held: Running) -> None:
    assert held.engine is not None
    connection = post(held, stream=True)
    connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % held.site.settings.port)
    held.engine.allow(2)
    held.engine.wait_for_state("decode")
    connection.close()
    held.engine.wait_for_state("finished")
    (view,) = held.engine.requests()
    assert view.finish_reason == "cancelled"


@pytest.mark.parametrize("stream", [True, False])
def test_a_waiting_request_is_cancelled_when_its_client_leaves(held: Running, stream: bool) -> None:
    assert held.engine is not None
    first = post(held)
    held.engine.allow(1)
    held.engine.wait_for_state("decode")
    second = post(held, stream=stream)
    held.engine.wait_for_state("queued")
    second.close()
    held.engine.wait_for_state("finished")
    assert [view.state for view in held.engine.requests()] == ["finished", "decode"]
    first.close()
    held.engine.wait_for_state("finished", count=2)


def test_all_choices_end_when_the_client_leaves(held: Running) -> None:
    assert held.engine is not None
    connection = post(held, n=3)
    held.engine.wait_for_state("queued", count=3)
    connection.close()
    held.engine.wait_for_state("finished", count=3)


def test_a_request_can_be_cancelled_by_its_id_and_its_client_is_told(held: Running) -> None:
    assert held.engine is not None
    connection = post(held, stream=True)
    held.engine.allow(2)
    held.engine.wait_for_state("decode")
    (view,) = held.http.get("/v1/requests").json()["data"]
    assert view["state"] == "decode"
    assert held.http.post(f"/v1/requests/{view['id']}/cancel").json() == {"id": view["id"], "cancelled": True}
    received = b""
    while b"[DONE]" not in received:
        received += connection.recv(1 << 16)
    assert b'"finish_reason":"cancelled"' in received
    connection.close()
    assert held.http.post(f"/v1/requests/{view['id']}/cancel").json()["cancelled"] is False
    assert held.http.post("/v1/requests/nobody/cancel").status_code == 404


def test_when_the_server_ends_open_streams_are_ended_properly(serve: Serve) -> None:
    with serve(prepare=FakeEngine.hold) as server:
        assert server.engine is not None
        connection = post(server, stream=True)
        server.engine.allow(2)
        server.engine.wait_for_state("decode")
    received = b""
    while data := connection.recv(1 << 16):
        received += data
    connection.close()
    assert b'"finish_reason":"cancelled"' in received
    assert received.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("stream", [True, False])
def test_a_detached_request_runs_on_when_its_client_leaves(held: Running, stream: bool) -> None:
    assert held.engine is not None
    connection = post(held, stream=stream, max_tokens=4, tokenwalk={"detached": True})
    held.engine.allow(1)
    held.engine.wait_for_state("decode")
    connection.close()
    # When the server has seen that a later client has gone, it has long seen that the first one has.
    later = post(held)
    held.engine.wait_for_state("queued")
    later.close()
    held.engine.wait_for_state("finished")
    held.engine.allow()
    held.engine.wait_for_state("finished", count=2)
    assert [view.finish_reason for view in held.engine.requests()] == ["cancelled", "length"]
