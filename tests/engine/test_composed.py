"""Attention composed of single operations: the kernel's own output, bit by bit, and the weights that made it."""

from __future__ import annotations

from typing import Any

from engine.device import mx, on_gpu

import numpy as np
import pytest

from engine import composed
from engine.attention import attention_rows
from engine.attention_rows import AttentionRows
from engine.capture import CapturePlan
from engine.capture_schedule import CaptureSchedule, Visible
from engine.composed import attention_and_weights, made_like_the_kernel
from engine.config import EngineConfig
from engine.events import Attention
from engine.kv import ragged
from engine.models import LoadedModel
from tests.engine.test_batching import SMALL, Bench

KERNEL = mx.fast.scaled_dot_product_attention
pytestmark = pytest.mark.skipif(on_gpu(), reason="a GPU's kernel is one operation")


def arrays(rows: int, heads: int, kv_heads: int, length: int, keys: int) -> list[mx.array]:
    random = np.random.default_rng(rows + heads + length + keys)
    shapes = (rows, heads, length, 16), (rows, kv_heads, keys, 16), (rows, kv_heads, keys, 16)
    return [mx.array(random.standard_normal(shape).astype(np.float32)) for shape in shapes]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (9, 3), (8, 1)])
@pytest.mark.parametrize(("rows", "length", "keys"), [(1, 1, 1), (8, 1, 300), (3, 1, 17), (1, 64, 64), (1, 23, 200)])
def test_output_is_the_kernels_and_weights_are_those_of_the_scores(
    heads: int, kv_heads: int, rows: int, length: int, keys: int
) -> None:
    q, k, v = arrays(rows, heads, kv_heads, length, keys)
    hidden = (mx.arange(keys) < mx.maximum(1, keys - 2 * mx.arange(rows))[:, None])[:, None, None]
    for mask in ("causal",) if length > 1 else (None, hidden):
        out, weights = attention_and_weights(q, k, v, 0.25, mask)
        np.testing.assert_array_equal(np.array(out), np.array(KERNEL(q, k, v, scale=0.25, mask=mask)))
        weights = weights.reshape(rows, heads, length, keys)
        expected = attention_rows(q, k, 0.25, mask, None, list(range(length)))
        np.testing.assert_allclose(np.array(weights), np.array(expected), atol=2e-6)
        if isinstance(mask, str):
            future = np.triu(np.ones((length, keys), bool), keys - length + 1)
            assert (np.array(weights)[..., future] == 0).all()


def test_another_kernel_is_not_replaced() -> None:
    assert made_like_the_kernel(KERNEL, 4, 2, 16, mx.float32)
    assert not made_like_the_kernel(lambda *args, **more: KERNEL(*args, **more), 4, 2, 16, mx.float32)


def test_a_composition_that_differs_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    real = composed.attention_and_weights

    def off_by_the_last_bit(*args: Any) -> tuple[mx.array, mx.array]:
        out, weights = real(*args)
        return out * (1 + 2e-7), weights

    monkeypatch.setattr(composed, "attention_and_weights", off_by_the_last_bit)
    composed._alike.cache_clear()
    try:
        assert not made_like_the_kernel(KERNEL, 4, 2, 16, mx.float32)
    finally:
        composed._alike.cache_clear()


def test_what_is_captured_is_the_same_beside_the_kernel(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that decode together, prompts whole and in chunks, and a plan with some layers and heads."""
    plans = [
        CapturePlan(level="follow"),
        CapturePlan(level="follow", layers=(1, 2), heads=(0, 3)),
        CapturePlan(level="light"),
        CapturePlan(level="follow", positions=((3, 30),)),
    ]
    seen = []
    for way in (made_like_the_kernel, lambda *_: False):
        monkeypatch.setattr(ragged, "made_like_the_kernel", way)
        bench = Bench(tiny, EngineConfig(slots=4, kv_memory=SMALL, prefill_budget=16))
        order: dict[str | None, int] = {}
        for number, plan in enumerate(plans):
            order[bench.add(list(range(3 + number, 24 + 2 * number)), 6, capture=plan).id] = number
        bench.run()
        bench.core.close()
        frames = [event for event in bench.events if isinstance(event, Attention)]
        seen.append({(order[event.request], event.position): event.data for event in frames})
    one, other = seen
    assert one.keys() == other.keys()
    assert len(one) > 50
    for key, weights in one.items():
        assert weights.shape == other[key].shape
        np.testing.assert_allclose(weights, other[key], atol=2e-6, err_msg=str(key))


@pytest.mark.parametrize(("keys", "positions"), [(4, [0, 1, 2, 3]), (4, [3]), (300, list(range(236, 300)))])
def test_a_row_that_sees_only_minus_infinity_is_a_fault_and_no_weights(keys: int, positions: list[int]) -> None:
    """The kernel then spreads itself over what it hides, which is finite."""
    q, k, v = arrays(1, 4, 2, len(positions), keys)
    sound = attention_and_weights(q, k, v, 0.25, "causal")[1]
    overflowing = attention_and_weights(mx.full(q.shape, 1e15), mx.full(k.shape, -1e25), v, 0.25, "causal")[1]
    visible = Visible(layers=1, heads=4, hidden=4, attending=(0,), residual=False, attention_out=False, dtype="float32")
    schedule = CaptureSchedule(plan=CapturePlan(level="follow"), visible=visible, prompt_tokens=keys, max_tokens=1)
    for weights, fault in ((sound, None), (overflowing, "layer 0, head 0 is no number")):
        rows = AttentionRows(positions, [0], schedule, complete=True)
        rows.take(0, np.array(weights.reshape(1, 4, len(positions), keys)))
        assert (rows.fault is None) if fault is None else fault in str(rows.fault)
