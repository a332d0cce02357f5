"""Stored traces and the live run: listed, uploaded, downloaded, read frame by frame."""

import errno
import io
import json
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcap.writer import Writer
from starlette.formparsers import MultiPartParser
from websockets.frames import Frame as WebSocketFrame
from websockets.streams import StreamReader

from backend.library import TraceLibrary, safe_name
from backend.wsframes import framed
from engine.codec import Frame, parse
from engine.request import GenerationRequest
from engine.trace import open_trace
from tests.backend.conftest import Running, Serve
from tests.backend.fake_engine import FakeEngine


def messages_of(body: bytes) -> list[tuple[bytes, bool]]:
    """Payloads of concatenated WebSocket frames, read by the websockets package; whether each is binary."""
    reader, messages = StreamReader(), []
    reader.feed_data(body)
    reader.feed_eof()
    position = 0
    while position < len(body):
        before = len(reader.buffer)
        parser = WebSocketFrame.parse(reader.read_exact, mask=False, max_size=None)
        try:
            next(parser)
            raise AssertionError("a frame is not whole")
        except StopIteration as parsed:
            frame = parsed.value
        assert frame.fin
        assert (frame.rsv1, frame.rsv2, frame.rsv3) == (False, False, False)
        messages.append((bytes(frame.data), frame.opcode == 2))
        position += before - len(reader.buffer)
    return messages


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return [parse(payload, binary=binary)[0] for payload, binary in messages_of(response.content)]


def test_a_recording_that_is_deleted_goes_on_in_memory(server: Running) -> None:
    request = server.complete(max_tokens=5).json()["tokenwalk"]["request"]
    recorder = server.live.recorder
    assert recorder is not None
    recorder.flush()
    recorder.path.unlink()
    server.complete(max_tokens=5)
    frames = server.http.get(f"/v1/traces/{server.live.name}/frames")
    kinds = [event["kind"] for event in events_of(frames)]
    assert kinds.count("request.finished") == 2
    assert server.http.get(f"/v1/requests/{request}/trace").status_code == 200
    assert "was deleted" in server.http.get("/health").json()["recording_failure"]
    (entry,) = [entry for entry in server.http.get("/v1/traces").json()["data"] if entry["live"]]
    assert (entry["recording"], "was deleted" in entry["error"]) == (False, True)
    gone = server.http.get(f"/v1/traces/{server.live.name}")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")
    assert server.http.get("/v1/traces").status_code == 200


