"""Numbers that are none: shown as such, the request stopped with `error`, nothing kept, nothing crashed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from engine.device import mx

import numpy as np
import pytest

from engine import joined
from engine.attention import Softmax, attention_rows, probabilities
from engine.capture import CapturePlan
from engine.codec import encode, parse
from engine.config import EngineConfig
from engine.events import (
    Absent,
    Attention,
    AttentionSummary,
    Attribution,
    BlockStored,
    Event,
    RequestFinished,
    Residual,
    StepFinished,
    Token,
)
from engine.forward import BatchedForward
from engine.kv.paged import PagedStore
from engine.models import LoadedModel, load
from engine.summary import summarise
from engine.trace import open_trace
from engine.trace.checking import Check
from engine.trace.verify import verify
from tests.engine.conftest import MakeWalk
from tests.engine.test_batching import SMALL, Bench, alone
from tests.engine.trace_run import record

PROMPT = list(range(40))


def of(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def broken(where: str, value: float) -> LoadedModel:
    """`tiny` with one weight matrix of layer 2 filled with a value: none, or one whose products are none."""
    loaded = load("tiny")
    layer = loaded.model.layers[2]
    module = layer.self_attn.q_proj if where == "attention" else layer.mlp.down_proj
    module.weight = mx.full(module.weight.shape, value)
    return loaded


FAULTS = [("attention", math.nan), ("attention", math.inf), ("mlp", math.nan), ("mlp", -math.inf), ("mlp", 3e38)]


@pytest.mark.parametrize(("where", "value"), FAULTS)
@pytest.mark.parametrize("capture", ["off", "light", "follow", "full", {"max_bytes": 10_000}, {"tensors": "attention"}])
@pytest.mark.parametrize("budget", [256, 7], ids=["prompt whole", "prompt in pieces"])
def test_a_fault_in_one_layer_ends_the_request_with_error(
    walk: MakeWalk, where: str, value: float, capture: Any, budget: int
) -> None:
    events = list(walk(broken(where, value), prefill_budget=budget).generate(PROMPT, max_tokens=4, capture=capture))
    finished = of(events, RequestFinished)
    assert [event.reason for event in finished] == ["error"]
    assert (
        "nan" in finished[0].detail.lower() or "inf" in finished[0].detail.lower() or "no number" in finished[0].detail
    )
    assert not of(events, Token)
    for event in events:
        frame = encode(event)
        parse(frame.payload, binary=frame.binary)


def test_the_layer_where_it_began_is_named_and_shown(walk: MakeWalk) -> None:
    events = list(walk(broken("mlp", math.nan), prefill_budget=7).generate(PROMPT, max_tokens=4))
    finished = of(events, RequestFinished)[0]
    assert "after layer 2 holds NaN" in finished.detail
    residual = of(events, Residual)[0]
    assert np.isfinite(residual.data[:3]).all()
    assert np.isnan(residual.data[3:]).all()
    assert math.isnan(parse(encode(residual).payload, binary=True)[0]["norms"][3])
    attention = of(events, Attention)[0]
    assert np.isfinite(attention.data[:3]).all()
    assert np.isnan(attention.data[3]).all()
    assert math.isnan(attention.row_sum_error)
    assert not [event for event in of(events, Residual) if event.position >= 14]  # it ended with its first chunk


@pytest.mark.parametrize("apart_bytes", [1, 2**60], ids=["told where it lies", "put together"])
def test_a_row_that_is_a_frame_as_it_is_shows_its_fault(
    walk: MakeWalk, monkeypatch: pytest.MonkeyPatch, apart_bytes: int
) -> None:
    monkeypatch.setattr(joined, "APART_BYTES", apart_bytes)
    events = list(walk(broken("attention", math.nan)).generate([5], max_tokens=4))
    (finished,) = of(events, RequestFinished)
    assert finished.reason == "error"
    (attention,) = of(events, Attention)
    assert np.isfinite(attention.data[:2]).all()
    assert np.isnan(attention.data[2:]).all()
    assert math.isnan(attention.row_sum_error)
    assert math.isnan(of(events, StepFinished)[0].row_sum_error)


def test_a_row_beyond_the_budget_shows_its_fault_too(walk: MakeWalk) -> None:
    plan = {"max_bytes": 50_000, "tensors": "attention"}
    events = list(walk(broken("attention", math.nan)).generate(PROMPT, max_tokens=4, capture=plan))
    summary = of(events, AttentionSummary)[0]
    assert np.isnan(summary.data[2]).any()
    assert math.isnan(summary.mass)


@pytest.mark.parametrize("capture", ["light", "follow"])
def test_poisoned_blocks_are_not_found_again_and_the_next_request_is_well(tiny: LoadedModel, capture: str) -> None:
    loaded = load("tiny")
    weight = loaded.model.layers[2].mlp.down_proj.weight
    bench = Bench(loaded, EngineConfig(slots=2, block_size=4, prefill_budget=16, kv_memory=SMALL))
    healthy = bench.add(PROMPT[:9], 3)
    bench.run()
    loaded.model.layers[2].mlp.down_proj.weight = mx.full(weight.shape, math.nan)
    first = bench.add(PROMPT, 3, capture=CapturePlan.parse(capture))
    bench.run()
    assert first.finish_reason == "error"
    loaded.model.layers[2].mlp.down_proj.weight = weight
    again = bench.add(PROMPT, 3)
    bench.run()
    bench.core.close()
    assert again.cached <= 8  # what the healthy request computed may be there, no more
    assert bench.answer(again) == alone(tiny, PROMPT, 3)
    assert bench.answer(healthy) == alone(tiny, PROMPT[:9], 3)
    stored = {event.block for event in bench.events if isinstance(event, BlockStored) and event.request == first.id}
    evicted = {
        event.block  # type: ignore[attr-defined]
        for event in bench.events
        if event.kind == "block.evicted" and event.request == first.id  # type: ignore[attr-defined]
    }
    assert stored <= evicted


def test_others_in_the_batch_go_on(tiny: LoadedModel) -> None:
    """One request's embedding is NaN: a token id that only it has."""
    bench = Bench(ill_token(200), EngineConfig(slots=4, block_size=4, prefill_budget=16, kv_memory=SMALL))
    well = [bench.add([*range(index, index + 12)], 8) for index in range(2)]
    ill = bench.add([5, 200, 6], 8)
    bench.run()
    bench.core.close()
    assert ill.finish_reason == "error"
    assert "nan" in next(
        event.detail for event in bench.events if isinstance(event, RequestFinished) and event.request == ill.id
    )
    for index, sequence in enumerate(well):
        assert bench.answer(sequence) == alone(tiny, [*range(index, index + 12)], 8)


