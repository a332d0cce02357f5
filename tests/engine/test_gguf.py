"""Files that are no GGUF, or a damaged one, end in one line; nothing crashes, hangs, or takes all memory."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import ModelError, ModelNotFound
from engine.models.gguf import read_header
from tests.engine.gguf_file import f32, gguf_bytes, text, write

METADATA = {"general.architecture": "llama", "a.list": ["x", "ü"], "a.number": 7, "a.float": 0.5, "a.flag": True}
TENSORS = {"first": f32(np.arange(6).reshape(2, 3)), "second": f32(np.ones(5))}


def refused(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        read_header(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    header = read_header(write(tmp_path / "m.gguf", gguf_bytes(METADATA, TENSORS)))
    assert header.metadata == METADATA
    assert header.architecture == "llama"
    first = header.tensors["first"]
    assert (first.shape, first.type, first.nbytes) == ((2, 3), "F32", 24)
    data = (tmp_path / "m.gguf").read_bytes()[first.offset : first.offset + first.nbytes]
    assert np.frombuffer(data, "<f4").tolist() == [0, 1, 2, 3, 4, 5]


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="there is no file"):
        read_header(tmp_path / "none.gguf")


@pytest.mark.parametrize("data", [b"", b"GGUF", b"# A text\n" * 100, b"\x00" * 4096, b"GGML" + b"\x00" * 100])
def test_what_is_no_gguf_is_named_so(tmp_path: Path, data: bytes) -> None:
    assert "not a GGUF file" in refused(write(tmp_path / "m.gguf", data))


def test_every_cut_off_file_is_refused(tmp_path: Path) -> None:
    whole = gguf_bytes(METADATA, TENSORS)
    end = read_header(write(tmp_path / "whole.gguf", whole)).tensors["second"]
    for length in range(4, end.offset + end.nbytes):
        refused(write(tmp_path / "m.gguf", whole[:length]))


@pytest.mark.parametrize("version", [0, 1, 4, 2**31])
def test_other_versions_are_refused(tmp_path: Path, version: int) -> None:
    assert "version" in refused(write(tmp_path / "m.gguf", gguf_bytes(METADATA, TENSORS, version=version)))


def test_a_big_endian_file_is_named_so(tmp_path: Path) -> None:
    data = gguf_bytes(METADATA, TENSORS, version=3 << 24)
    assert "big-endian" in refused(write(tmp_path / "m.gguf", data))


@pytest.mark.parametrize("count", [10**6, 2**40, 2**64 - 1])
def test_absurd_counts_are_refused_at_once(tmp_path: Path, count: int) -> None:
    started = time.monotonic()
    assert "tensors" in refused(write(tmp_path / "t.gguf", gguf_bytes(METADATA, TENSORS, tensor_count=count)))
    assert "metadata" in refused(write(tmp_path / "m.gguf", gguf_bytes(METADATA, TENSORS, entry_count=count)))
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("length", [10**7, 2**62, 2**64 - 1])
def test_absurd_lengths_of_texts_and_arrays_are_refused_at_once(tmp_path: Path, length: int) -> None:
    started = time.monotonic()
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
    refused(write(tmp_path / "key.gguf", head + struct.pack("<Q", length) + b"k" * 64))
    for item_type in (0, 5, 8, 12):
        array = text("key") + struct.pack("<IIQ", 9, item_type, length)
        refused(write(tmp_path / "array.gguf", head + array + b"\x00" * 64))
    assert time.monotonic() - started < 1


def test_unknown_metadata_types_and_nested_arrays_are_refused(tmp_path: Path) -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("key")
    assert "type 77" in refused(write(tmp_path / "m.gguf", head + struct.pack("<I", 77) + bytes(64)))
    assert "array" in refused(write(tmp_path / "m.gguf", head + struct.pack("<IIQ", 9, 9, 1) + bytes(64)))


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    data = gguf_bytes({"general.name": "abc"}, {}).replace(b"abc", b"\xff\xfe\xfd")
    assert "UTF-8" in refused(write(tmp_path / "m.gguf", data))


def test_tensors_outside_the_file_are_refused(tmp_path: Path) -> None:
    shape = {"huge": ("F32", (2**40, 2**40), b"\x00" * 64)}
    assert "cut off" in refused(write(tmp_path / "m.gguf", gguf_bytes({}, shape)))


def test_shapes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for shape in [(0,), (3, 0), (33,)]:
        tensors = {"odd": ("Q4_0", shape, bytes(64))}
        assert "shape" in refused(write(tmp_path / "m.gguf", gguf_bytes({}, tensors)))
    nine = {"deep": ("F32", (1,) * 9, bytes(64))}
    assert "dimensions" in refused(write(tmp_path / "m.gguf", gguf_bytes({}, nine)))


def test_tensor_types_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    data = gguf_bytes({}, {"name": ("MXFP4", (32,), bytes(32))})
    data = data.replace(struct.pack("<IQ", 39, 0), struct.pack("<IQ", 200, 0))
    assert "type 200" in refused(write(tmp_path / "m.gguf", data))


def test_alignment_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for alignment in (0, -8, 7):
        assert "alignment" in refused(write(tmp_path / "m.gguf", gguf_bytes({"general.alignment": alignment}, TENSORS)))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(4, 10**6), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4))
def test_damage_anywhere_is_survived(tmp_path: Path, changes: list[tuple[int, bytes]]) -> None:
    """A damaged file is read (the damage may lie in a name) or refused with a ModelError, quickly; nothing else."""
    data = bytearray(gguf_bytes(METADATA, TENSORS))
    for at, new in changes:
        at %= len(data) - len(new)
        data[at : at + len(new)] = new
    started = time.monotonic()
    try:
        read_header(write(tmp_path / "m.gguf", bytes(data)))
    except ModelError as error:
        assert "\n" not in str(error)  # noqa: PT017
    assert time.monotonic() - started < 1
