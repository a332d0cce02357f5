"""What every KV store offers to a batch of rows of different lengths.

A step runs the new positions of several requests as one flat list of N tokens, `[N, 1]` to the model: every matrix
multiplication sees them all, and nothing is padded. Only attention has to know whose token is whose: there each row's
queries meet that row's keys, as many as there are. A `LayerView` stands in for the cache that the model expects, and
hands it a `Handle` in place of keys and values, which the attention tap resolves (`engine.kv.ragged`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from engine.device import mx

from engine.sequence import Sequence

if TYPE_CHECKING:
    from engine.kv.even import EvenRows

Run = tuple[int, int]
"""Consecutive slots [start, stop) of a paged store."""


@dataclass(frozen=True, slots=True)
class RowSpan:
    """One request's part of a batch: positions start ≤ p < stop, at `first` in the flat list of tokens."""

    sequence: Sequence
    start: int
    stop: int
    first: int
    wanted: list[int] = field(default_factory=list)
    """Indices into the span whose attention is captured."""
    runs: list[Run] = field(default_factory=list)
    """Slots of positions 0 … stop, for a paged store."""
    limit: int = 0
    """The slot behind its last run from which on there may be what is not finite, or at which the store ends."""

    @property
    def length(self) -> int:
        return self.stop - self.start


class KVStore(Protocol):
    """Keys and values of all requests, for the layers of one model."""

    name: str

    def write(self, layer: int, spans: list[RowSpan], keys: mx.array, values: mx.array) -> None:
        """Store the new positions of all spans: `[kv_heads, N, head_dim]` each."""

    def read(self, layer: int, span: RowSpan) -> tuple[mx.array, mx.array]:
        """Keys and values of a span's request, `[1, kv_heads, stop, head_dim]` each."""

    def arrays(self, layer: int) -> list[mx.array]:
        """All that is stored for a layer, to wait for what was written; not to be kept, like everything stored."""

    def even(self, spans: list[RowSpan]) -> list[EvenRows]:
        """The decoding rows that can be read together."""

    def read_even(self, layer: int, rows: EvenRows) -> tuple[mx.array, mx.array]:
        """Keys and values of such rows, `[rows, kv_heads, keys, head_dim]` each."""

    def release(self, sequence: Sequence) -> None:
        """The request has ended, or gave way: its arrays may go."""

    def written(self, span: RowSpan) -> list[mx.array]:
        """For each array of the last layer, whether all that a span wrote to it is finite: once these are evaluated,
        its KV is there.

        Never the stored arrays themselves, nor views of them: whoever holds one makes the next write copy all of it.
        """


def finite(*written: mx.array) -> list[mx.array]:
    """Whether each array holds finite numbers alone, as one truth value each."""
    return [mx.all(mx.isfinite(array)) for array in written]


class Handle:
    """Stands for one layer's keys and values between the cache and the attention kernel."""

    __slots__ = ("batch", "layer")

    def __init__(self, batch: Any, layer: int) -> None:
        self.batch = batch
        self.layer = layer


class LayerView:
    """What the model takes for the KV cache of one layer: mlx-lm's cache protocol, for a flat batch.

    Attributes:
        offset: `[N]`, the position of each token: rotary embedding is applied token by token.
    """

    def __init__(self, batch: Any, layer: int, offset: mx.array) -> None:
        self.offset = offset
        self._handle = Handle(batch, layer)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Handle, Handle]:
        """Store `[N, kv_heads, 1, head_dim]`; the keys to attend to are found when attention runs."""
        batch, layer = self._handle.batch, self._handle.layer
        batch.store.write(layer, batch.spans, keys[:, :, 0].swapaxes(0, 1), values[:, :, 0].swapaxes(0, 1))
        return self._handle, self._handle

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> None:
        """No mask: each row attends to its own keys alone, and to none after it.

        Raises:
            NotImplementedError: for a sliding window or an explicit mask, which a flat batch cannot carry.
        """
        if window_size is not None or return_array:
            raise NotImplementedError("a flat batch carries neither sliding windows nor explicit masks")
