"""The two ways in which a step's rows go through the model.

`BatchedForward` runs all rows in one pass over a KV store, as a flat list of tokens (`engine.kv`). `SeparateForward`
runs a pass for each row with the caches that mlx-lm makes for the model: slower, and right for every model, whatever
its caches hold.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from engine.device import mx

from mlx_lm.models.cache import make_prompt_cache

from engine.captured import Captured, collect
from engine.joined import Joined, Scores
from engine.keys import KeyPositions
from engine.kv.even import WASTE
from engine.kv.paged import PagedStore, slots
from engine.kv.ragged import RaggedBatch, Seen
from engine.kv.store import KVStore, RowSpan, Run
from engine.memory import Memory
from engine.proof import Turns
from engine.runner import Pass
from engine.scheduler import Row
from engine.sequence import Sequence
from engine.stream import stream_of
from engine.taps import Tape, Taps

Request = tuple[Row, mx.array, list[int]]
"""A row, its `[L]` tokens, and the indices of the positions to capture."""
Outcome = tuple[mx.array | None, Captured | None]


class BatchedForward:
    """All rows in one pass."""

    batched = True

    def __init__(self, taps: Taps, store: KVStore, memory: Memory) -> None:
        self.store = store
        self._taps = taps
        self._memory = memory
        self._layers = len(taps.structure.layers)
        self._turns = Turns(self._layers)
        self._spans: dict[Sequence, RowSpan] = {}
        """Of the last step."""
        self._under_way: tuple[list[Request], RaggedBatch] | None = None
        self._copied: list[Run] = []
        """Where blocks were copied to since."""

    def lay_out(self, rows: list[Request]) -> Pass:
        return partial(self._run, rows, self._laid_out(rows))

    def _run(self, rows: list[Request], spans: list[RowSpan]) -> list[Outcome]:
        tested = self._turns.next() if any(span.wanted for span in spans) else None
        batch = RaggedBatch(self.store, spans, tested)
        choosing = [span.first + span.length - 1 for span, (row, _, _) in zip(spans, rows, strict=True) if row.chooses]
        tape = Tape(
            rows=[span.first + index for span in spans for index in span.wanted],
            logit_rows=choosing or [0],  # never evaluated when nobody chooses
            flat=True,
        )
        tokens = rows[0][1] if len(rows) == 1 else mx.concatenate([tokens for _, tokens, _ in rows])
        self._under_way = rows, batch
        try:
            logits = self._taps.forward(tokens[:, None], batch.views(self._layers), tape)
        finally:
            self._under_way = None
        return self._outcomes(rows, batch, tape, logits)

    def of_layer(self, layer: int) -> list[tuple[Sequence, Captured]]:
        assert self._under_way is not None, "there is nothing to be had of a pass that does not run"
        rows, batch = self._under_way
        seen = []
        calls = batch.seen.pop(layer, {})
        for index, (row, _, wanted) in enumerate(rows):
            call, place = batch.places[index]
            if not wanted or call not in calls or not self._shown(calls[call]):
                continue
            captured = _alone(row, wanted, layer, [*calls[call].pieces])
            captured.scores = Scores([calls[call].softmax], place, row.stop)
            evidence = batch.evidence.get(index)
            captured.evidence = evidence if evidence is not None and evidence.layer == layer else None
            seen.append((row.sequence, captured))
        return seen

    def copy(self, source: int, target: int) -> None:
        assert isinstance(self.store, PagedStore), "only a paged store has blocks"
        self._copied.append(self.store.copy(source, target))

    def release(self, sequence: Sequence) -> None:
        self.store.release(sequence)

    def wipe(self) -> None:
        if isinstance(self.store, PagedStore):
            self.store.wipe(self._memory.unheld())

    def written(self, sequence: Sequence) -> list[mx.array]:
        return self.store.written(self._spans[sequence])

    def _laid_out(self, rows: list[Request]) -> list[RowSpan]:
        """The rows' spans, each with the limit up to which it may read.

        What the last step wrote has not been looked at when the next one is built. Its rows that go on read it
        themselves; but where a request is gone, or a block was copied, nobody else may yet.
        """
        going_on = {row.sequence for row, _, _ in rows}
        unseen = [run for sequence, span in self._spans.items() if sequence not in going_on for run in slots(span)]
        unseen += self._copied
        spans, first = [], 0
        for row, _, wanted in rows:
            runs = self._memory.runs(row.sequence.id, row.stop)
            limit = self._memory.limit(row.sequence.id, 2 * WASTE)
            end = runs[-1][1] if runs else 0
            limit = min([limit, *(max(start, end) for start, stop in unseen if stop > end)])
            spans.append(RowSpan(row.sequence, row.start, row.stop, first, wanted, runs, limit))
            first += row.stop - row.start
        self._spans, self._copied = {span.sequence: span for span in spans}, []
        return spans

    def _outcomes(self, rows: list[Request], batch: RaggedBatch, tape: Tape, logits: mx.array) -> list[Outcome]:
        outcomes: list[Outcome] = []
        calls: dict[int, _Call] = {}
        stream = stream_of(tape, self._layers)
        chosen = captured = 0
        for index, (row, _, wanted) in enumerate(rows):
            chosen_logits = None
            if row.chooses:
                chosen_logits = logits[chosen]
                chosen += 1
            seen = None
            if wanted:
                number, place = batch.places[index]
                call = calls.get(number)
                if call is None:
                    of_layers = {layer: at[number] for layer, at in batch.seen.items() if number in at}
                    call = calls[number] = _Call(
                        {layer: seen for layer, seen in of_layers.items() if self._shown(seen)}
                    )
                positions = slice(captured, captured + len(wanted))
                seen = collect(row, wanted, stream, tape, call.layers, call.pieces(), positions)
                if call.layers:
                    seen.scores = Scores(call.softmaxes, place, row.stop)
                    seen.evidence = batch.evidence.get(index)
                    seen.joined = call.joined
                captured += len(wanted)
            outcomes.append((chosen_logits, seen))
        return outcomes

    def _shown(self, seen: Seen) -> bool:
        """Whether a layer has as many heads as a frame of attention has: a few architectures vary them by layer."""
        return math.prod(seen.pieces[0].shape[1:-2]) == self._taps.structure.heads


class _Call:
    """What the rows of one call of the kernel, the same in every layer, are captured from.

    Args:
        seen: by layer.
    """

    def __init__(self, seen: dict[int, Seen]) -> None:
        self.layers = sorted(seen)
        self._seen = [seen[layer] for layer in self.layers]
        self.softmaxes = [one.softmax for one in self._seen]
        self._pieces = [one.pieces for one in self._seen]
        self.joined = Joined.of(self._pieces, self.softmaxes)

    def pieces(self) -> list[list[mx.array]]:
        """By layer, for one of the rows: it lets go of them as it reads. Where all are joined it reads that."""
        return self._pieces if self.joined is not None else [[*pieces] for pieces in self._pieces]


class SeparateForward:
    """A pass for each row, with the model's own kinds of cache."""

    batched = False

    def __init__(self, taps: Taps) -> None:
        self._taps = taps
        self._layers = len(taps.structure.layers)
        self._turns = Turns(self._layers)
        self._caches: dict[Sequence, list[Any]] = {}
        self._keys: dict[Sequence, KeyPositions] = {}
        self._under_way: tuple[Row, list[int], Tape] | None = None

    def lay_out(self, rows: list[Request]) -> Pass:
        return lambda: [self._row(*request) for request in rows]

    def of_layer(self, layer: int) -> list[tuple[Sequence, Captured]]:
        assert self._under_way is not None, "there is nothing to be had of a pass that does not run"
        row, wanted, tape = self._under_way
        if layer not in tape.attention:
            return []
        pieces = tape.attention.pop(layer)
        if not self._shown(pieces):
            return []
        captured = _alone(row, wanted, layer, pieces)
        captured.evidence = tape.evidence if tape.evidence is not None and tape.evidence.layer == layer else None
        return [(row.sequence, captured)]

    def copy(self, source: int, target: int) -> None:
        raise AssertionError("a store without blocks is never asked to copy one")

    def wipe(self) -> None:
        """Each request has arrays of its own, which end with it."""

    def release(self, sequence: Sequence) -> None:
        self._caches.pop(sequence, None)
        keys = self._keys.pop(sequence, None)
        if keys is not None:
            keys.release()

    def written(self, sequence: Sequence) -> list[mx.array]:
        # Not whether all is finite: a state may begin at minus infinity.
        return [~mx.any(mx.isnan(array)) for cache in self._caches[sequence] for array in _arrays(cache.state)]

    def _row(self, row: Row, tokens: mx.array, wanted: list[int]) -> Outcome:
        cache = self._caches.get(row.sequence) or self._open(row.sequence)
        keys = self._keys.get(row.sequence)
        tested = self._turns.next() if wanted else None
        tape = Tape(rows=wanted, logit_rows=[row.stop - row.start - 1], keys=keys, tested=tested)
        if keys is not None:
            keys.begin(row.start, row.stop - row.start)
        self._under_way = row, wanted, tape
        try:
            logits = self._taps.forward(tokens[None], cache, tape)
        finally:
            self._under_way = None
            if keys is not None:
                keys.end()
        captured = None
        if wanted:
            seen = [layer for layer in sorted(tape.attention) if self._shown(tape.attention[layer])]
            pieces = [tape.attention[layer] for layer in seen]
            captured = collect(row, wanted, stream_of(tape, self._layers), tape, seen, pieces, slice(None))
            captured.evidence = tape.evidence if tested in seen else None
        return (logits[0] if row.chooses else None), captured

    def _shown(self, pieces: list[mx.array]) -> bool:
        """As of rows that go together."""
        return pieces[0].shape[0] == self._taps.structure.heads

    def _open(self, sequence: Sequence) -> list[Any]:
        self._caches[sequence] = make_prompt_cache(self._taps.model)
        if sequence.plan.arrays:
            self._keys[sequence] = KeyPositions(self._caches[sequence])
        return self._caches[sequence]


def _alone(row: Row, wanted: list[int], layer: int, pieces: list[mx.array]) -> Captured:
    """One layer's attention of a row, and nothing else of it."""
    return Captured([row.start + index for index in wanted], [layer], slice(None), [pieces])


def _arrays(state: object) -> list[mx.array]:
    """The arrays in a cache's state, however nested."""
    if isinstance(state, mx.array):
        return [state]
    if isinstance(state, (list, tuple)):
        return [array for item in state for array in _arrays(item)]
    return []
