"""A single row run through an MLP as two gives the same numbers, and the model is left as it was."""

from __future__ import annotations

from typing import Any

from engine.device import mx

import mlx.nn as nn
import numpy as np
import pytest

from engine.doubled_rows import DoubledRows


class Gated(nn.Module):
    def __init__(self, *, bias: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.gate = nn.Linear(16, 24, bias=bias)
        self.up = nn.Linear(16, 24, bias=bias)
        self.down = nn.Linear(24, 16, bias=bias)
        self.rows: list[int] = []

    def __call__(self, x: mx.array) -> mx.array:
        self.rows.append(x.size // x.shape[-1])
        out: mx.array = self.down(nn.silu(self.gate(x)) * self.up(x))
        return out


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("shape", "run"), [((1, 1, 16), 2), ((1, 16), 2), ((16,), 1), ((2, 1, 16), 2), ((1, 3, 16), 3)]
)
def test_the_numbers_are_the_same(bias: bool, shape: tuple[int, ...], run: int) -> None:
    mx.random.seed(1)
    mlp = Gated(bias=bias)
    x = mx.random.normal(shape)
    expected = np.array(mlp(x))
    mlp.rows.clear()
    doubled = DoubledRows([None, mlp])
    out = np.array(mlp(x))
    assert (out.shape, mlp.rows) == (shape, [run])
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    doubled.remove()
    assert type(mlp) is Gated
    np.testing.assert_array_equal(np.array(mlp(x)), expected)


def test_other_modules_are_left_alone() -> None:
    half, normed, quantised, single = Gated(), Gated(), Gated(), nn.Linear(16, 16)
    half.set_dtype(mx.float16)
    normed.norm = nn.RMSNorm(24)
    quantised["down"] = nn.QuantizedLinear(64, 16)
    modules = [half, normed, quantised, single]
    kinds = [type(module) for module in modules]
    doubled = DoubledRows(modules)
    assert [type(module) for module in modules] == kinds
    doubled.remove()


def test_what_gives_more_than_an_array_is_called_as_it_was_written() -> None:
    class Twofold(Gated):
        def __call__(self, x: mx.array) -> Any:
            return super().__call__(x), x

    mlp = Twofold()
    doubled = DoubledRows([mlp])
    out, given = mlp(mx.ones((1, 1, 16)))
    assert out.shape == given.shape == (1, 1, 16)
    doubled.remove()
