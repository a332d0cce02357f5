"""A single row run through an MLP as two: on a CPU.

One row times a matrix is a product of a vector, for which a BLAS reads the weights more slowly than for two rows. An
MLP of 576 and 1,536 numbers took MKL 0.65 ms with one row, and 0.55 ms with the same row twice, its copy and all. In
attention's projections, which are smaller, nothing is gained.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.device import mx

import mlx.nn as nn

from engine.swap import Call, ClassSwap

LEAST = 2
"""Products that the two copies must pay for."""


class DoubledRows:
    """Runs single rows through MLPs so, while it lasts. Others than plain float32 products stay as they are."""

    def __init__(self, mlps: Iterable[nn.Module | None]) -> None:
        self._swap = ClassSwap()
        for mlp in mlps:
            if mlp is not None and _plain(mlp):
                self._swap.tap(mlp, _around)

    def remove(self) -> None:
        """Leave the MLPs as they were found."""
        self._swap.remove()


def _around(call: Call, *args: Any, **kwargs: Any) -> Any:
    if kwargs or len(args) != 1 or args[0].size != args[0].shape[-1] or args[0].ndim < 2:
        return call(*args, **kwargs)
    out = call(mx.concatenate([args[0], args[0]], axis=-2))
    return out[..., :1, :] if isinstance(out, mx.array) else call(*args)


def _plain(mlp: nn.Module) -> bool:
    """Whether all that it holds are matrices, each of which treats every row alike."""
    parts = [module for module in mlp.modules() if module is not mlp and module.parameters()]
    weights = [part.weight for part in parts if type(part) is nn.Linear]
    return len(weights) == len(parts) >= LEAST and all(weight.dtype == mx.float32 for weight in weights)
