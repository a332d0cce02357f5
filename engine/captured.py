"""What a step captured of one row, as the pass left it, and how it is read on the host."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from engine.device import mx

import numpy as np

from engine.attention import probabilities
from engine.attention_rows import AttentionRows
from engine.capture_schedule import WHOLE, CaptureSchedule
from engine.experts import Routed
from engine.joined import Joined, Scores, alike
from engine.proof import Evidence
from engine.scheduler import Row
from engine.stream import Stream
from engine.taps import Tape

BY_LAYER_BYTES = 16 * 2**20
"""A prompt's scores of all layers are held at once up to here: of long ones they would take gigabytes. Of rows that
decode together it is four times as much, since a pass of few tokens is slowed down more by what waits in it."""

PIECE = 64
"""Positions whose probabilities are made at once: no later key is looked at, and what is worked out stays in the
processor's cache."""

BLOCK_BYTES = 2**21
"""How much attention is worked out at once, in layers; never less than one."""

STACKED_BYTES = 2**16
"""Smaller arrays are put together before they are worked with; to copy larger ones costs more than it saves."""


@dataclass(slots=True)
class Captured:
    """What one row captured: arrays as the pass left them, put together on the host when the step is done.

    Little is stacked and nothing reduced in the graph: every small operation there takes part in the step's time.

    Attributes:
        positions: the query positions.
        layers: the layers in `pieces`.
        place: where this row's positions are among the pass's captured ones; attention is this row's alone.
        pieces: by layer, attention `[heads, positions, keys]` in float32, long prompts' in pieces of the positions
            (`engine.attention.pieces_of`); layers that have been read are gone.
        stream: what the pass's captured rows wrote to the residual stream; None where there is none, or none is wanted.
        head_out: by layer `[captured, heads, …, head_dim]`: what each head gave to the output projection.
        experts: by layer, which experts the captured rows of the pass went to.
        evidence: what the kernel read and gave for one of the positions in one layer, where that is to be tested.
        scores: set when `pieces` are `[rows, heads, positions, keys]`, of this row and perhaps others.
        joined: takes the place of `pieces`, where all layers are held as one.
        rows: what the request's plan makes of the attention.
        told: layers whose attention was told while the pass ran (`engine.runner.Runner.timed`), and is not here.
    """

    positions: list[int]
    layers: list[int]
    place: slice
    pieces: list[list[mx.array]] = field(default_factory=list)
    stream: Stream | None = None
    scores: Scores | None = None
    joined: Joined | None = None
    head_out: dict[int, mx.array] = field(default_factory=dict)
    experts: dict[int, Routed] = field(default_factory=dict)
    evidence: Evidence | None = None
    rows: AttentionRows | None = None
    told: list[int] = field(default_factory=list)

    @property
    def outputs(self) -> list[mx.array]:
        """This row's own arrays to be evaluated with the step: all, or all but what is evaluated layer by layer."""
        outputs = [] if self.by_layer else [piece for pieces in self.pieces for piece in pieces]
        if self.scores is not None:
            outputs += [one.sinks for one in self.scores.softmaxes if one is not None and one.sinks is not None]
        outputs += [*self.head_out.values()]
        outputs += [array for noted in self.experts.values() for array in noted.arrays]
        return outputs if self.evidence is None else outputs + self.evidence.arrays

    @property
    def shared(self) -> Iterator[Stream | Joined]:
        """What it shares with other rows of the pass, and is evaluated with the step."""
        if self.joined is not None:
            yield self.joined
        if self.stream is not None and not self.stream.large:
            yield self.stream

    @property
    def by_layer(self) -> bool:
        """Whether attention is so large that it is evaluated and read layer by layer (`engine.by_layer`)."""
        most = BY_LAYER_BYTES * (4 if len(self.positions) == 1 else 1)
        return 4 * sum(piece.size for pieces in self.pieces for piece in pieces) > most

    def keep(self, captures: CaptureSchedule) -> None:
        """Let go of what the request's plan does not ask for: never evaluated, it is never computed either."""
        wanted = captures.plan.wanted
        if wanted <= {"attention"}:
            self.stream = None
        elif self.stream is not None and self._all_framed(captures):
            self.stream.keep(len(self.positions))
        wanted_heads = self.head_out if "attribution" in wanted else {}
        self.head_out = {layer: out.astype(mx.float32) for layer, out in wanted_heads.items()}
        if self.evidence is not None and self.evidence.layer not in captures.layers:
            self.evidence = None
        if not set(self.layers) <= set(captures.layers):
            kept = [index for index, layer in enumerate(self.layers) if layer in captures.layers]
            self.layers = [self.layers[index] for index in kept]
            self.pieces = [[*self.pieces[index]] for index in kept]
            self.joined = None
            if self.scores is not None:
                self.scores = replace(self.scores, softmaxes=[self.scores.softmaxes[index] for index in kept])
        if self.joined is not None:
            self.pieces = []
            assert self.scores is not None, "rows that decode together share their scores"
            if self._is_frame(captures):
                self.joined.keep(self.scores.row, self.scores.keys)
        if self.layers:
            tested = None if self.evidence is None else (self.evidence.layer, self.evidence.index)
            composed = self.scores is not None and all(softmax is None for softmax in self.scores.softmaxes)
            self.rows = AttentionRows(self.positions, self.layers, captures, tested, complete=composed)

    def _is_frame(self, captures: CaptureSchedule) -> bool:
        """Whether what the pass left of this row's attention, in all layers, is a frame as it is."""
        if len(self.positions) > 1 or captures.forms[self.positions[0]] != WHOLE or not self._weighed(0):
            return False  # of scores, weights have to be made
        sees_all = self.scores is not None and self.scores.keys == self.positions[0] + 1  # but a prompt's row
        return sees_all and captures.dtype.itemsize == 4 and len(captures.heads) == captures.visible.heads

    def _all_framed(self, captures: CaptureSchedule) -> bool:
        """Whether what this row wrote to the residual stream goes into frames as it is: then an array that it shares
        with others that decode is held for as long as theirs, and no longer.
        """
        whole = len(self.positions) == 1 and captures.forms[self.positions[0]] == WHOLE
        return whole and captures.dtype.itemsize == 4 and {"residual", "attention_out"} <= captures.plan.wanted

    def read(self, index: int, start: int, piece: np.ndarray) -> None:
        """Take in a piece of the attention of the layer at an index in `layers`, as evaluated. Touches nothing of MLX.

        Args:
            start: index in `positions` of the piece's first.
        """
        self._take(index, start, self._own(piece)[None])

    def read_all(self) -> None:
        """Take in the attention of all layers that are still to be read."""
        if self.joined is not None and self.joined.framed:
            assert self.rows is not None, "attention is read for the rows that a plan asks for"
            assert self.scores is not None, "rows that decode together share their scores"
            joined, self.joined, row = self.joined, None, self.scores.row
            self.rows.take_frame(joined.frame(row), joined.sums(row), joined.error(row))
            return
        for first, start, seen in self._blocks():
            self._take(first, start, seen)

    def attention(self) -> Iterator[np.ndarray]:
        """Probabilities of the layers still to be read, in order: `[some layers, heads, positions, keys]` at a time.

        Of a long prompt, some positions at a time, too.
        """
        for first, start, seen in self._blocks():
            yield self._weights(first, seen, self.positions[start : start + seen.shape[2]])

    def _take(self, first: int, start: int, seen: np.ndarray) -> None:
        """Take in layers from an index on, always with as many keys: how a row is added up is part of its last bit."""
        assert self.rows is not None, "attention is read for the rows that a plan asks for"
        for offset in range(0, seen.shape[2], PIECE):
            piece = seen[:, :, offset : offset + PIECE]
            index = start + offset
            keys = self.positions[index - index % PIECE :][:PIECE][-1] + 1
            positions = self.positions[index : index + piece.shape[2]]
            weights = self._weights(first, piece[..., :keys], positions)
            self.rows.take(first, weights, index, ours=weights.flags.owndata or seen.flags.owndata)

    def _blocks(self) -> Iterator[tuple[int, int, np.ndarray]]:
        """What the pass left of the layers still to be read, some layers at a time.

        As many layers as `BLOCK_BYTES` hold: small arrays are dear one by one, and all layers of a long prompt would
        take gigabytes. They can be had once: they are let go of.

        Returns:
            The index of the first layer, the index of the first position, and `[layers, heads, positions, keys]`.
        """
        if self.joined is not None:
            assert self.scores is not None, "rows that decode together share their scores"
            joined, self.joined = self.joined, None
            yield 0, 0, joined.row(self.scores.row, self.scores.keys)
            return
        first = len(self.layers) - len(self.pieces)
        while self.pieces:
            pieces, start = self.pieces.pop(0), 0
            while len(pieces) > 1:
                seen = self._own(np.asarray(pieces.pop(0)))[None]
                yield first, start, seen
                start += seen.shape[2]
            block = [self._own(np.asarray(pieces.pop()))]
            size = block[0].nbytes
            most = 1 if start or size >= STACKED_BYTES else BLOCK_BYTES // max(1, size)
            if len(self.positions) == 1 and self._weighed(first):
                most = len(self.layers)  # put together they are a frame
            while self.pieces and len(block) < most and self._goes_with(first, first + len(block), block[0]):
                block.append(self._own(np.asarray(self.pieces.pop(0).pop())))
            several, count = block[0][None] if len(block) == 1 else np.stack(block), len(block)
            del block
            yield first, start, several
            first += count

    def _weights(self, first: int, seen: np.ndarray, positions: list[int]) -> np.ndarray:
        """Probabilities of layers from an index on, of what the pass left of them."""
        softmax = None if self.scores is None else self.scores.softmaxes[first]
        return seen if softmax is None else probabilities(seen, softmax, positions)

    def _weighed(self, index: int) -> bool:
        """Whether what the pass left of the layer at an index are probabilities."""
        return self.scores is None or self.scores.softmaxes[index] is None

    def _own(self, seen: np.ndarray) -> np.ndarray:
        return seen if self.scores is None else self.scores.own(seen)

    def _goes_with(self, first: int, index: int, block: np.ndarray) -> bool:
        """Whether the next layer, at an index, can be worked out together with the first one of a block."""
        array, *more = self.pieces[0]
        if more:
            return False
        if self.scores is None:
            return array.shape == block.shape
        as_many = (math.prod(array.shape[1:-2]), array.shape[-2]) == block.shape[:2]  # heads and positions
        return as_many and alike(self.scores.softmaxes[first], self.scores.softmaxes[index])

    def heads(self, index: int) -> dict[int, np.ndarray]:
        """By layer `[heads, head_dim]` of the position at an index: copies."""
        first = self.place.start or 0
        return {
            layer: np.array(np.asarray(out)[first + index]).reshape(out.shape[1], -1)
            for layer, out in self.head_out.items()
        }


def outputs_of(rows: Iterable[Captured]) -> list[mx.array]:
    """What is to be evaluated with the step of what rows of one pass captured, what they share once."""
    rows = list(rows)
    shared = {id(some): some for captured in rows for some in captured.shared}
    own = [array for captured in rows for array in captured.outputs]
    return own + [array for some in shared.values() for array in some.outputs]


def collect(
    row: Row,
    wanted: list[int],
    stream: Stream | None,
    tape: Tape,
    layers: list[int],
    pieces: list[list[mx.array]],
    place: slice,
) -> Captured:
    """Gather what the taps saw of one row.

    Args:
        wanted: indices of the captured positions in the row.
        stream: of the pass.
        tape: of the pass; its captured rows are in order of rows and positions.
        layers: where attention was seen.
        pieces: of each of them, `[heads, wanted, keys]` in pieces: scores or probabilities.
        place: where this row's captured positions are among the tape's.
    """
    positions = [row.start + index for index in wanted]
    return Captured(positions, layers, place, pieces, stream, head_out=tape.head_out, experts=tape.experts)
