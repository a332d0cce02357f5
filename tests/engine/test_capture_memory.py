"""A long context that is followed costs no more memory than its budget: everything that holds frames is bounded."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import bus as bus_module
from engine.bus import EventBus
from engine.capture import DEFAULT_BUDGET_BYTES, CapturePlan
from engine.codec import Frame
from engine.config import EngineConfig
from engine.events import Attention, AttentionOut, Residual
from engine.models import LoadedModel
from tests.engine.test_batching import Bench

RUN = """
import resource, sys, threading
from backend.history import History
from engine.bus import EventBus
from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.engine import Engine
from engine.models import load
from engine.request import GenerationRequest, SamplingParams
from engine.trace import Recorder

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

path, model, unfollowed = sys.argv[1:4]
tokens, answer, waited_for = map(int, sys.argv[4:])
bus, history = EventBus(), History()
recorder = Recorder(path)
bus.subscribe(history.append)
bus.subscribe(recorder)
engine = Engine(lambda: load(model), EngineConfig(slots=1, kv_memory=2**24 if model == "tiny" else 2**29), bus)
engine.start()

def run(level, first):
    ended, seen = threading.Event(), 0

    def deliver(event):
        nonlocal seen
        seen += event.kind == "token"
        if event.kind == "token" and seen == waited_for < answer:
            engine.cancel(event.request)
        if event.kind == "request.finished":
            ended.set()

    request = GenerationRequest(
        prompt=[first] + [(7 * i + first) % 256 for i in range(tokens - 1)],
        max_tokens=answer,
        sampling=SamplingParams(temperature=0, logit_bias=dict.fromkeys(engine.info.eos_ids, -100)),
        capture=CapturePlan(level=level),
    )
    engine.submit(request, deliver)
    ended.wait()
    bus.flush()
    return peak()

before = run(unfollowed, 1)
after = run("follow", 2)
engine.stop()
bus.close()
recorder.close()
print(after - before)
"""


def growth(path: Path, model: str, unfollowed: str, tokens: int, answer: int, waited_for: int) -> int:
    """By how many bytes the peak of memory grows when a prompt is followed, after one as long that is not.

    Args:
        unfollowed: the level of the first.
        answer: tokens that the answer may have; a part of the budget is kept for it.
        waited_for: tokens after which it is cancelled.
    """
    numbers = [str(number) for number in (tokens, answer, waited_for)]
    command = [sys.executable, "-c", RUN, str(path), model, unfollowed, *numbers]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return int(ran.stdout)


def test_following_four_thousand_tokens_grows_memory_by_no_more_than_the_budget(tmp_path: Path) -> None:
    assert growth(tmp_path / "t.mcap", "tiny", "light", 4000, 40, 40) <= DEFAULT_BUDGET_BYTES
    written = sum(part.stat().st_size for part in tmp_path.iterdir())
    assert 0.8 * DEFAULT_BUDGET_BYTES < written < 1.1 * DEFAULT_BUDGET_BYTES  # the budget was used, and kept


@pytest.mark.model
def test_following_a_prompt_of_the_real_model_grows_memory_by_no_more_than_the_budget(tmp_path: Path) -> None:
    """Its residual streams are 142 kB a position, and what is kept of them is full after 450. 4,000 tokens would take
    minutes, and more than half as many do only in scores, which are held in pieces."""
    assert growth(tmp_path / "t.mcap", "smollm2", "off", 2000, 256, 2) <= DEFAULT_BUDGET_BYTES
    written = sum(part.stat().st_size for part in tmp_path.iterdir())
    assert 0.3 * DEFAULT_BUDGET_BYTES < written < 1.1 * DEFAULT_BUDGET_BYTES


def test_arrays_wait_for_whoever_takes_them() -> None:
    """A listener that stands still: emission goes on until the bound, and then waits for it."""
    bus = EventBus()
    open_again, first_seen = threading.Event(), threading.Event()

    def slow(frame: Frame) -> None:
        first_seen.set()
        open_again.wait(30)

    bus.subscribe(slow)
    rows = np.zeros((1, 1, bus_module.PENDING_BYTES // 16), np.float32)  # a quarter of the bound
    emitted = []

    def emit() -> None:
        for position in range(12):
            bus.emit(Attention(request="r", step=1, position=position, data=rows, source_dtype="f32"))
            emitted.append(position)

    emitter = threading.Thread(target=emit)
    emitter.start()
    assert first_seen.wait(30)
    emitter.join(0.5)
    assert emitter.is_alive()
    assert 4 <= len(emitted) <= 6
    open_again.set()
    emitter.join(30)
    assert not emitter.is_alive()
    bus.flush()
    bus.close()
    assert bus.last_seq == 12


FOLLOW = {"level": "follow"}


@pytest.mark.parametrize(
    ("plans", "shared"),
    [
        ([FOLLOW] * 8, 8),
        ([{"tensors": "residual"}] + [{"tensors": "lens"}] * 7, 1),
        ([{"tensors": "residual"}] + [{"tensors": "attention_out"}] * 7, 1),
        ([FOLLOW] + [{"tensors": "attention"}] * 7, 1),
        ([FOLLOW] + [{"max_bytes": 5_000}] * 7, 1),
        ([FOLLOW] + [{"dtype": "f16"}] * 7, 1),
        ([FOLLOW] + [{"level": "light"}] * 7, 1),
    ],
    ids=str,
)
def test_a_frame_keeps_no_array_of_others_in_memory_but_where_all_have_theirs(
    tiny: LoadedModel, plans: list[dict[str, Any]], shared: int
) -> None:
    bench = Bench(tiny, EngineConfig(kv_memory=2**21))
    for number, plan in enumerate(plans):
        bench.add([number + 1, 65, 66], 4, capture=CapturePlan.parse(plan))
    bench.run()
    bench.core.close()
    told = [event for event in bench.events if isinstance(event, (Residual, AttentionOut)) and event.position > 2]
    assert told
    held = {id(event.data.base): event.data.base.nbytes for event in told if event.data.base is not None}
    own = sum(event.data.nbytes for event in told)
    assert max(event.data.nbytes for event in told) * shared >= max(held.values(), default=0)
    assert sum(held.values()) <= own
    if shared > 1:
        assert len(held) == len(told) / shared
