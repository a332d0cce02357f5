"""Attention as the operations that MLX's own kernel is made of where it has no fused one, and the weights with it.

On a CPU, `mx.fast.scaled_dot_product_attention` is a composition of ten small operations, and the weights are there
for whoever asks: they need not be computed a second time, beside the kernel. The same operations on the same arrays
give the same output, bit by bit, so that a pass may take the one way when it is watched and the other when it is not.
That they are the same is tried out before it is relied upon (`made_like_the_kernel`).
"""

from __future__ import annotations

import functools

from engine.device import attention_is_composed, mx

from engine.attention import Kernel

_KERNEL: Kernel = mx.fast.scaled_dot_product_attention


def attention_and_weights(
    q: mx.array, k: mx.array, v: mx.array, scale: float, mask: mx.array | str | None
) -> tuple[mx.array, mx.array]:
    """The attention output, and the weights that made it.

    Args:
        q: `[B, heads, L, head_dim]`, after RoPE.
        k, v: `[B, kv_heads, K, head_dim]`; query row i stands at key position K − L + i.
        mask: None, "causal", or boolean `[B, 1, 1 or L, K]`, where True attends.

    Returns:
        The output `[B, heads, L, head_dim]`, and the weights `[B, heads, L, K]`, where heads share KV heads as they are
        made: `[B, kv_heads, heads/kv_heads, L, K]`. They are 0 where the mask hides a key, unless all that it
        shows are −∞: then the kernel spreads itself over what it hides.
    """
    queries, shared = q * scale, q.shape[1] // k.shape[1]
    if shared > 1:  # query heads share KV heads in groups
        queries = mx.unflatten(queries, 1, (k.shape[1], shared))
        k, v = mx.expand_dims(k, 2), mx.expand_dims(v, 2)
    scores = queries @ mx.swapaxes(k, -1, -2)
    seen = _causal(q.shape[2], k.shape[-2]) if isinstance(mask, str) else mask
    if seen is not None:
        if shared > 1 and seen.ndim > 2:
            seen = mx.expand_dims(seen, 2)
        scores = mx.where(seen, scores, mx.finfo(scores.dtype).min)
    weights = mx.softmax(scores, axis=-1, precise=True)
    out = weights @ v
    return (out.flatten(1, 2) if shared > 1 else out), weights


def made_like_the_kernel(kernel: Kernel, heads: int, kv_heads: int, width: int, dtype: mx.Dtype) -> bool:
    """Whether a kernel is MLX's own, and gives exactly what `attention_and_weights` gives."""
    return kernel is _KERNEL and attention_is_composed() and _alike(heads, kv_heads, width, dtype)


@functools.cache
def _alike(heads: int, kv_heads: int, width: int, dtype: mx.Dtype) -> bool:
    """Tried in every form in which the kernel is called here."""
    for rows, length, keys in ((1, 1, 37), (3, 1, 21), (1, 19, 40)):
        q, k, v = (
            mx.random.normal((rows, count, size, width), key=mx.random.key(count + size)).astype(dtype)
            for count, size in ((heads, length), (kv_heads, keys), (kv_heads, keys))
        )
        hidden = (mx.arange(keys) < keys - mx.arange(rows)[:, None])[:, None, None]
        for mask in ("causal",) if length > 1 else (None, hidden):
            out, _ = attention_and_weights(q, k, v, width**-0.5, mask)
            if not mx.array_equal(out, _KERNEL(q, k, v, scale=width**-0.5, mask=mask)):
                return False
    return True


def _causal(length: int, keys: int) -> mx.array:
    """`[length, keys]`: true for the keys that each of the last rows may see."""
    return mx.arange(keys - length, keys)[:, None] >= mx.arange(keys)
