"""What if it had said something else: branching off from the sampler's list, and two requests side by side."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import Visit
from tests.e2e.page import ask, entry, followed, panel, selection, settled, tokens
from tests.server import Server, start_server

pytestmark = pytest.mark.browser
TRACE = Path(__file__).resolve().parents[2] / "traces" / "capital-of-france.mcap"
PROMPT = "Where is the capital of France?"
WHAT_IF = re.compile("^What if it had said ")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server("serve", "--model", "tiny", folder=tmp_path_factory.mktemp("compare")) as server:
        yield server


@pytest.fixture
def answered(server: Server, visit: Visit) -> tuple[Page, str, int]:
    """The page with a complete answer whose third token is followed, the request's id, and that token's position."""
    page = visit(server.url)
    first = ask(page, PROMPT, most=12)
    expect(first).to_contain_text("at its limit")
    asked = str(first.get_attribute("data-request"))
    known = httpx.get(f"{server.url}/v1/requests/{asked}").json()
    position = int(known["prompt_tokens"]) + 2
    tokens(page).nth(position).click()
    selection(page, request=asked, position=str(position), act="chosen")
    return page, asked, position


def branch_off(page: Page) -> str:
    """Try the candidate that has the focus, by the keyboard; the new request's id, once it has ended."""
    with page.expect_response(re.compile("/fork$")) as answer:
        page.keyboard.press("Enter")
    fork = answer.value.headers["x-tokenwalk-request"]
    expect(entry(page, fork)).to_have_attribute("aria-current", "true")
    expect(entry(page, fork)).to_contain_text("at its limit")
    expect(page.get_by_role("tab", name="Compare")).to_be_focused()
    return fork


def first_difference(page: Page, position: int) -> Locator:
    return panel(page, "Compare").get_by_role("row", name=f"Position {position}: first that differs")


def test_another_candidate_branches_off_and_is_laid_beside_its_parent(answered: tuple[Page, str, int]) -> None:
    page, parent, position = answered
    page.get_by_role("tab", name="Logits").click()
    candidates = panel(page, "Logits").get_by_role("button", name=WHAT_IF)
    expect(candidates).to_have_count(19)  # 20 are listed, and one of them was chosen
    candidates.first.focus()
    fork = branch_off(page)
    # It stays where the two part, as the answer comes; that nothing chose that token is known once the request is.
    hash_ = selection(page, request=fork, tab="compare", position=str(position), act="used")
    assert hash_["compare"] == f"{hash_['run']}/{parent}"
    compare = panel(page, "Compare")
    expect(compare).to_contain_text(f"The first {position} tokens are the same")
    expect(compare).to_contain_text(f"This one branched off from the other at {position}.")
    row = first_difference(page, position)
    expect(row).to_have_attribute("aria-current", "true")
    expect(compare).not_to_contain_text("was never reached")
    here, there = row.locator(".token").all_inner_texts()
    assert here.strip() != there.strip()
    tokens(page).nth(position + 1).click()
    selection(page, position=str(position + 1))
    compare.get_by_role("button", name=re.compile("Go to the first that differs")).click()
    expect(followed(page)).to_have_attribute("data-position", str(position))
    expect(row).to_have_attribute("aria-current", "true")
    settled(page)
    layers = compare.get_by_role("table", name="Layers side by side").get_by_role("row")
    expect(layers).to_have_count(1 + 4)
    expect(compare.locator(".verdict")).to_contain_text("The residuals differ from the embedding on")
    expect(layers.nth(4)).to_contain_text("%")
    # It has what comes before from its parent's blocks.
    page.get_by_role("tab", name="Memory").click()
    expect(
        panel(page, "Memory").get_by_role("table", name="Blocks of this request").get_by_role("row").nth(1)
    ).to_contain_text("found")
    # The other way round, the parent is followed.
    page.get_by_role("tab", name="Compare").click()
    compare.get_by_role("button", name="Change sides").click()
    selection(page, request=parent, compare=f"{hash_['run']}/{fork}")
    expect(compare).to_contain_text(f"The other branched off from this one at {position}.")
    assert [text.strip() for text in row.locator(".token").all_inner_texts()] == [there.strip(), here.strip()]


