"""What the tests look at on the page, by the names that a screen reader gives."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from playwright.sync_api import Locator, Page, expect

PRESS = "ControlOrMeta+Enter"


def tokens(page: Page) -> Locator:
    return page.get_by_role("list", name="Tokens", exact=True).get_by_role("listitem")


def token(page: Page, text: str) -> Locator:
    """The first token of that text."""
    return (
        page.get_by_role("list", name="Tokens", exact=True)
        .get_by_role("listitem", name=re.compile(rf"^{re.escape(text)}, "))
        .first
    )


def followed(page: Page) -> Locator:
    return page.locator("[role=listitem][aria-current]")


def walk(page: Page) -> Locator:
    return page.get_by_role("region", name="Walk")


def layer(page: Page, number: int) -> Locator:
    return walk(page).get_by_role("row", name=f"Layer {number}", exact=True)


def ask(page: Page, prompt: str, *, most: int | None = None, press: bool = False) -> Locator:
    """Type a prompt and send it, by the button or by the keyboard; returns its entry in the list "Requests"."""
    field = page.get_by_role("textbox", name="Prompt")
    expect(field).to_be_enabled()
    if most is not None:
        page.get_by_label("Most tokens to generate").fill(str(most))
    field.fill(prompt)
    with page.expect_response(re.compile("/v1/(chat/)?completions$")) as answer:
        if press:
            field.press(PRESS)
        else:
            page.get_by_role("button", name="Send").click()
    return entry(page, answer.value.headers.get("x-tokenwalk-request", "none"))


def entry(page: Page, request: str) -> Locator:
    """A request's entry in the list "Requests"."""
    return page.get_by_role("list", name="Requests").locator(f'[data-request="{request}"]')


def selection(page: Page, **expected: str) -> dict[str, str]:
    """The address's hash, once it holds what is expected."""

    def holds(url: str) -> bool:
        return expected.items() <= dict(parse_qsl(urlsplit(url).fragment)).items()

    page.wait_for_url(holds, wait_until="commit")
    return dict(parse_qsl(urlsplit(page.url).fragment))


def drawn(page: Page) -> None:
    """Wait until what is on screen is the page's state: a click changes that at once, a later frame shows it."""
    expect(page.locator("html")).not_to_have_attribute("data-stale", "")


def settled(page: Page) -> None:
    """Wait until the walk shows the followed token, with everything that is still to come for it."""
    drawn(page)
    expect(followed(page)).to_have_count(1)
    position = str(followed(page).get_attribute("data-position"))
    expect(walk(page)).to_have_attribute("data-position", position)
    expect(walk(page)).not_to_have_attribute("aria-busy", "true")


def screen(page: Page) -> dict[str, object]:
    """What is shown of the selection, for comparing two pages. The token must have been chosen (`selection`)."""
    settled(page)
    rows = walk(page).get_by_role("row")
    return {
        "tokens": tokens(page).all_inner_texts(),
        "followed": followed(page).get_attribute("data-position"),
        "walk": rows.all_inner_texts(),
        "looked": walk(page)
        .get_by_role("gridcell", name=re.compile("^looked"))
        .evaluate_all("cells => cells.map((cell) => cell.getAttribute('aria-label'))"),
        "tab": page.get_by_role("tab", selected=True).inner_text(),
    }


def panel(page: Page, name: str) -> Locator:
    return page.get_by_role("tabpanel", name=name, exact=True)


def assert_shows(page: Page, shown: dict[str, object]) -> None:
    """The page shows what another one did (`screen`), once all its tokens have come."""
    words = shown["tokens"]
    assert isinstance(words, list)
    expect(tokens(page)).to_have_count(len(words))
    assert screen(page) == shown
