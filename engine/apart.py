"""An array that lies in several places, so that what the device left of each layer need not be copied to be told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


class Apart:
    """An array whose parts along its first axis lie apart in memory.

    It has what a frame is made from: of long contexts each step's attention is megabytes, and to put them together
    takes as long as to write them down. Whoever wants to calculate with it takes `np.asarray` of it.

    Args:
        parts: alike, at least one; each contiguous along its last axis.
    """

    __slots__ = ("dtype", "parts", "shape")

    def __init__(self, parts: list[np.ndarray]) -> None:
        self.parts = parts
        self.shape = (len(parts), *parts[0].shape)
        self.dtype: np.dtype[Any] = parts[0].dtype
        assert all(part.strides[-1] == part.itemsize for part in parts), "rows are written as they lie"

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __getitem__(self, index: int) -> np.ndarray:
        return self.parts[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("what lies apart is put together by copying it")
        return np.stack(self.parts).astype(dtype or self.dtype, copy=False)
