"""The distributions of a step's rows against their definitions, in the plainest NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.distribution import distributions


def row(size: int, seed: int, *, ties: bool, masked: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    logits = rng.integers(-5, 6, size) if ties else rng.standard_normal(size) * 4
    return np.where(rng.random(size) < masked, -np.inf, logits).astype(np.float32)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 700), st.integers(1, 40), st.booleans(), st.sampled_from([0.0, 0.5, 0.99]))
def test_rows_together_are_told_as_the_definition_says(
    data: st.DataObject, size: int, count: int, ties: bool, masked: float
) -> None:
    seeds = data.draw(st.lists(st.integers(0, 1000), max_size=5))
    rows = [row(size, seed, ties=ties, masked=masked) for seed in seeds]
    for logits, told in zip(rows, distributions(rows, count), strict=True):
        assert told.largest == logits.max()
        if not np.isfinite(told.largest):
            assert (told.ids, told.leading) == ([], [])
            continue
        order = np.argsort(-logits, kind="stable")[:count]
        assert told.ids == order.tolist()
        assert told.leading == logits[order].tolist()
        weights = np.exp(logits.astype(np.float64) - told.largest)
        p = weights[weights > 0] / weights.sum()
        assert told.log_partition == pytest.approx(np.log(weights.sum()), abs=1e-5)
        assert told.entropy_bits == pytest.approx(-(p * np.log2(p)).sum(), abs=1e-4)
        for token in {0, size - 1, int(order[-1])}:
            assert told.rank(token) == 1 + np.count_nonzero(logits > logits[token])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_no_number_takes_nothing_from_the_others(bad: float) -> None:
    one, other = (row(300, seed, ties=False, masked=0) for seed in (1, 2))
    alone = distributions([one], 20)[0]
    other[7] = bad
    beside = distributions([other, one], 20)
    assert not np.isfinite(beside[0].largest)
    assert (beside[1].ids, beside[1].entropy_bits) == (alone.ids, alone.entropy_bits)


def test_a_row_is_told_the_same_alone_and_among_others() -> None:
    rows = [row(49_152, seed, ties=False, masked=0) for seed in range(3)]
    for logits, told in zip(rows, distributions(rows, 20), strict=True):
        (alone,) = distributions([logits], 20)
        assert (told.log_partition, told.entropy_bits, told.ids) == (alone.log_partition, alone.entropy_bits, alone.ids)
