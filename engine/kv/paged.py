"""The paged store: one pool of slots a layer, shared by all requests in blocks.

A pool is `[kv_heads, slots, head_dim]`; block b is slots b · block_size … (b + 1) · block_size. Which block holds what
is the block manager's business (`engine.blocks`), which hands out blocks in unbroken runs where it can. That is what
makes this fast: an unbroken run is a slice of the pool, which the kernel reads in place, and only a request whose
blocks lie apart pays for a concatenation. Measured against gathering single slots or blocks, this was the only layout
as fast as unpaged caches.

Nothing may keep a reference to a pool: the next write would copy all of it instead of going in place.
"""

from __future__ import annotations

from engine.device import mx

from engine.kv.even import EvenRows, even_rows
from engine.kv.store import RowSpan, Run, finite
from engine.sequence import Sequence


class PagedStore:
    """Pools of all layers.

    Args:
        layers: how many.
        blocks: blocks of each pool.
        block_size: positions of a block.
    """

    name = "paged"

    def __init__(self, *, layers: int, blocks: int, block_size: int) -> None:
        self._slots = blocks * block_size
        self._block_size = block_size
        self._keys: list[mx.array | None] = [None] * layers
        self._values: list[mx.array | None] = [None] * layers
        self._places: _Places | None = None

    def write(self, layer: int, spans: list[RowSpan], keys: mx.array, values: mx.array) -> None:
        if self._places is None or self._places.spans is not spans:
            self._places = _Places(spans)
        for pools, new in ((self._keys, keys), (self._values, values)):
            pool = pools[layer]
            if pool is None:  # dimensions and dtype are the model's: known when it first writes
                pool = pools[layer] = mx.zeros((new.shape[0], self._slots, new.shape[2]), new.dtype)
            self._places.write(pool, new)

    def read(self, layer: int, span: RowSpan) -> tuple[mx.array, mx.array]:
        return self._gather(self._keys[layer], span), self._gather(self._values[layer], span)

    def arrays(self, layer: int) -> list[mx.array]:
        return [pool for pool in (self._keys[layer], self._values[layer]) if pool is not None]

    def even(self, spans: list[RowSpan]) -> list[EvenRows]:
        return even_rows(spans)

    def read_even(self, layer: int, rows: EvenRows) -> tuple[mx.array, mx.array]:
        return _strided(self._keys[layer], rows), _strided(self._values[layer], rows)

    def wipe(self, runs: list[Run]) -> None:
        """Zero what is not finite in these slots, which are nobody's."""
        here = mx.zeros(self._slots, mx.bool_)
        for start, stop in runs:
            here[start:stop] = True
        for pools in (self._keys, self._values):
            for layer, pool in enumerate(pools):
                if pool is not None:
                    pools[layer] = mx.where(here[:, None] & ~mx.isfinite(pool), mx.zeros((), pool.dtype), pool)
                    mx.eval(pools[layer])  # one at a time: all at once would take the memory of the whole store

    def copy(self, source: int, target: int) -> Run:
        """Copy one block to another in every layer: a shared block is about to be written (copy-on-write).

        Returns the slots of the copy.
        """
        size = self._block_size
        for pools in (self._keys, self._values):
            for pool in pools:
                if pool is not None:
                    pool[:, target * size : (target + 1) * size] = pool[:, source * size : (source + 1) * size]
        return target * size, (target + 1) * size

    def release(self, sequence: Sequence) -> None:
        """Nothing to do: blocks go back to the block manager."""

    def written(self, span: RowSpan) -> list[mx.array]:
        last = [pool for pool in (self._keys[-1], self._values[-1]) if pool is not None]
        return finite(*(pool[:, start:stop] for pool in last for start, stop in slots(span)))

    def _gather(self, pool: mx.array | None, span: RowSpan) -> mx.array:
        """`[1, kv_heads, stop, head_dim]` of a span's request."""
        assert pool is not None, "a layer is read after it was written"
        pieces = [pool[:, start:stop] for start, stop in span.runs]
        return (pieces[0] if len(pieces) == 1 else mx.concatenate(pieces, axis=1))[None]


class _Places:
    """Where the new positions of a batch go: the same in all layers.

    Attributes:
        spans: the batch's.
    """

    def __init__(self, spans: list[RowSpan]) -> None:
        self.spans = spans
        single = [span for span in spans if span.length == 1]
        self._slots: mx.array | None = None
        self._columns: mx.array | None = None
        if len(single) > 1:
            # All decoding rows in one scatter: a slice each would be as many operations as there are rows.
            self._slots = mx.array([span.runs[-1][1] - 1 for span in single])
            if len(single) < len(spans):
                self._columns = mx.array([span.first for span in single])
        sliced = spans if self._slots is None else [span for span in spans if span.length > 1]
        self._targets = [target for span in sliced for target in _targets(span)]

    def write(self, pool: mx.array, new: mx.array) -> None:
        """Write `[kv_heads, N, head_dim]` into a pool."""
        if self._slots is not None:
            pool[:, self._slots] = new if self._columns is None else new[:, self._columns]
        for start, stop, first in self._targets:
            pool[:, start:stop] = new[:, first : first + stop - start]


def _strided(pool: mx.array | None, rows: EvenRows) -> mx.array:
    """`[rows, kv_heads, keys, head_dim]`: a view of the pool."""
    assert pool is not None, "a layer is read after it was written"
    kv_heads, slots, width = pool.shape
    shape = (len(rows.members), kv_heads, rows.keys, width)
    return mx.as_strided(pool, shape, (rows.apart * width, slots * width, width, 1), rows.start * width)


def slots(span: RowSpan) -> list[Run]:
    """Where a span's new positions go."""
    return [(start, stop) for start, stop, _ in _targets(span)]


def _targets(span: RowSpan) -> list[tuple[int, int, int]]:
    """Where a span's new positions go: (first slot, end slot, index into the flat list of tokens) for each run."""
    targets, position = [], 0
    for start, stop in span.runs:
        end = position + stop - start
        if end > span.start:
            skip = max(0, span.start - position)
            targets.append((start + skip, stop, span.first + position + skip - span.start))
        position = end
    return targets
