"""The event bus: every stage says here what it did; the recorder and each client listen.

`emit` may be called from any thread. It stamps the event with its place in the run and the time, and returns at once,
unless arrays come faster than they are taken: then it waits, for memory has an end. Encoding and delivery happen on the
bus's own thread, so that the step loop pays for neither. Each event is encoded
once, and every listener gets the same frame, in order. That is what makes a recorded trace equal to a lossless live
stream.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from engine.codec import Frame, encode
from engine.events import Event, Gap, RunHeader, StepFinished, TensorEvent

PENDING_BYTES = 16 * 2**20
"""Bytes of arrays that may wait to be encoded."""

TOLD_BYTES = 2**20
"""Bytes of arrays after whose delivery whoever waits is told, or after all that was there: not after each event."""

WATCH_S = 0.01
"""How soon the publisher looks again by itself after it has found something, before it sleeps until it is woken: no
event waits longer. Meanwhile only a step's end wakes it. To be woken for each event would make it and whoever emits
take turns for Python's lock, 30 times in a step of 8 rows."""

Listener = Callable[[Frame], None]
AnyEvent = TypeVar("AnyEvent", bound=Event)

log = logging.getLogger(__name__)


class EventBus:
    """Stamps, encodes and distributes the events of one run.

    Attributes:
        epoch: random name of the run; a client that reconnects learns from it whether the server was restarted.
        header: the encoded `run.header`, once it has been emitted.
    """

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(8)
        self.header: Frame | None = None
        self._origin_ns = time.perf_counter_ns()
        self._seq = 0
        self._asleep = True  # until it is woken; else it is about to look
        self._pending: deque[Event] = deque()
        self._pending_bytes = 0  # of arrays, those being delivered included
        self._listeners: tuple[Listener, ...] = ()
        self._published = 0  # seq of the last event that every listener has seen
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._publish, name="tokenwalk-bus", daemon=True)
        self._thread.start()

    @property
    def last_seq(self) -> int:
        """`seq` of the event emitted last."""
        return self._seq

    def now_ns(self) -> int:
        """Nanoseconds since the run's start."""
        return time.perf_counter_ns() - self._origin_ns

    def emit(self, event: AnyEvent) -> AnyEvent:
        """Stamp an event with `seq` and `t_ns` and hand it to the publisher. Returns the same event.

        An array in a tensor event must not be changed afterwards: it is encoded later, on another thread. While arrays
        of PENDING_BYTES wait for that, the emission of another one waits too.
        """
        size = event.data.nbytes if isinstance(event, TensorEvent) else 0
        with self._changed:
            if self._pending_bytes > PENDING_BYTES and size and threading.current_thread() is not self._thread:
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._pending_bytes <= PENDING_BYTES or self._stopped())
            self._pending_bytes += size
            self._seq += 1
            event.seq = self._seq
            event.t_ns = self.now_ns()
            self._pending.append(event)
            if self._asleep or event.kind == StepFinished.kind:
                self._asleep = False
                self._changed.notify_all()
        return event

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every frame from now on, in order, on the bus's thread. It must not block.

        Returns a function that ends the subscription.
        """
        with self._changed:
            self._listeners += (listener,)

        def unsubscribe() -> None:
            with self._changed:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return unsubscribe

    def flush(self) -> None:
        """Wait until every listener has seen all events emitted so far."""
        with self._changed:
            last = self._seq
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._published >= last or not self._thread.is_alive())

    def close(self) -> None:
        """Deliver what is pending, then stop the publisher. Later events are numbered but go nowhere."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _publish(self) -> None:
        while True:
            with self._changed:
                if not (self._pending or self._closed):
                    self._changed.wait(None if self._asleep else WATCH_S)
                if not self._pending:
                    if self._closed:
                        return
                    self._asleep = True
                    continue
                self._asleep = False
                batch, listeners = deque(self._pending), self._listeners
                self._pending.clear()
            untold = 0  # bytes of arrays that have been delivered, and are still counted as waiting
            while batch:
                event = batch.popleft()  # not kept by a list: its array goes when it has been encoded
                frame = _encoded(event)
                if event.kind == RunHeader.kind:
                    self.header = frame
                for listener in listeners:
                    _deliver(listener, frame)
                if isinstance(event, TensorEvent):
                    untold += event.data.nbytes
                if batch and untold < TOLD_BYTES:
                    continue
                with self._changed:
                    self._published = event.seq
                    self._pending_bytes -= untold
                    self._changed.notify_all()
                untold = 0

    def _stopped(self) -> bool:
        return self._closed or not self._thread.is_alive()


def _encoded(event: Event) -> Frame:
    """The event's frame; where a value in it cannot be written, a gap in its place.

    An event may hold what a caller gave, such as a name of half a surrogate pair. It must cost that event and no other:
    without a frame for its `seq`, every listener would wait for it for ever.
    """
    try:
        return encode(event)
    except Exception:
        log.exception("%s event %d cannot be encoded", event.kind, event.seq)
        seq = event.seq
        return encode(Gap(seq=seq, t_ns=event.t_ns, from_seq=seq, to_seq=seq, reason="not_encodable"))


def _deliver(listener: Listener, frame: Frame) -> None:
    """One listener's fault must reach neither the others nor the run."""
    try:
        listener(frame)
    except Exception:
        log.exception("a listener failed on %s event %d", frame.kind, frame.seq)
