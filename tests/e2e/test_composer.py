"""The composer and what it leaves behind: choices stay, a refusal is said once, what shows can act."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.conftest import Visit
from tests.e2e.page import ask, followed, panel, selection, tokens, walk
from tests.server import Server, start_server

pytestmark = pytest.mark.browser

TOO_LONG = "too long " * 1000


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One of its own: what it was asked before, and what of that it refused, is what the test is about."""
    with start_server("serve", "--model", "tiny", folder=tmp_path_factory.mktemp("own")) as server:
        yield server


def refuse(server: Server) -> None:
    answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": TOO_LONG, "max_tokens": 4})
    assert answer.status_code == 400


def test_how_one_asks_is_remembered_and_leads_back_to_the_defaults(visit: Visit, tiny_server: Server) -> None:
    page = visit(tiny_server.url)
    region = page.get_by_role("region", name="Ask")
    preset = region.get_by_role("group", name="Preset")
    most = region.get_by_label("Most tokens to generate")
    capture = region.get_by_label("Capture")
    defaults = region.get_by_role("button", name="defaults")
    expect(most).to_be_enabled()
    expect(defaults).to_be_hidden()
    preset.get_by_role("button", name="creative").click()
    most.fill("7")
    capture.select_option("light")
    page.reload()
    expect(most).to_be_enabled()
    expect(preset.get_by_role("button", pressed=True)).to_have_text("creative")
    expect(most).to_have_value("7")
    expect(capture).to_have_value("light")
    with page.expect_request(re.compile("/v1/chat/completions$")) as sent:
        ask(page, "as it was chosen")
    body = sent.value.post_data_json
    assert (body["temperature"], body["max_tokens"], body["tokenwalk"]["capture"]) == (1, 7, "light")
    defaults.click()
    for _ in range(2):
        expect(preset.get_by_role("button", pressed=True)).to_have_text("factual")
        expect(most).to_have_value("64")
        expect(capture).to_have_value("follow")
        expect(defaults).to_be_hidden()
        page.reload()
        expect(most).to_be_enabled()


@pytest.mark.parametrize("wrong", ["", "0", "-3"])
def test_a_number_that_is_none_is_asked_for_and_nothing_is_sent(visit: Visit, tiny_server: Server, wrong: str) -> None:
    page = visit(tiny_server.url)
    region = page.get_by_role("region", name="Ask")
    most = region.get_by_label("Most tokens to generate")
    expect(most).to_be_enabled()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    region.get_by_role("textbox", name="Prompt").fill("how many")
    expect(region).to_contain_text("+ 64 tokens")
    most.fill(wrong)
    expect(region).not_to_contain_text("tokens:")
    expect(region).not_to_contain_text("+ 1 token")
    sent.clear()
    region.get_by_role("button", name="Send").click()
    expect(most).to_be_focused()
    region.get_by_role("textbox", name="Prompt").press("Control+Enter")
    expect(most).to_be_focused()
    assert sent == []
    most.fill("2")
    region.get_by_role("textbox", name="Prompt").press("Control+Enter")
    expect(tokens(page).first).to_be_visible()
    assert any(url.endswith("/v1/chat/completions") for url in sent)


def test_a_refusal_is_said_once_and_goes_away_with_what_it_was_about(
    visit: Visit, tiny_server: Server, faults: list[str]
) -> None:
    page = visit(tiny_server.url)
    region = page.get_by_role("region", name="Ask")
    field = region.get_by_role("textbox", name="Prompt")
    problem = region.get_by_role("alert")
    reason = re.compile("9,0.. characters")
    expect(field).to_be_enabled()
    field.fill(TOO_LONG)
    expect(region.get_by_text(reason)).to_have_count(1)  # before it is sent, where its cost would be
    expect(problem).to_have_text("")
    region.get_by_role("button", name="Send").click()
    expect(problem).to_have_text(reason)
    expect(region.get_by_text(reason)).to_have_count(1)
    region.get_by_label("Most tokens to generate").fill("5")
    expect(problem).to_have_text("")
    expect(region.get_by_text(reason)).to_have_count(1)
    field.fill("short enough")
    expect(region.get_by_text(reason)).to_have_count(0)
    expect(region).to_contain_text("bytes")
    # The browser itself reports what the server refused, the estimate as well as the request.
    assert all("400" in fault for fault in faults), faults
    faults.clear()