def verified(path: Path, events: list[Event]) -> dict[str, Check]:
    with open_trace(record(path, [encode(event) for event in events])) as trace:
        return {check.name: check for check in verify(trace)}


@pytest.mark.parametrize(("where", "value"), FAULTS)
@pytest.mark.parametrize("plan", ["follow", {"max_bytes": 40_000}, {"dtype": "f16"}], ids=str)
def test_a_trace_of_it_is_true_and_says_in_one_line_what_was_recorded(
    walk: MakeWalk, tmp_path: Path, where: str, value: float, plan: Any
) -> None:
    events = list(walk(broken(where, value)).generate(PROMPT, max_tokens=4, capture=plan))
    checks = verified(tmp_path / "t.mcap", events)
    assert [check for check in checks.values() if check.ok is False] == []
    said = [check.name for check in checks.values() if "NaN" in check.detail or "nan" in check.detail]
    assert said == ["no NaN passes unsaid"]
    assert "generation was stopped" in checks["no NaN passes unsaid"].detail


@pytest.mark.parametrize("ill", [0, 2])
def test_a_trace_where_the_row_that_is_tested_is_no_number_is_true_if_the_request_ended_with_it(
    walk: MakeWalk, tmp_path: Path, ill: int
) -> None:
    events = list(walk(ill_token(200)).generate([200, 1, 2] if ill == 0 else [1, 2, 200], max_tokens=4))
    step = next(event for event in of(events, StepFinished) if event.attention_check is not None)
    assert math.isnan(step.attention_check["largest"])
    assert [check for check in verified(tmp_path / "t.mcap", events).values() if check.ok is False] == []
    step.attention_check["largest"] = 1.0
    assert not verified(tmp_path / "u.mcap", events)["weights × values are output"].ok
    step.attention_check["largest"] = math.nan
    of(events, RequestFinished)[0].reason = "length"
    assert not verified(tmp_path / "v.mcap", events)["weights × values are output"].ok


def test_a_number_that_is_none_and_is_not_said_to_be_fails(walk: MakeWalk, tmp_path: Path) -> None:
    events = list(walk(broken("attention", math.nan)).generate(PROMPT, max_tokens=4))
    of(events, Attention)[0].row_sum_error = 1e-7
    checks = verified(tmp_path / "t.mcap", events)
    assert not checks["no NaN passes unsaid"].ok
    assert not checks["attention rows sum to 1"].ok


