"""Two stores that teach why paging is worth its trouble. Same tokens, other costs.

`ConcatStore` copies everything at every token: work that grows with the square of the length. `PreallocStore` sets
aside for each request what it may at most need: no copies, but memory for tokens that may never come.
"""

from __future__ import annotations

from engine.device import mx

from engine.kv.even import EvenRows
from engine.kv.store import RowSpan, finite
from engine.sequence import Sequence

Pair = tuple[mx.array, mx.array]


class ConcatStore:
    """Keys and values of each request grow by concatenation."""

    name = "concat"

    def __init__(self, *, layers: int) -> None:
        self._layers = layers
        self._pairs: dict[Sequence, list[Pair | None]] = {}

    def write(self, layer: int, spans: list[RowSpan], keys: mx.array, values: mx.array) -> None:
        for span in spans:
            pairs = self._pairs.setdefault(span.sequence, [None] * self._layers)
            new = tuple(array[:, span.first : span.first + span.length] for array in (keys, values))
            old = pairs[layer]
            if old is not None:
                new = tuple(mx.concatenate(list(both), axis=1) for both in zip(old, new, strict=True))
            pairs[layer] = (new[0], new[1])

    def read(self, layer: int, span: RowSpan) -> Pair:
        pair = self._pairs[span.sequence][layer]
        assert pair is not None, "a layer is read after it was written"
        return pair[0][None], pair[1][None]

    def arrays(self, layer: int) -> list[mx.array]:
        return [array for pairs in self._pairs.values() for array in pairs[layer] or ()]

    def even(self, spans: list[RowSpan]) -> list[EvenRows]:
        return []

    def read_even(self, layer: int, rows: EvenRows) -> Pair:
        raise AssertionError("each request has arrays of its own: none are read together")

    def release(self, sequence: Sequence) -> None:
        self._pairs.pop(sequence, None)

    def written(self, span: RowSpan) -> list[mx.array]:
        return finite(*(array[:, span.start : span.stop] for array in self._pairs[span.sequence][-1] or ()))


class PreallocStore:
    """Each request gets room for its prompt and all the tokens that it may generate, at once."""

    name = "prealloc"

    def __init__(self, *, layers: int) -> None:
        self._layers = layers
        self._pairs: dict[Sequence, list[list[mx.array] | None]] = {}

    def write(self, layer: int, spans: list[RowSpan], keys: mx.array, values: mx.array) -> None:
        for span in spans:
            pairs = self._pairs.setdefault(span.sequence, [None] * self._layers)
            room = span.sequence.prompt_tokens + span.sequence.max_tokens
            pair = pairs[layer]
            if pair is None:
                pair = [mx.zeros((a.shape[0], room, a.shape[2]), a.dtype) for a in (keys, values)]
                pairs[layer] = pair
            for array, new in zip(pair, (keys, values), strict=True):
                array[:, span.start : span.stop] = new[:, span.first : span.first + span.length]

    def read(self, layer: int, span: RowSpan) -> Pair:
        pair = self._pairs[span.sequence][layer]
        assert pair is not None, "a layer is read after it was written"
        return pair[0][None, :, : span.stop], pair[1][None, :, : span.stop]

    def arrays(self, layer: int) -> list[mx.array]:
        return [array for pairs in self._pairs.values() for array in pairs[layer] or ()]

    def even(self, spans: list[RowSpan]) -> list[EvenRows]:
        return []

    def read_even(self, layer: int, rows: EvenRows) -> Pair:
        raise AssertionError("each request has arrays of its own: none are read together")

    def release(self, sequence: Sequence) -> None:
        self._pairs.pop(sequence, None)

    def written(self, span: RowSpan) -> list[mx.array]:
        return finite(*(array[:, span.start : span.stop] for array in self._pairs[span.sequence][-1] or ()))
