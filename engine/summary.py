"""What is kept of a row of attention that is too large to keep: its largest weights, the rest's mass, its entropy."""

from __future__ import annotations

import numpy as np

from engine.capture_schedule import KEPT_WEIGHTS

_BLOCK = 64
"""Keys whose maximum is taken at once: the largest weights lie in the blocks with the largest maxima."""


def summarise(rows: np.ndarray, wanted: list[int] | None = None) -> np.ndarray:
    """Summarise rows of attention, `[heads, wanted, 2 · KEPT_WEIGHTS + 2]` float32 as in `events.AttentionSummary`.

    Rows shorter than KEPT_WEIGHTS are padded with weights of 0 at positions that they have not.

    Args:
        rows: `[heads, rows, keys]` probabilities, later keys 0.
        wanted: which of the rows; None: all.
    """
    count = rows.shape[1] if wanted is None else len(wanted)
    out = np.empty((rows.shape[0], count, 2 * KEPT_WEIGHTS + 2), np.float32)
    for head, of_head in enumerate(rows):  # one head at a time: what is worked out beside them is as large as they
        weights = of_head if wanted is None else of_head[wanted]
        positions = _largest(weights)  # [rows, kept]
        largest = np.take_along_axis(weights, np.minimum(positions, weights.shape[-1] - 1), -1)
        largest[positions >= weights.shape[-1]] = 0
        out[head, :, :KEPT_WEIGHTS] = positions
        out[head, :, KEPT_WEIGHTS:-2] = largest
        total = weights.sum(-1, dtype=np.float64)
        out[head, :, -2] = np.maximum(total - largest.sum(-1, dtype=np.float64), 0)  # rounding may fall below nothing
        out[head, :, -1] = _entropy_bits(weights)
    return out


def _largest(weights: np.ndarray) -> np.ndarray:
    """Positions of the largest weights of each row, `[rows, kept]`: largest first, equal ones by position."""
    count, keys = weights.shape
    candidates = np.arange(max(keys, KEPT_WEIGHTS))[None].repeat(count, 0)
    if keys >= 4 * KEPT_WEIGHTS * _BLOCK:
        whole = keys - keys % _BLOCK
        maxima = weights[:, :whole].reshape(count, -1, _BLOCK).max(-1)
        blocks = np.sort(np.argpartition(_falling(maxima), KEPT_WEIGHTS, axis=-1)[:, :KEPT_WEIGHTS], axis=-1)
        inside = (blocks[..., None] * _BLOCK + np.arange(_BLOCK)).reshape(count, -1)
        candidates = np.concatenate([inside, np.arange(whole, keys)[None].repeat(count, 0)], axis=-1)
    values = np.take_along_axis(weights, np.minimum(candidates, keys - 1), -1)
    values[candidates >= keys] = -1
    order = np.argsort(_falling(values), axis=-1, kind="stable")[:, :KEPT_WEIGHTS]
    return np.take_along_axis(candidates, order, -1)


def _falling(values: np.ndarray) -> np.ndarray:
    """What sorts values from the largest on, and before them what is no number: a fault must be seen."""
    return -np.where(np.isnan(values), np.float32(np.inf), values)


def _entropy_bits(weights: np.ndarray) -> np.ndarray:
    """Entropy of each row, bits: −Σ p log₂ p, of weights that sum to 1."""
    logarithms = np.log2(np.where(weights > 0, weights, 1))
    entropy: np.ndarray = -np.einsum("rk,rk->r", weights, logarithms)
    return np.maximum(entropy, 0) if np.isfinite(entropy).all() else entropy
