"""Rows that go through the kernel together: who may, and that each gets exactly its own keys."""

from __future__ import annotations

from engine.device import mx

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kv.even import WASTE, EvenRows, even_rows
from engine.kv.paged import PagedStore
from engine.kv.ragged import RaggedBatch
from engine.kv.store import Handle, RowSpan


def span(start: int, length: int, limit: int, first: int = 0, wanted: list[int] | None = None) -> RowSpan:
    """A decoding row whose keys are the slots from `start` on."""
    runs = [(start, start + length)]
    return RowSpan(None, length - 1, length, first, wanted or [], runs, limit)  # type: ignore[arg-type]


def test_rows_that_lie_evenly_apart_are_shown_by_one_view() -> None:
    spans = [span(64, 5, 96), span(0, 7, 32), span(32, 6, 64), span(96, 7, 128)]
    assert even_rows(spans) == [EvenRows([1, 2, 0, 3], start=0, apart=32, keys=7)]


def test_a_row_never_reads_what_another_request_may_write() -> None:
    spans = [span(0, 4, 8), span(8, 9, 40)]
    assert even_rows(spans) == [], "the first row would read a key of the second"


def test_a_short_row_is_not_made_to_read_many_keys_more() -> None:
    spans = [span(0, 10, 4000), span(4000, 10 + WASTE + 1, 8000)]
    assert even_rows(spans) == []


def test_rows_in_several_runs_and_rows_of_many_tokens_go_alone() -> None:
    prompt = RowSpan(None, 0, 8, 0, [], [(0, 8)], 64)  # type: ignore[arg-type]
    broken = RowSpan(None, 8, 9, 8, [], [(64, 72), (90, 91)], 128)  # type: ignore[arg-type]
    assert even_rows([prompt, broken, span(128, 4, 256)]) == []


rows_of_a_pool = st.lists(
    st.tuples(st.integers(0, 15), st.integers(1, 16), st.integers(0, 2)),
    min_size=1,
    max_size=12,
    unique_by=lambda r: r[0],
)


@given(rows_of_a_pool)
def test_every_row_is_in_one_group_at_most_and_stays_within_its_limit(rows: list[tuple[int, int, int]]) -> None:
    spans = [span(place * 16, length, place * 16 + 16 + 16 * more) for place, length, more in rows]
    groups = even_rows(spans)
    members = [index for group in groups for index in group.members]
    assert len(members) == len(set(members))
    for group in groups:
        assert len(group.members) > 1
        assert group.keys == max(spans[index].stop for index in group.members)
        for place, index in enumerate(group.members):
            start = spans[index].runs[0][0]
            assert start == group.start + place * group.apart
            assert start + group.keys <= spans[index].limit


@pytest.fixture
def store() -> PagedStore:
    """A store of one layer, 64 slots, 2 KV heads of 4, filled with numbers; slots 40 to 47 hold NaN."""
    store = PagedStore(layers=1, blocks=8, block_size=8)
    everything = RowSpan(None, 0, 64, 0, [], [(0, 64)], 64)  # type: ignore[arg-type]
    keys, values = (np.random.default_rng(seed).standard_normal((2, 64, 4)).astype(np.float32) for seed in (1, 2))
    keys[:, 40:48] = values[:, 40:48] = np.nan
    store.write(0, [everything], mx.array(keys), mx.array(values))
    return store


def attend(store: PagedStore, spans: list[RowSpan]) -> tuple[np.ndarray, RaggedBatch]:
    batch = RaggedBatch(store, spans)
    q = mx.array(np.random.default_rng(3).standard_normal((len(spans), 4, 1, 4)).astype(np.float32))
    out = batch.attend(mx.fast.scaled_dot_product_attention, q, Handle(batch, 0), 0.5, None)
    return np.array(out), batch


def test_rows_together_get_what_each_gets_alone_in_any_order(store: PagedStore) -> None:
    lengths = [(48, 5), (0, 7), (16, 3), (32, 6)]
    spans = [span(start, length, start + 8, first) for first, (start, length) in enumerate(lengths)]
    together, _ = attend(store, spans)
    alone, _ = attend(store, [span(start, length, 0, first) for first, (start, length) in enumerate(lengths)])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_scores_of_a_row_are_found_in_those_of_its_group(store: PagedStore) -> None:
    spans = [span(16, 3, 24, 0, [0]), span(0, 7, 8, 1), span(32, 6, 40, 2, [0])]
    _, batch = attend(store, spans)
    for index, (start, length) in ((0, (16, 3)), (2, (32, 6))):
        _, single = attend(store, [span(start, length, 0, i, [0]) for i in range(index + 1)])
        call, row = batch.places[index]
        found = np.array(batch.seen[0][call].pieces[0])[row, ..., :length]
        alone, _ = single.places[index]
        np.testing.assert_allclose(found, np.array(single.seen[0][alone].pieces[0])[0], atol=1e-6)


def test_nothing_that_is_not_finite_is_left_in_slots_that_are_wiped(store: PagedStore) -> None:
    before = np.array(store.arrays(0)[0])
    store.wipe([(0, 44)])
    after = np.array(store.arrays(0)[0])
    assert (after[:, 40:44] == 0).all()
    assert np.isnan(after[:, 44:48]).all(), "what is held is not touched"
    np.testing.assert_array_equal(after[:, :40], before[:, :40])
