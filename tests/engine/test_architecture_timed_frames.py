"""Attention of timed steps, and what is missing of it, in models whose insides are not a plain stack."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.device import mx

import numpy as np
import pytest

from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.events import Absent, Attention, Event, StepFinished
from engine.models import LoadedModel
from engine.trace import open_trace
from engine.trace.verify import verify
from tests.engine import trace_run
from tests.engine.test_batching import SMALL, Bench
from tests.engine.test_trace_verify_serving import frames
from tests.engine.tiny_architectures import build
from tests.engine.tiny_fields import VOCAB

PROMPT = [3, 17, 5, 80, 9, 2, 41, 7, 100, 23, 6, 11]
NAMES = ["gemma3", "gpt_oss", "gemma3n", "openelm", "kimi_k3", "deepseek_v41", "iquestloopcoder", "mamba", "jamba"]


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    """Compiling a fused operation takes seconds on a CPU."""
    mx.disable_compile()
    yield
    mx.enable_compile()


def run(tiny: LoadedModel, name: str, every: int) -> list[Event]:
    model: Any = build(name)
    info = dataclasses.replace(tiny.info, vocab=VOCAB, layers=len(model.layers))
    config = EngineConfig(slots=2, kv_memory=SMALL, prefill_budget=5, time_every=every)
    bench = Bench(LoadedModel(model, tiny.tokenizer, info), config)
    header = trace_run.header()
    bench.events.insert(0, dataclasses.replace(header, kv=bench.core.kv.facts, model=header.model | {"layers": 4}))
    bench.add(PROMPT, 6, capture=CapturePlan(level="follow"))
    bench.add(PROMPT[:7], 6, capture=CapturePlan(level="follow"))
    bench.run()
    bench.core.close()
    return bench.events


def rows_of(events: list[Event]) -> dict[Any, bytes]:
    """Each row of attention: by the order of its request, position and layer."""
    names: list[str] = []
    rows: dict[Any, bytes] = {}
    for event in events:
        if isinstance(event, Attention):
            names += [] if event.request in names else [event.request]
            layers = event.layers or range(event.layer, event.layer + len(event.data))
            for layer, data in zip(layers, event.data, strict=True):
                rows[names.index(event.request), event.position, layer] = np.ascontiguousarray(data).tobytes()
    return rows


def said(events: list[Event]) -> list[Any]:
    return [(e.what, e.reason, e.positions, e.layers) for e in events if isinstance(e, Absent)]


@pytest.mark.parametrize("name", NAMES)
def test_timed_frames_are_those_of_other_steps_and_nothing_is_missing_unsaid(
    tiny: LoadedModel, tmp_path: Path, name: str
) -> None:
    plain, timed = run(tiny, name, 0), run(tiny, name, 1)
    assert all(event.timing == "barriers" for event in timed if isinstance(event, StepFinished))
    assert {len(event.data) for event in timed if isinstance(event, Attention)} <= {1}
    assert rows_of(plain) == rows_of(timed)
    assert said(plain) == said(timed)
    for events in (plain, timed):
        with open_trace(trace_run.record(tmp_path / "t.mcap", frames(events))) as trace:
            found = {check.name: check for check in verify(trace)}
        check = found["captured, or said to be absent"]
        assert check.ok is not False, check.detail
        assert rows_of(events) or ("attention", "unsupported", None, [0, 1, 2, 3]) in said(events)
