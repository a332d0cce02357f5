"""Figures and data out: every view's menu gives a PNG, an SVG and a CSV that other programs can read."""

from __future__ import annotations

import csv
import struct
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import Visit
from tests.e2e.page import followed
from tests.server import Server, start_server

pytestmark = pytest.mark.browser
TRACE = Path(__file__).resolve().parents[2] / "traces" / "capital-of-france.mcap"
SVG = "{http://www.w3.org/2000/svg}"
KINDS = ("PNG", "SVG", "CSV")

VIEWS = {
    "ribbon": ("Tokens",),
    "walk": ("Walk",),
    "Attention": ("Layer 24, head 3", "Wall of all heads"),
    "Lens": ("Lens",),
    "Logits": ("Logits and sampling",),
    "Why": ("Logit by layer, and ranks",),
    "Kernels": ("Where the step’s time went",),
    "Memory": ("KV blocks",),
    "Scheduler": ("Slots by steps",),
    "Wire": ("Tokens on the wire",),
}


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server("replay", str(TRACE), folder=tmp_path_factory.mktemp("replay")) as server:
        yield server


def place(page: Page, view: str) -> Locator:
    """Where the view is, once it is shown."""
    if view[0].islower():
        return page.locator(f"#{view}")
    page.get_by_role("tab", name=view).click()
    return page.get_by_role("tabpanel", name=view)


def saved(page: Page, where: Locator, name: str, kind: str, folder: Path) -> Path:
    where.get_by_role("button", name="Save", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("button", name=f"{name} as {kind}", exact=True).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def check_png(path: Path) -> None:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    assert width > 600
    assert height > 200


def check_svg(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    kinds = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert kinds <= {"svg", "title", "defs", "pattern", "g", "rect", "path", "line", "polygon", "text"}
    texts = "".join(root.itertext())
    assert "capital-of-france" in texts
    assert "What is the capital of France?" in texts


def check_csv(path: Path) -> None:
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file, strict=True)
    assert rows
    assert all(len(row) == len(header) for row in rows)


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_saved_as_picture_drawing_and_table(view: str, visit: Visit, replay: Server, tmp_path: Path) -> None:
    page = visit(replay.url)
    expect(followed(page)).to_have_count(1)
    where = place(page, view)
    for name in VIEWS[view]:
        for kind, check in zip(KINDS, (check_png, check_svg, check_csv), strict=True):
            path = saved(page, where, name, kind, tmp_path)
            assert path.name.startswith("tokenwalk-capital-of-france-r-")
            assert "-42-" in path.name
            assert path.suffix == f".{kind.lower()}"
            check(path)


def test_the_menu_is_opened_left_and_used_by_keyboard(visit: Visit, replay: Server) -> None:
    page = visit(replay.url)
    expect(followed(page)).to_have_count(1)
    save = page.locator("#walk").get_by_role("button", name="Save", exact=True)
    save.press("Enter")
    first = page.get_by_role("button", name="Walk as PNG")
    expect(first).to_be_focused()
    page.keyboard.press("Escape")
    expect(first).to_be_hidden()
    expect(save).to_be_focused()
    save.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename.endswith("-walk.csv")
