"""States that are designed, not left over: hostile text, missing captures, dropped frames, a newer schema, a stall."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from engine.codec import encode
from engine.events import Absent, Event, Gap
from engine.trace.writer import TraceWriter
from tests.bench_ui import story
from tests.bench_ui.story import Story, header
from tests.e2e.conftest import Visit
from tests.e2e.page import ask, entry, followed, tokens, walk
from tests.server import Server

pytestmark = pytest.mark.browser

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(2)</script>",
    "=1+1",
    "\u202eover",
    "\u0000\u0007",
    "\u200b",
    "</svg>",
    "a\u0301" * 40,
)

Replay = Callable[[Callable[[Callable[[Event], None]], None]], str]


@pytest.fixture
def replayed(tmp_path: Path, replay: Callable[[Path], Server]) -> Replay:
    """A function that records what it is told and returns the address of a server that replays it."""

    def record(tell: Callable[[Callable[[Event], None]], None]) -> str:
        writer, seq = TraceWriter(tmp_path / "made-up.mcap"), 0

        def emit(event: Event) -> None:
            nonlocal seq
            seq = event.seq = max(seq + 1, event.seq)
            event.t_ns = seq * 1_000_000
            writer.add(encode(event))

        tell(emit)
        writer.finish()
        return replay(writer.path).url

    return record


def tell(emit: Callable[[Event], None], *, head: Event | None = None, rows: bool = True, layers: int = 30) -> None:
    """A short request with its answer."""
    emit(head or header("made-up", layers=layers))
    teller = Story("r-1", emit, lambda: 0)
    teller.ask(24)
    for _ in range(8):
        teller.say(rows=rows, lens=rows)
    if not rows:
        for what in ("attention", "residual", "lens"):
            emit(Absent(request="r-1", what=what, positions=None, reason="not_captured", detail="level light"))
    teller.end()


def every_tab_says_something(page: Page) -> None:
    for tab in page.get_by_role("tab").all():
        tab.click()
        panel = page.get_by_role("tabpanel", name=tab.inner_text())
        expect(panel).to_have_text(re.compile(r"\w{3}"))
        expect(panel).not_to_have_text(re.compile(r"undefined|NaN|\[object"))


def test_hostile_text_is_text_on_every_panel_in_tips_and_on_the_tour(
    replayed: Replay, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story, "WORDS", HOSTILE)
    page = visit(replayed(tell))
    expect(tokens(page)).to_have_count(32)
    expect(tokens(page).nth(0)).to_contain_text("<img·src=x·onerror=alert(1)>")
    tokens(page).nth(25).hover()
    expect(page.locator("#tip")).to_contain_text("<script>")
    tokens(page).nth(25).click()
    every_tab_says_something(page)
    page.get_by_role("button", name="Tour", exact=True).click()
    for _ in range(10):
        page.keyboard.press("Enter")
    expect(page.locator("#tour")).to_be_hidden()
    assert page.locator("img, #ribbon script, #walk script, #detail script").count() == 0


def test_what_was_not_captured_says_so_on_every_panel(replayed: Replay, visit: Visit) -> None:
    page = visit(replayed(lambda emit: tell(emit, rows=False)))
    tokens(page).nth(26).click()
    expect(walk(page).get_by_text("Not captured: level light").first).to_be_visible()
    # Once, in place of thirty empty rows.
    layers = walk(page).locator(".station", has=page.get_by_role("term").filter(has_text=re.compile("^layers$")))
    expect(layers).to_have_count(1)
    expect(layers).to_contain_text("Not captured: level light. At level follow or full each has a row here.")
    expect(walk(page).get_by_role("row", name=re.compile("^Layer "))).to_have_count(0)
    every_tab_says_something(page)
    page.get_by_role("tab", name="Attention").click()
    expect(page.get_by_role("tabpanel", name="Attention")).to_contain_text("No attention to show. Not captured")


def test_a_newer_schema_is_said_and_what_is_known_is_shown(replayed: Replay, visit: Visit) -> None:
    head = header("made-up")
    head.schema_version = 999
    page = visit(replayed(lambda emit: tell(emit, head=head)))
    expect(page.get_by_role("alert").filter(has_text="newer Tokenwalk (schema 999")).to_be_visible()
    expect(tokens(page)).to_have_count(32)
    expect(followed(page)).to_have_count(1)
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("alert").filter(has_text="schema")).to_be_hidden()


def test_dropped_frames_are_counted_and_the_rest_is_shown(replayed: Replay, visit: Visit) -> None:
    def with_gap(emit: Callable[[Event], None]) -> None:
        emit(header("made-up"))
        emit(Gap(seq=40, from_seq=2, to_seq=40, reason="disk_full"))
        teller = Story("r-1", emit, lambda: 0, step=7)
        teller.prompt, teller.answer = 24, 3
        for _ in range(5):
            teller.say(rows=True)
        teller.end()

    page = visit(replayed(with_gap))
    dropped = page.locator("#topbar .figure", has_text="dropped")
    expect(dropped).to_have_text("dropped 39")
    page.get_by_text("39", exact=True).hover()
    every_tab_says_something(page)


def test_a_stall_of_the_server_is_said_and_loses_nothing(visit: Visit, tiny_server: Server) -> None:
    page = visit(tiny_server.url)
    asked = ask(page, "and then the server stalls", most=500)
    expect(asked).to_contain_text("decode")
    status = page.get_by_role("status")
    tiny_server.process.send_signal(signal.SIGSTOP)
    try:
        expect(status).to_have_text("LIVE, waiting")
    finally:
        tiny_server.process.send_signal(signal.SIGCONT)
    expect(status).to_have_text("LIVE")
    request = str(asked.get_attribute("data-request"))
    expect(entry(page, request)).to_contain_text("at its limit", timeout=90_000)
    prompt = httpx.get(f"{tiny_server.url}/v1/requests/{request}").json()["prompt_tokens"]
    expect(tokens(page)).to_have_count(prompt + 500)
    expect(page.locator("#topbar .figure", has_text="dropped")).to_have_text("dropped 0")


def test_48_layers_32_heads_and_64_requests_stay_usable(replayed: Replay, visit: Visit) -> None:
    def crowd(emit: Callable[[Event], None]) -> None:
        emit(header("made-up", layers=48, heads=32, slots=64))
        tellers = [Story(f"r-{i}", emit, lambda: 0, first_block=4 * i, slot=i, step=100 * i) for i in range(64)]
        for teller in tellers:
            teller.ask(20)
        for teller in tellers:
            for _ in range(3):
                teller.say(rows=False)
            teller.end()

    page = visit(replayed(crowd))
    expect(walk(page).get_by_role("row", name="Layer 47", exact=True)).to_have_count(1)
    expect(page.get_by_role("list", name="Requests").get_by_role("button")).to_have_count(64)
    every_tab_says_something(page)
    page.get_by_role("tab", name="Scheduler").click()
    panel = page.get_by_role("tabpanel", name="Scheduler")
    expect(panel.get_by_role("application", name=re.compile("64 slots"))).to_be_visible()
    # What is not listed is counted.
    expect(panel.get_by_role("list", name="Decisions")).to_contain_text("and 52 more decisions")
    page.get_by_role("tab", name="Memory").click()
    expect(page.get_by_role("tabpanel", name="Memory")).to_contain_text(re.compile(r"more blocks, never used so far"))
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0
