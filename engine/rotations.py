"""Rotary position embedding (Su et al. 2021) where MLX has no kernel of its own for it: on a CPU.

There `mx.fast.rope` is a chain of some twenty small operations, in every layer for queries and for keys, and most of
them work out the same sines and cosines again. Here those are worked out once a pass. What comes out is the same, bit
by bit; 8 rows of 9 heads took 75 µs a call, and take 25.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from engine.device import mx

Rope = Callable[..., mx.array]


@contextmanager
def rotations_shared() -> Iterator[None]:
    """While this lasts, `mx.fast.rope` works out sines and cosines once for all layers.

    It must be one pass, whose layers are given the same offsets, and nobody may change the array that holds them.
    """
    kernel = mx.fast.rope
    mx.fast.rope = partial(_Rotations(kernel).rope)
    try:
        yield
    finally:
        mx.fast.rope = kernel


class _Rotations:
    """`mx.fast.rope` with a memory."""

    def __init__(self, kernel: Rope) -> None:
        self._kernel = kernel
        self._tables: dict[tuple[Any, ...], tuple[mx.array, mx.array]] = {}
        self._kept: list[object] = []
        """What tables are found by the identity of, so that nothing else can come to have it."""

    def rope(
        self,
        x: mx.array,
        dims: int,
        *,
        traditional: bool,
        base: float | None,
        scale: float,
        offset: int | mx.array,
        freqs: mx.array | None = None,
        **more: Any,
    ) -> mx.array:
        about = {"traditional": traditional, "base": base, "scale": scale, "offset": offset, "freqs": freqs, **more}
        if more or x.ndim != 4 or (base is None) == (freqs is None):
            return self._kernel(x, dims, **about)
        turned = x if dims == x.shape[3] else x[..., :dims]
        pairs = turned.reshape(*x.shape[:3], *((-1, 2) if traditional else (2, -1)))
        key = (traditional, base, scale, _identity(offset), _identity(freqs), pairs.shape, x.dtype)
        if key not in self._tables:
            tables = _tables(x.shape[2], x.dtype, dims, **about)
            # Broadcast here, or each layer would.
            cosines, sines = (mx.broadcast_to(table, pairs.shape) for table in tables)
            self._tables[key] = cosines, sines
            self._kept += [offset, freqs]
        swapped = pairs[..., ::-1] if traditional else pairs[..., ::-1, :]
        cosines, sines = self._tables[key]
        out = (pairs * cosines + swapped * sines).reshape(turned.shape)
        return out if dims == x.shape[3] else mx.concatenate([out, x[..., dims:]], axis=-1)


def _tables(
    length: int,
    dtype: mx.Dtype,
    dims: int,
    *,
    traditional: bool,
    base: float | None,
    scale: float,
    offset: int | mx.array,
    freqs: mx.array | None,
) -> tuple[mx.array, mx.array]:
    """Factors of each number and of the other one of its pair, broadcast to `[B, heads, length, …]`.

    A pair (a, b) is turned into (a cos θ − b sin θ, b cos θ + a sin θ); the factor of b carries the sign.
    """
    start = offset if isinstance(offset, mx.array) else mx.array(offset)
    if start.size > 1:
        start = start.reshape(-1, 1, 1)
    positions = (mx.arange(length).astype(mx.float32) + start) * mx.array(scale, mx.float32)
    if freqs is not None:
        speeds = mx.reciprocal(freqs).astype(mx.float32)
    else:
        assert base is not None, "angles come from a base or from frequencies"
        halves = mx.arange(0, -(dims // 2), -1).astype(mx.float32)
        speeds = mx.exp(halves * mx.array(math.log(base) / (dims // 2), mx.float32))
    angles = positions[..., None] * speeds
    cosines, sines = mx.cos(angles).astype(dtype), mx.sin(angles).astype(dtype)
    axis = -1 if traditional else -2
    return mx.stack([cosines, cosines], axis=axis), mx.stack([-sines, sines], axis=axis)


def _identity(value: Any) -> Any:
    return ("array", id(value)) if isinstance(value, mx.array) else value
