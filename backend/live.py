"""A live run: the bus and what listens on it, and the engine, which loads while the server already answers."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.errors import ApiError
from backend.feed import gap_frame
from backend.history import History
from backend.hub import Hub
from backend.metrics import Metrics
from engine.bus import EventBus
from engine.capture import CapturePlan
from engine.codec import Frame
from engine.errors import TokenwalkError, TraceError
from engine.request import SamplingParams
from engine.trace import Recorder, open_trace
from engine.trace.filter import RequestFilter

if TYPE_CHECKING:
    from engine.engine import Engine

MakeEngine = Callable[[EventBus], "Engine"]

log = logging.getLogger(__name__)


class LiveRun:
    """One run from the server's start to its end.

    Args:
        spec: what `--model` was given.
        make_engine: makes the engine around the bus. Called, like everything of the engine's start, on a thread of its
            own, because importing MLX and loading a model take seconds.
        trace: the file to record to, or None.
        capture_default: the capture plan of requests that name none.
        sampling_default: what holds of sampling where a request says nothing.

    Raises:
        TraceError: when the file cannot be written.
    """

    def __init__(
        self,
        *,
        spec: str,
        make_engine: MakeEngine,
        trace: Path | None,
        capture_default: CapturePlan,
        sampling_default: SamplingParams,
    ) -> None:
        self.spec = spec
        self.capture_default = capture_default
        self.sampling_default = sampling_default
        self.recorder = None if trace is None else Recorder(trace)
        self.bus = EventBus()
        self.history = History()
        self.metrics = Metrics(lambda: 0 if self.recorder is None else self.recorder.bytes_written)
        self.hub = Hub(self.bus, self.history, dropped=self.metrics.count_dropped)
        self.name = self.bus.epoch if trace is None else trace.stem
        self.failure: TokenwalkError | None = None
        self.load_seconds: float | None = None
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._loader: threading.Thread | None = None
        self._used = False
        self._published_bytes = 0
        for listener in (self.recorder, self.hub.on_frame, self.metrics.on_frame, self._note_use):
            if listener is not None:
                self.bus.subscribe(listener)

    @property
    def engine(self) -> Engine:
        """The engine, once it is there.

        Raises:
            ApiError: 503 while it loads, or when it could not be loaded.
        """
        if self._engine is None:
            raise ApiError(
                503,
                str(self.failure) if self.failure else f"the model {self.spec} is still loading; try again soon",
                code="not_ready",
                headers={} if self.failure else {"Retry-After": "1"},
            )
        return self._engine

    @property
    def loading(self) -> bool:
        """Whether the loading thread is still at work."""
        return self._loader is not None and self._loader.is_alive()

    @property
    def loaded(self) -> bool:
        """Whether the engine is there."""
        return self._engine is not None

    async def load(self) -> None:
        """Load the model.

        Raises:
            TokenwalkError: what the loader says; also kept in `failure`.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Engine] = loop.create_future()

        def tell(settle: Callable[[Any], None], outcome: object) -> None:
            with suppress(RuntimeError):  # the loop has been closed: the server was stopped while loading
                loop.call_soon_threadsafe(_settle, done, settle, outcome)

        def work() -> None:
            try:
                engine = self._make_engine(self.bus)
                engine.start()
            except BaseException as error:  # noqa: BLE001 - passed on to whoever waits for the future
                tell(done.set_exception, error)
            else:
                tell(done.set_result, engine)

        start = time.monotonic()
        # A daemon, unlike the loop's own threads: Ctrl-C while a large model loads must not wait for it.
        self._loader = threading.Thread(target=work, name="tokenwalk-load", daemon=True)
        self._loader.start()
        try:
            self._engine = await done
        except TokenwalkError as error:
            self.failure = error
            raise
        self.load_seconds = time.monotonic() - start

    def health(self) -> tuple[str | None, int]:
        """Why requests cannot be served (None when they can), and how many steps have run."""
        if self._engine is None:
            return str(self.failure or "loading"), 0
        health = self._engine.health()
        return health.reason, health.steps

    @property
    def readable_bytes(self) -> int:
        """Payload bytes of the events that a client that joins now is sent: what of the run can still be read."""
        if self.recorder is None or self.recorder.failure is not None:
            return self.history.size_bytes
        return self._published_bytes

    def frames(
        self, from_seq: int, to_seq: int | None, kinds: frozenset[str] | None, request: str | None
    ) -> Iterator[Frame]:
        """Frames of the run so far: from the recorded files when there are any, else those still in memory.

        Where recording has failed, memory goes on where the file ends, after a gap for what neither has.
        """
        if self.recorder is None:
            yield from self._kept(from_seq, to_seq, kinds, request)
            return
        self.recorder.flush()
        recorded = 0
        for part, path in enumerate(list(self.recorder.paths)):
            with suppress(TraceError) if self.recorder.failure else nullcontext(), open_trace(path) as trace:
                recorded = trace.last_seq
                for frame in trace.frames(from_seq, to_seq, kinds, request):
                    if part == 0 or frame.kind != "run.header":  # every part repeats the header
                        yield frame
        if self.recorder.failure:
            yield from self._kept(max(from_seq, recorded + 1), to_seq, kinds, request)

    def stop(self) -> None:
        """Stop the engine: what runs or waits is cancelled, and those who wait for it hear so. May be called again."""
        if self._engine is not None:
            self._engine.stop()

    def close(self) -> None:
        """Stop the engine and finish the trace. A run that nobody sent a request to leaves no file."""
        self.stop()
        self.hub.detach()
        self.bus.close()
        if self.recorder is not None:
            self.recorder.close()
            if not self._used:
                for path in self.recorder.paths:
                    path.unlink(missing_ok=True)

    def _kept(
        self, from_seq: int, to_seq: int | None, kinds: frozenset[str] | None, request: str | None
    ) -> Iterator[Frame]:
        keep = RequestFilter(request) if request is not None else None
        header, oldest, newest = self.bus.header, self.history.oldest, self.history.newest
        if header is not None and header.seq < oldest:
            if from_seq <= header.seq:
                yield header
            if from_seq < oldest:
                yield gap_frame(max(from_seq, header.seq + 1), oldest - 1, "not_kept", self.bus.now_ns())
        for seq in range(oldest, min(newest if to_seq is None else to_seq, newest) + 1):
            frame = self.history.get(seq)
            if frame is None:  # it fell out of the ring while this was being read
                frame = gap_frame(seq, seq, "not_kept", self.bus.now_ns())
            if keep is not None and not keep(frame):
                continue
            if seq >= from_seq and (kinds is None or frame.kind in kinds):
                yield frame

    def _note_use(self, frame: Frame) -> None:
        self._used = self._used or frame.kind == "request.arrived"
        self._published_bytes += frame.size


def _settle(done: asyncio.Future[Any], settle: Callable[[Any], None], outcome: object) -> None:
    if not done.done():  # it may have been cancelled meanwhile
        settle(outcome)