def test_a_request_that_chose_tokens_after_a_number_that_is_none_fails(walk: MakeWalk, tmp_path: Path) -> None:
    events = list(walk().generate(PROMPT, max_tokens=4))
    residual = of(events, Residual)[-2]
    residual.data[1:], residual.norms[1:] = math.nan, [math.nan] * (len(residual.norms) - 1)
    checks = verified(tmp_path / "t.mcap", events)
    assert [check.name for check in checks.values() if check.ok is False] == ["no NaN passes unsaid"]
    assert "chose a token after it" in checks["no NaN passes unsaid"].detail


def test_summaries_are_verified(walk: MakeWalk, tmp_path: Path) -> None:
    plan = {"tensors": "attention", "max_bytes": 40_000}
    events = list(walk().generate(PROMPT, max_tokens=4, capture=plan))
    summaries = of(events, AttentionSummary)

    def attention_is_right() -> bool | None:
        path = record(tmp_path / "t.mcap", [encode(event) for event in events])
        with open_trace(path) as trace:
            checks = {check.name: check.ok for check in verify(trace)}
        said = checks["events well formed"], checks["attention rows sum to 1"], checks["no attention to the future"]
        return all(said)

    assert attention_is_right()
    summaries[0].data[0, 0, -2] += 0.01
    assert not attention_is_right()
    summaries[0].data[0, 0, -2] -= 0.01
    first = summaries[0].data[0, 0, 0]
    summaries[0].data[0, 0, 0] = summaries[0].position + 1
    assert not attention_is_right()
    summaries[0].data[0, 0, 0] = summaries[0].data[0, 0, 1]
    assert not attention_is_right(), "one key is listed twice"
    summaries[0].data[0, 0, 0] = first
    assert attention_is_right()
    summaries[0].keys += 1
    assert not attention_is_right(), "a summary of more keys than there are"


def test_a_row_with_every_key_masked_is_no_number() -> None:
    scores = np.full((2, 1, 3), -np.inf, np.float32)
    scores[1] = 1
    rows = probabilities(scores, Softmax(1.0), [2])
    assert np.isnan(rows[0]).all()
    np.testing.assert_allclose(rows[1], 1 / 3)
    q, k = mx.ones((1, 1, 1, 4)), mx.ones((1, 1, 3, 4))
    hidden = attention_rows(q, k, 1.0, mx.zeros((1, 1, 1, 3), dtype=mx.bool_), None, [0])
    assert np.isnan(np.array(hidden)).all()
    assert np.isnan(summarise(rows)[0, 0, 8:11]).all()


