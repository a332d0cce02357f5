"""The built wheel: it carries the page and the sample traces, and works from any folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.server import start_server

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return zipfile.ZipFile(next(folder.glob("tokenwalk-*.whl")))


def test_every_file_of_the_page_is_in_it(wheel: zipfile.ZipFile) -> None:
    page = ROOT / "frontend"
    left_out = {"README.md", "package.json", "tsconfig.json"}
    wanted = {
        f"backend/_frontend/{path.relative_to(page).as_posix()}"
        for path in page.rglob("*")
        if path.is_file() and path.name not in left_out
    }
    assert {name for name in wheel.namelist() if name.startswith("backend/_frontend/")} == wanted


def test_the_sample_traces_are_in_it(wheel: zipfile.ZipFile) -> None:
    carried = {Path(name).name for name in wheel.namelist() if name.startswith("backend/_traces/")}
    assert carried == {path.name for path in (ROOT / "traces").glob("*.mcap")}
    assert carried, "an empty start shows a bundled trace, so there must be one"


def test_nothing_else_is_in_it(wheel: zipfile.ZipFile) -> None:
    folders = {name.split("/")[0] for name in wheel.namelist()}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"engine", "backend"}


def test_the_server_runs_from_it_in_another_folder(
    wheel: zipfile.ZipFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    wheel.extractall(installed)
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    environment = {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    where = [sys.executable, "-c", "import backend, engine; print(backend.__file__, engine.__file__)"]
    imported = subprocess.run(
        where, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    ).stdout
    assert imported.count(str(installed)) == 2, "the test must not see the checkout's packages"

    with start_server("serve", "--model", "tiny", folder=tmp_path, environment=environment) as server:
        with urllib.request.urlopen(server.url, timeout=10) as answer:
            assert b"Tokenwalk" in answer.read()
        with urllib.request.urlopen(f"{server.url}/v1/traces", timeout=10) as answer:
            traces = json.load(answer)["data"]
        assert any(trace.get("bundled") for trace in traces)
