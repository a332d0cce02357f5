"""A real server on a real socket, around a fake engine."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from backend.commands.site_server import server_of, settings_from, show_until_stopped
from backend.library import TraceLibrary
from backend.live import LiveRun
from backend.server import bind
from backend.site import Site
from engine.capture import CapturePlan
from engine.request import SamplingParams
from tests.backend.fake_engine import FakeEngine
from tests.backend.process import run as run_command


@dataclass
class Running:
    """A server under test."""

    site: Site
    url: str
    http: httpx.Client
    engine: FakeEngine | None = None

    @property
    def live(self) -> LiveRun:
        assert self.site.live is not None
        return self.site.live

    def chat(self, **parameters: Any) -> httpx.Response:
        """POST a chat completion."""
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100} | parameters
        return self.http.post("/v1/chat/completions", json=body)

    def complete(self, **parameters: Any) -> httpx.Response:
        """POST a text completion."""
        return self.http.post("/v1/completions", json={"prompt": "Hello", "max_tokens": 100} | parameters)

    def socket(self, **options: Any) -> ClientConnection:
        """Open the event stream."""
        return connect(self.url.replace("http", "ws") + "/ws", **({"compression": None, "max_size": None} | options))


@contextlib.contextmanager
def running(site_for: Callable[[Any], Site], engine: FakeEngine | None = None) -> Iterator[Running]:
    """Serve a site in a thread until the block is left."""
    listener = bind("127.0.0.1", 0)
    site = site_for(listener)
    server = server_of(site, listener)
    faults: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(show_until_stopped(site, server, open_browser=False))
        except BaseException as fault:  # noqa: BLE001 - raised in the test's own thread below
            faults.append(fault)

    thread = threading.Thread(target=run, name="server-under-test")
    thread.start()
    url = f"http://127.0.0.1:{site.settings.port}"
    try:
        with httpx.Client(base_url=url, timeout=30) as http:
            yield Running(site, url, http, engine)
    finally:
        if isinstance(engine, FakeEngine):  # some tests serve the real one
            engine.may_load.set()
        server.stop()
        thread.join()
        if site.live is not None:
            site.live.close()
    if faults:
        raise faults[0]


Serve = Callable[..., contextlib.AbstractContextManager[Running]]


@contextlib.contextmanager
def serving(
    folder: Path,
    *,
    engine: Callable[[Any], FakeEngine] = FakeEngine,
    record: bool = True,
    ready: bool = True,
    prepare: Callable[[FakeEngine], None] = lambda engine: None,
    token: str | None = None,
    allow_hosts: list[str] | None = None,
    allow_origins: list[str] | None = None,
    history_bytes: int | None = None,
) -> Iterator[Running]:
    """A server around a fake engine, with its traces below `folder`."""
    traces = folder / "traces"
    traces.mkdir(exist_ok=True)
    made: list[FakeEngine] = []
    live = LiveRun(
        spec="fake-spec",
        make_engine=lambda bus: made[0],  # type: ignore[arg-type, return-value]
        trace=traces / "run.mcap" if record else None,
        capture_default=CapturePlan.parse("follow"),
        sampling_default=SamplingParams(),
    )
    if history_bytes is not None:
        live.history.limit_bytes = history_bytes
    made.append(engine(live.bus))
    prepare(made[0])

    def site_for(listener: Any) -> Site:
        settings = settings_from(listener, "127.0.0.1", token, allow_hosts, allow_origins)
        return Site(settings=settings, library=TraceLibrary(traces, folder / "bundled"), live=live)

    with running(site_for, made[0]) as server:
        if ready:
            wait_until_ready(server)
        yield server


def wait_until_ready(server: Running) -> None:
    """Wait for the model, by asking: the listener is open already."""
    headers = {"authorization": f"Bearer {server.site.settings.access_token}"}
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if server.http.get("/health", headers=headers).status_code == 200:
            return
        time.sleep(0.01)  # the loading thread wants the interpreter, too
    raise AssertionError(server.http.get("/health", headers=headers).text)


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Starts a server around a fake engine; `with serve(...) as server`. The options are those of `serving`."""
    return functools.partial(serving, tmp_path)


@pytest.fixture
def server(serve: Serve) -> Iterator[Running]:
    """A server of the test's own, whose engine is ready."""
    with serve() as started:
        yield started


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that all tests of a module share: for those that leave nothing behind."""
    with serving(tmp_path_factory.mktemp("shared")) as started:
        yield started


@pytest.fixture(scope="session")
def trace_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that `generate` recorded."""
    path = tmp_path_factory.mktemp("generated") / "walk.mcap"
    result = run_command("generate", "Hello", "--model", "tiny", "--max-tokens", "5", "--trace", str(path))
    assert result.returncode == 0, result.stderr
    return path
