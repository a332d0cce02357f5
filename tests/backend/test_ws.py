"""The event stream over a real socket."""

import json
from contextlib import ExitStack
from socket import create_connection
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection

from engine.codec import parse
from engine.trace import open_trace
from tests.backend.conftest import Running, Serve
from tests.backend.fake_engine import ANSWER, FakeEngine


def say(socket: ClientConnection, **command: Any) -> None:
    socket.send(json.dumps(command))


def fields_of(message: str | bytes) -> dict[str, Any]:
    payload, binary = (message, True) if isinstance(message, bytes) else (message.encode(), False)
    return parse(payload, binary=binary)[0]


def read_until(socket: ClientConnection, kind: str, times: int = 1) -> list[str | bytes]:
    """All messages up to the `times`-th event of a kind."""
    messages: list[str | bytes] = []
    while times:
        messages.append(socket.recv(timeout=20))
        times -= fields_of(messages[-1])["kind"] == kind
    return messages


def test_a_client_gets_exactly_the_frames_that_are_recorded(serve: Serve) -> None:
    with serve() as server, server.socket() as early:
        say(early, kind="hello", last_seq=-1, epoch=None)
        server.complete(stream=True)
        server.chat(n=2, stream=True)
        server.live.bus.flush()
        last = server.live.history.newest
        live: list[str | bytes] = []
        while not live or fields_of(live[-1])["seq"] < last:
            live.append(early.recv(timeout=20))
        with server.socket() as late:  # one that missed it all gets the same
            say(late, kind="hello")
            missed = [late.recv(timeout=20) for _ in live]
    assert server.live.recorder is not None
    with open_trace(server.live.recorder.path) as trace:
        recorded = [frame.payload if frame.binary else frame.payload.decode() for frame in trace.frames()]
    assert live == missed
    assert live == recorded[: len(live)]
    # What was told after `last` was read: that the answer's end has left.
    assert {fields_of(frame)["kind"] for frame in recorded[len(live) :]} <= {"stream.sent"}
    assert {type(message) for message in live} == {str, bytes}


@pytest.mark.parametrize("record", [True, False], ids=["recorded", "from memory"])
def test_health_says_how_much_a_client_that_joins_now_has_to_read(serve: Serve, record: bool) -> None:
    with serve(record=record, history_bytes=None if record else 4096) as server:
        server.chat(stream=True)
        server.chat(n=2, stream=True)
        health: dict[str, Any] = {}
        while health != (newer := server.http.get("/health").json()):  # that a chunk has left is told a little later
            health = newer
            server.live.bus.flush()
        with server.socket() as socket:
            say(socket, kind="hello")
            read: list[str | bytes] = []
            while not read or fields_of(read[-1])["seq"] < health["last_seq"]:
                read.append(socket.recv(timeout=20))
    # The header is told again where it is no longer kept, and then a gap is, too.
    told = [frame for frame in read if record or fields_of(frame)["kind"] not in ("run.header", "gap")]
    sizes = [len(frame if isinstance(frame, bytes) else frame.encode()) for frame in told]
    assert sum(sizes) == health["readable_bytes"]
    assert health["last_seq"] == fields_of(read[-1])["seq"]


def test_a_client_that_reconnects_misses_nothing(serve: Serve) -> None:
    with serve(prepare=FakeEngine.hold) as server:
        assert server.engine is not None
        with server.socket() as socket:
            say(socket, kind="hello")
            server.engine.allow(3)
            request = server.engine.submit(_request(), lambda event: None)
            first = read_until(socket, "token", 3)
            epoch = fields_of(first[0])["epoch"]
        seen = fields_of(first[-1])["seq"]
        server.engine.allow()
        server.engine.wait_for_state("finished")
        with server.socket() as socket:
            say(socket, kind="hello", last_seq=seen, epoch=epoch)
            rest = read_until(socket, "request.finished")
        assert fields_of(rest[0])["kind"] == "run.header"
        events = [fields_of(message) for message in first + rest[1:]]
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert "".join(event["text"] for event in events if event["kind"] == "token") == ANSWER
        assert request == events[-1]["request"]