def test_a_form_that_there_is_no_room_for_is_a_507(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(self: MultiPartParser) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(MultiPartParser, "parse", full)
    answer = server.http.post("/v1/traces", files={"file": ("t.mcap", b"x")})
    assert answer.status_code == 507
    assert "No space left on device; send the trace as a raw body" in answer.json()["error"]["message"]


def test_frames_of_every_length_are_framed_as_a_websocket_does() -> None:
    for size in (0, 1, 125, 126, 127, 65_535, 65_536, 100_000):
        for binary in (False, True):
            frame = Frame("token", 1, 0, None, None, None, parts=(b"x" * size,), binary=binary)
            assert messages_of(framed(frame) * 2) == [(frame.payload, binary)] * 2


@pytest.fixture
def recorded(serve: Serve, tmp_path: Path) -> Path:
    """A trace file of two requests."""
    with serve() as server:
        server.complete()
        server.complete(max_tokens=2)
    target = tmp_path / "recorded.mcap"
    shutil.move(tmp_path / "traces" / "run.mcap", target)
    return target


def test_the_live_run_is_listed_and_read_while_it_is_written(shared: Running) -> None:
    shared.complete()
    listing = shared.http.get("/v1/traces").json()
    (entry,) = [entry for entry in listing["data"] if entry["live"]]
    assert entry["name"] == "run"
    assert entry["model"] == "fake"
    assert entry["recording"] is True
    assert entry["requests"] >= 1
    response = shared.http.get("/v1/traces/run/frames")
    assert response.headers["content-type"] == "application/vnd.tokenwalk.frames"
    events = events_of(response)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[0]["kind"] == "run.header"
    assert any(binary for _, binary in messages_of(response.content))
    info = shared.http.get("/v1/traces/run/info").json()
    assert info["live"] is True
    assert info["complete"] is False
    assert info["last_seq"] >= events[-1]["seq"]


def test_the_frames_route_gives_the_very_bytes_of_the_stream(shared: Running) -> None:
    shared.complete()
    shared.live.bus.flush()
    last = shared.live.history.newest
    frames = messages_of(shared.http.get("/v1/traces/run/frames", params={"to": last}).content)
    with shared.socket() as socket:
        socket.send('{"kind": "hello"}')
        live = [socket.recv(timeout=20) for _ in range(last)]
    assert [payload if binary else payload.decode() for payload, binary in frames] == live


def test_frames_are_selected_by_seq_kind_and_request(shared: Running) -> None:
    first = shared.complete().json()["tokenwalk"]["request"]
    shared.complete()

    def get(**params: Any) -> list[dict[str, Any]]:
        return events_of(shared.http.get("/v1/traces/run/frames", params=params))

    assert [event["seq"] for event in get(**{"from": 3, "to": 6})] == [3, 4, 5, 6]
    assert {event["kind"] for event in get(kinds="token,step.started")} == {"token", "step.started"}
    own = get(request=first)
    assert own[0]["kind"] == "run.header"
    assert {event["request"] for event in own if "request" in event} == {first}
    assert "step.started" in {event["kind"] for event in own}
    for params, param in (({"from": "x"}, "from"), ({"to": "1.5"}, "to"), ({"kinds": "nonsense"}, "kinds")):
        error = shared.http.get("/v1/traces/run/frames", params=params)
        assert (error.status_code, error.json()["error"]["param"]) == (400, param)


def test_where_recording_has_failed_memory_goes_on_where_the_file_ends(serve: Serve) -> None:
    with serve() as server:
        server.complete()
        assert server.live.recorder is not None
        server.live.recorder.flush()
        server.live.recorder._fail("no space left")
        later = server.complete().json()["tokenwalk"]["request"]
        events = events_of(server.http.get("/v1/traces/run/frames"))
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert later in {event.get("request") for event in events}
        own = events_of(server.http.get("/v1/traces/run/frames", params={"request": later}))
        assert [event["kind"] for event in own].count("run.header") == 1
        assert "request.finished" in {event["kind"] for event in own}


def test_without_recording_the_frames_come_from_memory(serve: Serve) -> None:
    with serve(record=False) as server:
        request = server.complete().json()["tokenwalk"]["request"]
        name = server.http.get("/health").json()["run"]
        assert name == server.live.bus.epoch
        events = events_of(server.http.get(f"/v1/traces/{name}/frames"))
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        own = events_of(server.http.get(f"/v1/traces/{name}/frames", params={"request": request}))
        assert own[0]["kind"] == "run.header"
        assert {event["request"] for event in own if "request" in event} == {request}
        assert server.http.get(f"/v1/traces/{name}/info").json()["live"] is True
        assert server.http.get(f"/v1/traces/{name}").status_code == 404
        part = server.http.get(f"/v1/requests/{request}/trace")
        assert part.status_code == 200


def test_a_run_longer_than_memory_says_what_memory_lacks(serve: Serve) -> None:
    with serve(record=False, history_bytes=2_000) as server:
        server.complete()
        events = events_of(server.http.get(f"/v1/traces/{server.live.name}/frames"))
        assert [event["kind"] for event in events[:2]] == ["run.header", "gap"]
        assert events[1]["to_seq"] + 1 == events[2]["seq"]


def test_the_live_run_s_file_can_be_downloaded_while_it_grows(serve: Serve, tmp_path: Path) -> None:
    def large(engine: FakeEngine) -> None:
        engine.attention_bytes = 1 << 20
        engine.hold()

    with serve(prepare=large) as server:
        assert server.engine is not None
        server.engine.submit(GenerationRequest(prompt="Hello", max_tokens=100), lambda event: None)
        server.engine.allow(4)
        server.engine.wait_for_state("decode")
        with server.http.stream("GET", "/v1/traces/run") as response:
            size = int(response.headers["content-length"])
            server.engine.allow()
            server.engine.wait_for_state("finished")
            data = response.read()
    assert len(data) == size
    path = tmp_path / "early.mcap"
    path.write_bytes(data)
    with open_trace(path) as trace:
        assert not trace.complete
        assert {"run.header", "token"} <= {frame.kind for frame in trace.frames()}


def test_a_request_s_part_of_the_trace_is_a_trace(shared: Running, tmp_path: Path) -> None:
    shared.complete()
    request = shared.complete().json()["tokenwalk"]["request"]
    response = shared.http.get(f"/v1/requests/{request}/trace")
    assert f'filename="run-{request}.mcap"' in response.headers["content-disposition"]
    path = tmp_path / "slice.mcap"
    path.write_bytes(response.content)
    with open_trace(path) as trace:
        assert trace.complete
        assert [known["id"] for known in trace.requests()] == [request]
        kinds = {frame.kind for frame in trace.frames()}
    assert {"run.header", "request.arrived", "token", "attention", "step.started", "request.finished"} <= kinds
    assert shared.http.get("/v1/requests/nobody/trace").status_code == 404


def test_a_trace_is_uploaded_as_a_body_listed_read_and_downloaded(serve: Serve, recorded: Path) -> None:
    data = recorded.read_bytes()
    with serve() as server:
        response = server.http.post(
            "/v1/traces",
            params={"name": "my trace.mcap"},
            content=data,
            headers={"content-type": "application/octet-stream"},
        )
        assert response.status_code == 201
        entry = response.json()
        assert entry["name"] == "my-trace"
        assert entry["model"] == "fake"
        assert entry["requests"] == 2
        assert response.headers["location"] == "/v1/traces/my-trace"
        listed = {entry["name"]: entry for entry in server.http.get("/v1/traces").json()["data"]}
        assert listed["my-trace"] == entry
        download = server.http.get("/v1/traces/my-trace")
        assert download.content == data
        assert 'filename="my-trace.mcap"' in download.headers["content-disposition"]
        info = server.http.get("/v1/traces/my-trace/info").json()
        assert info["complete"] is True
        assert "path" not in info
        assert len(info["requests"]) == 2
        assert len(events_of(server.http.get("/v1/traces/my-trace/frames"))) == info["frames"]


def test_a_trace_may_be_called_anything(serve: Serve, recorded: Path) -> None:
    with serve() as server:
        response = server.http.post(
            "/v1/traces",
            params={"name": "東京 🙂.mcap"},
            content=recorded.read_bytes(),
            headers={"content-type": "application/octet-stream"},
        )
        assert response.json()["name"] == "東京"
        assert server.http.get(response.headers["location"]).content == recorded.read_bytes()


def test_a_trace_is_uploaded_as_a_form_and_never_over_another(serve: Serve, recorded: Path) -> None:
    with serve() as server:
        names = []
        for _ in range(2):
            with recorded.open("rb") as file:
                response = server.http.post("/v1/traces", files={"file": ("run.mcap", file)})
            assert response.status_code == 201, response.text
            names.append(response.json()["name"])
        assert names == ["run-2", "run-3"]  # the live run is called run
        assert server.http.post("/v1/traces", files={}, data={"a": "b"}).status_code == 415
        empty = server.http.post("/v1/traces", files={"file": ("", b"")})
        assert empty.status_code == 400


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"Dear diary, today I was a text file.\n" * 20, "not a trace"),
        (b"", ""),
        ("a日本語".encode() * 20, "found text"),  # cut within a character, wherever one looks
        (b"\x7fELF\x02\x01\x01" + bytes(99), "found bytes that begin with 7f 45 4c 46"),
        (b"\x89PNG\r\n\x1a\n" + bytes(99), "PNG"),
    ],
)
def test_what_is_no_trace_is_refused_and_not_kept(serve: Serve, content: bytes, says: str, tmp_path: Path) -> None:
    with serve() as server:
        response = server.http.post(
            "/v1/traces?name=diary.txt", content=content, headers={"content-type": "application/octet-stream"}
        )
        error = response.json()["error"]
        assert response.status_code == 400
        assert error["code"] == "invalid_trace"
        assert says in error["message"]
        assert "'diary.txt'" in error["message"]
        assert str(tmp_path) not in error["message"]
        assert [path.name for path in (tmp_path / "traces").iterdir()] == ["run.mcap"]


