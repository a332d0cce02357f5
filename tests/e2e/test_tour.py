"""The tour: by keyboard alone, from text to sent bytes; the page shows what the words say, and is left as it was."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Visit
from tests.e2e.page import drawn, followed, selection, tokens, walk
from tests.server import Server, start_server

pytestmark = pytest.mark.browser
TRACE = Path(__file__).resolve().parents[2] / "traces" / "capital-of-france.mcap"


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server("replay", str(TRACE), folder=tmp_path_factory.mktemp("replay")) as server:
        yield server


CROSSED = """() => {
  const shown = document.querySelector('.toured');
  const [box, { outlineOffset, outlineWidth }] = [shown.getBoundingClientRect(), getComputedStyle(shown)];
  const out = parseFloat(outlineOffset) + parseFloat(outlineWidth);
  const texts = document.createTreeWalker(document.querySelector('#main'), NodeFilter.SHOW_TEXT);
  const crossed = [];
  while (texts.nextNode()) {
    const text = texts.currentNode;
    if (!text.data.trim() || shown.contains(text)) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    // Letters do not fill their line: two pixels above and below them are free.
    const cut = [...range.getClientRects()].some((at) =>
      at.width && at.left < box.right + out && at.right > box.left - out &&
      at.top + 2 < box.bottom + out && at.bottom - 2 > box.top - out);
    if (cut) crossed.push(text.data);
  }
  return crossed;
}"""
"""The texts outside what the tour frames that its frame lies over."""


def start(page: Page) -> None:
    expect(followed(page)).to_have_count(1)
    page.keyboard.press("?")
    take = page.get_by_role("button", name=re.compile("the tour"))
    take.press("Enter")
    expect(page.get_by_role("button", name="Next", exact=True)).to_be_focused()


STEPS: tuple[tuple[str, str, str], ...] = (
    ("It begins as text", "What is the capital of France?", "Attention"),
    ("Text becomes tokens", r"into 37 tokens.*“What” is 4 bytes, 57 68 61 74", "Attention"),
    ("It waits for a slot", r"in slot 0.*1 step over the prompt.*[78] steps for the answer", "Scheduler"),
    ("Keys and values go to memory", r"“·is” went to block 2, offset 9, in all 30 layers", "Memory"),
    ("Through the layers", r"576 numbers.*after 30 layers", "Memory"),
    ("Looking back", r"270 little pictures.*Token 0 took 0\.44.*most went to “·the”", "Attention"),
    ("Where the answer appears", r"From layer 26 on “·Paris” is among the ten best. From layer 29 on it leads", "Lens"),
    ("A number for every token", r"49,152 tokens a logit. “·Paris” got 13\.7, which makes 95\.1%", "Logits"),
    ("One is taken", "greedy", "Logits"),
    ("Bytes leave", r"“·Paris” is 6 bytes: 20 50 61 72 69 73. It left in chunk 5", "Wire"),
)


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1920, 1080)])
def test_the_whole_tour_by_keyboard_alone(visit: Visit, replay: Server, width: int, height: int) -> None:
    page = visit(replay.url, width=width, height=height)
    expect(followed(page)).to_have_count(1)
    before = selection(page, position="42")
    start(page)
    for number, (title, words, tab) in enumerate(STEPS, start=1):
        tour = page.get_by_role("dialog", name=title)
        expect(tour).to_contain_text(f"Tour {number}/10")
        expect(tour).to_contain_text(re.compile(words, re.DOTALL))
        expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
        expect(page.locator(".toured")).to_have_count(1)
        expect(page.locator(".toured")).to_be_in_viewport()
        drawn(page)
        assert page.evaluate(CROSSED) == []
        page.keyboard.press("Enter")
    expect(page.locator("#tour")).to_be_hidden()
    assert selection(page, **before) == before
    expect(page.locator(".toured")).to_have_count(0)
    # The words were those of what is shown: the walk still says the same.
    expect(walk(page)).to_contain_text("leads from layer 29 of 30 on (ten best: from 26)")
    page.keyboard.press("?")
    expect(page.get_by_role("button", name="Take the tour again")).to_be_visible()


def test_it_goes_back_and_ends_where_one_was_and_goes_on_later(visit: Visit, replay: Server) -> None:
    page = visit(replay.url)
    expect(followed(page)).to_have_count(1)
    tokens(page).nth(20).click()
    page.get_by_role("tab", name="Wire").click()
    before = selection(page, position="20", tab="wire")
    start(page)
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    expect(page.get_by_role("dialog", name="It waits for a slot")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#tour")).to_be_hidden()
    assert selection(page, **before) == before
    page.keyboard.press("?")
    page.get_by_role("button", name="Go on with the tour, 3/10").press("Enter")
    expect(page.get_by_role("dialog", name="It waits for a slot")).to_be_visible()
    back = page.get_by_role("button", name="Back", exact=True)
    back.press("Enter")
    back.press("Enter")
    # The first step has no way back; the focus is not lost with the button.
    expect(back).to_be_disabled()
    expect(page.get_by_role("button", name="Next", exact=True)).to_be_focused()


def test_it_shows_the_sample_and_returns_to_the_live_run(visit: Visit, tiny_server: Server) -> None:
    page = visit(tiny_server.url)
    page.get_by_role("button", name="Go live").click()
    expect(page.get_by_role("status")).to_have_text("LIVE")
    page.get_by_role("button", name="Tour", exact=True).click()
    expect(page.get_by_role("dialog", name="It begins as text")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("REPLAY")
    page.get_by_role("button", name="End the tour").click()
    expect(page.get_by_role("status")).to_have_text("LIVE")
