"""Attention too large to be held at once is read layer by layer beside the device: the frames are the same."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from engine.device import mx

import numpy as np
import pytest

from engine import attention, by_layer, captured, joined, stream
from engine.attention import LEAST_ROWS, Softmax, attention_scores, pieces_of
from engine.attention_rows import AttentionRows
from engine.capture import CapturePlan
from engine.capture_schedule import CaptureSchedule, Visible
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.events import Attention, AttentionOut, AttentionSummary, RequestFinished, Residual, Token
from engine.models import LoadedModel
from tests.engine.test_batching import SMALL, Bench

PROMPT = [(7 * index + 3) % 251 for index in range(150)]
PLANS = {
    "whole": CapturePlan(level="follow"),
    "some layers and heads": CapturePlan(level="follow", layers=(1, 3), heads=(0, 2)),
    "some positions": CapturePlan(level="follow", positions=((60, 70), (100, 131), 149)),
    "summaries": CapturePlan(level="follow", tensors=("attention",), budget_bytes=60_000),
    "residuals": CapturePlan(level="follow", tensors=("residual", "attention_out")),
}


@pytest.fixture
def layered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything counts as large: it is read layer by layer, in as many pieces as there may be."""
    monkeypatch.setattr(captured, "BY_LAYER_BYTES", 0)
    monkeypatch.setattr(by_layer, "QUEUE_BYTES", 0)
    monkeypatch.setattr(stream, "LARGE_BYTES", 0)
    monkeypatch.setattr(attention, "PIECE_BYTES", 0)


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
        if isinstance(event, Attention | AttentionSummary | Residual | AttentionOut)
    }
    assert len([event for event in bench.events if isinstance(event, RequestFinished)]) == len(plans)
    return [bench.answer(sequence) for sequence in sequences], frames


@pytest.mark.parametrize("plan", PLANS)
def test_the_frames_are_those_of_scores_that_are_read_at_once(
    tiny: LoadedModel, plan: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
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
    request.getfixturevalue("layered")
    by_layers, same = followed(tiny, plans)
    assert len(taken) > 2 * tiny.info.layers  # some layers in several pieces
    assert by_layers == at_once
    assert same.keys() == frames.keys()
    for key, data in frames.items():
        np.testing.assert_allclose(same[key], data, atol=1e-6, err_msg=str(key))


def test_a_fault_while_reading_is_told_and_nobody_waits_for_ever(
    tiny: LoadedModel, layered: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: AttentionRows, *seen: Any, **more: Any) -> None:
        raise ZeroDivisionError("while reading")

    monkeypatch.setattr(AttentionRows, "take", broken)
    monkeypatch.setattr(AttentionRows, "take_frame", broken)
    classes = [type(module) for module in tiny.model.modules()]
    bench = Bench(tiny, EngineConfig(slots=1, kv_memory=SMALL))
    bench.add(PROMPT, 2, capture=PLANS["whole"])
    with pytest.raises(ZeroDivisionError):
        bench.run()
    with pytest.raises(ZeroDivisionError):
        bench.core.close()
    assert [type(module) for module in tiny.model.modules()] == classes


def test_an_interruption_ends_the_reading(tiny: LoadedModel, layered: None, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_capture_by_layer_changes_no_bit(tiny: LoadedModel, layered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: dict[str, list[bytes]] = {}
    for level in ("light", "follow"):
        bench = Bench(tiny, EngineConfig(slots=1, kv_memory=SMALL, prefill_budget=64))
        rows: list[bytes] = []
        choose = EngineCore._choose

        def noted(self: EngineCore, *given: Any, rows: list[bytes] = rows, choose: Any = choose) -> None:
            rows.append(np.asarray(given[1].logits).tobytes())
            choose(self, *given)

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
    row = captured.Captured([0, 1, 2, 3, 4], [0, 1], slice(0, 5), [[layer] for layer in scores])
    row.scores = joined.Scores(softmaxes, 0, 5)
    row.rows = AttentionRows(row.positions, row.layers, schedule)
    with ThreadPoolExecutor(1) as beside:
        by_layer.run_by_layer([row], [], [], beside).result()
    for layer, sinks in enumerate(stored):
        masked = mx.where(mx.tri(5, dtype=mx.bool_), scores[layer][0] * 0.5, -mx.inf)
        beside_keys = mx.broadcast_to(sinks.astype(mx.float32)[:, None, None], (3, 5, 1))
        expected = np.array(mx.softmax(mx.concatenate([masked, beside_keys], axis=-1), axis=-1))
        for position, frame in row.rows.whole.items():
            np.testing.assert_allclose(frame[layer], expected[:, position, : position + 1], rtol=1e-5)


def test_pieces_of_rows_are_small_and_have_the_scores_of_all_rows() -> None:
    heads, keys, width = 4, 1_500, 64
    rows = list(range(3, 256))
    pieces = pieces_of(rows, heads, keys)
    assert [row for piece in pieces for row in piece] == rows
    assert max(4 * heads * keys * len(piece) for piece in pieces) <= attention.PIECE_BYTES
    assert pieces_of(rows, heads, 20) == [rows]
    assert {len(piece) for piece in pieces_of(rows, 512, keys)[:-1]} == {LEAST_ROWS}
    q, k = mx.random.normal((1, heads, 256, width)), mx.random.normal((1, 2, keys, width))
    whole = np.array(attention_scores(q, k, rows))
    apart = np.concatenate([np.array(attention_scores(q, k, piece)) for piece in pieces], axis=2)
    np.testing.assert_allclose(apart, whole, rtol=1e-5, atol=1e-4)


def test_no_more_waits_or_is_read_than_the_queue_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_layer, "QUEUE_BYTES", 20)
    queue, go_on, taken = by_layer._Queue(), threading.Event(), []

    def work() -> None:
        go_on.wait(30)

    def give() -> None:
        for number in range(5):
            queue.put(work, 10)
            taken.append(number)
        queue.close()

    giver, worker = threading.Thread(target=give), threading.Thread(target=queue.work)
    giver.start()
    worker.start()
    giver.join(0.3)
    assert taken == [0, 1]  # one being read, one waiting: the third would be too much
    go_on.set()
    giver.join(30)
    worker.join(30)
    assert taken == [0, 1, 2, 3, 4]
