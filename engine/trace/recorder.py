"""Records a run as it happens: a bus listener that writes trace files on a thread of its own."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from engine.codec import Frame
from engine.errors import TraceError
from engine.trace import layout
from engine.trace.writer import CHUNK_ENDS, TraceWriter

_IDLE_S = 0.1  # a chunk that nothing ends is written after so long a silence
_WAKE_BYTES = 4 << 20  # the writer wakes for batches: a wake-up a frame would cost the engine thread its GIL
_TOLD_BYTES = 1 << 18  # whoever waits for room is told after so much, not after each frame
_PER_FRAME_BYTES = 200  # what a queued frame takes beside its payload

log = logging.getLogger(__name__)


class Recorder:
    """Writes every frame it is called with, losing none, and never harms the run when the disk fails.

    A call only queues the frame. While the disk is so slow that more than `queue_bytes` wait, the call waits too, for
    `patience_s` at most; after that, after any error of the disk, and when the file has been deleted, recording stops
    for good: `failure` says why in one line, `on_failure` is called with it (on whichever thread noticed; without one
    it is logged), and later frames only count as `frames_lost`. The file lacks its index then, and reads as cut off.

    Past `part_bytes` the run continues in a next file (``run.mcap``, ``run-2.mcap``, …); each begins with run.header.

    Args:
        path: the first file; one that is there already is replaced.
        header: the run's header, where it was emitted before this listener was subscribed (`EventBus.header`).

    Raises:
        TraceError: when the file cannot be created.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        header: Frame | None = None,
        part_bytes: int = layout.PART_BYTES,
        queue_bytes: int = 64 << 20,
        patience_s: float = 5.0,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        self.paths = [Path(path)]
        self.failure: str | None = None
        self._header = header
        self._part_bytes, self._queue_bytes, self._patience_s = part_bytes, queue_bytes, patience_s
        self._on_failure = on_failure
        self._writer = TraceWriter(path, facts=self._facts(1), live=True)
        self._earlier_bytes = self._earlier_frames = 0  # of the parts before the one being written
        self._queue: deque[Frame] = deque()
        self._queued_bytes = 0  # the frame being written included
        self._given = 0  # frames
        self._taken = 0  # frames that the writer's thread has taken from the queue
        self._flushed = 0  # frames that were on disk after the latest flush
        self._flush_wanted = 0
        self._due = self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="tokenwalk-recorder", daemon=True)
        if header is not None:
            self._queue.append(header)
            self._given = 1
            self._queued_bytes = header.size + _PER_FRAME_BYTES
        self._thread.start()

    @property
    def path(self) -> Path:
        """The file being written: the latest part."""
        return self.paths[-1]

    @property
    def bytes_written(self) -> int:
        """Bytes handed to the operating system so far, over all parts."""
        return self._earlier_bytes + self._writer.bytes_written

    @property
    def frames_lost(self) -> int:
        """Frames that were given and will not be in a file; 0 unless recording has failed."""
        with self._changed:
            repeated_headers = len(self.paths) - 1
            written = self._earlier_frames + self._writer.frames_written - repeated_headers
            return max(0, self._given - written) if self.failure else 0

    def __call__(self, frame: Frame) -> None:
        """Queue a frame. A call after `close` is ignored."""
        stalled = False
        with self._changed:
            if self._queued_bytes > self._queue_bytes:
                self._due = True  # nothing may have ended yet that the writer would wake for
                self._changed.notify_all()
                stalled = not self._changed.wait_for(self._has_room, self._patience_s)
            if self._closing or (frame.kind == "run.header" and self._header is not None):
                return
            if self._header is None:
                self._header = frame
            self._given += 1
            if self.failure is None and not stalled:
                self._queue.append(frame)
                self._queued_bytes += frame.size + _PER_FRAME_BYTES
                if frame.kind in CHUNK_ENDS or self._queued_bytes > _WAKE_BYTES:
                    self._due = True
                    self._changed.notify_all()
        if stalled:
            self._fail(self._stall())

    def flush(self) -> None:
        """Wait until every frame given so far has reached the operating system, or recording has failed."""
        self._must_be_there()
        with self._changed:
            wanted = self._flush_wanted = self._given
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._flushed >= wanted or self.failure or not self._thread.is_alive())

    def close(self) -> None:
        """Write what is queued and the index, and stop. May be called again."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        while self._thread.is_alive() and self.failure is None:
            writer, before = self._writer, self._writer.taken
            self._thread.join(self._patience_s)
            if self._thread.is_alive() and self._writer is writer and writer.taken == before:
                self._fail(self._stall())

    # --- on the writer's thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._write_batch():
                pass
            if self.failure is None:
                self._writer.finish()
                if not self.bytes_written:
                    self.path.unlink()  # nothing ever came: an empty file is not a trace
        except (OSError, TraceError) as error:
            self._fail(error.strerror or str(error) if isinstance(error, OSError) else str(error))
        finally:
            if self.failure is not None:
                self._writer.abandon()
            with self._changed:
                self._changed.notify_all()

    def _write_batch(self) -> bool:
        """Write what is queued, if anything. Returns whether to go on."""
        with self._changed:
            busy = self._changed.wait_for(self._has_work, _IDLE_S)
            batch, closing = list(self._queue), self._closing
            self._queue.clear()
            self._taken += len(batch)
            taken, flush = self._taken, not busy or self._flush_wanted > self._flushed
            self._due = False
        written = 0
        for number, frame in enumerate(batch, 1):
            if self.failure is not None:  # another thread gave up on this disk
                return False
            self._write(frame)
            written += frame.size + _PER_FRAME_BYTES
            if written > _TOLD_BYTES or number == len(batch):
                with self._changed:
                    self._queued_bytes -= written
                    self._changed.notify_all()
                written = 0
        if flush:
            self._writer.end_chunk()
            self._must_be_there()
            with self._changed:
                self._flushed = taken
                self._changed.notify_all()
        return self.failure is None and (bool(batch) or not closing)

    def _write(self, frame: Frame) -> None:
        if self._writer.bytes_written > self._part_bytes:
            self._next_part()
        self._writer.hurry = self._closing or self._queued_bytes > self._queue_bytes // 2
        self._writer.add(frame)

    def _next_part(self) -> None:
        assert self._header is not None
        self._writer.finish()
        first, part = self.paths[0], len(self.paths) + 1
        path = first.with_name(f"{first.stem}-{part}{first.suffix}")
        following = TraceWriter(path, facts=self._facts(part), live=True)
        with self._changed:
            self._earlier_bytes += self._writer.bytes_written
            self._earlier_frames += self._writer.frames_written
            self._writer = following
            self.paths.append(path)
        following.add(self._header)

    def _facts(self, part: int) -> dict[str, str]:
        """What a part's metadata says of it; how long parts are, where that is not the usual, tells if one follows."""
        usual = self._part_bytes == layout.PART_BYTES
        return {"part": str(part)} | ({} if usual else {"part_bytes": str(self._part_bytes)})

    # --- on any thread ------------------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        return self._queued_bytes <= self._queue_bytes or self.failure is not None or self._closing

    def _has_work(self) -> bool:
        return self._due or self._closing or self.failure is not None or self._flush_wanted > self._flushed

    def _must_be_there(self) -> None:
        """Notice that somebody has deleted the file: what is written to it then is lost."""
        if self._writer.deleted:
            self._fail("the file was deleted")

    def _stall(self) -> str:
        return f"the disk took nothing for {self._patience_s:g} s while {self._queued_bytes >> 20} MiB waited"

    def _fail(self, why: str) -> None:
        with self._changed:
            if self.failure is not None:
                return
            self.failure = f"recording to {self.path} has stopped: {why}. The run goes on without it."
            self._queue.clear()
            self._queued_bytes = 0
            self._changed.notify_all()
        if self._on_failure is not None:
            self._on_failure(self.failure)
        else:
            log.error(self.failure)
