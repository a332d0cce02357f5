"""Plans on `tiny`: what is asked for is captured, to the byte that was foretold; what is not, says so."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from engine.capture import CapturePlan
from engine.capture_schedule import KEPT_WEIGHTS
from engine.codec import encode, parse
from engine.config import EngineConfig
from engine.errors import RequestError
from engine.events import Absent, Attention, AttentionSummary, Event, Lens, Residual, TensorEvent, Token
from engine.models import LoadedModel
from engine.request import SamplingParams
from tests.engine.conftest import MakeWalk
from tests.engine.test_batching import SMALL, Bench, alone

PROMPT = "The quick brown fox jumps over the lazy dog. "
TOKENS = len(PROMPT)
NEW = 6

PLANS: dict[str, Any] = {
    "follow": "follow",
    "full": "full",
    "half as large": {"dtype": "f16"},
    "timed as it goes": {"kernels": 2},
    "two layers": {"layers": [0, 2]},
    "a range of layers and one head": {"layers": [[1, 3]], "heads": 3},
    "the answer alone": {"positions": "generated"},
    "the prompt alone": {"positions": ["prompt"]},
    "some positions": {"positions": [0, [7, 11], 44, 300]},
    "attention alone": {"tensors": ["attention"]},
    "residuals alone": {"tensors": "residual"},
    "the lens alone": {"tensors": ["lens"], "positions": "generated"},
    "light, and attention": {"level": "light", "tensors": ["attention"], "heads": [0]},
    "little": {"max_bytes": 60_000},
    "less": {"max_bytes": 20_000, "dtype": "f16"},
    "hardly any": {"max_bytes": 1_500},
    "little, of few heads": {"max_bytes": 9_000, "layers": 3, "heads": [1, 2]},
    "residuals, for a while": {"tensors": ["residual"], "max_bytes": 9_999},
}


def of(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def estimated(loaded: LoadedModel, plan: Any, prompt_tokens: int = TOKENS, max_tokens: int = NEW) -> dict[str, Any]:
    bench = Bench(loaded, EngineConfig(slots=1, kv_memory=SMALL))
    bench.core.close()
    return bench.preparation.estimate_of(prompt_tokens, max_tokens, CapturePlan.parse(plan))


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("budget", [256, 11], ids=["prompt whole", "prompt in pieces"])
def test_the_estimate_is_what_is_captured_to_the_byte(
    tiny: LoadedModel, walk: MakeWalk, plan: Any, budget: int
) -> None:
    told = estimated(tiny, plan)
    found: dict[str, dict[str, Counter[int]]] = {
        kind: {"prompt": Counter(), "generated": Counter()} for kind in told["tensors"]
    }
    for event in walk(prefill_budget=budget).generate(PROMPT, max_tokens=NEW, capture=plan):
        if isinstance(event, TensorEvent):
            frame = encode(event)
            header, array = parse(frame.payload, binary=True)
            assert array is not None
            part = "prompt" if header["position"] < TOKENS - 1 else "generated"
            found[frame.kind][part][header["position"]] += array.nbytes  # of a timed step, a frame a layer
    captured = {
        kind: {part: {"positions": len(sizes), "bytes": sizes.total()} for part, sizes in parts.items()}
        for kind, parts in found.items()
    }
    assert captured == told["tensors"]
    assert told["bytes"] == sum(part["bytes"] for parts in captured.values() for part in parts.values())
    assert told["bytes"] <= told["budget_bytes"]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_plan_changes_neither_tokens_nor_a_bit_of_the_logits(
    walk: MakeWalk, logits_seen: list[bytes], plan: Any
) -> None:
    outcomes = []
    for capture in ("off", plan):
        logits_seen.clear()
        events = list(walk(prefill_budget=11).generate(PROMPT, max_tokens=NEW, capture=capture))
        outcomes.append(([token.id for token in of(events, Token)], list(logits_seen)))
    assert outcomes[0] == outcomes[1]
    assert len(outcomes[0][1]) == NEW


def test_requests_with_plans_of_their_own_run_together_as_they_would_alone(tiny: LoadedModel) -> None:
    bench = Bench(tiny, EngineConfig(slots=8, prefill_budget=13, block_size=4, kv_memory=SMALL))
    rows: dict[str, dict[int, np.ndarray]] = {}
    sequences = {}
    for index, (name, plan) in enumerate(PLANS.items()):
        prompt = [index, *range(40)]  # no two begin alike
        sequences[name] = bench.add(prompt, NEW, capture=CapturePlan.parse(plan))
    bench.run()
    bench.core.close()
    for index, (name, plan) in enumerate(PLANS.items()):
        alone = Bench(tiny, EngineConfig(slots=1, block_size=4, kv_memory=SMALL))
        sequence = alone.add([index, *range(40)], NEW, capture=CapturePlan.parse(plan))
        alone.run()
        alone.core.close()
        assert bench.answer(sequences[name]) == alone.answer(sequence)
        for events, who in ((bench.events, sequences[name]), (alone.events, sequence)):
            parts: dict[int, list[np.ndarray]] = defaultdict(list)
            for event in events:
                if isinstance(event, (Attention, AttentionSummary)) and event.request == who.id:
                    parts[event.position].append(event.data)
            rows[who.id] = {position: np.concatenate(layers) for position, layers in parts.items()}
        together, apart = rows[sequences[name].id], rows[sequence.id]
        assert together.keys() == apart.keys()
        for position, data in together.items():
            assert data.shape == apart[position].shape


def test_a_frame_holds_the_layers_and_heads_asked_for_and_names_them(walk: MakeWalk) -> None:
    whole = {e.position: e.data for e in walk().generate(PROMPT, max_tokens=2) if isinstance(e, Attention)}
    events = list(walk().generate(PROMPT, max_tokens=2, capture={"layers": [0, 3], "heads": [[1, 3]]}))
    for event in of(events, Attention):
        assert (event.layers, event.heads) == ([0, 3], [1, 2])
        assert np.array_equal(event.data, whole[event.position][[0, 3]][:, [1, 2]])
    said = [(e.layers, e.heads, e.reason) for e in of(events, Absent) if e.what == "attention"]
    assert said == [([1, 2], None, "not_captured"), (None, [0, 3], "not_captured")]


def test_layers_that_follow_one_another_need_no_names(walk: MakeWalk) -> None:
    event = of(list(walk().generate(PROMPT, max_tokens=1, capture={"layers": [[1, 4]]})), Attention)[0]
    assert (event.layer, event.layers, event.heads, event.data.shape[0]) == (1, None, None, 3)


def test_a_position_that_the_plan_leaves_out_says_so(walk: MakeWalk) -> None:
    events = list(walk().generate(PROMPT, max_tokens=3, capture={"positions": [[0, 5], "generated"]}))
    assert [e.position for e in of(events, Attention)] == [0, 1, 2, 3, 4, TOKENS - 1, TOKENS, TOKENS + 1]
    said = {(e.what, tuple(e.positions), e.reason) for e in of(events, Absent)}
    assert said == {(what, (5, TOKENS - 1), "not_captured") for what in ("attention", "residual")}


def test_the_lens_of_a_plan_is_computed_and_its_residuals_are_not_written_down(walk: MakeWalk) -> None:
    events = list(walk().generate(PROMPT, max_tokens=3, capture={"tensors": ["lens"], "positions": "generated"}))
    assert [e.position for e in of(events, Lens)] == [TOKENS - 1, TOKENS, TOKENS + 1]
    assert not of(events, Residual)
    assert {(e.what, e.reason) for e in of(events, Absent)} == {
        ("attention", "not_captured"),
        ("residual", "not_captured"),
    }


def test_beyond_the_budget_rows_are_summarised_and_the_summary_is_that_of_the_row(walk: MakeWalk) -> None:
    whole = {e.position: e.data for e in walk().generate(PROMPT, max_tokens=NEW) if isinstance(e, Attention)}
    events = list(walk().generate(PROMPT, max_tokens=NEW, capture={"tensors": "attention", "max_bytes": 75_000}))
    summaries = of(events, AttentionSummary)
    assert {e.position for e in summaries} | {e.position for e in of(events, Attention)} == set(whole)
    assert len(summaries) == 5
    for event in summaries:
        rows = whole[event.position]
        positions = event.data[..., : event.kept].astype(int)
        weights = event.data[..., event.kept : -2]
        order = np.argsort(-rows, axis=-1, kind="stable")[..., : event.kept]
        assert np.array_equal(positions, order)
        assert np.array_equal(weights, np.take_along_axis(rows, order, -1))
        np.testing.assert_allclose(event.data[..., -2], rows.sum(-1) - weights.sum(-1), atol=2e-6)
        entropy = -(rows * np.log2(np.where(rows > 0, rows, 1))).sum(-1)
        np.testing.assert_allclose(event.data[..., -1], entropy, atol=1e-4)
        assert event.mass == pytest.approx(weights.sum(-1).mean(), abs=1e-6)
        assert (event.keys, event.kept) == (event.position + 1, min(KEPT_WEIGHTS, event.position + 1))
    said = [e for e in of(events, Absent) if e.what == "attention"]
    covered = {p for e in said for p in range(*e.positions)}
    assert covered == {e.position for e in summaries}
    assert all(e.reason == "over_budget" and "75,000" in e.detail and "summarised" in e.detail for e in said)


@pytest.mark.parametrize("keys", [1, 7, 8, 9, 2047, 2048, 2100, 5000])
def test_the_largest_weights_are_found_however_long_the_row(keys: int) -> None:
    from engine.summary import summarise

    chance = np.random.default_rng(keys)
    rows = chance.exponential(size=(2, 5, keys)).astype(np.float32)
    rows[0, 0] = 1  # all alike: the first
    rows /= rows.sum(-1, keepdims=True)
    kept = min(KEPT_WEIGHTS, keys)
    found = summarise(rows)
    order = np.argsort(-rows, axis=-1, kind="stable")[..., :kept]
    assert np.array_equal(found[..., KEPT_WEIGHTS : KEPT_WEIGHTS + kept], np.take_along_axis(rows, order, -1))
    assert np.array_equal(
        np.take_along_axis(rows, found[..., :kept].astype(int), -1), np.take_along_axis(rows, order, -1)
    )
    assert np.array_equal(found[0, 0, :kept], np.arange(kept))


def test_the_budget_is_spent_on_the_answer_first(tiny: LoadedModel) -> None:
    told = estimated(tiny, {"max_bytes": 150_000}, prompt_tokens=200, max_tokens=10)
    assert told["tensors"]["attention"]["generated"]["positions"] > 0
    assert told["tensors"]["attention.summary"]["prompt"]["positions"] > 0
    assert told["over_budget"]["left_out"]
    assert told["bytes"] <= 150_000 < told["needed_bytes"]


def test_more_budget_never_captures_fewer_positions(tiny: LoadedModel) -> None:
    before = -1
    for budget in range(2_000, 400_000, 9_000):
        told = estimated(tiny, {"max_bytes": budget}, prompt_tokens=60, max_tokens=20)
        assert told["bytes"] <= budget
        out = sum(stop - start for start, stop in told["over_budget"]["left_out"])
        assert before == -1 or out <= before
        before = out


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        ({"positions": []}, "positions"),
        ({"positions": "answer"}, "positions"),
        ({"positions": [-1]}, "positions"),
        ({"positions": [[5, 5]]}, "positions"),
        ({"positions": [True]}, "positions"),
        ({"layers": ["generated"]}, "layers"),
        ({"layers": [1.5]}, "layers"),
        ({"layers": [[0, 5]]}, "layers"),
        ({"heads": 4}, "heads"),
        ({"heads": {"from": 0}}, "heads"),
        ({"tensors": []}, "tensors"),
        ({"tensors": ["attention", "kernel"]}, "tensors"),
        ({"tensors": [["attention"]]}, "tensors"),
        ({"max_bytes": "1GB"}, "max_bytes"),
        ({"max_bytes": 10**30}, "max_bytes"),
        ({"positions": [10**30]}, "positions"),
        ({"positions": [[0, 10**30]]}, "positions"),
        ({"kernels": 10**30}, "kernels"),
        ({"kernels": -1}, "kernels"),
        ({"kernels": "often"}, "kernels"),
        ({"over_budget": "drop"}, "over_budget"),
        ({"head": 1}, "head"),
    ],
)
def test_a_plan_that_is_none_is_refused_and_the_field_named(walk: MakeWalk, plan: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError, match="expected") as caught:
        list(walk().generate(PROMPT, max_tokens=1, capture=plan))
    assert caught.value.param == f"tokenwalk.capture.{field}"


@pytest.mark.parametrize("plan", [{"layers": [30]}, {"heads": [[0, 5]]}])
def test_a_default_plan_for_another_model_is_refused_before_anything_runs(
    tiny: LoadedModel, plan: dict[str, Any]
) -> None:
    config = EngineConfig(slots=1, kv_memory=SMALL, capture_default=CapturePlan.parse(plan))
    with pytest.raises(RequestError, match=r"another model.* expected .* of this model: 0 to 3") as caught:
        Bench(tiny, config)
    assert caught.value.param == f"tokenwalk.capture.{next(iter(plan))}"
    assert len(alone(tiny, [1, 2, 3], 2)) == 2  # the model is as it was


@pytest.mark.parametrize("plan", [{"max_bytes": 0}, {"max_bytes": 100}, {"max_bytes": 60_000, "over_budget": "refuse"}])
def test_what_cannot_be_held_is_refused_with_the_estimates_numbers(
    tiny: LoadedModel, walk: MakeWalk, plan: dict[str, Any]
) -> None:
    told = estimated(tiny, plan)
    with pytest.raises(RequestError) as caught:
        list(walk().generate(PROMPT, max_tokens=NEW, capture=plan))
    assert caught.value.code == "capture_budget_exceeded"
    assert str(caught.value) == told["refused"]
    assert f"{told['needed_bytes']:,}" in told["refused"]


def test_what_fits_is_not_refused(tiny: LoadedModel, walk: MakeWalk) -> None:
    need = estimated(tiny, "follow")["needed_bytes"]
    plan = {"max_bytes": need, "over_budget": "refuse"}
    events = list(walk().generate(PROMPT, max_tokens=NEW, capture=plan))
    assert sum(event.data.nbytes for event in events if isinstance(event, TensorEvent)) <= need
    assert estimated(tiny, plan)["refused"] is None
    assert estimated(tiny, {**plan, "max_bytes": need - 1})["refused"]


def test_what_the_prefix_cache_holds_leaves_its_budget_to_the_rest(tiny: LoadedModel) -> None:
    bench = Bench(tiny, EngineConfig(slots=1, block_size=4, kv_memory=SMALL))
    plan = CapturePlan.parse({"max_bytes": 40_000})
    counts = []
    for _ in range(2):
        sequence = bench.add(list(range(60)), 4, capture=plan, sampling=SamplingParams(temperature=0))
        bench.run()
        rows = [e for e in bench.events if isinstance(e, Attention) and e.request == sequence.id]
        counts.append(sum(e.position >= 56 for e in rows))
    bench.core.close()
    assert counts[1] > counts[0]
