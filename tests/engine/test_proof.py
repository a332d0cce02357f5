"""Captured weights are put to the test while the model runs, and a wrong one is found out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

from engine.device import mx

import numpy as np
import pytest

from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.events import StepFinished
from engine.forward import SeparateForward
from engine.models import LoadedModel
from engine.proof import EVERY, Evidence, StepProof, Turns
from engine.scheduler import Row
from engine.sequence import Sequence
from engine.taps import Taps
from tests.engine.architecture_look import _Request
from tests.engine.test_batching import Bench


@pytest.fixture
def bench(tiny: LoadedModel) -> Iterator[Bench]:
    made = Bench(tiny, EngineConfig(kv_memory=2**22, prefill_budget=8))
    yield made
    made.core.close()


def finished(bench: Bench, prompts: list[list[int]], tokens: int, plan: object = "follow") -> list[StepFinished]:
    for prompt in prompts:
        bench.add(prompt, tokens, capture=CapturePlan.parse(plan))
    bench.run()
    return [event for event in bench.events if isinstance(event, StepFinished)]


def test_a_row_of_every_layer_in_turn_is_what_the_kernel_gave(bench: Bench) -> None:
    steps = finished(bench, [[5, 6, 7], [100] * 20, [3]], tokens=40)
    checks = [event.attention_check for event in steps if event.attention_check is not None]
    assert [check["layer"] for check in checks[:5]] == [0, 1, 2, 3, 0]
    assert all(check["largest"] > 0 and check["error"] <= 1e-5 * check["largest"] for check in checks)
    assert len(checks) == -(-sum(event.row_sum_error is not None for event in steps) // EVERY)


def test_row_sums_are_said_of_each_step_that_captured(bench: Bench) -> None:
    for event in finished(bench, [[5, 6, 7]], tokens=4):
        assert event.row_sum_error is not None
        assert event.row_sum_error <= 1e-6


def test_what_captures_nothing_proves_nothing(bench: Bench) -> None:
    for event in finished(bench, [[5, 6, 7]], tokens=20, plan="light"):
        assert event.row_sum_error is None
        assert event.attention_check is None


def test_only_layers_that_are_captured_are_tested(bench: Bench) -> None:
    plan = {"level": "follow", "layers": [1]}
    checks = [event.attention_check for event in finished(bench, [[5, 6, 7]], tokens=40, plan=plan)]
    assert {check["layer"] for check in checks if check} == {1}


@pytest.mark.parametrize("composed", [True, False])
def test_weights_that_are_not_the_kernels_are_found_out(
    bench: Bench, composed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine import captured
    from engine.kv import ragged

    real, both = captured.probabilities, ragged.attention_and_weights

    def shifted_weights(*args: Any) -> tuple[mx.array, mx.array]:
        out, weights = both(*args)
        return out, mx.roll(weights, 1, axis=-1)

    monkeypatch.setattr(ragged, "made_like_the_kernel", lambda *_: composed)
    monkeypatch.setattr(ragged, "attention_and_weights", shifted_weights)
    monkeypatch.setattr(captured, "probabilities", lambda *args: np.roll(real(*args), 1, axis=-1))
    steps = finished(bench, [[5, 6, 7, 8, 9]], tokens=9)
    errors = [event.attention_check["error"] for event in steps if event.attention_check is not None]
    assert min(errors) > 1e-2
    sums = [event.row_sum_error for event in steps if event.row_sum_error is not None]
    assert max(sums) <= 1e-6  # which the sums of the rows would never have shown


def test_a_model_that_runs_its_requests_apart_is_tested_too(tiny: LoadedModel) -> None:
    taps = Taps(tiny.model)
    forward = SeparateForward(taps)
    sequence = cast(Sequence, _Request())
    layers = []
    for number in range(2 * EVERY):
        start, stop = (0, 4) if number == 0 else (number + 3, number + 4)
        row = Row(sequence, start, stop, "prefill")
        ((_, captured),) = forward.lay_out([(row, mx.array(list(range(start, stop))), list(range(stop - start)))])()
        mx.eval(forward.written(sequence))
        assert captured is not None
        if captured.evidence is not None:
            evidence = captured.evidence
            weights = np.concatenate(list(captured.attention()))[evidence.layer][
                :, evidence.index
            ]  # all layers are captured
            error, largest = evidence.error(weights)
            assert largest > 0
            assert error <= 1e-5 * largest
            assert evidence.error(np.roll(weights, 1, axis=-1))[0] > 1e-3
            layers.append(evidence.layer)
    taps.remove()
    assert layers == [0, 1]


def test_all_layers_come_round() -> None:
    turns = Turns(3)
    asked = [turns.next() for _ in range(4 * EVERY)]
    assert [layer for layer in asked if layer is not None] == [0, 1, 2, 0]


def test_evidence_holds_no_view_of_the_store() -> None:
    """Whoever holds a view of a pool makes the next write copy all of it."""
    pool = mx.zeros((1, 8, 4))
    mx.eval(pool)
    evidence = Evidence.of(0, 0, pool[:, 2:6], mx.zeros((2, 4)))
    mx.eval(evidence.arrays)
    pool[:, 2:6] = 1.0
    mx.eval(pool)
    assert not np.asarray(evidence.values).any()
    assert np.asarray(evidence.values).base is not np.asarray(pool).base


@pytest.mark.parametrize("first", [0, 1])
def test_a_row_that_is_no_number_is_said_of_its_step_wherever_it_is_in_the_batch(first: int) -> None:
    proof = StepProof()
    errors = [np.array([1e-7, 2e-7]), np.array([3e-7, math.nan])]
    proof.rows(errors[first])
    proof.rows(errors[1 - first])
    assert math.isnan(proof.fields()["row_sum_error"])
    assert proof.fields()["row_sum_error"] is None
