"""Our engine as a server runs it: with its bus, a recorder, and callers on another thread."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from engine.bench.figures import Streams
from engine.bus import EventBus
from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import TokenwalkError
from engine.events import RequestFinished, Token
from engine.models import load
from engine.request import GenerationRequest, SamplingParams
from engine.sequence import Deliver, Sequence
from engine.trace import Recorder

LIGHT = CapturePlan(level="light")


class TurningEngine(Engine):
    """An engine that can change from one token to the next whether it works out probabilities."""

    _telling: list[bool] | None = None

    @contextmanager
    def telling(self, at: list[bool]) -> Iterator[None]:
        """Of requests that are submitted in this block: whether it does so, by index in the answer."""
        self._telling = at
        try:
            yield
        finally:
            self._telling = None

    def _queue(self, sequence: Sequence) -> str:
        if self._telling is not None:
            sequence.sampler.statistics = self._telling[0]
            sequence.deliver = partial(_turning, sequence, self._telling, sequence.deliver)
        return super()._queue(sequence)


def _turning(sequence: Sequence, telling: list[bool], deliver: Deliver, event: Token | RequestFinished) -> None:
    deliver(event)
    if isinstance(event, Token) and event.index + 1 < len(telling):
        sequence.sampler.statistics = telling[event.index + 1]


@contextmanager
def recording_engine(spec: str, config: EngineConfig | None = None) -> Iterator[TurningEngine]:
    """An engine as `tokenwalk serve` runs it, with its bus and a recorder that writes to a temporary file."""
    with tempfile.TemporaryDirectory(prefix="tokenwalk-bench-") as folder:
        bus = EventBus()
        recorder = Recorder(Path(folder) / "bench.mcap")
        bus.subscribe(recorder)
        engine = TurningEngine(lambda: load(spec), config or EngineConfig(), bus)
        engine.start()
        try:
            yield engine
        finally:
            engine.stop()
            bus.close()
            recorder.close()


def run_streams(
    engine: Engine, prompts: list[list[int]], tokens: int, plan: CapturePlan
) -> tuple[Streams, list[list[int]]]:
    """Continue all prompts at once, greedily; returns the times and each stream's token ids.

    Raises:
        TokenwalkError: when a generation fails.
    """
    outputs: SimpleQueue[tuple[int, Token | RequestFinished, float]] = SimpleQueue()
    start = time.perf_counter()
    for stream, prompt in enumerate(prompts):
        request = GenerationRequest(
            prompt=prompt,
            max_tokens=tokens,
            sampling=SamplingParams(temperature=0),
            capture=plan,
            source="bench",
        )
        engine.submit(request, lambda event, stream=stream: outputs.put((stream, event, time.perf_counter())))  # type: ignore[misc]
    arrivals: list[list[float]] = [[] for _ in prompts]
    ids: list[list[int]] = [[] for _ in prompts]
    unfinished = len(prompts)
    while unfinished:
        stream, event, at = outputs.get()
        if isinstance(event, Token):
            ids[stream].append(event.id)
            arrivals[stream].append(at)
        else:
            unfinished -= 1
            if event.reason == "error":
                raise TokenwalkError(f"the generation failed: {event.detail}")
    return Streams(start, arrivals, [len(one) for one in ids]), ids
