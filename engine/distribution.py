"""What logits say before any stage of sampling: the distribution that the model gave, and its leading candidates.

All rows of a step are looked at together. Each takes a handful of passes over its vocabulary, in memory that stays in
the processor's cache; the many small operations that come after are done once for all rows: while the next step keeps
the machine busy, each of them takes three times as long as on an idle one.

A row is laid out in columns. As many columns hold the largest logits as there are to be found, those with the largest
heads, and columns are compared and added up faster than anything else: partitioning a vocabulary of 50,000 took half a
millisecond, ten times as long as all of this.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]

HEIGHT = 64
"""Logits of a column."""

_threads = threading.local()


@dataclass(frozen=True, slots=True)
class Distribution:
    """The softmax of one row of logits, by its leading candidates.

    Attributes:
        logits: `[vocab]`.
        largest: of them; where it is not finite, nothing else is told.
        log_partition: log Σ exp(logit − largest).
        entropy_bits: of all candidates.
        ids: the leading candidates, in falling order; equal ones by id.
        leading: their logits.
    """

    logits: Floats
    largest: float
    log_partition: float
    entropy_bits: float
    ids: list[int]
    leading: list[float]

    @property
    def logprobs(self) -> list[float]:
        """Of the leading candidates."""
        return [logit - self.largest - self.log_partition for logit in self.leading]

    def logprob(self, token: int) -> float:
        return float(self.logits[token]) - self.largest - self.log_partition

    def rank(self, token: int) -> int:
        """One more than there are larger logits."""
        if token in self.ids:  # then so are all that are larger
            return self.leading.index(self.leading[self.ids.index(token)]) + 1
        return int(np.count_nonzero(self.logits > self.logits[token])) + 1


def distributions(rows: list[Floats], count: int) -> list[Distribution]:
    """Of each of some rows, as long as each other, with `count` leading candidates, or as many as there are.

    A row of which the largest logit is NaN or infinite has no distribution: nothing but that is told of it.
    """
    told = [Distribution(logits, float(np.maximum.reduce(logits)), math.nan, math.nan, [], []) for logits in rows]
    sound = [index for index, one in enumerate(told) if math.isfinite(one.largest)]  # the maximum is NaN if any is
    if not sound:
        return told
    size = rows[0].size
    count = min(count, size)
    columns = _Columns.of(size, count)
    heads = np.empty((len(sound), columns.width), np.float32)
    sums = np.empty_like(heads)
    weighted = []
    with np.errstate(invalid="ignore", over="ignore"):  # what is beyond all numbers becomes −∞
        for place, index in enumerate(sound):
            np.subtract(rows[index], np.float32(told[index].largest), out=columns.shifted[:size])
            np.maximum.reduce(columns.shifted.reshape(columns.shape), axis=0, out=heads[place])
            np.exp(columns.shifted, out=columns.exponentials)
            np.add.reduce(columns.exponentials.reshape(columns.shape), axis=0, out=sums[place])
            weighted.append(columns.weighted())
    partitions = np.add.reduce(sums, axis=1).tolist()
    leading = columns.leading([rows[index] for index in sound], heads, count)
    for index, partition, mean, (ids, logits) in zip(sound, partitions, weighted, leading, strict=True):
        log_partition = math.log(partition)
        entropy = max(0.0, log_partition - mean / partition)  # H = log Z − Σ p·(x − max)
        told[index] = Distribution(rows[index], told[index].largest, log_partition, entropy / math.log(2), ids, logits)
    return told


def height_for(size: int, count: int) -> int:
    """How high columns may be so that there are four times as many as candidates; 1 where there are too few logits."""
    return max(1, min(HEIGHT, size // (4 * count)))


class _Columns:
    """Rows of one size laid out in columns, one row after the other in the same memory: fresh memory for each would
    cost more than what is done in it. Where the last column is short, −∞ fills it.

    Attributes:
        shape: `(height, width)`: how many logits a column has, and how many columns there are.
        shifted: `[height · width]`, to hold a row less its largest logit.
        exponentials: likewise, to hold their exponentials.
    """

    def __init__(self, size: int, height: int) -> None:
        self.size, self.width = size, -(-size // height)
        self.shape = height, self.width
        self.shifted = np.full(height * self.width, -np.inf, np.float32)
        self.exponentials = np.empty_like(self.shifted)

    @classmethod
    def of(cls, size: int, count: int) -> _Columns:
        """This thread's, for rows of a size of which `count` candidates are looked for."""
        height = height_for(size, count)
        kept: _Columns | None = getattr(_threads, "columns", None)
        if kept is None or (kept.size, kept.shape[0]) != (size, height):
            kept = _threads.columns = cls(size, height)
        return kept

    def weighted(self) -> float:
        """Σ exp(x − max) · (x − max), of which a logit that is −∞ is no part."""
        shifted, exponentials = self.shifted[: self.size], self.exponentials[: self.size]
        total = float(np.dot(exponentials, shifted))
        if math.isnan(total):  # 0 · −∞
            total = float(np.dot(exponentials, np.maximum(shifted, np.finfo(np.float32).min)))
        return total

    def leading(self, rows: list[Floats], heads: Floats, count: int) -> list[tuple[list[int], list[float]]]:
        """Ids and logits of each row's `count` largest logits, in falling order; equal ones by id.

        Args:
            heads: `[rows, width]`: the largest of each column, less something that is the same for all.
        """
        place = self.width - count
        least = np.partition(heads, place, axis=1)[:, place, None]
        row, column = (heads >= least).nonzero()  # that many columns at least, of each row
        starts = np.searchsorted(row, np.arange(len(rows) + 1))
        ids = column[:, None] + self.width * np.arange(self.shape[0])  # [columns, height]
        found = zip(rows, pairwise(starts.tolist()), strict=True)
        logits = np.concatenate([logits.take(ids[start:end], mode="clip") for logits, (start, end) in found])
        if self.shifted.size > self.size:
            logits[ids >= self.size] = -np.inf
        # That many logits of a row, one a column, are no smaller than the least of those columns' largest.
        least = np.minimum.reduceat(logits.max(axis=1), starts[:-1])
        inside = (logits >= least[row][:, None]) & (ids < self.size)
        row, ids, logits = np.broadcast_to(row[:, None], ids.shape)[inside], ids[inside], logits[inside]
        order = np.lexsort((ids, -logits, row))
        starts = np.searchsorted(row[order], np.arange(len(rows))).tolist()
        in_order = ids[order].tolist(), logits[order].tolist()
        return [(in_order[0][start : start + count], in_order[1][start : start + count]) for start in starts]
