"""Timed steps: every operation once, under a name that is true, and nothing else changed by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.device import mx

import numpy as np
import pytest

from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.events import Attention, Event, Kernel, RequestArrived, Residual, StepFinished, StepStarted, Token
from engine.models import LoadedModel
from tests.engine.test_batching import Bench

PROMPTS = [[5, 6, 7, 8, 9], [100] * 20, [3]]


@pytest.fixture
def bench(tiny: LoadedModel) -> Iterator[Any]:
    made: list[Bench] = []

    def make(**config: Any) -> Bench:
        made.append(Bench(tiny, EngineConfig(**({"kv_memory": 2**22, "prefill_budget": 8} | config))))
        return made[-1]

    yield make
    for each in made:
        each.core.close()


def run(bench: Bench, prompts: list[list[int]], tokens: int = 6, level: object = "follow") -> list[Event]:
    for prompt in prompts:
        bench.add(prompt, tokens, capture=CapturePlan.parse(level))
    bench.run()
    return bench.events


def of_kind(events: list[Event], kind: type) -> list[Any]:
    return [event for event in events if type(event) is kind]


def said(events: list[Event]) -> list[Any]:
    """All that was generated and captured, to the bit, in the order of requests and positions."""
    names = [event.request for event in of_kind(events, RequestArrived)]
    tokens = [(names.index(e.request), e.position, e.id, e.logprob, str(e.top)) for e in of_kind(events, Token)]
    tensors = [event for event in events if isinstance(event, (Attention, Residual))]
    arrays: dict[Any, bytes] = {}
    for event in tensors:  # of a timed step, the layers of a position come one by one
        key = names.index(event.request), event.position, event.kind
        arrays[key] = arrays.get(key, b"") + event.data.tobytes()
    return [*sorted(tokens), *sorted(arrays.items())]


@pytest.mark.parametrize("store", ["paged", "prealloc", "concat"])
def test_timing_changes_neither_tokens_nor_logprobs_nor_what_is_captured(bench: Any, store: str) -> None:
    plain = said(run(bench(kv_store=store), PROMPTS))
    assert plain
    for every in (1, 2, 3):
        assert said(run(bench(kv_store=store, time_every=every), PROMPTS)) == plain


def test_every_operation_of_a_layer_is_there_once_under_its_name(bench: Any) -> None:
    events = run(bench(time_every=1), [[5, 6, 7]], tokens=2)
    last = of_kind(events, StepFinished)[-1].step
    kernels = [event for event in of_kind(events, Kernel) if event.step == last]
    for layer in range(4):
        names = [(event.operation, event.module) for event in kernels if event.layer == layer]
        assert Counter(names) == Counter(
            {
                ("norm", "input_layernorm"): 1,
                ("qkv_projection", "self_attn.q_proj"): 1,
                ("qkv_projection", "self_attn.k_proj"): 1,
                ("qkv_projection", "self_attn.v_proj"): 1,
                ("rope", "self_attn.rope"): 2,
                ("kv_write", None): 1,
                ("attention", None): 1,
                ("output_projection", "self_attn.o_proj"): 1,
                ("other", "self_attn"): 1,
                ("norm", "post_attention_layernorm"): 1,
                ("mlp", "mlp.gate_proj"): 1,
                ("mlp", "mlp.up_proj"): 1,
                ("mlp", "mlp.down_proj"): 1,
                ("mlp", "mlp"): 1,
                ("other", None): 1,
            }
        )
    outside = [(event.operation, event.module) for event in kernels if event.layer is None]
    assert outside == [
        ("other", None), ("embedding", "model.embed_tokens"), ("capture", None), ("norm", "model.norm"),
        ("head", "lm_head"), ("head", None), ("choice", None),
    ]  # fmt: skip


def test_durations_are_exclusive_and_add_up_to_the_step(bench: Any) -> None:
    events = run(bench(time_every=1), PROMPTS)
    sums: Counter[int] = Counter()
    for kernel in of_kind(events, Kernel):
        assert kernel.duration_ns >= 0
        assert kernel.timing == "barriers"
        sums[kernel.step] += kernel.duration_ns
    steps = of_kind(events, StepFinished)
    assert set(sums) == {event.step for event in steps}
    for step in steps:
        assert step.timing == "barriers"
        assert 0 < step.operations_ns == sums[step.step] <= step.eval_ns


def test_operations_lie_in_their_step_and_follow_one_another(bench: Any) -> None:
    events = run(bench(time_every=1), [[5, 6, 7]])
    walls = {event.step: event.eval_ns + event.capture_ns for event in of_kind(events, StepFinished)}
    parts: dict[int, list[Kernel]] = {}
    first: dict[int, int] = {}
    for kernel in of_kind(events, Kernel):
        first.setdefault(kernel.step, kernel.start_ns)
        assert first[kernel.step] <= kernel.start_ns
        assert kernel.start_ns + kernel.duration_ns <= first[kernel.step] + walls[kernel.step]
        if kernel.operation in ("norm", "qkv_projection", "attention", "output_projection"):
            parts.setdefault(kernel.step, []).append(kernel)
    for kernels in parts.values():
        ends = [kernel.start_ns + kernel.duration_ns for kernel in kernels]
        assert all(end <= kernel.start_ns for end, kernel in zip(ends[:-1], kernels[1:], strict=True))


def test_only_the_steps_that_were_asked_for_are_timed(bench: Any) -> None:
    def timed(events: list[Event]) -> list[int]:
        return [event.step for event in of_kind(events, StepFinished) if event.timing]

    assert timed(run(bench(), [[5, 6]], tokens=8)) == []
    assert timed(run(bench(time_every=3), [[5, 6]], tokens=8)) == [3, 6]
    asked = bench()
    run(asked, [[5, 6]], tokens=3)
    asked.core.timing.ask(2)
    assert timed(run(asked, [[5, 6]], tokens=6)) == [4, 5]
    assert {event.step for event in of_kind(asked.events, Kernel)} == {4, 5}


def test_level_full_times_one_step_in_sixteen(bench: Any) -> None:
    events = run(bench(), [[5, 6]], tokens=34, level="full")
    assert [event.step for event in of_kind(events, StepFinished) if event.timing] == [16, 32]


def test_a_plan_says_how_often_steps_are_timed_while_its_request_runs(bench: Any) -> None:
    plan = {"level": "light", "kernels": 4}
    events = run(bench(), [[5, 6]], tokens=9, level=plan)
    assert [event.step for event in of_kind(events, StepFinished) if event.timing] == [4, 8]
    never = run(bench(), [[5, 6]], tokens=20, level={"level": "full", "kernels": 0})
    assert [event.step for event in of_kind(never, StepFinished) if event.timing] == []


def test_a_timed_step_has_the_median_of_normal_steps_like_it_beside_it(bench: Any) -> None:
    events = run(bench(time_every=4), [[5, 6]], tokens=12)
    steps = {event.step: event for event in of_kind(events, StepFinished)}
    assert steps[1].normal_ns is None
    assert steps[1].timing is None
    assert steps[12].normal_steps > 0
    normal = [event.eval_ns for event in steps.values() if event.timing is None]
    assert min(normal) <= steps[12].normal_ns <= max(normal)


def test_a_step_of_a_shape_that_was_never_seen_has_nothing_beside_it(bench: Any) -> None:
    first = of_kind(run(bench(time_every=1), [[5, 6]], tokens=2), StepFinished)[0]
    assert (first.normal_ns, first.normal_steps) == (None, 0)


def test_a_chunk_that_chooses_no_token_computes_no_head(bench: Any) -> None:
    events = run(bench(time_every=1), [[100] * 20], tokens=1)
    heads = {event.step for event in of_kind(events, Kernel) if event.operation == "head"}
    assert heads == {3}  # of 8 + 8 + 4 positions


def test_the_model_and_the_kernel_are_left_as_they_were(tiny: LoadedModel) -> None:
    kernel = mx.fast.scaled_dot_product_attention
    classes = [type(module) for module in tiny.model.modules()]
    made = Bench(tiny, EngineConfig(kv_memory=2**22, time_every=1))
    tapped = [type(module) for module in tiny.model.modules()]
    run(made, [[5, 6]])
    assert [type(module) for module in tiny.model.modules()] == tapped
    made.core.close()
    assert [type(module) for module in tiny.model.modules()] == classes
    assert mx.fast.scaled_dot_product_attention is kernel


def test_a_fault_in_a_timed_step_leaves_the_model_whole(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(time_every=2)
    model = made.core.taps.model
    classes = [type(module) for module in model.modules()]

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("no")

    made.add([5, 6, 7], 4)
    made.core.step()
    monkeypatch.setattr(made.core.kv.forward.store, "write", fails)
    with pytest.raises(ValueError, match="no"):
        made.core.step()
    assert [type(module) for module in model.modules()] == classes


def test_one_kernel_is_slower_when_it_is_made_slower(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of an operation is its own: what is slow is found under its name."""
    real = mx.fast.scaled_dot_product_attention

    def slow(q: mx.array, k: mx.array, v: mx.array, **more: Any) -> mx.array:
        big = mx.ones((600, 600))
        for _ in range(8):
            big = big @ mx.ones((600, 600)) / 600.0
        return real(q, k, v, **more) + 0.0 * big[0, 0]

    made = bench(time_every=1)
    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", slow)
    events = run(made, [[5, 6, 7]], tokens=3)
    totals: Counter[str] = Counter()
    for kernel in of_kind(events, Kernel):
        totals[kernel.operation] += kernel.duration_ns
    assert totals.most_common(1)[0][0] == "attention"
    assert np.isfinite([event.logprob for event in of_kind(events, Token)]).all()


def test_metal_captures_the_first_step_in_which_all_decode(
    bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[tuple[Path, int]] = []

    @contextmanager
    def gpu_trace(path: Path) -> Iterator[None]:
        yield
        seen.append((path, made.core.steps))

    monkeypatch.setattr("engine.runner.gpu_trace", gpu_trace)
    made = bench(gpu_trace=tmp_path / "a.gputrace")
    plain = said(run(bench(), PROMPTS))
    events = run(made, PROMPTS)
    assert said(events) == plain
    ((path, step),) = seen
    assert path == tmp_path / "a.gputrace"
    steps = {event.step: event for event in of_kind(events, StepFinished)}
    assert [number for number, event in steps.items() if event.timing] == [step]
    assert steps[step].timing == "gpu_capture"
    assert steps[step].operations_ns is None
    (started,) = [event for event in of_kind(events, StepStarted) if event.step == step]
    assert {row["phase"] for row in started.rows} == {"decode"}
