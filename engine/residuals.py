"""What recent passes wrote to the residual stream, kept in memory for whoever looks later."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

KEPT_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Kept:
    """What one position's pass left.

    Attributes:
        residual: `[layers + 1, hidden]`: the embedding, then the stream after each layer.
        attention_out: `[layers, hidden]`: what attention added; None where it cannot be told from the MLP.
        head_out: by layer `[heads, head_dim]`: what each head gave to the output projection, where that was seen.
    """

    residual: np.ndarray
    attention_out: np.ndarray | None = None
    head_out: dict[int, np.ndarray] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        out = 0 if self.attention_out is None else self.attention_out.nbytes
        return self.residual.nbytes + out + sum(heads.nbytes for heads in self.head_out.values())


class ResidualStore:
    """The residuals recorded last, by request and position, up to a number of bytes: the oldest go first."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[str, int], Kept] = OrderedDict()

    def put(self, request: str, position: int, kept: Kept) -> None:
        """Keep what a position's pass left, in the place of what an earlier one did."""
        before = self._kept.pop((request, position), None)
        self._bytes += kept.nbytes - (0 if before is None else before.nbytes)
        self._kept[request, position] = kept
        while self._bytes > self._kept_bytes and self._kept:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.nbytes

    def get(self, request: str, position: int) -> Kept | None:
        return self._kept.get((request, position))
