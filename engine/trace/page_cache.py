"""Keeps a long recording out of the memory that the system caches files in.

What a run writes is seldom read again soon, and a followed one of long contexts writes gigabytes: they would push out
what others have cached, and each of their pages would be memory that was not in use before. On a virtual machine that
is what recording costs most: 18 MB took 45 ms of the writer's thread, and 6 where memory that the file had held already
came around again.
"""

from __future__ import annotations

import os

PIECE = 8 * 2**20
"""Bytes of the file of which the system is told at once."""

_KEPT = 4
"""Pieces that may still be on their way to the disk when the next is told."""


class PageCache:
    """Tells the system which parts of a file that grows will not be read soon; where it cannot be told, nothing.

    Args:
        file: its descriptor.
    """

    def __init__(self, file: int) -> None:
        self._file, self._told = file, 0

    def written(self, size: int) -> None:
        """The file has so many bytes now."""
        while size - self._told >= PIECE:
            self._advise(self._told)  # is written out from now on: until it has been, it cannot be let go of
            self._advise(self._told - _KEPT * PIECE)
            self._told += PIECE

    def _advise(self, start: int) -> None:
        if start >= 0 and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file, start, PIECE, os.POSIX_FADV_DONTNEED)
