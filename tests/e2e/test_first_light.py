"""The whole way with the built-in model: open, ask, watch, follow."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import Visit
from tests.e2e.page import ask, assert_shows, followed, layer, screen, selection, token, tokens, walk
from tests.server import Server

pytestmark = [pytest.mark.browser, pytest.mark.model]


def test_the_first_visit_shows_a_bundled_trace_with_the_composer_ready(visit: Visit, model_server: Server) -> None:
    sample = httpx.get(f"{model_server.url}/health").json()["default_trace"]
    assert sample, "no trace is bundled"
    page = visit(model_server.url)
    expect(
        page.get_by_role("list", name="Traces").get_by_role("button", name=re.compile(re.escape(sample)))
    ).to_have_attribute("aria-current", "true")
    expect(followed(page)).to_have_count(1)
    for number in (0, 15, 29):
        expect(layer(page, number)).to_contain_text(re.compile(r"\d"))
    expect(walk(page)).to_contain_text(re.compile("leads from layer"))
    expect(page.get_by_role("textbox", name="Prompt")).to_be_enabled()
    expect(page.get_by_role("status")).to_have_text("REPLAY")


def test_a_prompt_is_answered_and_a_token_of_the_answer_followed(visit: Visit, model_server: Server) -> None:
    page = visit(model_server.url)
    asked = ask(page, "What is the capital of France, and why is it famous?", press=True)
    expect(page.get_by_role("status")).to_have_text("LIVE")
    expect(page.get_by_role("button", name="following live")).to_be_visible()
    expect(token(page, "Paris")).to_be_visible(timeout=60_000)
    token(page, "Paris").click()
    expect(followed(page)).to_have_attribute("data-position", "48")
    expect(walk(page)).to_contain_text("Paris leads from layer 29", timeout=60_000)
    expect(walk(page)).to_contain_text("the sink, token 0, held")
    expect(layer(page, 29)).to_contain_text(re.compile(r"Paris.*1", re.DOTALL))
    # Measured by PyTorch on the same weights (tests/oracle): 0.97 of the probability.
    expect(walk(page)).to_contain_text("97.4%")
    expect(asked).to_contain_text("43 tokens → 38, ended", timeout=60_000)
    selection(page, position="48", act="chosen")
    other = visit(page.url)
    expect(walk(other)).to_contain_text("Paris leads from layer 29")
    assert_shows(other, screen(page))


def test_a_reload_during_generation_loses_nothing(visit: Visit, model_server: Server) -> None:
    page = visit(model_server.url)
    # Long enough that a slow browser, too, sees it run.
    asked = ask(page, "Write a long story about the sea.", most=150, press=True)
    expect(asked).to_contain_text("decode")
    request = str(asked.get_attribute("data-request"))
    selection(page, request=request)
    page.reload()
    expect(asked).to_contain_text("Write a long story about the sea.")
    expect(asked).to_contain_text(re.compile("ended|at its limit"), timeout=90_000)
    view = httpx.get(f"{model_server.url}/v1/requests/{request}").json()
    assert view["finish_reason"] in ("stop", "length")
    expect(tokens(page)).to_have_count(view["prompt_tokens"] + view["completion_tokens"])