def test_the_walk_and_written_text_branch_off_too(answered: tuple[Page, str, int]) -> None:
    page, parent, position = answered
    settled(page)
    page.get_by_role("region", name="Walk").get_by_role("button", name=WHAT_IF).first.focus()
    branch_off(page)
    expect(first_difference(page, position)).to_be_visible()
    entry(page, parent).click()
    tokens(page).nth(position).click()
    page.get_by_role("tab", name="Logits").click()
    panel(page, "Logits").get_by_label("What it says instead").fill("Elsewhere")
    fork = branch_off(page)
    expect(entry(page, fork)).to_contain_text(f"“E” at {position}: {PROMPT}")
    text = "".join(tokens(page).all_inner_texts()[position : position + 9])
    assert text == "Elsewhere"


def test_a_recording_can_be_laid_beside_and_the_address_says_so(answered: tuple[Page, str, int], visit: Visit) -> None:
    page, _, _ = answered
    page.get_by_role("tab", name="Compare").click()
    compare = panel(page, "Compare")
    expect(compare).to_contain_text("Choose a request to lay beside this one")
    compare.get_by_label("Recording to compare with").select_option("capital-of-france")
    expect(compare).to_contain_text("Two models, tiny and SmolLM2-135M-Instruct: tokens are compared by their bytes.")
    page.wait_for_url(re.compile(r"compare=capital-of-france%2F.+"), wait_until="commit")
    shown = compare.get_by_role("table", name="Tokens side by side").get_by_role("row").all_inner_texts()
    assert len(shown) > 40
    again = visit(page.url)
    beside = panel(again, "Compare").get_by_role("table", name="Tokens side by side").get_by_role("row")
    expect(beside).to_have_count(len(shown))
    assert beside.all_inner_texts() == shown


def test_a_recording_says_why_nothing_can_branch_off(visit: Visit, replay: Callable[[Path], Server]) -> None:
    page = visit(replay(TRACE).url)
    page.get_by_role("tab", name="Logits").click()
    logits = panel(page, "Logits")
    expect(logits).to_contain_text("This server replays a recording")
    candidate = logits.get_by_role("button", name=WHAT_IF).first
    expect(candidate).to_have_attribute("aria-disabled", "true")
    expect(logits.get_by_label("What it says instead")).to_be_hidden()
    candidate.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="This server replays a recording")).to_be_visible()


NO_LINE_IS_CUT = """() => {
  const table = document.querySelector('[role=table][aria-label="Tokens side by side"]');
  const top = table.querySelector('.head').getBoundingClientRect().bottom;
  const { bottom } = table.getBoundingClientRect();
  return [...table.querySelectorAll('[data-position]')].every((line) => {
    const box = line.getBoundingClientRect();
    return [top, bottom].every((edge) => box.top > edge - 1.5 || box.bottom < edge + 1.5);
  });
}"""


def test_lines_side_by_side_are_never_cut_in_two(answered: tuple[Page, str, int]) -> None:
    page, _, position = answered
    page.get_by_role("tab", name="Compare").click()
    compare = panel(page, "Compare")
    compare.get_by_label("Recording to compare with").select_option("capital-of-france")
    table = compare.get_by_role("table", name="Tokens side by side")
    expect(table.get_by_role("row", name=f"{position} ", exact=False).first).to_be_attached()
    for height in (800, 777):
        page.set_viewport_size({"width": 1280, "height": height})
        for chosen in (3, tokens(page).count() - 1, position - 20):
            tokens(page).nth(chosen).click()
            selection(page, position=str(chosen))
            page.wait_for_function(NO_LINE_IS_CUT)
        for by in (-37, 55, 4000):
            table.hover()
            page.mouse.wheel(0, by)
            page.wait_for_function(NO_LINE_IS_CUT)
