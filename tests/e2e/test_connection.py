"""Reload, lost connection, restarted server, recordings: what the page shows survives, or says what it lost."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import Visit
from tests.e2e.page import ask, assert_shows, followed, layer, screen, selection, tokens
from tests.server import Server, wait_until_healthy

pytestmark = pytest.mark.browser


def test_a_reload_during_generation_loses_nothing(visit: Visit, tiny_server: Server) -> None:
    page = visit(tiny_server.url)
    asked = ask(page, "reload me", most=600)
    expect(asked).to_contain_text("decode")
    request = str(asked.get_attribute("data-request"))
    selection(page, request=request)
    page.reload()
    expect(asked).to_have_attribute("aria-current", "true")
    expect(asked).to_contain_text("reload me")
    expect(asked).to_contain_text("at its limit", timeout=90_000)
    prompt = httpx.get(f"{tiny_server.url}/v1/requests/{request}").json()["prompt_tokens"]
    expect(tokens(page)).to_have_count(prompt + 600)
    assert page.get_by_text("dropped 0").is_visible()


def test_a_recording_shows_what_the_live_page_showed(
    visit: Visit, tiny_server: Server, tmp_path: Path, replay: Callable[[Path], Server]
) -> None:
    live = visit(tiny_server.url)
    expect(ask(live, "record me", most=12)).to_contain_text("at its limit")
    position = tokens(live).count() - 5
    tokens(live).nth(position).click()
    expect(followed(live)).to_have_attribute("data-position", str(position))
    chosen = selection(live, position=str(position))
    shown = screen(live)
    expect(layer(live, 3)).to_contain_text(re.compile(r"0\.\d\d"))
    trace = tmp_path / "recorded.mcap"
    request = httpx.get(f"{tiny_server.url}/v1/traces/{chosen['run']}")
    assert request.status_code == 200
    trace.write_bytes(request.content)
    server = replay(trace)
    run = httpx.get(f"{server.url}/health").json()["run"]
    page = visit(live.url.replace(tiny_server.url, server.url).replace(f"run={chosen['run']}", f"run={run}"))
    expect(layer(page, 3)).to_contain_text(re.compile(r"0\.\d\d"))
    assert_shows(page, shown)
    expect(page.get_by_role("textbox", name="Prompt")).to_be_disabled()
    expect(page.get_by_role("region", name="Ask")).to_contain_text("no model to ask")


def test_a_recording_can_be_uploaded_and_a_text_file_cannot(
    visit: Visit, tiny_server: Server, tmp_path: Path, faults: list[str]
) -> None:
    page = visit(tiny_server.url)
    expect(ask(page, "upload me", most=3)).to_contain_text("at its limit")
    run = selection(page)["run"]
    trace = tmp_path / "my own.mcap"
    trace.write_bytes(httpx.get(f"{tiny_server.url}/v1/traces/{run}").content)
    page.get_by_label("Trace file").set_input_files(trace)
    expect(page.get_by_role("list", name="Traces").get_by_role("button", name=re.compile("my.own"))).to_have_attribute(
        "aria-current", "true"
    )
    expect(page.get_by_role("status")).to_have_text("REPLAY")
    text = tmp_path / "notes.mcap"
    text.write_text("these are my notes")
    page.get_by_label("Trace file").set_input_files(text)
    expect(page.get_by_role("alert").filter(has_text="notes.mcap")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("REPLAY")
    assert all("400" in fault for fault in faults), faults  # the browser itself reports the refused upload
    faults.clear()
    page.get_by_role("button", name="Go live").click()
    expect(page.get_by_role("status")).to_have_text("LIVE")


def test_an_address_of_a_run_that_is_not_here_says_so(visit: Visit, tiny_server: Server, faults: list[str]) -> None:
    page = visit(f"{tiny_server.url}/#run=long-gone&request=r-1&position=4")
    expect(page.get_by_role("alert").filter(has_text="long-gone")).to_be_visible()
    expect(page.get_by_role("textbox", name="Prompt")).to_be_enabled()
    assert all("404" in fault for fault in faults), faults
    faults.clear()


@contextlib.contextmanager
def on_port(port: int, folder: Path) -> Iterator[None]:
    """A `tiny` server on that port, so that it can be ended and started again under the same address."""
    output = folder / "output.txt"
    command = [
        sys.executable,
        "-m",
        "backend",
        "serve",
        "--model",
        "tiny",
        "--port",
        str(port),
        "--traces",
        str(folder),
    ]
    with output.open("ab") as stream:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
        try:
            wait_until_healthy(f"http://127.0.0.1:{port}", process, output, 60)
            yield
        finally:
            process.terminate()
            process.wait(timeout=30)


def test_a_restarted_server_is_found_again_and_said_to_be_another_run(
    visit: Visit, free_port: int, tmp_path: Path, faults: list[str]
) -> None:
    with on_port(free_port, tmp_path):
        page = visit(f"http://127.0.0.1:{free_port}")
        expect(ask(page, "before the restart", most=5)).to_contain_text("at its limit")
        tokens(page).nth(3).click()
        expect(page.get_by_role("status")).to_have_text("LIVE")
    expect(page.get_by_role("status")).to_have_text("DISCONNECTED")
    expect(page.get_by_role("textbox", name="Prompt")).to_be_disabled()
    with on_port(free_port, tmp_path):
        expect(page.get_by_role("alert").filter(has_text="restarted")).to_be_visible()
        expect(followed(page)).to_have_attribute("data-position", "3")  # what one was looking at stays
        page.get_by_role("button", name="Go live").click()
        expect(page.get_by_role("status")).to_have_text("LIVE")
        expect(page.get_by_text("None yet.")).to_be_visible()
        expect(ask(page, "after the restart", most=5)).to_contain_text("after the restart")
        page.close()
    # A server that is back but still loads its model answers /health with 503: that it is found then is the point.
    expected = ("ERR_CONNECTION_REFUSED", "WebSocket", "503")
    assert all(any(word in fault for word in expected) for fault in faults), faults
    faults.clear()
