"""The logit lens: what each layer would have said next, had the model ended there (nostalgebraist 2020).

The residual stream after a layer goes through the model's own final norm and head. Computed when somebody looks, or
when a trace is baked, from the residual vectors that the running step recorded: for every token as it comes it would
cost more than the generation itself on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from engine.device import mx

import numpy as np

from engine.codec import DTYPE_NAMES
from engine.events import Lens
from engine.taps import Taps

TOP = 5
"""How many candidates a layer lists."""

Label = Callable[[int], str]


def lens_event(
    taps: Taps,
    label: Label,
    residual: np.ndarray,
    *,
    request: str,
    position: int,
    target: int | None,
    how: Literal["live", "baked"],
) -> Lens:
    """Read the residual stream of one position layer by layer.

    Args:
        taps: in the model that recorded it.
        label: writes a token id for display.
        residual: `[layers + 1, hidden]`; row 0, the embedding, is not read.
        target: the token that really came next; its rank and log-probability are given for each layer.
    """
    logits_lazy = taps.lens(mx.array(residual[1:].astype(np.float32)))
    logits = np.array(logits_lazy.astype(mx.float32))  # [layers, vocab]
    return Lens(
        request=request,
        position=position,
        target=target,
        layers=[{"layer": index, **_read(row, label, target)} for index, row in enumerate(logits)],
        residual_dtype=DTYPE_NAMES.get(residual.dtype, str(residual.dtype)),
        how=how,
    )


def _read(logits: np.ndarray, label: Label, target: int | None) -> dict[str, Any]:
    largest = float(logits.max())
    if not math.isfinite(largest):
        return {"top": [], "rank": None, "logprob": None, "entropy_bits": None}
    shifted = np.maximum(logits - np.float32(largest), np.float32(-200))
    exponentials = np.exp(shifted)
    partition = float(exponentials.sum(dtype=np.float64))
    log_partition = math.log(partition)
    few = min(TOP, logits.size)
    top = np.argpartition(logits, logits.size - few)[logits.size - few :]
    top = top[np.lexsort((top, -logits[top]))]
    return {
        "top": [
            {"id": int(token), "label": label(int(token)), "logprob": float(shifted[token]) - log_partition}
            for token in top
        ],
        "rank": None if target is None else int((logits > logits[target]).sum()) + 1,
        "logprob": None if target is None else float(logits[target]) - largest - log_partition,
        "entropy_bits": (log_partition - float(np.dot(exponentials, shifted)) / partition) / math.log(2),
    }
