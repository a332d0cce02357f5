"""Attention of a step's captured positions: from probabilities, some layers at a time, to a frame a position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.apart import Apart
from engine.capture_schedule import KEPT_WEIGHTS, SUMMARISED, WHOLE, CaptureSchedule
from engine.events import Attention, AttentionSummary
from engine.summary import summarise

MISSED = 0.5
"""A row whose sum differs from 1 by more than this has its weight elsewhere."""


@dataclass(slots=True)
class AttentionRows:
    """The attention of one row of a step, gathered layer by layer: all layers at once may take gigabytes.

    NumPy alone, so that another thread may fill it while the device computes the next layers.

    Args:
        positions: the captured ones.
        layers: whose attention is taken in, in this order.
        captures: says what becomes of each position.
        complete: whether all of a row's weight is to be on keys that it may see: a row of which it is not is a fault.
        tested: a layer and an index into `positions` whose weights are kept for a test; None for none.
    """

    positions: list[int]
    layers: list[int]
    captures: CaptureSchedule
    tested: tuple[int, int] | None = None
    complete: bool = False
    whole: dict[int, np.ndarray | Apart | None] = field(init=False)
    """By index in `positions`: `[layers, heads, keys]`; None until something of it is taken in."""
    summaries: dict[int, np.ndarray] = field(init=False)
    """Likewise `[layers, heads, 2 · KEPT_WEIGHTS + 2]`."""
    errors: np.ndarray = field(init=False)
    """`[positions]`: largest |sum of a row − 1|."""
    fault: str | None = None
    """The first row that is no number, in words."""
    tested_weights: np.ndarray | None = None
    """`[heads, keys]` of the tested row."""

    def __post_init__(self) -> None:
        positions, forms = self.positions, self.captures.forms
        count, heads = len(self.layers), len(self.captures.heads)
        self.whole = {index: None for index, position in enumerate(positions) if forms[position] == WHOLE}
        self.summaries = {
            index: np.empty((count, heads, 2 * KEPT_WEIGHTS + 2), np.float32)
            for index, position in enumerate(positions)
            if forms[position] == SUMMARISED
        }
        self.errors = np.zeros(len(positions))

    def take(self, first: int, block: np.ndarray, start: int = 0, *, ours: bool = False) -> None:
        """Take in probabilities of some layers and positions, `[layers, heads, positions, keys]`.

        Args:
            first: index in `layers` of the first.
            block: of as many keys, at least, as the last of its positions sees.
            start: index in `positions` of the first.
            ours: whether the block is nobody else's: where it is a frame already, it is kept as it is.
        """
        layers, stop = self.layers[first : first + len(block)], start + block.shape[2]
        if self.tested is not None and self.tested[0] in layers and start <= self.tested[1] < stop:
            self.tested_weights = np.array(block[layers.index(self.tested[0]), :, self.tested[1] - start])
        if len(self.captures.heads) < block.shape[1]:
            block = block[:, self.captures.heads]
        sums = np.vecdot(block, np.ones(block.shape[-1], block.dtype))  # in half the time that summing takes
        self._judge(first, block, start, sums)
        place = slice(first, first + len(block))
        summarised = []
        for index in range(start, stop):
            if index in self.whole:
                shape = len(self.layers), block.shape[1], self.positions[index] + 1
                rows = block[:, :, index - start, : shape[-1]]
                is_frame = (rows.shape, rows.dtype) == (shape, self.captures.dtype) and block.flags.c_contiguous
                if ours and is_frame and block.shape[2] == 1:
                    self.whole[index] = rows
                    continue
                frame = self.whole[index]
                if frame is None:
                    frame = self.whole[index] = np.empty(shape, self.captures.dtype)
                assert isinstance(frame, np.ndarray), "what lies apart is taken in whole"
                frame[place] = rows
            elif index in self.summaries:
                summarised.append(index)
        if summarised:
            chosen = [index - start for index in summarised]
            for layer, of_layer in enumerate(block, first):
                summary = summarise(of_layer, chosen)
                for number, index in enumerate(summarised):
                    self.summaries[index][layer] = summary[:, number]

    def take_frame(self, frame: np.ndarray | Apart, sums: np.ndarray, error: float) -> None:
        """Take in the one position's probabilities of all layers and heads, as they are.

        Args:
            frame: `[layers, heads, keys]`; nobody may change it any more.
            sums: over keys, `[layers, heads]`.
            error: the largest |sum − 1|.
        """
        if self.tested is not None:
            self.tested_weights = np.array(frame[self.layers.index(self.tested[0])])
        self.whole[0] = frame
        if error <= MISSED:
            self.errors[0] = error
        else:
            self._judge(0, np.asarray(frame)[:, :, None], 0, sums[:, :, None])

    def _judge(self, first: int, block: np.ndarray, start: int, sums: np.ndarray) -> None:
        """Note how far rows are from what they should sum to, and the first that is no number.

        Args:
            first: index in `layers` of the first.
            block: what was summed up; looked at where a sum is not as it should be.
            start: index in `positions` of the first.
            sums: `[layers, heads, positions]`.
        """
        positions = self.positions[start : start + sums.shape[-1]]
        errors = np.abs(sums - 1)
        seen, worst = self.errors[start : start + len(positions)], errors.max((0, 1))  # NaN stays NaN, in both
        np.maximum(seen, worst, out=seen)
        beyond = block.shape[-1] > min(positions) + 1
        if self.complete and (beyond or not (worst <= MISSED).all()):
            errors = np.where(_elsewhere(block, errors, positions), np.nan, errors)
            worst = errors.max((0, 1))
        if self.fault is None and not np.isfinite(worst).all():
            layer, head, index = np.argwhere(~np.isfinite(errors))[0]
            where = f"layer {self.layers[first + layer]}, head {self.captures.heads[head]}"
            self.fault = f"attention in {where} is no number at position {positions[index]}"

    def events(self, request: str, step: int) -> Iterator[Attention | AttentionSummary]:
        """The frames, in order of positions. They can be had once: what they hold is let go of."""
        layers, heads = self.layers, self.captures.heads
        follow = layers == list(range(layers[0], layers[0] + len(layers)))
        all_heads = len(heads) == self.captures.visible.heads
        for index, position in enumerate(self.positions):
            about: dict[str, Any] = {"request": request, "step": step, "position": position, "source_dtype": "f32"}
            error = float(self.errors[index])
            if index in self.whole:
                named: dict[str, Any] = {"layers": None if follow else layers, "heads": None if all_heads else heads}
                data = self.whole.pop(index)
                assert data is not None, "each layer is taken in before it is told"
                yield Attention(**about, **named, layer=layers[0], data=data, row_sum_error=error)
            elif index in self.summaries:
                kept = min(KEPT_WEIGHTS, position + 1)
                data = _listed(self.summaries.pop(index), kept)
                masses = data[..., kept:-2].sum(-1)
                yield AttentionSummary(
                    **about,
                    layers=layers,
                    heads=heads,
                    data=data,
                    keys=position + 1,
                    kept=kept,
                    mass=float(masses.mean()),
                    least_mass=float(masses.min()),
                    row_sum_error=error,
                )


def _elsewhere(block: np.ndarray, errors: np.ndarray, positions: list[int]) -> np.ndarray:
    """Which rows of `[layers, heads, positions, keys]` have no weight on what they may see, or some on the rest.

    Where all that a position sees is −∞, MLX's kernel spreads the weight over what is hidden: those are no weights.
    """
    gone: np.ndarray = errors > MISSED
    first = min(positions) + 1
    if first < block.shape[-1]:
        hidden = np.arange(first, block.shape[-1]) > np.array(positions)[:, None]
        gone |= np.where(hidden, block[..., first:], 0).max(-1) > 0
    return gone


def _listed(summary: np.ndarray, kept: int) -> np.ndarray:
    """A summary without the padding of rows that have fewer keys than it could list."""
    if kept == KEPT_WEIGHTS:
        return summary
    weights = summary[..., KEPT_WEIGHTS : KEPT_WEIGHTS + kept]
    return np.concatenate([summary[..., :kept], weights, summary[..., -2:]], axis=-1)
