"""The page with the `tiny` model: what can be done with it, by mouse and by keyboard."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Visit
from tests.e2e.page import ask, assert_shows, followed, layer, screen, selection, settled, token, tokens, walk
from tests.server import Server

pytestmark = pytest.mark.browser


@pytest.fixture
def answered(visit: Visit, tiny_server: Server) -> Page:
    """A page on which one prompt was answered."""
    page = visit(tiny_server.url)
    asked = ask(page, "What is the capital of France?", most=24)
    expect(asked).to_contain_text("at its limit")
    return page


def test_a_prompt_that_is_sent_streams_and_is_followed(visit: Visit, tiny_server: Server) -> None:
    page = visit(tiny_server.url)
    asked = ask(page, "Hello there", most=200)
    expect(page.get_by_role("button", name="following live")).to_be_visible()
    expect(asked).to_contain_text("Hello there")
    expect(asked).to_contain_text("at its limit")
    assert int(followed(page).get_attribute("data-position") or 0) == tokens(page).count() - 1


def test_clicking_a_token_follows_it_through_every_layer(answered: Page) -> None:
    tokens(answered).nth(60).click()
    expect(followed(answered)).to_have_attribute("data-position", "60")
    settled(answered)
    for number in range(4):
        expect(layer(answered, number)).to_be_visible()
        expect(layer(answered, number).get_by_role("gridcell", name=re.compile("^looked most at"))).to_have_count(1)
    # The lens is asked for, and every layer ranks the token that came next.
    expect(layer(answered, 3)).to_contain_text(re.compile(r"0\.\d\d.*\d+", re.DOTALL))
    for station in (
        "text",
        "tokenizer",
        "queue → slot",
        "embedding",
        "final norm",
        "logits",
        "sampler",
        "detokenizer",
        "sent",
    ):
        expect(walk(answered).get_by_role("term").filter(has_text=re.compile(f"^{station}$"))).to_be_visible()
    expect(walk(answered)).to_contain_text(re.compile(r"in slot \d, [\d.]+\s(µs|ms|s) after it arrived"))


def test_a_layers_strip_lies_beside_its_row(visit: Visit, tiny_server: Server) -> None:
    """Also where the step was timed, which moves the columns, after a token whose stations need more lines."""
    page = visit(f"{tiny_server.url}#run=capital-of-france")
    rows = walk(page).get_by_role("row", name=re.compile(r"^Layer \d+$"))
    expect(rows).to_have_count(30)
    for position, timed in ((41, False), (42, True), (30, False), (42, True), (5, False), (42, True)):
        tokens(page).nth(position).click()
        settled(page)
        expect(rows.first.locator(".time")).to_be_visible(visible=timed)
        upper, lower, strips = (
            box
            for shown in (rows.first, rows.last, walk(page).locator("canvas.strips"))
            if (box := shown.bounding_box()) is not None
        )
        assert strips["y"] == pytest.approx(upper["y"], abs=1)
        assert strips["y"] + strips["height"] == pytest.approx(lower["y"] + lower["height"], abs=1)
        column = rows.first.get_by_role("gridcell", name=re.compile("^looked")).bounding_box()
        assert column is not None
        assert (strips["x"], strips["width"]) == pytest.approx((column["x"], column["width"]), abs=1)


def test_a_tip_goes_with_what_it_is_about(answered: Page) -> None:
    tokens(answered).nth(60).click()
    settled(answered)
    told = walk(answered).locator("[data-tip]").first
    told.hover()
    tip = answered.get_by_role("tooltip")
    expect(tip).to_be_visible()
    told.evaluate("(element) => element.remove()")
    expect(tip).to_be_hidden()


def test_both_acts_are_told_apart(answered: Page) -> None:
    tokens(answered).nth(60).click()
    selection(answered, position="60", act="chosen")
    expect(walk(answered)).to_contain_text("the token before, at 59")
    answered.get_by_role("button", name="what it did next").click()
    expect(walk(answered)).to_contain_text(re.compile(r"written to block \d+, offset 12, 4 layers"))
    expect(walk(answered)).to_contain_text("token 61, chosen by this pass")
    selection(answered, act="used")
    tokens(answered).nth(2).click()
    expect(answered.get_by_role("button", name="how it was chosen")).to_be_disabled()


def test_the_last_token_says_that_it_has_no_second_act(answered: Page) -> None:
    tokens(answered).last.click()
    answered.get_by_role("button", name="what it did next").click()
    expect(walk(answered)).to_contain_text("the answer ended with this token, so no pass of its own was run")


def test_a_copied_address_shows_the_same_in_a_fresh_window(answered: Page, visit: Visit) -> None:
    tokens(answered).nth(58).click()
    layer(answered, 1).click()
    answered.get_by_role("tab", name="Lens").click()
    selection(answered, position="58", act="chosen", layer="1", tab="lens")
    other = visit(answered.url)
    assert_shows(other, screen(answered))
    expect(layer(other, 3)).to_contain_text(re.compile(r"0\.\d\d"))


def test_the_keyboard_alone_leads_from_first_load_to_a_layers_head(answered: Page) -> None:
    answered.keyboard.press("Escape")
    answered.keyboard.press("Home")
    expect(followed(answered)).to_have_attribute("data-position", "0")
    for _ in range(3):
        answered.keyboard.press("ArrowRight")
    answered.keyboard.press("ArrowLeft")
    before = selection(answered, position="2")
    for key in ("ArrowUp", "ArrowUp", "ArrowDown", "]", "2"):
        answered.keyboard.press(key)
    selection(answered, layer=str(int(before["layer"]) - 1), head=str(int(before["head"]) + 1), tab="lens")
    answered.keyboard.press("/")
    expect(answered.get_by_role("textbox", name="Prompt")).to_be_focused()
    answered.keyboard.press("Escape")
    answered.keyboard.press("?")
    expect(answered.get_by_role("dialog")).to_be_visible()
    answered.keyboard.press("Escape")
    expect(answered.get_by_role("dialog")).to_be_hidden()


def test_playing_moves_through_the_tokens_by_itself(answered: Page) -> None:
    answered.keyboard.press("Escape")
    answered.keyboard.press("Home")
    answered.get_by_label("Speed").select_option("10")
    answered.get_by_role("button", name="Play").click()
    expect(followed(answered)).to_have_attribute("data-position", str(tokens(answered).count() - 1))
    expect(answered.get_by_role("button", name="Play")).to_be_visible()


def test_scrubbing_follows_the_token_of_that_moment(answered: Page) -> None:
    bar = answered.get_by_role("group", name="Transport").get_by_role("slider")
    box = bar.bounding_box()
    assert box is not None
    answered.mouse.click(box["x"] + box["width"] - 1, box["y"] + 10)
    expect(followed(answered)).to_have_attribute("data-position", str(tokens(answered).count() - 1))
    answered.mouse.click(box["x"] + 1, box["y"] + 10)
    # What was found in the prefix cache was there at once: whole blocks of 16 positions.
    expect(followed(answered)).to_have_attribute("data-position", re.compile("^([0-2]|15|31|47)$"))


def test_token_text_is_never_markup(visit: Visit, tiny_server: Server) -> None:
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script><b>bold"
    page = visit(tiny_server.url)
    expect(ask(page, hostile, most=4)).to_contain_text(hostile)
    token(page, ">").click()
    expect(walk(page).get_by_role("heading")).to_contain_text(">")
    assert page.locator("img, #ribbon script, #ribbon b:not(.where b), #requests b").count() == 0


def test_the_pieces_of_one_character_stand_together(visit: Visit, tiny_server: Server) -> None:
    page = visit(tiny_server.url)
    ask(page, "A🐱!", most=2)
    pieces = page.get_by_role("list", name="Tokens").get_by_role("listitem", name=re.compile("^🐱, piece"))
    expect(pieces).to_have_count(4)
    pieces.nth(2).click()
    expect(walk(page).get_by_role("heading")).to_contain_text("🐱")


def test_what_was_not_captured_says_so(visit: Visit, tiny_server: Server) -> None:
    answer = httpx.post(
        f"{tiny_server.url}/v1/completions",
        json={"prompt": "not captured", "max_tokens": 3, "tokenwalk": {"capture": "light"}},
    )
    request = answer.headers["x-tokenwalk-request"]
    run = httpx.get(f"{tiny_server.url}/health").json()["run"]
    page = visit(f"{tiny_server.url}/#run={run}&request={request}&position=13")
    expect(walk(page)).to_contain_text(re.compile("Not captured"))
    expect(page.get_by_role("region", name="Ribbon")).to_contain_text("No attention to show")


def test_a_request_that_is_refused_says_why_beside_the_prompt(
    visit: Visit, tiny_server: Server, faults: list[str]
) -> None:
    page = visit(tiny_server.url)
    ask(page, "too long " * 1000, most=8)
    expect(page.get_by_role("alert").filter(has_text=re.compile("context|tokens"))).to_be_visible()
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value("too long " * 1000)  # to be shortened
    assert all("400" in fault for fault in faults), faults  # the browser itself reports the refused request
    faults.clear()


def test_what_a_recording_was_asked_can_be_asked_live(visit: Visit, tiny_server: Server) -> None:
    page = visit(tiny_server.url)
    expect(page.get_by_role("status")).to_have_text("REPLAY")
    again = page.get_by_role("button", name="Ask what is on screen")
    again.click()
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value("What is the capital of France?")
    expect(again).to_be_hidden()
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status")).to_have_text("LIVE")
    expect(page.get_by_role("list", name="Requests")).to_contain_text("What is the capital of France?")


def test_a_prompt_that_was_sent_leaves_the_field_and_can_be_brought_back(visit: Visit, tiny_server: Server) -> None:
    page = visit(tiny_server.url)
    field = page.get_by_role("textbox", name="Prompt")
    for prompt in ("the first question", "the second question"):
        ask(page, prompt, most=2)
        expect(field).to_have_value("")
    field.fill("a draft")
    field.press("ArrowUp")
    expect(field).to_have_value("a draft")  # in a text of one's own the arrows move the caret
    field.fill("")
    for key, value in (
        ("ArrowUp", "the second question"),
        ("ArrowUp", "the first question"),
        ("ArrowDown", "the second question"),
        ("ArrowDown", ""),
    ):
        field.press(key)
        expect(field).to_have_value(value)
    page.reload()
    expect(page.get_by_role("list", name="Requests")).to_contain_text("the second question")
    field.press("ArrowUp")
    expect(field).to_have_value("the second question")


def test_equal_prompts_are_told_apart_by_number_and_time(visit: Visit, tiny_server: Server) -> None:
    page = visit(tiny_server.url)
    first, second = (ask(page, "the same again", most=2) for _ in range(2))
    for each in (first, second):
        expect(each).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))
    numbers = [int(each.locator(".request-mark").inner_text()) for each in (first, second)]
    assert numbers[1] == numbers[0] + 1


def test_stop_ends_a_running_request(visit: Visit, tiny_server: Server) -> None:
    page = visit(tiny_server.url)
    asked = ask(page, "stop me", most=3000)
    stop = page.get_by_role("button", name="Stop", exact=True)
    stop.click()
    expect(asked).to_contain_text("stopped")
    expect(stop).to_be_hidden()


def test_the_theme_is_the_systems_until_it_is_chosen_and_then_stays(visit: Visit, tiny_server: Server) -> None:
    page = visit(tiny_server.url, scheme="light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Dark or light").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1920, 1080)])
def test_nothing_is_cut_off_sideways(visit: Visit, tiny_server: Server, width: int, height: int) -> None:
    page = visit(tiny_server.url, width=width, height=height)
    expect(page.get_by_role("group", name="Transport")).to_be_visible()
    overflowing = page.evaluate(
        "() => [...document.querySelectorAll('body, #topbar, #main, #main > *, #transport')]"
        ".filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.id || e.tagName)"
    )
    assert overflowing == []


def test_a_whole_walk_is_in_view_at_1280_by_800(visit: Visit, tiny_server: Server) -> None:
    """Of a token of 30 layers, both acts: also where sentences need a line more."""
    page = visit(f"{tiny_server.url}#run=capital-of-france")
    expect(tokens(page)).to_have_count(45)
    for position, act in ((42, "chosen"), (39, "chosen"), (37, "used"), (8, "used"), (18, "used"), (0, "used")):
        tokens(page).nth(position).click()
        page.get_by_role("button", name="what it did next" if act == "used" else "how it was chosen").click()
        selection(page, position=str(position), act=act)
        settled(page)
        page.wait_for_function(
            "() => { const w = document.getElementById('walk'); return w.scrollHeight <= w.clientHeight; }"
        )


@pytest.mark.parametrize("lines", [2, 5])
def test_what_is_said_under_the_wall_of_heads_is_in_view_whatever_the_ribbon_takes(
    visit: Visit, tiny_server: Server, lines: int
) -> None:
    page = visit(f"{tiny_server.url}#run=capital-of-france", width=1920, height=1080)
    expect(page.get_by_text("44 of 45 rows, others hatched", exact=True)).to_be_visible()
    page.locator("#ribbon").evaluate("(ribbon, lines) => ribbon.style.setProperty('--wanted', lines)", str(lines))
    page.wait_for_function(
        """() => {
          const panel = document.getElementById('panel-attention').getBoundingClientRect();
          const wall = panel.height && document.querySelector('.attn-wall').getBoundingClientRect();
          const said = document.querySelector('.attn-side details').getBoundingClientRect();
          return wall.height > 600 && said.bottom <= panel.bottom;
        }"""
    )
