"""The end of a file that grows: what is written past it is with the operating system when `Sink.write` returns.

What a run writes is seldom read again soon, and a followed one of long contexts writes gigabytes. Put into the memory
that the system caches files in, they would push out what others have there, and on a busy machine that memory is what
recording costs most: following 8 streams with 2,000 tokens behind them, 18 MB a step, took 19 % of their rate, 9 where
the system was told to let go of it soon, and 5 past it. So large writes go past it, where the system has a way
(O_DIRECT). But it can take in at once what a disk takes a while for: who is in a hurry writes through it.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import IO, Any

BLOCK = 4096
"""What is written past the cache begins and ends at multiples of this, in the file and in memory."""

LARGE = 2**18
"""Smaller writes are not worth going past the cache."""

PIECE = 8 * 2**20
"""Bytes of what went through the cache of which the system is told at once that nobody will read them soon."""

_PIECES_KEPT = 4
"""As many may still be on their way to the disk when the next is told."""


class Sink:
    """Appends to one file.

    Args:
        file: unbuffered, open for writing, at its end.
        cached: whether it is to stay in the system's cache, since somebody will read it soon.

    Attributes:
        taken: bytes that the system has taken so far, those of a write under way included.
    """

    def __init__(self, file: IO[Any], *, cached: bool = False) -> None:
        self._file, self._cached = file, cached
        self._direct: int | None = None
        self._refused = cached or not hasattr(os, "O_DIRECT")
        """Whether the system has no way past the cache, or not for this file."""
        self._told = 0
        self.taken = 0

    def write(self, data: bytes | memoryview, at: int, *, staged: bool = False, hurry: bool = False) -> None:
        """Write from an offset on, which is the file's end.

        Args:
            data: what is written.
            at: the offset.
            staged: whether the data lies as far behind a page of memory as it will in the file.
            hurry: whether it must be taken at once.

        Raises:
            OSError: when the disk does not take it. Some of it may have been written then.
        """
        whole = memoryview(data)
        size = len(whole)
        if size < LARGE or not staged or hurry or not self._can_go_past():
            self._write(whole)
            self._let_go(at + size)
            return
        first = min(size, -at % BLOCK)
        last = first + (size - first) // BLOCK * BLOCK
        self._write(whole[:first])
        self._write_past(whole[first:last], at + first)
        self._file.seek(at + last)
        self._write(whole[last:])

    def close(self) -> None:
        """Close what was opened here, and the file.

        Raises:
            OSError: when the disk tells only now that it has not taken everything.
        """
        try:
            self._close_direct()
        finally:
            self._file.close()

    def _write(self, part: bytes | memoryview) -> None:
        rest = memoryview(part)
        while rest:
            written = self._file.write(rest)
            self.taken += written
            rest = rest[written:]

    def _can_go_past(self) -> bool:
        if self._direct is None and not self._refused:
            try:
                # By its descriptor: under its name there may be another file by now.
                self._direct = os.open(f"/proc/self/fd/{self._file.fileno()}", os.O_WRONLY | os.O_DIRECT)
            except OSError:  # this file system has no such way
                self._refused = True
        return not self._refused

    def _write_past(self, blocks: memoryview, at: int) -> None:
        while blocks and not self._refused:
            assert self._direct is not None
            try:
                written = os.pwrite(self._direct, blocks, at)
            except OSError as error:
                if error.errno != errno.EINVAL:  # this disk has larger blocks, or the file system changed its mind
                    raise
                self._refused = True
            else:
                self.taken += written
                blocks, at = blocks[written:], at + written
        if blocks:
            self._file.seek(at)
            self._write(blocks)

    def _close_direct(self) -> None:
        if self._direct is not None:
            direct, self._direct, self._refused = self._direct, None, True
            os.close(direct)

    def _let_go(self, size: int) -> None:
        """Have the system let go of what went through its cache, but for the last pieces."""
        while not self._cached and size - self._told >= PIECE:
            self._advise(self._told)  # is written out from now on: until it has been, it cannot be let go of
            self._advise(self._told - _PIECES_KEPT * PIECE)
            self._told += PIECE

    def _advise(self, start: int) -> None:
        if start >= 0 and hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # it is advice: who cannot take it has lost nothing
                os.posix_fadvise(self._file.fileno(), start, PIECE, os.POSIX_FADV_DONTNEED)