@pytest.mark.parametrize("composed", [True, False])
def test_a_mask_that_hides_everything_ends_the_request(
    walk: MakeWalk, composed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the weights, or the scores, of a fully masked row reach the host: the softmax of nothing."""
    from engine.kv import ragged

    scores, both = ragged.attention_scores, ragged.attention_and_weights

    def masked(found: mx.array, instead: float) -> mx.array:
        return mx.where(mx.arange(found.shape[-2])[:, None] == 3, mx.array(instead), found)

    def masked_weights(*args: Any) -> tuple[mx.array, mx.array]:
        out, weights = both(*args)
        return out, masked(weights, math.nan)

    monkeypatch.setattr(ragged, "made_like_the_kernel", lambda *_: composed)
    monkeypatch.setattr(ragged, "attention_and_weights", masked_weights)
    monkeypatch.setattr(ragged, "attention_scores", lambda *args: masked(scores(*args), -math.inf))
    events = list(walk().generate(PROMPT, max_tokens=4))
    finished = of(events, RequestFinished)[0]
    assert finished.reason == "error"
    assert "layer 0, head 0 is no number at position 3" in finished.detail


def test_a_residual_too_large_for_float16_is_stored_with_a_scale(walk: MakeWalk) -> None:
    loaded = load("tiny")
    loaded.model.layers[0].mlp.down_proj.weight = loaded.model.layers[0].mlp.down_proj.weight * 3e7
    exact = of(list(walk(loaded).generate(PROMPT, max_tokens=2)), Residual)
    half = of(list(walk(loaded).generate(PROMPT, max_tokens=2, capture={"dtype": "f16"})), Residual)
    assert max(float(np.abs(event.data).max()) for event in exact) > 65_504
    for a, b in zip(exact, half, strict=True):
        assert np.isfinite(b.data).all()
        assert (b.scale is None) == (float(np.abs(a.data).max()) <= 65_504)
        largest = float(np.abs(a.data).max())
        np.testing.assert_allclose(b.data.astype(np.float64) * (b.scale or 1), a.data, atol=largest / 1000)


def ill_token(token: int, *, ends: bool = False) -> LoadedModel:
    """`tiny` with the embedding of one token NaN; `ends`: a token that ends an answer."""
    loaded = load("tiny")
    embedding = np.array(loaded.model.model.embed_tokens.weight)
    embedding[token] = math.nan
    loaded.model.model.embed_tokens.weight = mx.array(embedding)
    return replace(loaded, info=replace(loaded.info, eos_ids=(token,))) if ends else loaded


@pytest.mark.parametrize("gone", ["finished", "cancelled", "cancelled at once"])
def test_what_a_request_leaves_that_nobody_looked_at_does_not_reach_others(tiny: LoadedModel, gone: str) -> None:
    """A row that goes through the kernel together with longer ones reads slots behind its own, which a mask hides."""
    prompt, others = [*range(170, 176)], ([*range(12)], [7])
    ill = alone(tiny, prompt, 2)[-1] if gone == "finished" else 200
    assert all(ill not in alone(tiny, other, 24) for other in others)
    loaded = ill_token(ill, ends=gone == "finished")
    bench = Bench(loaded, EngineConfig(slots=2, block_size=4, prefill_budget=16, kv_memory=SMALL))
    first = bench.add(others[0], 24)
    bench.step()
    if gone == "finished":  # the pass over its last token was submitted before that was known
        leaving = bench.add(prompt, 20)
        while not leaving.finished:
            bench.step()
        assert leaving.finish_reason == "stop"
    else:
        leaving = bench.add([*prompt, ill, *prompt * 8], 20, capture=CapturePlan.parse("off"))
        bench.step()
        bench.core.cancel(leaving)
        if gone == "cancelled":
            bench.step()
    second = bench.add(others[1], 24)
    bench.run()
    bench.core.close()
    for sequence, other in zip((first, second), others, strict=True):
        assert bench.answer(sequence) == alone(tiny, other, 24)


def test_a_prompt_that_is_no_numbers_ends_with_the_piece_in_which_it_begins(tiny: LoadedModel) -> None:
    bench = Bench(ill_token(200), EngineConfig(slots=2, block_size=4, prefill_budget=16, kv_memory=SMALL))
    ill = bench.add([*range(20), 200, *range(40)], 3, capture=CapturePlan.parse("off"))
    bench.run()
    bench.core.close()
    finished = of(bench.events, RequestFinished)[0]
    assert finished.reason == "error"
    assert "keys or values of positions 16 to 31 hold NaN" in str(finished.detail)
    assert ill.computed < 61


class _Named:
    def __init__(self, name: str) -> None:
        self.id = name


def test_a_copied_block_is_read_by_its_holder_alone_until_it_was_looked_at() -> None:
    """Until then its last slots may hold what is none: they are behind the positions that two requests share."""
    lengths = {"a": 6, "b": 12}
    starts = {"a": 0, "b": 16}
    memory = SimpleNamespace(
        runs=lambda name, length: [(starts[name], starts[name] + length)],
        limit=lambda name, beyond: starts[name] + 16,
    )
    taps = SimpleNamespace(structure=SimpleNamespace(layers=[None]))
    forward = BatchedForward(cast(Any, taps), PagedStore(layers=1, blocks=8, block_size=4), cast(Any, memory))
    sequences = {name: _Named(name) for name in lengths}
    rows: list[Any] = [
        (SimpleNamespace(sequence=sequences[name], start=length - 1, stop=length), mx.array([1]), [])
        for name, length in lengths.items()
    ]
    assert [span.limit for span in forward._laid_out(rows)] == [16, 32]
    forward.copy(6, 1)
    assert [span.limit for span in forward._laid_out(rows)] == [6, 32]
    assert [span.limit for span in forward._laid_out(rows)] == [16, 32]


def test_what_is_no_number_has_no_parts_and_that_is_said_of_it_and_not_of_the_model(walk: MakeWalk) -> None:
    made = walk(ill_token(200))
    request = of(list(made.generate([1, 2, 200, 3], max_tokens=4)), RequestFinished)[0].request
    for position in (0, 2):
        said = made.attribution(request, position)
        assert isinstance(said, Absent)
        assert "holds NaN or infinity here" in str(said.detail)
    whole = of(list(made.generate([1, 2, 3], max_tokens=4)), RequestFinished)[0].request
    assert isinstance(made.attribution(whole, 2), Attribution)
