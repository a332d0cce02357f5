"""The sampler against the definitions of its stages, written down again in the plainest NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import RequestError
from engine.request import SamplingParams
from engine.sampling import NonFiniteLogits, Sampler, drawn_seed

VOCAB = 3000  # more than FIRST_CANDIDATES, so that both paths run


def logits(seed: int = 0, spread: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(VOCAB) * spread).astype(np.float32)


def reference(x: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Probabilities after temperature, top_k, top_p and min_p, candidate by candidate."""
    p = np.exp((x.astype(np.float64) - x.max()) / params.temperature)
    p /= p.sum()
    order = sorted(range(len(p)), key=lambda token: (-p[token], token))
    kept = order[: params.top_k] if params.top_k else order
    total = sum(p[token] for token in kept)
    nucleus, mass = [], 0.0
    for token in kept:
        nucleus.append(token)
        mass += p[token]
        if params.top_p < 1 and mass >= params.top_p * total:
            break
    final = [token for token in nucleus if p[token] >= params.min_p * p[order[0]]]
    out = np.zeros_like(p)
    out[final] = p[final] / p[final].sum()
    return out


params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_p=st.sampled_from([0.1, 0.5, 0.9, 0.999, 1.0]),
    top_k=st.sampled_from([0, 1, 40, 1024, 2000]),
    min_p=st.sampled_from([0.0, 0.001, 0.2]),
    seed=st.integers(0, 2**32),
)


@settings(max_examples=60, deadline=None)
@given(params, st.integers(0, 5000), st.sampled_from([0.5, 3.0]))
def test_the_draw_inverts_the_filtered_distribution(params: SamplingParams, position: int, spread: float) -> None:
    x = logits(1, spread)
    choice = Sampler(params, []).choose(x, position)
    p = reference(x, params)
    order = sorted(np.flatnonzero(p), key=lambda token: (-p[token], token))
    cumulated = np.cumsum(p[order])
    place = order.index(choice.token)
    assert choice.draw["low"] == pytest.approx(cumulated[place] - p[choice.token], abs=1e-9)
    assert choice.draw["high"] == pytest.approx(cumulated[place], abs=1e-9)
    assert choice.draw["low"] <= choice.draw["u"] < choice.draw["high"] + 1e-9
    last = choice.stages[-1]
    assert last["kept"] == len(order)
    np.testing.assert_allclose(last["probabilities"], [p[c["id"]] for c in choice.top], atol=1e-9)


def test_a_seed_that_is_drawn_is_another_each_time_and_one_that_javascript_tells_exactly() -> None:
    drawn = [drawn_seed() for _ in range(100)]
    assert len(set(drawn)) == 100
    assert all(0 <= seed < 2**53 for seed in drawn)


def test_the_same_seed_and_position_draw_the_same_token_whatever_came_before() -> None:
    one, other = (Sampler(SamplingParams(seed=7), []) for _ in range(2))
    for position in range(5):
        one.choose(logits(position), position)
    assert one.choose(logits(9), 9).token == other.choose(logits(9), 9).token


def test_draws_follow_the_distribution() -> None:
    x = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    sampler = Sampler(SamplingParams(seed=3), [])
    counts = np.bincount([sampler.choose(x, position).token for position in range(4000)], minlength=4)
    np.testing.assert_allclose(counts / 4000, [0.5, 0.3, 0.15, 0.05], atol=0.025)


def test_greedy_takes_the_largest_and_describes_it() -> None:
    x = logits(2)
    choice = Sampler(SamplingParams(temperature=0), []).choose(x, 0)
    p = np.exp(x.astype(np.float64) - x.max())
    p /= p.sum()
    assert choice.token == int(x.argmax())
    assert choice.rank == 1
    assert choice.logprob == pytest.approx(np.log(p.max()), abs=1e-6)
    assert choice.entropy_bits == pytest.approx(-(p * np.log2(p)).sum(), abs=1e-4)
    assert [candidate["id"] for candidate in choice.top] == list(np.argsort(-x)[:20])


def test_penalties_change_what_is_seen_and_what_was_said() -> None:
    x = np.array([2.0, -1.0, 0.6, 0.4], np.float32)
    repetition = Sampler(SamplingParams(temperature=0, repetition_penalty=4.0), [0, 1])
    assert repetition.choose(x, 2).token == 2  # 2.0 / 4 falls behind 0.6; −1 · 4 falls further
    presence = Sampler(SamplingParams(temperature=0, presence_penalty=1.7), [])
    assert [presence.choose(x, position).token for position in range(3)] == [0, 2, 3]
    bias = Sampler(SamplingParams(temperature=0, logit_bias={3: 50}), [])
    assert bias.choose(x, 0).token == 3


def test_a_choice_is_the_same_with_and_without_statistics() -> None:
    for seed in range(20):
        params = SamplingParams(seed=seed, top_p=0.9, temperature=0.8)
        chosen = {
            Sampler(params, [], statistics=statistics).choose(logits(seed), 3).token for statistics in (True, False)
        }
        assert len(chosen) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_an_error(bad: float) -> None:
    x = logits()
    x[5] = bad
    with pytest.raises(NonFiniteLogits, match="position 12"):
        Sampler(SamplingParams(temperature=0), []).choose(x, 12)


def test_a_fully_masked_row_is_an_error_and_a_masked_token_is_not() -> None:
    x = np.full(VOCAB, -np.inf, np.float32)
    with pytest.raises(NonFiniteLogits):
        Sampler(SamplingParams(), []).choose(x, 0)
    x[17] = 0
    choice = Sampler(SamplingParams(seed=1), []).choose(x, 0)
    assert (choice.token, choice.entropy_bits, choice.logprob) == (17, 0.0, 0.0)
    assert choice.top[1]["logprob"] == -np.inf


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -1),
        ("min_p", 2),
        ("seed", 2**70),
    ],
)
def test_a_wrong_parameter_is_named(field: str, value: float) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{field: value})
    assert caught.value.param == field
    assert str(value) in str(caught.value)
