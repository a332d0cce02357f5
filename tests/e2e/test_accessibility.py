"""axe-core finds nothing serious: on every tab, in every colouring, with all that opens open, in both themes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Visit
from tests.e2e.page import ask, followed, settled
from tests.server import Server, start_server

pytestmark = pytest.mark.browser
TRACE = Path(__file__).resolve().parents[2] / "traces" / "capital-of-france.mcap"
AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
RUN = """async () => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"], preload: false });
    return violations.flatMap(({ id, impact, nodes }) =>
        nodes.map((node) => [impact, id, node.target.join(" "), node.failureSummary]));
}"""
SCHEMES = ("dark", "light")


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server("replay", str(TRACE), folder=tmp_path_factory.mktemp("replay")) as server:
        yield server


def opened(visit: Visit, url: str, scheme: str) -> Page:
    page = visit(url, scheme=scheme)
    page.emulate_media(reduced_motion="reduce")  # colours on their way are neither the one nor the other
    settled(page)
    page.evaluate(AXE)
    return page


def assert_nothing_serious(page: Page) -> None:
    found = page.evaluate(RUN)
    assert [one for one in found if one[0] in ("serious", "critical")] == []


def test_axe_sees_what_is_wrong(visit: Visit, replay: Server) -> None:
    page = opened(visit, replay.url, "dark")
    page.evaluate("document.body.append(Object.assign(document.createElement('img'), { src: 'static/icon.svg' }))")
    with pytest.raises(AssertionError, match="image-alt"):
        assert_nothing_serious(page)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_serious_on_any_tab(scheme: str, visit: Visit, replay: Server) -> None:
    page = opened(visit, replay.url, scheme)
    for tab in page.get_by_role("tab").all():
        tab.click()
        expect(page.locator("[role=tabpanel]:visible > *").first).to_be_visible()
        assert_nothing_serious(page)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_serious_in_any_colouring_and_act(scheme: str, visit: Visit, replay: Server) -> None:
    page = opened(visit, replay.url, scheme)
    for button in page.get_by_role("group", name="Colour tokens by").get_by_role("button").all():
        button.click()
        assert_nothing_serious(page)
    page.keyboard.press("a")
    assert_nothing_serious(page)
    page.keyboard.press("Home")
    settled(page)
    assert_nothing_serious(page)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_serious_in_what_can_be_opened(scheme: str, visit: Visit, replay: Server) -> None:
    page = opened(visit, replay.url, scheme)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert_nothing_serious(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="About: The walk", exact=True).click()
    expect(page.get_by_role("tooltip")).to_be_visible()
    assert_nothing_serious(page)
    page.locator("#walk").get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("group", name="Save as")).to_be_visible()
    assert_nothing_serious(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Tour", exact=True).click()
    expect(page.get_by_role("dialog", name="It begins as text")).to_be_visible()
    assert_nothing_serious(page)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_serious_on_the_first_visit_and_while_an_answer_runs(
    scheme: str, visit: Visit, tiny_server: Server
) -> None:
    page = opened(visit, tiny_server.url, scheme)
    assert_nothing_serious(page)
    expect(ask(page, "is this legible?", most=300)).to_contain_text("decode")
    expect(followed(page)).to_have_count(1)
    assert_nothing_serious(page)
