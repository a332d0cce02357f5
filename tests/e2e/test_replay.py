"""`tokenwalk replay FILE`, as it is used: the plain address shows that file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import Visit
from tests.e2e.page import token
from tests.server import Server, start_server

pytestmark = pytest.mark.browser
TRACES = Path(__file__).resolve().parents[2] / "traces"
ONLY_THERE = {"capital-of-france": "Paris", "emoji-and-cjk": "Repeat"}


@pytest.fixture(params=sorted(ONLY_THERE))
def replayed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Server]]:
    with start_server("replay", str(TRACES / f"{request.param}.mcap"), folder=tmp_path) as server:
        yield request.param, server


def test_the_replayed_file_is_shown_whatever_else_is_there(replayed: tuple[str, Server], visit: Visit) -> None:
    name, server = replayed
    expect(token(visit(server.url), ONLY_THERE[name])).to_be_visible()
