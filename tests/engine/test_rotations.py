"""Rotations with shared sines and cosines are MLX's own, bit by bit."""

from __future__ import annotations

from typing import Any

from engine.device import mx

import numpy as np
import pytest

from engine.rotations import rotations_shared

FREQUENCIES = mx.array([1.0, 7.5, 40.0, 333.0])
CASES: dict[str, dict[str, Any]] = {
    "pairs side by side": {"traditional": True, "base": 10000.0},
    "pairs half apart": {"traditional": False, "base": 500.0},
    "scaled": {"traditional": False, "base": 10000.0, "scale": 0.25},
    "given frequencies": {"traditional": False, "base": None, "freqs": FREQUENCIES},
    "given frequencies, side by side": {"traditional": True, "base": None, "freqs": FREQUENCIES},
}
OFFSETS = {"one": 17, "an array of one": mx.array(40), "one a row": mx.array([5, 4000, 33])}


def bits(x: mx.array) -> bytes:
    return np.array(x.astype(mx.float32)).tobytes()


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("length", [1, 5])
def test_what_comes_out_is_the_same_bit_by_bit(case: str, offset: str, dtype: mx.Dtype, length: int) -> None:
    mx.random.seed(3)
    about: dict[str, Any] = {"scale": 1.0, "offset": OFFSETS[offset], **CASES[case]}
    layers = [mx.random.normal((3, heads, length, width)).astype(dtype) for heads, width in ((4, 8), (2, 8), (4, 11))]
    expected = [bits(mx.fast.rope(x, 8, **about)) for x in layers]
    with rotations_shared():
        assert [bits(mx.fast.rope(x, 8, **about)) for x in layers] == expected


def test_offsets_are_not_taken_for_one_another() -> None:
    x = mx.random.normal((2, 4, 1, 8))
    offsets: list[Any] = [mx.array([1, 2]), mx.array([3, 4]), 1, 2, mx.array(2)]
    about: dict[str, Any] = {"traditional": True, "base": 100.0, "scale": 1.0}
    expected = [bits(mx.fast.rope(x, 8, offset=offset, **about)) for offset in offsets]
    with rotations_shared():
        assert [bits(mx.fast.rope(x, 8, offset=offset, **about)) for offset in offsets] == expected


def test_a_shape_that_it_does_not_know_is_left_to_mlx() -> None:
    x = mx.random.normal((4, 6, 8))
    about: dict[str, Any] = {"traditional": True, "base": 100.0, "scale": 1.0, "offset": 3}
    expected = bits(mx.fast.rope(x, 8, **about))
    kernel = mx.fast.rope
    with rotations_shared():
        assert bits(mx.fast.rope(x, 8, **about)) == expected
    assert mx.fast.rope is kernel
