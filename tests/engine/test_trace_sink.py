"""What is written is what the file holds, whichever way it went."""

from __future__ import annotations

import errno
import io
import mmap
import os
import random
from pathlib import Path
from typing import Any

import pytest

from engine.trace import sink as sink_module
from engine.trace.sink import BLOCK, Sink


def staged(content: bytes, at: int) -> memoryview:
    """The content, as far behind a page of memory as it will be in the file."""
    begin = at % BLOCK
    memory = memoryview(mmap.mmap(-1, begin + len(content) + 1))
    memory[begin : begin + len(content)] = content
    return memory[begin : begin + len(content)]


def write_all(path: Path, seed: int) -> bytes:
    """Write at random to a file, and return what it should hold. After each write it is there."""
    chance, expected = random.Random(seed), b""
    sink = Sink(open(path, "xb", buffering=0))  # noqa: SIM115
    try:
        for _ in range(100):
            size = chance.choice([0, 1, 100, BLOCK, 3 * BLOCK, chance.randrange(300_000)])
            content, at, large = chance.randbytes(size), len(expected), chance.random() < 0.7
            data = staged(content, at) if large else content
            sink.write(data, at, staged=large, hurry=chance.random() < 0.2)
            expected += content
            assert path.stat().st_size == len(expected)
        assert path.read_bytes() == expected
    finally:
        sink.close()
    return expected


@pytest.fixture
def past(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Sizes and offsets of what was written past the cache: all that can be."""
    seen: list[tuple[int, int]] = []
    pwrite = os.pwrite

    def spy(file: int, blocks: Any, at: int) -> int:
        written = pwrite(file, blocks, at)
        seen.append((written, at))
        return written

    monkeypatch.setattr(sink_module, "LARGE", 1)
    monkeypatch.setattr(os, "pwrite", spy)
    return seen


@pytest.mark.parametrize("seed", range(4))
def test_what_was_written_is_there(tmp_path: Path, past: list[tuple[int, int]], seed: int) -> None:
    expected = write_all(tmp_path / "f", seed)
    assert (tmp_path / "f").read_bytes() == expected
    assert all(size % BLOCK == at % BLOCK == 0 for size, at in past)
    assert past or not hasattr(os, "O_DIRECT"), "this file system was meant to have a way past its cache"


@pytest.mark.parametrize("after", [0, 3])
def test_a_file_system_without_a_way_past_its_cache_gets_the_same(
    tmp_path: Path, past: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    pwrite = os.pwrite

    def refuse(file: int, blocks: Any, at: int) -> int:
        if len(past) == after:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return pwrite(file, blocks, at)

    monkeypatch.setattr(os, "pwrite", refuse)
    write_all(tmp_path / "f", 1)
    assert len(past) == after


def test_a_file_that_cannot_be_opened_so_gets_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_module, "LARGE", 1)
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(errno.EINVAL, "no")))
    write_all(tmp_path / "f", 2)


def test_a_disk_that_takes_a_part_at_a_time_gets_all(
    tmp_path: Path, past: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, blocks, at: pwrite(file, blocks[:BLOCK], at))
    write_all(tmp_path / "f", 3)
    assert {size for size, _ in past} == {BLOCK}


def test_a_full_disk_is_told(tmp_path: Path, past: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        write_all(tmp_path / "f", 1)


def test_a_file_under_another_name_is_written_to_and_no_other(tmp_path: Path, past: list[tuple[int, int]]) -> None:
    """Somebody may move a recording while it is being written, and put something else in its place."""
    sink = Sink(open(tmp_path / "f", "xb", buffering=0))  # noqa: SIM115
    (tmp_path / "f").rename(tmp_path / "moved")
    (tmp_path / "f").write_bytes(b"mine")
    data = bytes(range(256)) * 256
    sink.write(staged(data, 0), 0, staged=True)
    sink.close()
    assert (tmp_path / "moved").read_bytes() == data
    assert (tmp_path / "f").read_bytes() == b"mine"


def test_what_went_through_the_cache_is_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(sink_module, "PIECE", 100)
    monkeypatch.setattr(os, "posix_fadvise", lambda file, start, size, advice: told.append(start), raising=False)
    sink = Sink(open(tmp_path / "f", "xb", buffering=0))  # noqa: SIM115
    for at in range(0, 700, 70):
        sink.write(b"x" * 70, at, hurry=True)
    sink.close()
    assert told == [0, 100, 200, 300, 400, 0, 500, 100, 600, 200]


def test_what_will_be_read_soon_stays_in_the_cache(
    tmp_path: Path, past: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(sink_module, "PIECE", 100)
    monkeypatch.setattr(os, "posix_fadvise", lambda file, start, *_: told.append(start), raising=False)
    sink = Sink(open(tmp_path / "f", "xb", buffering=0), cached=True)  # noqa: SIM115
    sink.write(staged(bytes(4 * BLOCK), 0), 0, staged=True)
    sink.close()
    assert not past
    assert not told


class FailsAtItsEnd(io.FileIO):
    """A file on a disk that says only when it is closed that it did not take everything, as network disks do."""

    def close(self) -> None:
        if not self.closed:
            super().close()
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


def test_a_disk_that_fails_at_the_end_is_told(tmp_path: Path, past: list[tuple[int, int]]) -> None:
    sink = Sink(FailsAtItsEnd(tmp_path / "f", "xb"))
    sink.write(staged(bytes(4 * BLOCK), 0), 0, staged=True)
    assert sink.taken == 4 * BLOCK
    with pytest.raises(OSError, match="quota"):
        sink.close()


def test_advice_that_is_not_taken_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(sink_module, "PIECE", 100)
    monkeypatch.setattr(os, "posix_fadvise", refuse, raising=False)
    write_all(tmp_path / "f", 1)
