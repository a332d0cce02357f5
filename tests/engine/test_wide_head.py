"""A wide head multiplied otherwise gives the same numbers, and the model is left as it was."""

from __future__ import annotations

from engine.device import mx

import mlx.nn as nn
import numpy as np
import pytest

from engine.wide_head import PIECE, ROWS, WIDE, WideHead

SIZE = WIDE + PIECE // 2


class Model(nn.Module):
    def __init__(self, *, tied: bool, size: int = SIZE) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.embedding = nn.Embedding(size, 16)
        self.head: nn.Module | None = None if tied else nn.Linear(16, size, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        out: mx.array = self.embedding.as_linear(x) if self.head is None else self.head(x)
        return out


def modules(model: nn.Module) -> list[nn.Module]:
    found: list[nn.Module] = model.modules()
    return found


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("rows", [1, 2, ROWS.start, 8, ROWS.stop])
def test_the_numbers_are_the_same(tied: bool, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mx.random.seed(1)
    model = Model(tied=tied)
    x = mx.random.normal((rows, 1, 16))
    expected = np.array(model(x))
    classes = [type(module) for module in modules(model)]
    pieces: list[int] = []
    concatenate = mx.concatenate

    def noted(arrays: list[mx.array], axis: int = 0) -> mx.array:
        pieces.append(len(arrays))
        return concatenate(arrays, axis=axis)

    monkeypatch.setattr(mx, "concatenate", noted)
    head = WideHead(model)
    np.testing.assert_allclose(np.array(model(x)), expected, rtol=1e-5, atol=1e-6)
    concatenated = [9] if rows in ROWS else [2] if rows == 1 else []
    assert pieces == concatenated
    head.remove()
    assert [type(module) for module in modules(model)] == classes
    model(x)
    assert pieces == concatenated


def test_narrow_quantised_and_biased_matrices_are_left_alone() -> None:
    narrow, quantised, biased = Model(tied=True, size=WIDE - 1), Model(tied=False), Model(tied=False)
    quantised.head = nn.QuantizedLinear(64, SIZE, bias=False)
    biased.head = nn.Linear(16, SIZE)
    half = Model(tied=False)
    half.set_dtype(mx.float16)
    for model in (narrow, quantised, biased, half):
        head = model.embedding if model is narrow else model.head
        kind = type(head)
        wide = WideHead(model)
        assert type(head) is kind
        wide.remove()
