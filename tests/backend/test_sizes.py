"""Sizes as people write them."""

import pytest

from backend.sizes import parse_size, show_size
from tests.backend.process import run


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("536870912", 2**29),
        ("512MiB", 2**29),
        ("512 mib", 2**29),
        ("512M", 2**29),
        ("2GB", 2 * 10**9),
        ("1.5GiB", 3 * 2**29),
        ("64kb", 64_000),
        ("64KiB", 2**16),
        ("1TiB", 2**40),
    ],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "MiB", "12XB", "-5MB", "1e9", "5 5", "0.1", "1.GiB", "١MiB "])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="512MiB"):
        parse_size(text)


def test_a_size_is_shown() -> None:
    assert [show_size(size) for size in (7, 1024, 2**29, 3 * 2**29)] == ["7 bytes", "1 KiB", "512 MiB", "1.5 GiB"]


def test_the_command_line_says_which_size_is_wrong() -> None:
    result = run("serve", "--kv-memory", "lots")
    assert result.returncode == 2
    assert "'--kv-memory'" in result.stderr
    assert "'lots'" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_memory_too_small_for_one_block_is_refused_with_the_numbers() -> None:
    result = run("generate", "Hello", "--raw", "--model", "tiny", environment={"TOKENWALK_KV_MEMORY": "8KiB"})
    assert result.returncode == 2
    assert "8192" in result.stderr
    assert "16384" in result.stderr
    assert result.stderr.count("\n") == 1


def test_more_memory_than_the_machine_has_is_refused_before_anything_is_taken() -> None:
    result = run("generate", "Hello", "--raw", "--model", "tiny", "--kv-memory", "900TiB")
    assert result.returncode == 2
    assert "989560.5 GB" in result.stderr
    assert "this machine has" in result.stderr
    assert result.stderr.count("\n") == 1