def _request() -> Any:
    from engine.request import GenerationRequest

    return GenerationRequest(prompt="Hello", max_tokens=100)


def test_one_client_that_stalls_slows_neither_another_nor_the_engine(serve: Serve) -> None:
    def large(engine: FakeEngine) -> None:
        engine.attention_bytes = 1 << 20
        engine.hold()

    with serve(prepare=large, record=False, history_bytes=4 << 20) as server, ExitStack() as stack:
        stalled = stack.enter_context(server.socket(max_queue=1, close_timeout=0.1))
        lively = stack.enter_context(server.socket())
        say(stalled, kind="hello")
        say(lively, kind="hello")
        assert server.engine is not None
        # Frames of 1 MB, each made only when the lively client has the one before: 48 MB in all, far more than the
        # sockets' buffers and the ring hold. Were the stalled client in anybody's way, this would not get to its end.
        for _ in range(3):
            server.engine.submit(_request(), lambda event: None)
            for _ in range(len(ANSWER.encode()) + 1):
                server.engine.allow(1)
                messages = read_until(lively, "step.finished")
                assert sum(isinstance(message, bytes) for message in messages) == 1
                assert "gap" not in {fields_of(message)["kind"] for message in messages}

        # The stalled one wakes up: it gets what was under way, one gap that says what it lacks, then what is newest.
        messages = read_until(stalled, "gap")
        events = [fields_of(message) for message in messages]
        gap = events[-1]
        assert gap["reason"] == "slow_client"
        assert gap["from_seq"] == events[-2]["seq"] + 1
        following = [fields_of(stalled.recv(timeout=20)) for _ in range(2)]
        assert following[0]["seq"] == gap["to_seq"] + 1
        metrics = server.http.get("/metrics").text
        missing = gap["to_seq"] - gap["from_seq"] + 1
        assert f'tokenwalk_events_dropped_total{{client="ws-0"}} {missing:.1f}' in metrics


def test_a_late_client_gets_from_the_recording_what_memory_no_longer_holds(serve: Serve) -> None:
    with serve(history_bytes=2_000) as server:
        for _ in range(3):
            server.complete()
        server.live.bus.flush()
        last = server.live.history.newest
        assert server.live.history.oldest > last // 2
        with server.socket() as socket:
            say(socket, kind="hello")
            events = [fields_of(socket.recv(timeout=20)) for _ in range(last)]
        assert [event["seq"] for event in events] == list(range(1, last + 1))


def test_a_late_client_is_told_what_it_lacks_when_nothing_is_recorded(serve: Serve) -> None:
    with serve(history_bytes=2_000, record=False) as server:
        server.complete()
        server.live.bus.flush()
        earliest = server.live.history.oldest
        with server.socket() as socket:
            say(socket, kind="hello")
            events = [fields_of(socket.recv(timeout=20)) for _ in range(3)]
        latest = server.live.history.oldest  # the request's last events may have moved the ring on meanwhile
        assert events[0]["kind"] == "run.header"
        assert (events[1]["kind"], events[1]["from_seq"], events[1]["reason"]) == ("gap", 2, "not_kept")
        assert earliest <= events[1]["to_seq"] + 1 <= latest
        assert events[2]["seq"] == events[1]["to_seq"] + 1


def test_wrong_commands_are_answered_and_the_connection_goes_on(shared: Running) -> None:
    with shared.socket() as socket:
        deep, long = "[" * 1000 + "]" * 1000, "x" * 100_000
        for text in (
            "hello",
            "[]",
            '{"kind": "dance"}',
            '{"kind": "ack"}',
            '{"kind": "lens", "request": 1}',
            f'{{"kind": {deep}}}',
            f'{{"kind": "subscribe", "kinds": {deep}}}',
            f'{{"kind": "{long}"}}',
            f'{{"kind": "subscribe", "kinds": ["{long}"]}}',
            '{"kind": "lens", "request": "r", "positions": [18446744073709551615]}',
            f'{{"kind": "lens", "request": "r", "positions": {list(range(2000))}}}',
            '{"kind": "attribution", "request": "r", "positions": [-1]}',
            '{"kind": "attribution", "request": "r", "positions": [1], "heads": "yes"}',
            '{"kind": "time", "steps": 0}',
            '{"kind": "time", "steps": 1, "now": true}',
        ):
            socket.send(text)
            answer = fields_of(socket.recv(timeout=20))
            assert answer["kind"] == "error"
            assert 0 < len(answer["message"]) < 1000
        socket.send(b"\x00\x01")
        assert "binary" in fields_of(socket.recv(timeout=20))["message"]
        say(socket, type="hello", last_seq=None)
        assert fields_of(socket.recv(timeout=20))["kind"] == "run.header"


