"""Why a token was chosen, and where its step's time went."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Visit
from tests.e2e.page import ask, layer, panel, selection, settled, tokens, walk
from tests.server import Server, start_server

pytestmark = pytest.mark.browser
PROMPT = "Where is the capital of France?"
LAYERS = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server("serve", "--model", "tiny", folder=tmp_path_factory.mktemp("why")) as server:
        yield server


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("+", ""))


def generated(page: Page, index: int) -> None:
    """Follow a token of the answer; all of it must be there."""
    first = tokens(page).count() - 12
    tokens(page).nth(first + index).click()
    selection(page, position=str(first + index), act="chosen")


def test_why_takes_the_logit_apart_into_its_layers(server: Server, visit: Visit) -> None:
    page = visit(server.url)
    expect(ask(page, PROMPT, most=12)).to_contain_text("at its limit")
    generated(page, 3)
    page.get_by_role("tab", name="Logits").click()
    chosen = panel(page, "Logits").locator("tr.chosen td.num").nth(1).inner_text()
    page.get_by_role("tab", name="Why").click()
    why = panel(page, "Why")
    parts = why.get_by_role("table", name="Logit by layer")
    rows = [parts.get_by_role("row", name=f"Layer {number}", exact=True) for number in range(LAYERS)]
    expect(parts).to_contain_text("the model’s own logit, but for")
    edges = parts.locator(".edge .num").all_inner_texts()
    layers = [row.locator(".num").all_inner_texts()[1:3] for row in rows]
    given, said = number(edges[0]), number(edges[-1])
    # All are shown with two digits or three: the sum of what is shown is as near as rounding lets it be.
    assert given + sum(number(value) for pair in layers for value in pair) == pytest.approx(
        said, abs=0.01 * (2 * LAYERS + 2)
    )
    assert said == pytest.approx(number(chosen), abs=0.02)
    expect(why).to_contain_text(re.compile("Its logit, .*, is a sum"))
    # A layer that is pointed at is the same everywhere, and a head leads to its attention.
    rows[2].hover()
    expect(layer(page, 2)).to_have_class(re.compile("pointed"))
    looked = why.get_by_role("list", name="Looked at most, and by which heads").get_by_role("listitem")
    head = looked.first.get_by_role("button", name=re.compile(r"^Layer \d+, head \d+: "))
    at = re.match(r"Layer (\d+), head (\d+)", str(head.first.get_attribute("aria-label")))
    assert at is not None
    head.first.click()
    selection(page, tab="attention", layer=at[1], head=at[2])


def test_a_prompt_token_has_a_why_too_and_the_last_one_says_that_it_has_none(server: Server, visit: Visit) -> None:
    page = visit(server.url)
    # Another beginning than the other tests': what is found in the cache has no pass of its own.
    expect(ask(page, f"And {PROMPT}", most=12)).to_contain_text("at its limit")
    page.get_by_role("tab", name="Why").click()
    why = panel(page, "Why")
    tokens(page).nth(tokens(page).count() - 20).click()
    expect(why).to_contain_text("The prompt gave this token")
    tokens(page).last.click()
    page.keyboard.press("a")
    expect(why).to_contain_text("This is the last token")


def test_steps_are_timed_on_request_and_the_next_one_says_where_its_time_went(server: Server, visit: Visit) -> None:
    page = visit(server.url)
    expect(ask(page, PROMPT, most=12)).to_contain_text("at its limit")
    generated(page, 5)
    settled(page)
    page.get_by_role("tab", name="Kernels").click()
    kernels = panel(page, "Kernels")
    expect(kernels).to_contain_text("The operations of this step were not timed")
    expect(kernels).to_contain_text(re.compile(r"step wall\s*[\d.]+\s(µs|ms)"))
    kernels.get_by_label("Steps to time").select_option("4")
    kernels.get_by_role("button", name="Time the next").click()
    expect(kernels).to_contain_text("The next 4 steps will be timed")
    expect(ask(page, PROMPT, most=12)).to_contain_text("at its limit")
    generated(page, 8)
    expect(kernels).not_to_contain_text("will be timed")
    # The followed step is a later one: what was asked for is said first, and it is not advised to ask again.
    expect(kernels).to_contain_text(re.compile(r"Step \d+ was timed.*The operations of this step were not timed"))
    expect(kernels).not_to_contain_text("Time the next ones above")
    kernels.get_by_role("button", name=re.compile("^Go to step")).click()
    expect(kernels).to_contain_text("Timed with barriers")
    expect(kernels).to_contain_text("normal")
    heat = kernels.get_by_role("table", name="Layers by operations")
    expect(heat.get_by_role("row")).to_have_count(1 + LAYERS)
    by_operation = kernels.get_by_role("table", name="Time by operation")
    for operation in ("attention", "mlp", "qkv projection", "head"):
        expect(by_operation.get_by_role("rowheader", name=operation, exact=True)).to_be_visible()
    # The walk has the same layers' times, and leads back here.
    expect(layer(page, 0).locator(".time")).to_contain_text(re.compile("µs|ms"))
    page.get_by_role("tab", name="Attention").click()
    # Its attention came layer by layer, and is whole.
    expect(panel(page, "Attention")).to_contain_text(re.compile(r"row \d+ sums to\s*(1\.0000|0\.9999)"))
    expect(panel(page, "Attention")).not_to_contain_text("in part")
    expect(walk(page).locator(".strip")).to_have_count(LAYERS)
    expect(walk(page).locator(".strip.hatch")).to_have_count(0)
    walk(page).get_by_role("button", name="Where the step’s time went, in Kernels").click()
    expect(kernels).to_be_visible()


def test_what_is_pointed_at_is_marked_in_every_view(server: Server, visit: Visit) -> None:
    page = visit(server.url)
    expect(ask(page, PROMPT, most=12)).to_contain_text("at its limit")
    generated(page, 4)
    settled(page)
    page.get_by_role("tab", name="Wire").click()
    line = panel(page, "Wire").get_by_role("table", name="Tokens on the wire").get_by_role("row").nth(3)
    position = str(line.get_attribute("data-position"))
    tokens(page).nth(int(position)).hover()
    expect(line).to_have_class(re.compile("pointed"))
    expect(walk(page).locator(".key-mark")).to_be_visible()
    line.hover()
    expect(tokens(page).nth(int(position))).to_have_class(re.compile("pointed"))
    # The block in the walk: its sixteen positions in the ribbon, as many as there are.
    total = tokens(page).count()
    begin = (total - 12 + 4 - 1) // 16 * 16
    walk(page).get_by_role("button", name=re.compile(r"^Block \d+: show it in Memory")).hover()
    expect(page.locator(".chip.pointed")).to_have_count(min(16, total - begin))
    walk(page).get_by_role("button", name=re.compile("show the step in Scheduler$")).click()
    expect(panel(page, "Scheduler")).to_contain_text("the followed pass, alone")
