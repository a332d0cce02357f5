"""Attention that rows of one pass share: which of it is whose, and what is read of it at once for all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from engine.device import mx

import numpy as np

from engine.apart import Apart
from engine.attention import Softmax
from engine.stream import put_together

JOINED_BYTES = 4 * 2**20
"""Attention of rows that decode together, of all layers, is put together as one array up to here."""

APART_BYTES = 2**15
"""Of a row's attention in a layer: what is larger is told where it lies, since to copy it costs more than to tell it in
pieces."""

HELD_BYTES = 32 * 2**20
"""But not if all that lies there is more than this: it is held until the last row of it is told and recorded."""


@dataclass(frozen=True, slots=True)
class Scores:
    """How one row's attention is read from scores that may be of several rows, and of more keys than it has.

    Attributes:
        softmaxes: per layer, what turns scores into probabilities; None where they are.
        row: which of the rows it is.
        keys: how many keys it has.
    """

    softmaxes: list[Softmax | None]
    row: int
    keys: int

    def own(self, seen: np.ndarray) -> np.ndarray:
        """This row's `[heads, positions, keys]` of `[rows, heads, positions, keys]`, heads perhaps in two axes."""
        own = seen[self.row, ..., : self.keys]
        return own.reshape(-1, *own.shape[-2:])


def alike(one: Softmax | None, other: Softmax | None) -> bool:
    """Whether two layers have one softmax, or both have weights already."""
    if one is None or other is None:
        return one is other
    return one.scale == other.scale and one.sinks is None and other.sinks is None


class Joined:
    """What rows that decode together captured of attention, in all layers, and have in common.

    Little is put together at once, for all rows and layers. Much is told where it lies, if it is in frames.

    Args:
        pieces: one array a layer, `[rows, heads, 1, keys]`, heads perhaps in two axes. A row may have fewer keys.
    """

    def __init__(self, pieces: list[mx.array]) -> None:
        self.outputs = pieces
        self._count, *heads, _, self._keys = pieces[0].shape
        self._heads = math.prod(heads)
        self._size = 4 * sum(array.size for array in pieces)
        self._framed: dict[int, int] = {}
        """How many keys the rows have that become frames."""

    @classmethod
    def of(cls, layers: list[list[mx.array]], softmaxes: list[Softmax | None]) -> Joined | None:
        """What rows captured, by layer in pieces, as one; None where that is not worth while, or cannot be."""
        whole = [pieces[0] for pieces in layers]
        if not whole or {array.shape[-2:] for array in whole} != {(1, whole[0].shape[-1])}:
            return None
        most = HELD_BYTES if all(one is None for one in softmaxes) else JOINED_BYTES
        joined = cls(whole)
        return joined if joined._size <= most and all(alike(softmaxes[0], one) for one in softmaxes) else None

    def keep(self, row: int, keys: int) -> None:
        """Note that a row, of so many keys, becomes a frame as it is."""
        self._framed[row] = keys

    @property
    def framed(self) -> bool:
        """Whether all rows become frames as they are: what they share is held as long as any of them, then.

        Not where shorter rows leave more than half of it to nobody: it would be held as well, and counted by no one.
        """
        return len(self._framed) == self._count and 2 * sum(self._framed.values()) >= self._count * self._keys

    def frame(self, row: int) -> np.ndarray | Apart:
        """A row's frame, where all are framed: `[layers, heads, keys]`."""
        if self._small:
            frame: np.ndarray = self._rows[row, :, :, : self._framed[row]]
            return frame
        return Apart([array[row, :, : self._framed[row]] for array in self._arrays])

    def sums(self, row: int) -> np.ndarray:
        """A row's over its keys, where all are framed: `[layers, heads]`."""
        own: np.ndarray = self._sums[row]
        return own

    def error(self, row: int) -> float:
        """Largest |sum − 1| of a row, where all are framed; NaN if any is."""
        return self._errors[row]

    def row(self, row: int, keys: int) -> np.ndarray:
        """A row's first keys: `[layers, heads, 1, keys]`."""
        if self._small:
            return self._rows[row, :, :, None, :keys]
        return np.stack([array[row, :, None, :keys] for array in self._arrays])

    @property
    def _small(self) -> bool:
        return self._size <= JOINED_BYTES and 4 * self._heads * self._keys < APART_BYTES

    @cached_property
    def _arrays(self) -> list[np.ndarray]:
        """By layer `[rows, heads, keys]`, where they lie, once they have been evaluated."""
        pieces, self.outputs = self.outputs, []
        return [np.asarray(piece).reshape(self._count, self._heads, self._keys) for piece in pieces]

    @cached_property
    def _rows(self) -> np.ndarray:
        """`[rows, layers, heads, keys]`, put together once they have been evaluated; they are let go of."""
        pieces, self.outputs = self.outputs, []
        return put_together(pieces).reshape(self._count, len(pieces), self._heads, self._keys)

    @cached_property
    def _sums(self) -> np.ndarray:
        """`[rows, layers, heads]`. Rows of as many keys that lie side by side are summed at once."""
        together = [self._rows] if self._small else self._arrays
        layers = self._rows.shape[1] if self._small else len(together)
        sums = np.empty((self._count, layers, self._heads), np.float32)
        start = 0
        for keys, members in groupby(range(self._count), key=self._framed.__getitem__):
            stop, ones = start + len(list(members)), np.ones(keys, np.float32)
            for layer, array in enumerate(together):
                out = sums[start:stop] if self._small else sums[start:stop, layer]
                np.vecdot(array[start:stop, ..., :keys], ones, out=out)
            start = stop
        return sums

    @cached_property
    def _errors(self) -> list[float]:
        errors: list[float] = np.abs(self._sums - 1).max((1, 2)).tolist()
        return errors