@pytest.mark.parametrize("reading", ["lens", "attribution"])
def test_a_reading_is_asked_for_over_the_stream_and_comes_as_events(shared: Running, reading: str) -> None:
    request = shared.complete().json()["tokenwalk"]["request"]
    with shared.socket() as socket:
        say(socket, kind="hello", last_seq=None)
        assert fields_of(socket.recv(timeout=20))["kind"] == "run.header"
        say(socket, kind=reading, request=request, positions=[3])
        events = [fields_of(message) for message in read_until(socket, reading)]
        assert events[-1]["position"] == 3


FAULTS = [
    {"kind": "lens", "request": "nobody" * 10_000, "positions": [3]},
    {"kind": "attribution", "request": "<img onerror=alert(1)>", "positions": [3]},
    {"kind": "lens", "request": None},
    {"kind": "attribution", "request": "r", "positions": "all"},
    {"kind": "subscribe", "requests": [1]},
    {"kind": "hello", "epoch": ["x"]},
    {"kind": "time", "steps": "many", "why": "x" * 10_000},
    {"kind": "x" * 10_000},
]


def test_what_one_client_does_wrong_is_told_to_it_alone(shared: Running) -> None:
    """Neither the other clients nor the recording hear of it."""
    before = shared.live.bus.last_seq
    with shared.socket() as socket, shared.socket() as other:
        say(other, kind="hello", last_seq=before)
        assert fields_of(other.recv(timeout=20))["kind"] == "run.header"
        for fault in FAULTS:
            say(socket, **fault)
            answer = fields_of(socket.recv(timeout=20))
            assert answer["kind"] == "error"
            assert len(str(answer)) < 1000
        assert shared.live.bus.last_seq == before
        shared.complete()
        assert fields_of(other.recv(timeout=20))["kind"] == "request.arrived"


@pytest.mark.parametrize("reading", ["lens", "attribution"])
def test_an_error_of_a_reading_says_which_one(shared: Running, reading: str) -> None:
    with shared.socket() as socket:
        say(socket, kind=reading, request="r-gone", positions=[3, 9])
        answer = fields_of(socket.recv(timeout=20))
        assert (answer["kind"], answer["command"]) == ("error", reading)
        assert (answer["request"], answer["positions"]) == ("r-gone", [3, 9])
        for odd in ({"request": "r-gone", "positions": "all"}, {"request": "r" * 101, "positions": [0]}):
            say(socket, kind=reading, **odd)
            assert not {"request", "positions"} & set(fields_of(socket.recv(timeout=20)))


def test_nothing_is_compressed(shared: Running) -> None:
    with shared.socket(compression="deflate") as socket:
        assert socket.protocol.extensions == []


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1", "https://127.0.0.1:{port}"])
def test_a_page_of_another_origin_is_refused(shared: Running, origin: str) -> None:
    with pytest.raises(InvalidStatus) as caught:
        shared.socket(origin=origin.format(port=shared.site.settings.port))
    assert caught.value.response.status_code == 403


def test_our_own_page_is_let_in(shared: Running) -> None:
    for host in ("127.0.0.1", "localhost", "[::1]"):
        with shared.socket(origin=f"http://{host}:{shared.site.settings.port}") as socket:
            say(socket, kind="hello", last_seq=None)
            assert fields_of(socket.recv(timeout=20))["kind"] == "run.header"


def test_a_wrong_host_is_refused(shared: Running) -> None:
    port = shared.site.settings.port
    with create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(
            b"GET /ws HTTP/1.1\r\nHost: evil.example:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" % port
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 403")
