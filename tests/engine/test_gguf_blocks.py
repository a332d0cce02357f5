"""Dequantisation against ggml's own Python package (gguf 0.19.0): `golden/gguf_blocks.npz` holds bytes and weights."""

from __future__ import annotations

from pathlib import Path

from engine.device import mx

import numpy as np
import pytest

from engine.models.gguf_blocks import PLAIN, QUANTISED, dequantise, take_apart

GOLDEN = np.load(Path(__file__).parent / "golden" / "gguf_blocks.npz")


@pytest.mark.parametrize("type", sorted(QUANTISED | {"F16", "BF16"}))
def test_weights_are_those_of_ggml(type: str) -> None:
    expected = GOLDEN[type]
    found = dequantise(type, GOLDEN[f"{type}_raw"], expected.size)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_every_type_is_covered() -> None:
    assert {*QUANTISED, *PLAIN} <= {*GOLDEN.files, "F32", "F64"}


@pytest.mark.parametrize("type", sorted(QUANTISED))
def test_large_tensors_are_done_in_pieces_without_a_seam(type: str) -> None:
    raw, expected = GOLDEN[f"{type}_raw"], GOLDEN[type]
    times = 3 * (1 << 18) // expected.size + 1
    found = dequantise(type, np.tile(raw, times), expected.size * times)
    np.testing.assert_array_equal(found, np.tile(dequantise(type, raw, expected.size), times))


@pytest.mark.parametrize("type", ["Q4_0", "Q4_1", "Q4_K", "Q8_0"])
def test_packed_for_mlx_they_dequantise_to_the_same_weights(type: str) -> None:
    groups = take_apart(type, GOLDEN[f"{type}_raw"])
    weights = mx.dequantize(
        mx.array(groups.pack().reshape(1, -1)),
        mx.array(groups.scales[None]),
        mx.array(groups.biases[None]),
        group_size=32,
        bits=groups.bits,
    )
    np.testing.assert_allclose(np.array(weights)[0], GOLDEN[type], rtol=1e-5, atol=1e-6)
