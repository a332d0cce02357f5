"""A real browser on the real page, watched: an error in its console or a request that leaves the machine is a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from tests.chromium import ARGUMENTS
from tests.server import Server, start_server

TIMEOUT_MS = 30_000
"""Long: the browser, the server and other work may share two cores."""

expect.set_options(timeout=TIMEOUT_MS)

PAGES = pytest.StashKey[list[Page]]()
"""The pages that a test has opened."""

Visit = Callable[..., Page]
"""`visit(url, scheme="dark", width=1280, height=800)`: the page, opened with a fresh profile."""


@pytest.fixture(scope="module")
def tiny_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for each module: a page that joins a server reads all that has happened there."""
    with start_server("serve", "--model", "tiny", folder=tmp_path_factory.mktemp("tiny")) as server:
        yield server


@pytest.fixture
def replay(tmp_path: Path) -> Iterator[Callable[[Path], Server]]:
    """A function that replays a trace, until the test and its pages are done with it."""
    with ExitStack() as stack:
        yield lambda trace: stack.enter_context(start_server("replay", str(trace), folder=tmp_path))


@pytest.fixture(scope="session")
def browser(chromium_path: Path) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def faults() -> list[str]:
    """What went wrong in any page of the test. A test that provokes a fault empties the list and says why."""
    return []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A test that fails, or cannot be set up, says what its pages showed: else nothing is left of it."""
    report = yield
    if report.failed:  # type: ignore[attr-defined]
        for number, page in enumerate(item.stash.get(PAGES, [])):
            with suppress(Error):
                report.sections.append((f"page {number}: {page.url}", page.locator("body").aria_snapshot(timeout=5000)))  # type: ignore[attr-defined]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """The pages leave before any fixture ends, whatever their order: a page whose server went first reports that."""
    for page in item.stash.get(PAGES, []):
        page.context.close()


@pytest.fixture
def visit(browser: Browser, faults: list[str], request: pytest.FixtureRequest) -> Iterator[Visit]:
    pages = request.node.stash.setdefault(PAGES, [])

    def open_page(url: str, *, scheme: str = "dark", width: int = 1280, height: int = 800) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        pages.append(page)
        page.set_default_timeout(TIMEOUT_MS)
        page.on("console", lambda said: faults.append(f"console: {said.text}") if said.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(f"uncaught: {error}"))
        page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: _watch(request.url, faults))
        page.goto(url)
        return page

    yield open_page
    assert faults == []


def _watch(url: str, faults: list[str]) -> None:
    parts = urlsplit(url)
    if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1":
        faults.append(f"a request left the machine: {url}")