def test_a_refused_request_is_called_by_its_reason_and_followed_by_nobody(visit: Visit, server: Server) -> None:
    good = httpx.post(f"{server.url}/v1/completions", json={"prompt": "good", "max_tokens": 3})
    request = good.headers["x-tokenwalk-request"]
    refuse(server)
    page = visit(server.url)
    page.get_by_role("button", name="Go live").click()
    # The newest is not what one goes live for.
    selection(page, request=request)
    expect(followed(page)).to_have_count(1)
    listed = page.get_by_role("list", name="Requests").get_by_role(
        "button", name=re.compile("refused: the prompt has 9,")
    )
    refused = str(listed.get_attribute("data-request"))
    expect(page.get_by_role("list", name="Requests")).not_to_contain_text(refused)
    expect(listed.get_by_text("the prompt has 9,")).to_have_count(1)
    expect(listed).to_contain_text("no tokens")
    listed.click()
    expect(walk(page)).to_contain_text("This request was refused: the prompt has")
    page.get_by_role("tab", name="Kernels").click()
    expect(panel(page, "Kernels")).to_contain_text("This request was refused: nothing of it was computed.")
    expect(panel(page, "Kernels").get_by_text("were not timed")).to_be_hidden()
    expect(page.get_by_role("button", name=re.compile("follow"))).to_be_hidden()
    # An address that names it, and no position, asks to follow it: that is over at once.
    run = httpx.get(f"{server.url}/health").json()["run"]
    page = visit(f"{server.url}/#run={run}&request={refused}")
    expect(walk(page)).to_contain_text("This request was refused: the prompt has")
    expect(page.get_by_role("button", name=re.compile("follow"))).to_be_hidden()


def test_where_everything_was_refused_the_next_that_is_not_is_followed(visit: Visit, server: Server) -> None:
    refuse(server)
    page = visit(server.url)
    page.get_by_role("button", name="Go live").click()
    expect(page.get_by_role("region", name="Ribbon")).to_contain_text("Every request so far was refused")
    httpx.post(f"{server.url}/v1/completions", json={"prompt": "good", "max_tokens": 3})
    expect(tokens(page)).to_have_count(len("good") + 3)
    expect(followed(page)).to_have_count(1)


@pytest.fixture
def held(visit: Visit, tiny_server: Server) -> tuple[Page, Callable[[], None]]:
    """The page before the server has said anything, and a function that lets it speak."""
    waiting: list[Route] = []
    said = False

    def hold(route: Route) -> None:
        if said:
            route.continue_()
        else:
            waiting.append(route)

    def speak() -> None:
        nonlocal said
        said = True
        for route in waiting:
            route.continue_()

    page = visit("about:blank")
    page.route("**/health", hold)
    page.goto(tiny_server.url)
    return page, speak


def test_no_control_shows_before_it_can_act(held: tuple[Page, Callable[[], None]]) -> None:
    page, speak = held
    expect(page.get_by_role("status")).to_have_text("connecting…")
    for name in ("Go live", "Try now", "Stop"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_hidden()
    expect(page.get_by_role("button", name=re.compile("follow"))).to_be_hidden()
    for name in ("Send", "Play", "Token back", "Token forward", "To the end", "Next token", "factual"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
    expect(page.get_by_role("textbox", name="Prompt")).to_be_disabled()
    # The tour waits for what it is about, and is not said to have nothing to tell.
    page.get_by_role("button", name="Tour", exact=True).click()
    expect(page.get_by_role("dialog", name="It begins as text")).to_be_hidden()
    speak()
    expect(page.get_by_role("dialog", name="It begins as text")).to_be_visible()
    expect(page.locator("#notice")).to_be_hidden()
    expect(page.get_by_role("button", name="Go live")).to_be_visible()
    expect(page.get_by_role("button", name="Next token")).to_be_enabled()
