"""What a step proves of its own captured attention: how near rows sum to 1, and that weights × values are the output.

The rows that are shown are computed beside the fused kernel, whose output the model goes on with. So, now and then, one
row of one layer is put to the test: the weights as they were captured, times the values that the kernel read, must be
what the kernel gave.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.device import mx

import numpy as np

EVERY = 8
"""Passes that capture, for one of which a row is tested: its values are copied, which takes time with their length."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the kernel read and gave for one captured row of one layer.

    Attributes:
        layer: which.
        index: the row's place among the captured positions of its request.
        values: `[kv_heads, keys, head_dim]`, in order of position: a copy, since nothing may keep the store's own.
        out: `[heads, head_dim]`.
    """

    layer: int
    index: int
    values: mx.array
    out: mx.array

    @classmethod
    def of(cls, layer: int, index: int, values: mx.array, out: mx.array) -> Evidence:
        """Note what may be a view of the store."""
        return cls(layer, index, values.astype(mx.float32) + 0.0, out.astype(mx.float32))

    @property
    def arrays(self) -> list[mx.array]:
        return [self.values, self.out]

    def error(self, weights: np.ndarray) -> tuple[float, float]:
        """Largest |weights × values − output|, and the largest |output|, of `[heads, keys]` weights."""
        values, out = np.asarray(self.values), np.asarray(self.out)
        grouped = weights.reshape(values.shape[0], -1, weights.shape[-1])  # query heads share KV heads in groups
        found = (grouped @ values[:, : weights.shape[-1]]).reshape(out.shape)
        return float(np.abs(found - out).max()), float(np.abs(out).max())


class Turns:
    """Which layer is tested when: another one each time, so that all come round."""

    def __init__(self, layers: int) -> None:
        self._layers = layers
        self._passes = 0

    def next(self) -> int | None:
        """The layer to test in the next pass that captures; None for none."""
        turn, rest = divmod(self._passes, EVERY)
        self._passes += 1
        return turn % self._layers if rest == 0 else None


@dataclass(slots=True)
class StepProof:
    """What was found in the captured rows of a step."""

    row_sum_error: float | None = None
    attention_check: dict[str, Any] | None = field(default=None)

    def rows(self, errors: np.ndarray) -> None:
        """Take in |sum of a row − 1| of some rows."""
        largest = errors.max(initial=0.0)
        before = 0.0 if self.row_sum_error is None else self.row_sum_error
        self.row_sum_error = float(np.maximum(before, largest))  # NaN stays NaN, whichever of a batch's rows it is in

    def test(self, evidence: Evidence, weights: np.ndarray, request: str, position: int) -> None:
        """Put one row to the test: `[heads, keys]`."""
        error, largest = evidence.error(weights)
        about = {"request": request, "layer": evidence.layer, "position": position}
        self.attention_check = {**about, "error": error, "largest": largest}

    def fields(self) -> dict[str, Any]:
        """Fields of `step.finished`; the next step begins anew."""
        found = {"row_sum_error": self.row_sum_error, "attention_check": self.attention_check}
        self.row_sum_error = self.attention_check = None
        return found
