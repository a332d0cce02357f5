"""Attention of timed steps: a frame a layer, as the layer finishes, that holds what one frame of all layers would."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine import captured
from engine.attention_rows import AttentionRows
from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.events import Absent, Attention, AttentionSummary, Event, Kernel, RequestFinished, StepFinished, StepStarted
from engine.models import LoadedModel
from tests.engine.test_batching import SMALL, Bench

PROMPT = [(7 * index + 3) % 251 for index in range(150)]
PLANS = {
    "whole": CapturePlan(level="follow"),
    "some layers and heads": CapturePlan(level="follow", layers=(1, 3), heads=(0, 2)),
    "some positions": CapturePlan(level="follow", positions=((60, 70), (100, 131), 149)),
    "summaries": CapturePlan(level="follow", tensors=("attention",), budget_bytes=60_000),
    "half precision": CapturePlan(level="follow", dtype="f16"),
}
Frames = dict[tuple[int, int], list[Any]]


class Stamping(Bench):
    """Stamps events with the time of their emission, on the clock of the stopwatch."""

    def emit(self, event: Event) -> Event:
        core = getattr(self, "core", None)
        event.t_ns = 0 if core is None else core.timing.stopwatch._now_ns()
        return super().emit(event)


class Run:
    """Requests that ran at once."""

    def __init__(self, loaded: LoadedModel, plans: list[CapturePlan], **config: Any) -> None:
        self.bench = bench = Stamping(
            loaded, EngineConfig(**({"slots": len(plans), "kv_memory": SMALL, "prefill_budget": 128} | config))
        )
        self.sequences = [bench.add(PROMPT[number:], 4, capture=plan) for number, plan in enumerate(plans)]
        bench.run()
        bench.core.close()

    @property
    def events(self) -> list[Event]:
        return self.bench.events

    def answers(self) -> list[list[int]]:
        return [self.bench.answer(sequence) for sequence in self.sequences]

    def frames(self) -> Frames:
        """Frames of attention by request, and position, in the order in which they came."""
        number = {sequence.id: index for index, sequence in enumerate(self.sequences)}
        found: Frames = defaultdict(list)
        for event in self.events:
            if isinstance(event, Attention | AttentionSummary):
                found[number[event.request], event.position].append(event)
        return found


def layers_of(event: Any) -> list[int]:
    return event.layers or list(range(event.layer, event.layer + len(event.data)))


@pytest.mark.parametrize("config", [{}, {"kv_store": "concat"}, {"by_layer": True}])
@pytest.mark.parametrize("plan", PLANS)
def test_the_frames_of_a_position_are_the_rows_of_its_one_frame_bit_by_bit(
    tiny: LoadedModel, plan: str, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if config.pop("by_layer", False):
        monkeypatch.setattr(captured, "BY_LAYER_BYTES", 0)
    plans = [PLANS[plan], PLANS["whole"], CapturePlan(level="light")]
    plain = Run(tiny, plans, **config)
    timed = Run(tiny, plans, time_every=1, **config)
    whole, parts = plain.frames(), timed.frames()
    assert whole.keys() == parts.keys()
    for key, (frame,) in whole.items():
        one_by_one = parts[key]
        assert [layers_of(part) for part in one_by_one] == [[layer] for layer in layers_of(frame)]
        assert {part.kind for part in one_by_one} == {frame.kind}
        joined = np.concatenate([part.data for part in one_by_one])
        assert joined.dtype == frame.data.dtype
        assert joined.shape == frame.data.shape
        assert joined.tobytes() == frame.data.tobytes()
        assert max(part.row_sum_error for part in one_by_one) == frame.row_sum_error
        assert all(part.heads == frame.heads for part in one_by_one)
        if isinstance(frame, AttentionSummary):
            assert min(part.least_mass for part in one_by_one) == frame.least_mass
            assert np.mean([part.mass for part in one_by_one]) == pytest.approx(frame.mass, abs=1e-6)
    assert timed.answers() == plain.answers()
    assert said_absent(timed) == said_absent(plain)


def said_absent(run: Run) -> list[Any]:
    number = {sequence.id: index for index, sequence in enumerate(run.sequences)}
    absent = [event for event in run.events if isinstance(event, Absent)]
    return [(number[e.request], e.what, e.reason, e.positions, e.layers, e.heads, e.detail) for e in absent]


def test_each_is_sent_when_its_layer_has_finished_and_the_next_has_not_begun(tiny: LoadedModel) -> None:
    run = Run(tiny, [PLANS["whole"], PLANS["summaries"]], time_every=1)
    kernels: dict[tuple[int, int], list[Kernel]] = defaultdict(list)
    for event in run.events:
        if isinstance(event, Kernel) and event.layer is not None:
            kernels[event.step, event.layer].append(event)
    seen: set[tuple[int, int]] = set()
    for event in run.events:
        if isinstance(event, Attention | AttentionSummary):
            (layer,) = layers_of(event)
            own, after = kernels[event.step, layer], kernels.get((event.step, layer + 1))
            pieces = [kernel for kernel in own if kernel.operation != "other"]  # the rest of a scope is in several
            assert event.t_ns >= max(kernel.start_ns + kernel.duration_ns for kernel in pieces)
            assert after is None or event.t_ns <= min(kernel.start_ns for kernel in after)
            seen.add((event.step, layer))
    assert seen == set(kernels)


def test_what_is_told_between_layers_is_no_time_of_the_step(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    take = AttentionRows.take

    def slow(self: Any, *seen: Any, **more: Any) -> None:
        end = now_ns() + 20_000_000
        while now_ns() < end:
            pass
        waited.append(1)
        take(self, *seen, **more)

    bench = Stamping(tiny, EngineConfig(slots=1, kv_memory=SMALL, time_every=1))
    now_ns = bench.core.timing.stopwatch._now_ns
    monkeypatch.setattr(AttentionRows, "take", slow)
    bench.add([5, 6, 7], 1, capture=PLANS["whole"])
    bench.run()
    bench.core.close()
    assert len(waited) == 4
    (step,) = [event for event in bench.events if isinstance(event, StepFinished)]
    assert step.capture_ns >= 4 * 20_000_000
    parts = [event for event in bench.events if isinstance(event, Kernel)]
    assert step.operations_ns is not None
    assert sum(event.duration_ns for event in parts) == step.operations_ns <= step.eval_ns
    assert len([event for event in parts if event.operation == "capture"]) == 1
    (started,) = [event for event in bench.events if isinstance(event, StepStarted)]
    assert step.t_ns - started.t_ns >= step.eval_ns + 4 * 20_000_000


def test_a_row_that_is_no_number_ends_a_timed_request_where_it_began(tiny: LoadedModel) -> None:
    layer = tiny.model.layers[2].self_attn.q_proj
    weight = layer.weight
    layer.weight = weight * float("nan")
    try:
        run = Run(tiny, [PLANS["whole"]], time_every=1)
    finally:
        layer.weight = weight
    (end,) = [event for event in run.events if isinstance(event, RequestFinished)]
    assert end.reason == "error"
    frames = run.frames()
    assert {len(parts) for parts in frames.values()} == {4}
    assert [bool(np.isfinite(part.row_sum_error)) for part in frames[0, 0]] == [True, True, False, False]


@pytest.fixture(autouse=True)
def left_as_it_was(tiny: LoadedModel) -> Iterator[None]:
    classes = [type(module) for module in tiny.model.modules()]
    yield
    assert [type(module) for module in tiny.model.modules()] == classes
