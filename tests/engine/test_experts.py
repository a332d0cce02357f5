"""Experts chosen and their weights, against what each model's own router says when it is asked by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from engine.device import mx

import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from engine.events import Event, Router
from engine.experts import Experts, Routed
from engine.models import LoadedModel
from engine.router import router_events
from engine.swap import ClassSwap
from engine.taps import Tape, Taps
from tests.engine.conftest import MakeWalk
from tests.engine.tiny_architectures import build
from tests.engine.tiny_fields import VOCAB

TOKENS = [3, 17, 5, 80, 9, 2, 41, 7]
ROWS = [1, 4, 7]


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    """Compiling a fused operation takes seconds on a CPU."""
    mx.disable_compile()
    yield
    mx.enable_compile()


def run(model: nn.Module, rows: list[int] = ROWS) -> tuple[dict[int, Routed], dict[int, Experts], np.ndarray]:
    """What was routed where in a pass, the experts found, and the pass's logits."""
    taps = Taps(model)
    tape = Tape(rows=rows)
    logits = taps.forward(mx.array([TOKENS]), make_prompt_cache(model), tape)
    mx.eval(logits)
    found = dict(taps.experts.layers)
    taps.remove()
    return tape.experts, found, np.array(logits)


def given_to(model: Any, block: nn.Module) -> mx.array:
    """What a module is given in an untapped pass, `[1, L, hidden]`."""
    seen: list[mx.array] = []
    swap = ClassSwap()
    swap.tap(block, lambda call, x, *args: (seen.append(x), call(x, *args))[1])
    mx.eval(model(mx.array([TOKENS]), cache=make_prompt_cache(model)))
    swap.remove()
    return seen[0]


def mixtral(block: Any, x: mx.array) -> tuple[mx.array, mx.array]:
    """Softmax over the chosen (Jiang et al. 2024)."""
    gates = block.gate(x)
    chosen = mx.argsort(-gates, axis=-1)[..., :2]
    return chosen, mx.softmax(mx.take_along_axis(gates, chosen, axis=-1), axis=-1)


def qwen2_moe(block: Any, x: mx.array) -> tuple[mx.array, mx.array]:
    """Softmax over all, the chosen ones' share of it."""
    shares = mx.softmax(block.gate(x), axis=-1)
    chosen = mx.argsort(-shares, axis=-1)[..., :2]
    return chosen, mx.take_along_axis(shares, chosen, axis=-1)


def gpt_oss(block: Any, x: mx.array) -> tuple[mx.array, mx.array]:
    gates = block.router(x)
    chosen = mx.argsort(-gates, axis=-1)[..., :2]
    return chosen, mx.softmax(mx.take_along_axis(gates, chosen, axis=-1), axis=-1)


def deepseek_v3(block: Any, x: mx.array) -> tuple[mx.array, mx.array]:
    """Its router gives both."""
    out: tuple[mx.array, mx.array] = block.gate(x)
    return out


BY_HAND = {"mixtral": mixtral, "qwen2_moe": qwen2_moe, "gpt_oss": gpt_oss, "deepseek_v3": deepseek_v3}


@pytest.mark.parametrize("name", BY_HAND)
def test_experts_and_weights_are_what_the_models_router_says(name: str) -> None:
    model: Any = build(name)
    routed, found, _ = run(model)
    assert sorted(routed) == sorted(found) != []
    for layer, experts in found.items():
        assert experts.of == 4
        assert experts.block is not None
        chosen, weights = BY_HAND[name](experts.block, given_to(model, experts.block))
        for index, row in enumerate(ROWS):
            by_hand = dict(zip(np.array(chosen[0, row]).tolist(), np.array(weights[0, row]).tolist(), strict=True))
            noted = routed[layer]
            assert noted.weights is not None
            assert np.array_equal(np.array(noted.again[index]), np.array(noted.experts[index]))  # type: ignore[index]
            ours = dict(
                zip(np.array(noted.experts[index]).tolist(), np.array(noted.weights[index]).tolist(), strict=True)
            )
            assert ours == pytest.approx(by_hand, abs=1e-6)


@pytest.mark.parametrize("name", ["mixtral", "deepseek_v3", "phixtral", "llama4"])
@pytest.mark.parametrize("rows", [ROWS, list(range(len(TOKENS)))])
def test_looking_changes_no_logit(name: str, rows: list[int]) -> None:
    model = build(name)
    plain = np.array(model(mx.array([TOKENS]), cache=make_prompt_cache(model)))  # type: ignore[operator]
    routed, _, logits = run(model, rows)
    assert routed
    assert np.array_equal(logits, plain[0])


