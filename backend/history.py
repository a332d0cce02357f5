"""The newest frames of the run, kept in memory for clients that join late, reconnect, or are slow."""

from __future__ import annotations

import threading

from engine.codec import Frame

LIMIT_BYTES = 64 * 2**20


class History:
    """A ring of frames bounded by bytes. The one thread that appends never waits for those that read.

    All clients read the same ring, each at its own place, so a slow client costs no memory: it falls out of the
    ring's old end and is told what it lacks.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._frames: dict[int, Frame] = {}
        self._oldest = 1
        self._newest = 0
        self._bytes = 0
        self._lock = threading.Lock()

    def append(self, frame: Frame) -> None:
        """Add the next frame. The bus numbers events without holes, so `seq` is always the newest plus one."""
        with self._lock:
            if not self._frames:
                self._oldest = frame.seq
            self._frames[frame.seq] = frame
            self._newest = frame.seq
            self._bytes += frame.size
            # The newest frame stays, however large: who is up to date must never see a gap.
            while self._bytes > self.limit_bytes and self._oldest < self._newest:
                self._bytes -= self._frames.pop(self._oldest).size
                self._oldest += 1

    @property
    def oldest(self) -> int:
        """`seq` of the oldest frame kept; `newest` + 1 when there is none."""
        return self._oldest if self._frames else self._newest + 1

    @property
    def newest(self) -> int:
        """`seq` of the newest frame; 0 before the first."""
        return self._newest

    @property
    def size_bytes(self) -> int:
        """Payload bytes of all that is kept."""
        return self._bytes

    def get(self, seq: int) -> Frame | None:
        """The frame, or None when it is no longer or not yet here."""
        return self._frames.get(seq)

    def newer_half(self) -> int:
        """`seq` from which on the ring holds about half of its bytes: where a client that fell behind goes on."""
        with self._lock:
            size = 0
            for seq in range(self._newest, self._oldest, -1):
                size += self._frames[seq].size
                if size > self.limit_bytes // 2:
                    return seq
            return self._oldest
