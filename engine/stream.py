"""What the captured rows of one pass wrote to the residual stream: from an array a layer to one a position.

NumPy alone once a layer has been computed, so that another thread may put it where it belongs while the device goes on.
What has been put there is let go of: a prompt's 256 positions are 53 MB in the built-in model, and were held twice.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

from engine.device import mx

import numpy as np

from engine.taps import Tape

LARGE_BYTES = 16 * 2**20
"""A pass's vectors are read when it is done up to here; of more, each layer's are read as it is computed."""

PIECE = 64
"""Positions of a large pass whose vectors lie in one array: whoever keeps those of one keeps the others'. Of fewer,
what puts them there would be many small pieces of work, for which the thread that submits the layers waits."""

TOGETHER = 16
"""Positions of a small pass whose vectors lie in one array, if it has no more and all of them become frames that end
together. Of others each has its own, so that whoever keeps one keeps no more than is counted."""

Written = tuple[str, int, mx.array]
"""What was written, the layer's index, and `[captured, …, hidden]` of it."""


class Stream:
    """The captured rows of one pass, which share it.

    Args:
        arrays: by name, one lazy `[captured, …, hidden]` a layer: `residual` (the embedding first: one more
            than layers), and where they are told apart `attention_out` and `mlp_out`. They are let go of as they are
            read.

    Attributes:
        layers: how many the model has.
        large: whether it is so large that it is read layer by layer (`engine.by_layer`).
        norms: by name `[captured, layers]` (of `residual` one more): L2 norms, float64, once all has been read.
        listed: likewise as lists, made when they are first asked for.
    """

    def __init__(self, arrays: dict[str, list[mx.array]]) -> None:
        self.layers = len(arrays["residual"]) - 1
        self._captured, *_, self._hidden = arrays["residual"][0].shape
        self.large = 4 * self._captured * self._hidden * sum(map(len, arrays.values())) > LARGE_BYTES
        self._arrays: dict[str, list[mx.array | None]] = {
            name: [_single(array) for array in written] if self.large or _as_is(written) else [_joined(written)]
            for name, written in arrays.items()
        }
        self._piece = PIECE
        self._wanted = 0
        self._all_read = False
        self._vectors: dict[str, list[np.ndarray]] = {}
        self.norms = {name: np.empty((self._captured, len(written))) for name, written in arrays.items()}

    @cached_property
    def listed(self) -> dict[str, list[list[Any]]]:
        return {name: norms.tolist() for name, norms in self.norms.items()}

    @cached_property
    def finite(self) -> bool:
        """Whether the whole stream is, once it has been read."""
        return bool(np.isfinite(self.norms["residual"]).all())

    @property
    def outputs(self) -> list[mx.array]:
        """What is still to be read."""
        return [array for written in self._arrays.values() for array in written if array is not None]

    def keep(self, positions: int) -> None:
        """Note that so many of the captured positions become frames, which hold them as they are."""
        self._wanted += positions

    def before(self, layer: int) -> list[Written]:
        """Of a large one, what is there when a layer begins, to be read: the stream itself, and what the layer before
        wrote to it.
        """
        found: list[Written] = []
        for name, written in self._arrays.items():
            index = layer if name == "residual" else layer - 1
            array = written[index] if 0 <= index < len(written) else None
            if array is not None:
                found.append((name, index, array))
                written[index] = None
        return found

    def read_all(self) -> None:
        """Read what is still to be read."""
        if self._all_read:
            return
        self._all_read = True
        for name, written in self._arrays.items():
            if self.large:
                for index, array in enumerate(written):
                    if array is not None:
                        written[index] = None  # let go of as it is read, or all would be held twice
                        self.read(name, index, np.asarray(array))
                continue
            left = [array for array in written if array is not None]
            written[:] = [None] * len(written)
            if name == "mlp_out" and len(left) > 1:  # not put together, which is most of what reading takes
                self.norms[name][:] = _norms_of([self._rows(array) for array in left])
            elif left:
                rows = put_together(left)
                self._read_rows(name, rows.reshape(self._captured, -1, self._hidden))

    def _rows(self, array: mx.array) -> np.ndarray:
        """`[captured, …]` of what is `[captured, …, …]`."""
        return np.asarray(array).reshape(self._captured, -1)

    def _read_rows(self, name: str, rows: np.ndarray) -> None:
        """Take in what was written in all layers, `[captured, layers, hidden]`."""
        self.norms[name][:] = _norms(rows)
        if name == "mlp_out":  # what the MLP wrote is what is left of a layer's change: its size is told, no more
            return
        together = self._wanted == self._captured <= TOGETHER
        self._piece = self._captured if together else 1
        self._vectors[name] = [rows] if together else [rows[index : index + 1].copy() for index in range(len(rows))]

    def read(self, name: str, index: int, block: np.ndarray) -> None:
        """Take in what was written in a layer of a large pass, `[captured, …, hidden]`."""
        block = block.reshape(self._captured, self._hidden)
        self.norms[name][:, index] = _norms(block)
        if name == "mlp_out":
            return
        if name not in self._vectors:
            sizes = [min(self._piece, self._captured - start) for start in range(0, self._captured, self._piece)]
            count = self.norms[name].shape[1]
            self._vectors[name] = [np.empty((size, count, self._hidden), np.float32) for size in sizes]
        for number, piece in enumerate(self._vectors[name]):
            start = number * self._piece
            piece[:, index] = block[start : start + len(piece)]

    def vectors(self, name: str, index: int) -> np.ndarray | None:
        """`[layers, hidden]` of one captured row, of `residual` or `attention_out`; None where it is not told apart."""
        pieces = self._vectors.get(name)
        return None if pieces is None else pieces[index // self._piece][index % self._piece]


def put_together(arrays: list[mx.array]) -> np.ndarray:
    """Arrays of as many rows, row by row one after the other: `[rows, …]`, to be given a shape."""
    try:
        return np.concatenate(cast("list[np.ndarray]", arrays), axis=1)  # reads them as it would NumPy's own
    except ValueError:  # a few models' layers differ in what stands between
        return np.concatenate([np.asarray(array).reshape(array.shape[0], -1) for array in arrays], axis=1)


def stream_of(tape: Tape, layers: int) -> Stream | None:
    """What a pass with that many layers left of its residual stream; None where the model has none."""
    if len(tape.residual) != layers + 1:
        return None
    arrays = {"residual": tape.residual}
    for name, written in (("attention_out", tape.attention_out), ("mlp_out", tape.mlp_out)):
        if len(written) == layers:
            arrays[name] = [written[layer] for layer in range(layers)]
    return Stream(arrays)


def _as_is(arrays: list[mx.array]) -> bool:
    """Whether the host reads arrays as they are. To join those of 31 layers on the device takes a CPU four times as
    long as to read them one by one, and the step waits for it.
    """
    return all(array.dtype == mx.float32 for array in arrays)


def _single(array: mx.array) -> mx.array:
    return array.astype(mx.float32)


def _joined(arrays: list[mx.array]) -> mx.array:
    """All layers, converted at once: `[captured, layers · hidden]` float32."""
    return _single(mx.concatenate([array.reshape(array.shape[0], -1) for array in arrays], axis=1))


def _norms_of(layers: list[np.ndarray]) -> np.ndarray:
    """L2 norms of one `[rows, hidden]` a layer, `[rows, layers]` float64, as `_norms` has them."""
    squares = np.empty((len(layers), len(layers[0])), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for layer, out in zip(layers, squares, strict=True):
            np.vecdot(layer, layer, out=out)
    if not _within(squares).all():
        return _norms(np.stack(layers, axis=1))
    norms: np.ndarray = np.sqrt(squares.T).astype(np.float64)
    return norms


def _norms(vectors: np.ndarray) -> np.ndarray:
    """L2 norms over the last axis, `[…]` float64; exact to single precision's last digits."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares: np.ndarray = np.vecdot(vectors, vectors)
    norms: np.ndarray = np.sqrt(squares).astype(np.float64)
    within = _within(squares)
    if not within.all():
        norms[~within] = np.linalg.norm(vectors[~within].astype(np.float64), axis=-1)
    return norms


def _within(squares: np.ndarray) -> np.ndarray:
    """Which sums of squares say what they should: those of large numbers are infinite in single precision, those of
    small ones nothing.
    """
    within: np.ndarray = (squares > 1e-30) & (squares < np.inf)
    return within