def test_an_upload_too_large_is_refused_and_not_kept(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.routes.traces.MAX_UPLOAD_BYTES", 1000)
    with serve() as server:
        pieces = io.BytesIO(bytes(5000))
        for content in (bytes(5000), iter(lambda: pieces.read(500), b"")):
            response = server.http.post(
                "/v1/traces", content=content, headers={"content-type": "application/octet-stream"}
            )
            assert response.status_code == 413
        assert server.http.post("/v1/traces", files={"file": ("a", bytes(5000))}).status_code == 413
        assert [path.name for path in (tmp_path / "traces").iterdir()] == ["run.mcap"]


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e%2fsecret", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "nothing", "a%00b"]
)
def test_names_that_are_no_trace_are_not_found(shared: Running, name: str) -> None:
    for path in (f"/v1/traces/{name}", f"/v1/traces/{name}/info", f"/v1/traces/{name}/frames"):
        assert shared.http.get(path).status_code == 404, path


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\windows\\system32.mcap", "system32"),
        ("..", "upload"),
        ("", "upload"),
        (".hidden.mcap", "hidden"),
        ("Ein Lauf – größer.mcap", "Ein-Lauf-größer"),
        ("a\x00b\nc", "a-b-c"),
        ("x" * 500, "x" * 120),
        ("日" * 120, "日" * 40),
        ("ab" + "日" * 120, "ab" + "日" * 39),
    ],
)
def test_names_of_uploads_are_made_harmless(given: str, name: str) -> None:
    assert safe_name(given) == name


