"""A live server that streams made-up answers at a given pace: the real server, its real event bus, no model."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from engine.bus import EventBus
from tests.backend.conftest import Running, serving
from tests.backend.fake_engine import FakeEngine
from tests.bench_ui.story import Story, header, weights

PROMPT = 120
ANSWER = 600
SLOT_BLOCKS = 64

# Made once: numpy takes 2 to 9 ms to round a token's rows to float16. At 100 tokens a second that would take half a
# core from the page, which is what is measured.
made = functools.cache(weights)


class PacedEngine(FakeEngine):
    """Answers one made-up request after another once `go` is called, so many tokens a second, with all rows."""

    def __init__(self, bus: EventBus) -> None:
        super().__init__(bus)
        self.rate = 100.0
        self.sent = 0
        """Tokens so far."""
        self.late = 0.0
        """By how many seconds this side was behind its own pace at worst."""
        self.seconds = 0.0
        """CPU time that telling the story has taken."""
        self._ended = threading.Event()
        self._pacer = threading.Thread(target=self._stream, name="paced-engine", daemon=True)

    def start(self) -> None:
        self.bus.emit(header(self.bus.epoch))

    def go(self) -> None:
        """Begin to stream, once all rows are made."""
        for keys in range(PROMPT, PROMPT + ANSWER + 1):
            made(keys)
        self._pacer.start()

    def halt(self) -> None:
        """End the stream within a token."""
        self._ended.set()
        if self._pacer.is_alive():
            self._pacer.join()

    def stop(self) -> None:
        self.halt()

    def _stream(self) -> None:
        due = time.perf_counter()
        number = step = 0
        while not self._ended.is_set():
            story = Story(
                f"r-{number}",
                self.bus.emit,
                self.bus.now_ns,
                first_block=SLOT_BLOCKS * (number % 16),
                step=step,
                weights=made,
            )
            story.ask(PROMPT)
            for _ in range(ANSWER):
                due += 1 / self.rate
                wait = due - time.perf_counter()
                self.late = max(self.late, -wait)
                if self._ended.wait(max(0, wait)):
                    break
                story.say(rows=True)
                self.sent += 1
                self.seconds = time.thread_time()
            story.end()
            number, step = number + 1, story.step


@contextlib.contextmanager
def streaming(folder: Path) -> Iterator[tuple[Running, PacedEngine]]:
    """The server and its engine, which waits for `go`."""
    with serving(folder, engine=PacedEngine, record=False) as server:
        assert isinstance(server.engine, PacedEngine)
        yield server, server.engine
