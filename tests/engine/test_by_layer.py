"""Attention too large to be held at once is read layer by layer beside the device: the frames are the same."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from engine.device import mx

import numpy as np
import pytest

from engine import by_layer, captured
from engine.attention import Softmax
from engine.attention_rows import AttentionRows
from engine.capture import CapturePlan
from engine.capture_schedule import CaptureSchedule, Visible
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.events import Attention, AttentionSummary, RequestFinished, Token
from engine.models import LoadedModel
from tests.engine.test_batching import SMALL, Bench

PROMPT = [(7 * index + 3) % 251 for index in range(150)]
PLANS = {
    "whole": CapturePlan(level="follow"),
    "some layers and heads": CapturePlan(level="follow", layers=(1, 3), heads=(0, 2)),
    "some positions": CapturePlan(level="follow", positions=((60, 70), (100, 131), 149)),
    "summaries": CapturePlan(level="follow", tensors=("attention",), budget_bytes=60_000),
}


def followed(tiny: LoadedModel, plans: list[CapturePlan]) -> tuple[list[list[int]], dict[Any, np.ndarray]]:
    """Answers, and frames by request, kind and position, of requests that run at once."""
    bench = Bench(tiny, EngineConfig(slots=len(plans), kv_memory=SMALL, prefill_budget=128))
    sequences = [bench.add(PROMPT[number:], 4, capture=plan) for number, plan in enumerate(plans)]
    bench.run()
    bench.core.close()
    number = {sequence.id: index for index, sequence in enumerate(sequences)}
    frames = {
        (number[event.request], event.kind, event.position): event.data
        for event in bench.events
        if isinstance(event, Attention | AttentionSummary)
    }
    assert len([event for event in bench.events if isinstance(event, RequestFinished)]) == len(plans)
    return [bench.answer(sequence) for sequence in sequences], frames


@pytest.mark.parametrize("plan", PLANS)
def test_the_frames_are_those_of_scores_that_are_read_at_once(
    tiny: LoadedModel, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [PLANS[plan], PLANS["whole"], CapturePlan(level="light")]
    taken: list[int] = []
    read = captured.Captured.read

    def noted(self: captured.Captured, *seen: Any) -> None:
        taken.append(1)
        read(self, *seen)

    monkeypatch.setattr(captured.Captured, "read", noted)
    at_once, frames = followed(tiny, plans)
    assert not taken
    monkeypatch.setattr(captured, "BY_LAYER_BYTES", 0)
    monkeypatch.setattr(by_layer, "BY_LAYER_BYTES", 0)
    layered, same = followed(tiny, plans)
    assert taken
    assert layered == at_once
    assert same.keys() == frames.keys()
    for key, data in frames.items():
        np.testing.assert_allclose(same[key], data, atol=1e-6, err_msg=str(key))


def test_a_fault_while_reading_is_told_and_nobody_waits_for_ever(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured, "BY_LAYER_BYTES", 0)
    monkeypatch.setattr(by_layer, "BY_LAYER_BYTES", 0)

    def broken(self: AttentionRows, *seen: Any) -> None:
        raise ZeroDivisionError("while reading")

    monkeypatch.setattr(AttentionRows, "take", broken)
    classes = [type(module) for module in tiny.model.modules()]
    bench = Bench(tiny, EngineConfig(slots=1, kv_memory=SMALL))
    bench.add(PROMPT, 2, capture=PLANS["whole"])
    with pytest.raises(ZeroDivisionError):
        bench.run()
    with pytest.raises(ZeroDivisionError):
        bench.core.close()
    assert [type(module) for module in tiny.model.modules()] == classes


def test_an_interruption_ends_the_reading(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "BY_LAYER_BYTES", 0)
    hand_over, calls = by_layer._hand_over, []

    def interrupted(*args: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        hand_over(*args)

    monkeypatch.setattr(by_layer, "_hand_over", interrupted)
    bench = Bench(tiny, EngineConfig(slots=1, kv_memory=SMALL))
    sequence = bench.add(PROMPT, 2, capture=PLANS["whole"])
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    bench.core.cancel(sequence)
    bench.core.close()  # waits for the thread beside
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tokenwalk-beside")]


def test_capture_by_layer_changes_no_bit(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "BY_LAYER_BYTES", 0)
    chosen: dict[str, list[bytes]] = {}
    for level in ("light", "follow"):
        bench = Bench(tiny, EngineConfig(slots=1, kv_memory=SMALL, prefill_budget=64))
        rows: list[bytes] = []
        choose = EngineCore._choose

        def noted(self: EngineCore, step: Any, result: Any, rows: list[bytes] = rows, choose: Any = choose) -> None:
            rows.append(np.asarray(result.logits).tobytes())
            choose(self, step, result)

        monkeypatch.setattr(EngineCore, "_choose", noted)
        bench.add(PROMPT, 6, capture=CapturePlan(level=level))
        bench.run()
        bench.core.close()
        monkeypatch.setattr(EngineCore, "_choose", choose)
        assert len([event for event in bench.events if isinstance(event, Token)]) == 6
        chosen[level] = rows
    assert chosen["light"] == chosen["follow"]


def test_sinks_are_evaluated_before_another_thread_reads_with_them() -> None:
    """Stored in half precision, they are cast in the graph, which only the thread that built it can evaluate."""
    visible = Visible(
        layers=2, heads=3, hidden=4, attending=(0, 1), residual=False, attention_out=False, dtype="float32"
    )
    schedule = CaptureSchedule(plan=PLANS["whole"], visible=visible, prompt_tokens=5, max_tokens=1)
    stored = [mx.array([1.0, -2.0, 0.5 * layer], dtype=mx.bfloat16) for layer in range(2)]
    mx.eval(stored)
    scores = [mx.random.normal((1, 3, 5, 5)) for _ in stored]
    softmaxes = [Softmax(0.5, sinks.astype(mx.float32)) for sinks in stored]
    row = captured.Captured([0, 1, 2, 3, 4], [0, 1], slice(0, 5), {"attention": [*scores]})
    row.scores = captured.Scores(softmaxes, 0, 5)
    row.rows = AttentionRows(row.positions, row.layers, schedule)
    with ThreadPoolExecutor(1) as beside:
        by_layer.run_by_layer([row], [], beside).result()
    for layer, sinks in enumerate(stored):
        masked = mx.where(mx.tri(5, dtype=mx.bool_), scores[layer][0] * 0.5, -mx.inf)
        beside_keys = mx.broadcast_to(sinks.astype(mx.float32)[:, None, None], (3, 5, 1))
        expected = np.array(mx.softmax(mx.concatenate([masked, beside_keys], axis=-1), axis=-1))
        for position, frame in row.rows.whole.items():
            np.testing.assert_allclose(frame[layer], expected[:, position, : position + 1], rtol=1e-5)
