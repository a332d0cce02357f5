"""The panels about serving, with `tiny` and little KV memory: requests that run together, share and give way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Visit
from tests.e2e.page import drawn, entry, followed, selection, tokens, walk
from tests.server import Server, start_server

pytestmark = pytest.mark.browser

PROMPTS = (
    "The same beginning of every prompt here, and then one.",
    "Something else altogether, and rather longer than the others are.",
    "A third one, which has the fewest words.",
)
AFTERWARDS = "The same beginning of every prompt here, and then a last time."


@pytest.fixture(scope="module")
def batched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, list[str]]]:
    """A server that answered three requests together and a fourth after them, and their ids."""
    options = ("--model", "tiny", "--kv-memory", "256KiB", "--max-slots", "3", "--prefill-budget", "48")
    with start_server("serve", *options, folder=tmp_path_factory.mktemp("batched")) as server:

        def ask(prompt: str) -> str:
            body = {"prompt": prompt, "max_tokens": 70, "temperature": 1, "seed": 1, "stream": True}
            with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=90) as answer:
                answer.read()
                return answer.headers["x-tokenwalk-request"]

        with ThreadPoolExecutor(len(PROMPTS)) as pool:
            asked = list(pool.map(ask, PROMPTS))
        yield server, [*asked, ask(AFTERWARDS)]


@pytest.fixture
def last(visit: Visit, batched: tuple[Server, list[str]]) -> Page:
    """The page, with the request that came after the others."""
    server, asked = batched
    page = visit(server.url, width=1280)
    page.get_by_role("button", name="Go live").click()
    entry(page, asked[-1]).click()
    expect(tokens(page)).to_have_count(len(AFTERWARDS) + 70)
    return page


def test_memory_shows_the_blocks_of_the_followed_moment(last: Page, batched: tuple[Server, list[str]]) -> None:
    last.get_by_role("tab", name="Memory").click()
    panel = last.get_by_role("tabpanel", name="Memory")
    tokens(last).nth(100).click()
    expect(panel.get_by_role("application", name="Block map: 16 blocks, 7 held")).to_be_visible()
    rows = panel.get_by_role("table", name="Blocks of this request").get_by_role("row")
    expect(rows).to_have_count(1 + 7)
    expect(rows.nth(1)).to_contain_text("The·same·")
    # What the first request had computed was found; the rest is its own, with a block to each 16 positions.
    expect(rows.nth(1)).to_contain_text("found")
    expect(rows.nth(7)).not_to_contain_text("found")
    shares = panel.get_by_text(re.compile(r"shares sum to (1\.0000|0\.999\d)"))
    expect(shares).to_be_visible()
    # At the end nothing is held, as the engine says of itself.
    panel.get_by_role("button", name="at the end").click()
    cache = httpx.get(f"{batched[0].url}/v1/cache").json()["map"]
    cached = sum(block["state"] == "cached" for block in cache)
    expect(panel.get_by_role("application", name=f"Block map: 16 blocks, 0 held, {cached} cached")).to_be_visible()
    # By keyboard, a block names itself and leads to its first token.
    panel.get_by_role("button", name="at this token").click()
    panel.get_by_role("application").focus()
    last.keyboard.press("Home")
    expect(last.get_by_role("tooltip")).to_contain_text(re.compile("^Block 0: "))
    tokens(last).nth(3).click()
    expect(walk(last)).to_contain_text("were there already, in block")
    expect(walk(last)).to_contain_text(re.compile(rf"computed by #\d “{re.escape(PROMPTS[0])}”"))


def test_a_reused_position_leads_to_the_row_that_another_request_computed(
    last: Page, batched: tuple[Server, list[str]]
) -> None:
    tokens(last).nth(3).click()
    walk(last).get_by_role("button", name=re.compile(rf"^See the row that #\d “{re.escape(PROMPTS[0])}”")).click()
    expect(entry(last, batched[1][0])).to_have_attribute("aria-current", "true")
    expect(walk(last)).to_contain_text("written to block")
    expect(last).to_have_url(re.compile(f"request={batched[1][0]}.*position=3"))


def test_scheduler_shows_who_ran_with_whom_and_who_gave_way(last: Page, batched: tuple[Server, list[str]]) -> None:
    _, asked = batched
    mine = entry(last, asked[1])
    mine.click()
    # Before that is drawn the chips are another request's, and go away under the pointer.
    expect(mine).to_have_attribute("aria-current", "true")
    tokens(last).nth(80).click()
    last.get_by_role("tab", name="Scheduler").click()
    panel = last.get_by_role("tabpanel", name="Scheduler")
    expect(panel.get_by_role("application", name=re.compile(r"Steps by slot: \d+ steps, 3 slots"))).to_be_visible()
    rows = panel.get_by_role("table", name="Rows of the step").get_by_role("row")
    expect(rows.filter(has=last.locator("xpath=self::*[@aria-current]"))).to_contain_text("decode 79")
    assert rows.count() > 2, "a step of one row only: nothing ran together"
    expect(panel.get_by_role("list", name="Decisions")).to_contain_text(
        re.compile("preempted “.*(needed a block|no block was free) for position")
    )
    # Another row of the same step is a step away.
    other = rows.get_by_role("button", name=re.compile("^Follow ")).filter(has_not_text=PROMPTS[1][:20]).first
    other.click()
    expect(mine).not_to_have_attribute("aria-current", "true")
    expect(panel.get_by_role("heading", name=re.compile(r"Step \d+: the followed pass, with"))).to_be_visible()
    drawn(last)
    before = followed(last).get_attribute("data-position")
    panel.get_by_role("application").press("ArrowRight")
    expect(followed(last)).not_to_have_attribute("data-position", str(before))


def test_wire_shows_each_token_with_its_chunk(last: Page) -> None:
    tokens(last).nth(len(AFTERWARDS)).click()
    last.get_by_role("tab", name="Wire").click()
    panel = last.get_by_role("tabpanel", name="Wire")
    rows = panel.get_by_role("table", name="Tokens on the wire").get_by_role("row")
    expect(rows).to_have_count(1 + 70)
    way = panel.get_by_role("list", name="The followed token’s way out")
    expect(way).to_contain_text(re.compile(r"chosen.*step \d+.*bytes.*queued.*(µs|ms).*sent.*(µs|ms)", re.DOTALL))
    expect(rows.filter(has=last.locator("xpath=self::*[@aria-current]"))).to_contain_text(str(len(AFTERWARDS)))
    rows.last.get_by_role("button").click()
    expect(followed(last)).to_have_attribute("data-position", str(len(AFTERWARDS) + 69))
    # Opened anew, the list is scrolled to the followed token: whole, though the line of the last chunk comes below it.
    last.get_by_role("tab", name="Memory").click()
    selection(last, position=str(len(AFTERWARDS) + 69), tab="memory")  # the address follows a little later
    last.reload()
    expect(followed(last)).to_have_attribute("data-position", str(len(AFTERWARDS) + 69))
    last.get_by_role("tab", name="Wire").click()
    expect(panel.get_by_role("list", name="Chunks without text")).to_be_visible()
    expect(rows.last).to_be_in_viewport(ratio=0.95)
    tokens(last).nth(2).click()
    expect(way).to_contain_text("is part of the prompt")
    expect(panel.get_by_role("list", name="Chunks without text")).to_contain_text("no text")
