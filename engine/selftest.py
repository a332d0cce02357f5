"""At load: does this model give the same in a flat batch as alone?

Some model classes are silently wrong when batched, and some keep state that a flat batch cannot carry. So nothing is
assumed: a few tokens go through both ways, and a model that differs runs its requests one pass each, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.device import mx

import numpy as np
from mlx_lm.models.cache import KVCache, make_prompt_cache

from engine.kv.paged import PagedStore
from engine.kv.ragged import RaggedBatch
from engine.kv.store import RowSpan
from engine.structure import FAULTS
from engine.taps import Tape, Taps

PROMPTS = ([1, 2, 3, 4, 5], [7], [9, 8, 6])
"""Three rows of different lengths; ids that every vocabulary has."""

BLOCKS, BLOCK_SIZE = 6, 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a model may be batched, and what was found."""

    batched: bool
    reason: str
    position_bytes: int = 0
    """What the KV of one position takes over all layers, as the model wrote it; 0 when it is not batched."""


def judge(taps: Taps, dtype: str) -> Verdict:
    """Compare a flat batch with solo passes: a prefill of three rows and two decode steps.

    Args:
        taps: in the model.
        dtype: what the model computes in, which sets how much rounding may differ.
    """
    kinds = sorted({type(cache).__name__ for cache in make_prompt_cache(taps.model)})
    if kinds != [KVCache.__name__]:
        return Verdict(False, f"its layers keep {', '.join(kinds)}, which is not paged")
    if not all(taps.structure.attending):
        layer = taps.structure.attending.index(False)
        return Verdict(False, f"layer {layer} does not attend through the kernel that a flat batch needs")
    try:
        batched, position_bytes = _batched(taps)
    except FAULTS as fault:
        return Verdict(False, f"a flat batch failed: {type(fault).__name__}: {fault}")
    solo = _solo(taps)
    error = float(np.abs(batched - solo).max())
    largest = float(np.abs(solo).max())
    tolerance = (1e-3 if dtype == "float32" else 5e-2) * largest
    if not error <= tolerance:  # NaN fails too
        return Verdict(False, f"batched and solo logits differ by {error:.2g}, where {tolerance:.2g} is allowed")
    return Verdict(True, f"batched and solo logits agree within {error:.1g} of {largest:.3g}", position_bytes)


def _solo(taps: Taps) -> np.ndarray:
    """`[rows · steps, vocab]`, each row in a pass of its own."""
    found = []
    for prompt in PROMPTS:
        cache = make_prompt_cache(taps.model)
        for tokens in (prompt, [11], [12]):
            logits = taps.forward(mx.array([tokens]), cache, Tape(logit_rows=[len(tokens) - 1]))
            found.append(np.array(logits[0].astype(mx.float32)))
    return np.stack([found[row * 3 + step] for step in range(3) for row in range(len(PROMPTS))])


def _batched(taps: Taps) -> tuple[np.ndarray, int]:
    """The same in one flat batch a step, and the bytes that a position took.

    The second row's blocks lie apart, so that runs are joined; the others can be read together.
    """
    layers = len(taps.structure.layers)
    store = PagedStore(layers=layers, blocks=BLOCKS, block_size=BLOCK_SIZE)
    tables = ([0, 1], [5, 2], [3, 4])
    lengths = [0] * len(PROMPTS)
    found = []
    for step in (PROMPTS, *([[token]] * len(PROMPTS) for token in (11, 12))):
        spans, first = [], 0
        for row, tokens in enumerate(step):
            start, stop = lengths[row], lengths[row] + len(tokens)
            limit = (tables[row][-1] + 1) * BLOCK_SIZE
            spans.append(RowSpan(row, start, stop, first, [], _runs(tables[row], stop), limit))  # type: ignore[arg-type]
            lengths[row] = stop
            first += len(tokens)
        batch = RaggedBatch(store, spans)
        flat = mx.array([token for tokens in step for token in tokens])
        tape = Tape(logit_rows=[span.first + span.length - 1 for span in spans], flat=True)
        found += list(np.array(taps.forward(flat[:, None], batch.views(layers), tape).astype(mx.float32)))
    stored = sum(pool.nbytes for layer in range(layers) for pool in store.arrays(layer))
    return np.stack(found), stored // (BLOCKS * BLOCK_SIZE)


def _runs(table: list[int], length: int) -> list[tuple[int, int]]:
    runs = []
    for index, block in enumerate(table):
        filled = min(BLOCK_SIZE, length - index * BLOCK_SIZE)
        if filled > 0:
            runs.append((block * BLOCK_SIZE, block * BLOCK_SIZE + filled))
    return runs