def test_a_quantised_models_choices_are_seen() -> None:
    model: Any = build("qwen3_moe")
    nn.quantize(model, group_size=32, bits=8)
    routed, found, _ = run(model)
    assert all(experts.weighed for experts in found.values())
    for noted in routed.values():
        np.testing.assert_allclose(np.array(noted.weights).sum(-1), 1, atol=1e-5)  # this model's weights are shares


class Bent(nn.Module):
    """A block that does more with its experts than to add them up."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.gate, self.switch_mlp = block.gate, block.switch_mlp

    def __call__(self, x: mx.array) -> mx.array:
        gates = self.gate(x)
        chosen = mx.argsort(-gates, axis=-1)[..., :2]
        return mx.tanh(self.switch_mlp(x, chosen)).sum(-2)


def test_weights_that_do_not_make_the_blocks_output_are_not_given() -> None:
    model: Any = build("mixtral")
    block = model.layers[1].block_sparse_moe
    model.layers[1].block_sparse_moe = Bent(block)
    routed, found, _ = run(model)
    assert [found[layer].weighed for layer in range(4)] == [True, False, True, True]
    assert routed[1].weights is None
    assert np.array(routed[1].experts).shape == (len(ROWS), 2)


@pytest.mark.parametrize("name", ["llama", "mamba", "gemma3"])
def test_a_model_without_experts_has_none(name: str) -> None:
    routed, found, _ = run(build(name))
    assert routed == found == {}


def run_walk(walk: MakeWalk, tiny: LoadedModel, name: str, capture: str, **config: Any) -> list[Event]:
    model: Any = build(name)
    loaded = LoadedModel(model, tiny.tokenizer, dataclasses.replace(tiny.info, vocab=VOCAB, layers=len(model.layers)))
    made = walk(loaded, **config)
    return list(made.generate(TOKENS, max_tokens=4, capture=capture))


@pytest.mark.parametrize("name", ["mixtral", "deepseek_v2", "qwen3_moe"])
@pytest.mark.parametrize("prefill_budget", [3, 256])
def test_every_captured_position_says_its_experts(
    walk: MakeWalk, tiny: LoadedModel, name: str, prefill_budget: int
) -> None:
    events = run_walk(walk, tiny, name, "follow", prefill_budget=prefill_budget)
    routers = [event for event in events if isinstance(event, Router)]
    assert [event.position for event in routers] == list(range(len(TOKENS) + 3))
    dense = {"deepseek_v2": 1}.get(name, 0)
    alone, _, _ = run(build(name), list(range(len(TOKENS))))
    for event in routers:
        assert [said["layer"] for said in event.layers] == sorted(alone) == list(range(dense, 4))
        for said in event.layers:
            assert said["of"] == 4
            assert len(set(said["experts"])) == len(said["weights"]) == 2
            if event.position < len(TOKENS):
                expected = alone[said["layer"]]
                by_expert = dict(
                    zip(
                        np.array(expected.experts[event.position]).tolist(),
                        np.array(expected.weights[event.position]).tolist(),  # type: ignore[index]
                        strict=True,
                    )
                )
                assert dict(zip(said["experts"], said["weights"], strict=True)) == pytest.approx(by_expert, abs=1e-5)


def test_no_router_event_where_nothing_is_captured_or_there_are_no_experts(walk: MakeWalk, tiny: LoadedModel) -> None:
    for name, capture in (("mixtral", "light"), ("llama", "follow")):
        assert not [event for event in run_walk(walk, tiny, name, capture) if isinstance(event, Router)]


def test_weights_found_for_other_experts_are_not_given() -> None:
    noted = Routed(mx.array([[2, 0], [1, 3]]), mx.array([[0, 2], [1, 2]]), mx.array([[0.25, 0.75], [0.5, 0.5]]))
    experts = {1: Experts(nn.Identity(), None, 4, 8, mx.float32)}
    first, second = router_events({1: noted}, experts, slice(None), [5, 6], request="r", step=1)
    assert first.layers == [{"layer": 1, "experts": [2, 0], "weights": [0.75, 0.25], "of": 4}]
    assert second.layers == [{"layer": 1, "experts": [1, 3], "weights": None, "of": 4}]


def test_everything_is_taken_out_again() -> None:
    model = build("mixtral")
    before = [type(module) for module in model.modules()]
    taps = Taps(model)
    assert [type(module) for module in model.modules()] != before
    taps.remove()
    assert [type(module) for module in model.modules()] == before
