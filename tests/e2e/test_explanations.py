"""Explanations at hand: by pointing, by keyboard and by a tap; gone with Escape; nothing is left or lost by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Visit
from tests.e2e.page import followed, settled, walk
from tests.server import Server, start_server

pytestmark = pytest.mark.browser
TRACE = Path(__file__).resolve().parents[2] / "traces" / "capital-of-france.mcap"


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server("replay", str(TRACE), folder=tmp_path_factory.mktemp("replay")) as server:
        yield server


@pytest.fixture
def page(replay: Server, visit: Visit) -> Page:
    page = visit(replay.url)
    settled(page)
    return page


def test_pointing_at_a_label_explains_it_and_leaving_takes_it_away(page: Page) -> None:
    box = page.locator("#explanation")
    walk(page).get_by_role("button", name="best guess here").hover()
    expect(box).to_be_visible()
    for part in ("logit lens", "obtained", "formula", "careful"):
        expect(box).to_contain_text(part)
    walk(page).get_by_role("heading").first.hover()
    expect(box).to_be_hidden()


def test_the_keyboard_reaches_a_label_and_escape_leaves_only_the_box(page: Page) -> None:
    mark = page.get_by_role("button", name="About: The walk")
    page.locator(".skip").press("Enter")
    page.keyboard.press("Tab")
    expect(mark).to_be_focused()
    box = page.locator("#explanation")
    expect(box).to_contain_text("The followed token’s way through the model")
    expect(mark).to_have_attribute("aria-describedby", "explanation")
    page.keyboard.press("Escape")
    expect(box).to_be_hidden()
    expect(mark).to_be_focused()


def test_a_press_keeps_it_until_one_presses_elsewhere(page: Page) -> None:
    box = page.locator("#explanation")
    page.get_by_role("tab", name="Logits").click()
    page.get_by_role("tabpanel", name="Logits").get_by_role("button", name="entropy", exact=True).click()
    expect(box).to_contain_text("as unsure as of an even choice")
    walk(page).hover(position={"x": 5, "y": 5})
    expect(box).to_be_visible()
    walk(page).click(position={"x": 5, "y": 5})
    expect(box).to_be_hidden()


def test_the_focus_stays_on_a_label_while_the_tokens_change_under_it(page: Page) -> None:
    label = walk(page).get_by_role("button", name="tokenizer", exact=True)
    label.focus()
    before = followed(page).get_attribute("data-position")
    page.keyboard.press("ArrowLeft")
    expect(followed(page)).not_to_have_attribute("data-position", str(before))
    expect(label).to_be_focused()
