"""Attention probabilities of chosen query rows, computed beside the fused kernel that makes the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from engine.device import mx

import numpy as np

PIECE_BYTES = 8 * 2**20
"""How large the scores of some rows of a layer become that are evaluated at once."""

LEAST_ROWS = 16
"""A product of fewer rows may be computed otherwise, and round otherwise."""

Kernel: TypeAlias = "Callable[..., mx.array]"
Attend: TypeAlias = "Callable[..., mx.array]"
"""`attend(kernel, q, k, v, *, scale, mask, sinks)` returns the attention output, from the kernel, or from several
calls of it."""


def attention_rows(
    q: mx.array, k: mx.array, scale: float, mask: mx.array | str | None, sinks: mx.array | None, rows: list[int]
) -> mx.array:
    """Attention probabilities of some query rows, `[B, heads, rows, keys]` in float32.

    Softmax of scaled q·k (Vaswani et al. 2017) under the mask that the kernel was given; query heads share KV heads in
    groups (Ainslie et al. 2023). With attention sinks (a learned logit per head that takes part in the softmax
    without a value) rows sum to less than 1, as they do in the kernel.

    Args:
        q: `[B, heads, L, head_dim]`, after RoPE.
        k: `[B, kv_heads, K, head_dim]`, after RoPE. Query row i stands at key position K − L + i.
        mask: None, "causal", boolean (True attends) or additive, broadcastable to `[B, heads, L, K]`.
        sinks: `[heads]` or None.
        rows: indices into L.
    """
    batch, heads, length, width = q.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    wanted = q if len(rows) == length else q[:, :, mx.array(rows)]
    grouped = wanted.reshape(batch, kv_heads, -1, width)  # [B, kv_heads, heads/kv_heads · rows, head_dim]
    scores = (grouped.astype(mx.float32) * scale) @ k.astype(mx.float32).swapaxes(-1, -2)
    scores = scores.reshape(batch, heads, len(rows), keys)
    if isinstance(mask, str):
        if len(rows) > 1 or rows[0] != length - 1:  # the last row of a causal pass sees every key
            positions = mx.array([keys - length + row for row in rows])
            scores = mx.where(mx.arange(keys) <= positions[:, None], scores, -mx.inf)
    elif mask is not None:
        some = mask[..., mx.array(rows), :] if mask.shape[-2] > 1 else mask
        scores = mx.where(some, scores, -mx.inf) if mask.dtype == mx.bool_ else scores + some
    if sinks is None:
        return mx.softmax(scores, axis=-1, precise=True)
    beside = mx.broadcast_to(sinks.astype(mx.float32)[None, :, None, None], (batch, heads, len(rows), 1))
    return mx.softmax(mx.concatenate([scores, beside], axis=-1), axis=-1, precise=True)[..., :-1]


def attention_scores(q: mx.array, k: mx.array, rows: list[int]) -> mx.array:
    """q·k of some query rows, unscaled and unmasked: `[B, heads, rows, keys]` in float32.

    The rest of the softmax is left to `probabilities`, on the host: in the graph, each small operation of each layer
    costs a pass of the scheduler, which added up to a fifth of a decode step.

    Args:
        q: `[B, heads, L, head_dim]`, after RoPE.
        k: `[B, kv_heads, K, head_dim]`, after RoPE.
        rows: indices into L.
    """
    batch, heads, length, width = q.shape
    wanted = q if len(rows) == length else q[:, :, mx.array(rows)]
    grouped = wanted.reshape(batch, k.shape[1], -1, width)  # [B, kv_heads, heads/kv_heads · rows, head_dim]
    scores = grouped.astype(mx.float32) @ k.astype(mx.float32).swapaxes(-1, -2)
    return scores.reshape(batch, heads, len(rows), k.shape[2])


def pieces_of(rows: list[int], heads: int, keys: int) -> list[list[int]]:
    """Query rows in pieces whose scores take at most `PIECE_BYTES`: evaluated one by one, they are never all there.

    Pieces of a power of two of rows, no fewer than `LEAST_ROWS`: then their scores are those of all rows, bit by bit.
    """
    most = max(LEAST_ROWS, PIECE_BYTES // (4 * heads * keys))
    if len(rows) <= most:
        return [rows]
    most = 2 ** (most.bit_length() - 1)
    return [rows[start : start + most] for start in range(0, len(rows), most)]


@dataclass(frozen=True, slots=True)
class Softmax:
    """What turns a layer's scores into probabilities: their scale, and a learned logit per head that takes part."""

    scale: float
    sinks: mx.array | None = None
    """`[heads]` in float32: attention sinks, whose share of each row goes to no key."""


def probabilities(scores: np.ndarray, softmax: Softmax, positions: list[int]) -> np.ndarray:
    """Causal attention probabilities of query positions, `[…, heads, rows, keys]` in float32, of layers that are alike.

    A row whose scores are no numbers, or all masked, is all NaN.

    Args:
        scores: `[…, heads, rows, keys]`, from `attention_scores`; key i stands at position i.
        positions: of the rows. Later keys get exactly 0.
    """
    future = np.arange(scores.shape[-1]) > np.array(positions)[:, None]  # [rows, keys]
    with np.errstate(invalid="ignore", over="ignore"):
        rows = scores * np.float32(softmax.scale)
        if future.any():
            rows[..., future] = -np.inf
        largest = rows.max(-1, keepdims=True)
        if softmax.sinks is not None:
            beside = np.array(softmax.sinks)[:, None, None]
            largest = np.maximum(largest, beside)
        rows -= largest
        np.exp(rows, out=rows)
        total = rows.sum(-1, keepdims=True)
        if softmax.sinks is not None:
            total += np.exp(beside - largest)
        rows /= total
    out: np.ndarray = rows
    return out


@contextmanager
def attention_replaced(attend: Attend) -> Iterator[None]:
    """Call `attend(kernel, q, k, v, scale=…, …)` wherever the fused attention kernel would be called."""
    kernel = mx.fast.scaled_dot_product_attention
    mx.fast.scaled_dot_product_attention = partial(attend, kernel)
    try:
        yield
    finally:
        mx.fast.scaled_dot_product_attention = kernel