def test_a_damaged_file_is_listed_with_what_is_wrong(serve: Serve, tmp_path: Path) -> None:
    with serve() as server:
        (tmp_path / "traces" / "broken.mcap").write_text("not a trace")
        listed = {entry["name"]: entry for entry in server.http.get("/v1/traces").json()["data"]}
        assert "not a trace" in listed["broken"]["error"]
        assert server.http.get("/v1/traces/broken/info").status_code == 400
        assert server.http.get("/v1/traces/broken/frames").status_code == 400


def trace_of(*events: bytes, header: bytes) -> bytes:
    """A file in the format, made by mcap's own writer, with events of our choice."""
    file = io.BytesIO()
    writer = Writer(file)
    writer.start(profile="tokenwalk", library="a stranger")
    writer.add_metadata("tokenwalk.run", {"run_header": header.decode()})
    channels: dict[str, int] = {}
    for event in (header, *events):
        kind = json.loads(event)["kind"]
        if kind not in channels:
            schema = writer.register_schema(kind, "jsonschema", b"{}")
            channels[kind] = writer.register_channel(kind, "json", schema)
        writer.add_message(channels[kind], 0, event, 0)
    writer.finish()
    return file.getvalue()


def test_a_file_whose_header_is_not_what_the_format_says_is_no_trace(serve: Serve) -> None:
    header = b'{"kind":"run.header","seq":1,"t_ns":0,"model":"a text"}'
    with serve() as server:
        response = server.http.post("/v1/traces", files={"file": ("strange.mcap", trace_of(header=header))})
        assert response.status_code == 400
        assert "model is 'a text'; expected dict" in response.json()["error"]["message"]
        assert server.http.get("/v1/traces").status_code == 200


def test_a_request_that_is_not_what_the_format_says_is_left_out_and_named(serve: Serve) -> None:
    header = b'{"kind":"run.header","seq":1,"t_ns":0}'
    strange = b'{"kind":"request.arrived","seq":2,"t_ns":0,"request":"r1","text":{"a":1}}'
    right = b'{"kind":"request.arrived","seq":3,"t_ns":0,"request":"r2","text":"hello"}'
    with serve() as server:
        content = trace_of(strange, right, header=header)
        assert server.http.post("/v1/traces", files={"file": ("strange.mcap", content)}).status_code == 201
        info = server.http.get("/v1/traces/strange/info").json()
        assert [request["id"] for request in info["requests"]] == ["r2"]
        assert any("request.arrived 2" in line and "text is {'a': 1}" in line for line in info["damage"])


def wait_for_uploads(folder: Path, count: int) -> None:
    """Until so many are being received."""
    deadline = time.monotonic() + 10
    while len(list(folder.glob(".*.part"))) != count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_upload_that_stops_half_way_is_not_kept_and_no_fault_of_ours(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve() as server:
        with socket.create_connection(("127.0.0.1", server.site.settings.port), timeout=10) as connection:
            connection.sendall(
                b"POST /v1/traces HTTP/1.1\r\nHost: localhost:%d\r\nContent-Type: application/octet-stream\r\n"
                b"Content-Length: 1000\r\n\r\nhalf" % server.site.settings.port
            )
            wait_for_uploads(tmp_path / "traces", 1)
        wait_for_uploads(tmp_path / "traces", 0)
    assert "fault" not in caplog.text


def test_bundled_traces_come_last_and_the_first_is_shown_to_newcomers(recorded: Path, tmp_path: Path) -> None:
    bundled, own = tmp_path / "bundled", tmp_path / "own"
    bundled.mkdir()
    shutil.copy(recorded, bundled / "b.mcap")
    shutil.copy(recorded, bundled / "a.mcap")
    library = TraceLibrary(own, bundled)
    assert library.default() == "a"
    assert all(trace.bundled for trace in library.all().values())
    own.mkdir()
    shutil.copy(recorded, own / "a.mcap")
    assert not library.find("a").bundled  # one's own comes before


def test_a_run_that_nobody_used_leaves_no_file(serve: Serve, tmp_path: Path) -> None:
    with serve() as server:
        assert server.http.get("/v1/traces").status_code == 200
    assert list((tmp_path / "traces").iterdir()) == []
    with serve() as server:
        server.complete()
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["run.mcap"]
    with open_trace(tmp_path / "traces" / "run.mcap") as trace:
        assert trace.complete
