"""Attribution against the sum done by hand, on the model's own modules, untapped; and where there is none, why."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from engine.device import mx

import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_map

from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.events import Absent, Attribution, Event, Token
from engine.models import LoadedModel, load
from engine.notebook import Walk
from engine.readings import Readings
from engine.residuals import Kept, ResidualStore
from tests.engine.conftest import MakeWalk
from tests.engine.test_batching import Bench
from tests.engine.tiny_architectures import build
from tests.engine.tiny_fields import VOCAB

PROMPT = [3, 17, 5, 80, 9, 2, 41, 7, 100, 23, 6, 11]
NEW = 4


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    """Compiling a fused operation takes seconds on a CPU."""
    mx.disable_compile()
    yield
    mx.enable_compile()


def loaded_as(tiny: LoadedModel, model: Any) -> LoadedModel:
    return LoadedModel(model, tiny.tokenizer, dataclasses.replace(tiny.info, vocab=VOCAB, layers=len(model.layers)))


def run(walk: Walk, capture: str = "follow", new: int = NEW) -> tuple[str, list[Event]]:
    """The request's id, and what happened."""
    events = list(walk.generate(PROMPT, max_tokens=new, capture=capture))
    return next(event.request for event in events if isinstance(event, Token)), events


def tokens_of(events: list[Event]) -> list[Token]:
    return [event for event in events if isinstance(event, Token)]


def values(event: Attribution, component: str) -> list[float]:
    return [part["value"] for part in event.components if part["component"] == component]


def chosen(walk: Walk, capture: str = "follow") -> list[tuple[Token, Attribution]]:
    """Every generated token, with what its logit was made of."""
    request, events = run(walk, capture)
    pairs = []
    for token in tokens_of(events):
        event = walk.attribution(request, token.position - 1)
        assert isinstance(event, Attribution), event
        assert event.target == token.id
        pairs.append((token, event))
    return pairs


def test_parts_are_those_of_the_models_own_modules(walk: MakeWalk, tiny: LoadedModel) -> None:
    [(token, event)] = chosen(walk(), "follow")[:1]
    model = load("tiny").model
    inner, h = model.model, model.model.embed_tokens(mx.array([PROMPT]))
    mask = mx.triu(mx.full((len(PROMPT), len(PROMPT)), -mx.inf), k=1)
    stream, attention, mlp = [h], [], []
    for layer in inner.layers:
        attention.append(layer.self_attn(layer.input_layernorm(h), mask, None))
        h = h + attention[-1]
        mlp.append(layer.mlp(layer.post_attention_layernorm(h)))
        h = h + mlp[-1]
    last = np.array(h[0, -1], np.float64)
    scale = 1 / np.sqrt((last**2).mean() + inner.norm.eps)
    gradient = np.array(model.lm_head.weight[token.id], np.float64) * np.array(inner.norm.weight) * scale

    def by_hand(parts: list[mx.array]) -> list[float]:
        return [float(np.array(part[0, -1], np.float64) @ gradient) for part in parts]

    assert values(event, "embedding") == pytest.approx(by_hand(stream), abs=1e-5)
    assert values(event, "attention") == pytest.approx(by_hand(attention), abs=1e-5)
    assert values(event, "mlp") == pytest.approx(by_hand(mlp), abs=1e-5)
    assert values(event, "bias") == [0]
    assert event.logit == pytest.approx(float(model(mx.array([PROMPT]))[0, -1, token.id]), abs=1e-5)


PLAIN = ["llama", "qwen2", "gemma", "mistral3", "mixtral", "gpt2", "gpt_neox", "cohere", "phi", "stablelm", "olmo2"]


@pytest.mark.parametrize("name", PLAIN)
def test_parts_add_up_to_the_logit(walk: MakeWalk, tiny: LoadedModel, name: str) -> None:
    for token, event in chosen(walk(loaded_as(tiny, build(name)))):
        assert event.error == abs(event.sum - event.logit) <= 1e-5 * max(1, abs(event.logit))
        assert event.sum == pytest.approx(sum(part["value"] for part in event.components))
        assert event.said_logit == event.logit == pytest.approx(token.top[0]["logit"], abs=1e-4)
        assert event.soft_cap is None
        assert len(values(event, "attention")) == len(values(event, "mlp")) == 4


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_parts_add_up_in_sixteen_bits(walk: MakeWalk, tiny: LoadedModel, dtype: mx.Dtype) -> None:
    model = build("llama")
    model.update(tree_map(lambda weight: weight.astype(dtype), model.parameters()))
    for token, event in chosen(walk(loaded_as(tiny, model))):
        assert event.error <= 1e-3
        assert event.logit == pytest.approx(token.top[0]["logit"], abs=0.05)


def test_parts_add_up_in_a_quantised_model(walk: MakeWalk, tiny: LoadedModel) -> None:
    model = load("tiny").model
    nn.quantize(model, group_size=32, bits=4)
    for token, event in chosen(walk(LoadedModel(model, tiny.tokenizer, tiny.info))):
        assert event.error <= 1e-4
        assert event.logit == pytest.approx(token.top[0]["logit"], abs=1e-3)


@pytest.mark.parametrize("name", ["gemma2", "recurrent_gemma"])
def test_of_a_soft_capped_logit_the_parts_make_what_is_before_the_cap(
    walk: MakeWalk, tiny: LoadedModel, name: str
) -> None:
    for token, event in chosen(walk(loaded_as(tiny, build(name)))):
        assert event.soft_cap == pytest.approx(30)
        assert event.said_logit == pytest.approx(token.top[0]["logit"], abs=1e-4)
        assert 30 * np.tanh(event.sum / 30) == pytest.approx(event.said_logit, abs=1e-4)
        assert event.error <= 1e-4


@pytest.mark.parametrize("name", ["minicpm", "mamba", "nemotron_h"])
def test_where_attention_and_mlp_cannot_be_told_apart_a_layer_is_one_part(
    walk: MakeWalk, tiny: LoadedModel, name: str
) -> None:
    model: Any = build(name)
    for _, event in chosen(walk(loaded_as(tiny, model))):
        assert event.error <= 1e-5
        assert len(values(event, "layer")) == len(model.layers)
        assert values(event, "attention") == values(event, "mlp") == []


class Squashed(nn.Module):
    """No norm: each number by itself."""

    def __call__(self, x: mx.array) -> mx.array:
        return mx.tanh(x)


class Bent(nn.Module):
    """A head that is not linear, and not by a soft cap."""

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear

    def __call__(self, x: mx.array) -> mx.array:
        y = self.linear(x)
        return y + 0.3 * y * mx.abs(y)


def reasons(events: list[Event]) -> list[str | None]:
    return [event.detail for event in events if isinstance(event, Absent) and event.what == "attribution"]


@pytest.mark.parametrize("part", ["norm", "head"])
def test_what_is_not_linear_is_not_split(walk: MakeWalk, tiny: LoadedModel, part: str) -> None:
    model = load("tiny").model
    if part == "norm":
        model.model.norm = Squashed()
    else:
        model.lm_head = Bent(model.lm_head)
    made = walk(LoadedModel(model, tiny.tokenizer, tiny.info))
    request, _ = run(made)
    event = made.attribution(request, len(PROMPT) - 1)
    assert isinstance(event, Absent)
    assert event.reason == "unsupported"
    assert ("no RMSNorm or LayerNorm" if part == "norm" else "not linear") in str(event.detail)


@pytest.mark.parametrize("name", ["gemma3n", "kimi_k3", "nanochat"])
def test_a_model_that_cannot_be_read_so_says_it_once_a_request(walk: MakeWalk, tiny: LoadedModel, name: str) -> None:
    _, events = run(walk(loaded_as(tiny, build(name))), "full")
    assert len(reasons(events)) == 1
    assert not [event for event in events if isinstance(event, Attribution)]


def test_full_capture_attributes_every_position_that_a_token_followed(walk: MakeWalk) -> None:
    _, events = run(walk(), "full")
    found = [event for event in events if isinstance(event, Attribution)]
    ids = PROMPT + [token.id for token in tokens_of(events)]
    assert [(event.position, event.target) for event in found] == list(enumerate(ids[1:]))
    assert max(event.error for event in found) <= 1e-5


def test_what_has_no_next_token_or_no_pass_is_absent(walk: MakeWalk) -> None:
    made = walk()
    request, _ = run(made)
    for position in (len(PROMPT) + NEW - 1, 99):
        event = made.attribution(request, position)
        assert isinstance(event, Absent)
        assert (event.what, event.reason, event.positions) == ("attribution", "not_captured", [position, position + 1])


def test_looking_changes_no_token_and_no_logit(walk: MakeWalk, tiny: LoadedModel) -> None:
    """Bit by bit, with every position attributed as soon as it can be, in the middle of the answer."""
    for model in (tiny.model, build("gemma2"), build("mixtral")):
        loaded = tiny if model is tiny.model else loaded_as(tiny, model)
        plain = [(token.id, token.top) for token in tokens_of(run(walk(loaded), "light", 8)[1])]
        made, looked = walk(loaded), []
        for event in made.generate(PROMPT, max_tokens=8, capture="full"):
            if isinstance(event, Token):
                looked.append((event.id, event.top))
                made.attribution(event.request, event.position - 2, heads=True)
        assert looked == plain


def test_the_store_counts_a_position_once_and_lets_the_oldest_go() -> None:
    row = Kept(np.zeros((3, 4), np.float32), np.zeros((2, 4), np.float32))  # 80 bytes
    store = ResidualStore(kept_bytes=170)
    for position in (0, 1, 1, 1):
        store.put("r", position, row)
    assert store.get("r", 0) is not None
    store.put("r", 2, row)
    assert store.get("r", 0) is None
    assert store.get("r", 1) is store.get("r", 2) is row


def by_head(walk: Walk, position: int) -> Attribution:
    request, _ = run(walk, "full")
    event = walk.attribution(request, position, heads=True)
    assert isinstance(event, Attribution), event
    return event


def test_heads_are_those_of_the_models_own_projection(walk: MakeWalk) -> None:
    """By hand: attention's weights times values, head by head, through its columns of the projection."""
    position = len(PROMPT) - 1
    event = by_head(walk(), position)
    model = load("tiny").model
    inner, h = model.model, model.model.embed_tokens(mx.array([PROMPT]))
    mask = mx.triu(mx.full((len(PROMPT), len(PROMPT)), -mx.inf), k=1)
    shares: list[np.ndarray] = []
    for layer in inner.layers:
        x, attn = layer.input_layernorm(h), layer.self_attn
        split = [
            part.reshape(1, len(PROMPT), -1, 16).swapaxes(1, 2)
            for part in (attn.q_proj(x), attn.k_proj(x), attn.v_proj(x))
        ]
        q, k, v = attn.rope(split[0]), mx.repeat(attn.rope(split[1]), 2, axis=1), mx.repeat(split[2], 2, axis=1)
        mixed = mx.softmax(q @ k.swapaxes(-1, -2) * attn.scale + mask, axis=-1) @ v  # [1, heads, L, 16]
        columns = attn.o_proj.weight.reshape(64, 4, 16)  # [hidden, heads, 16]
        shares.append(np.einsum("hd,nhd->hn", np.array(mixed[0, :, -1], np.float64), np.array(columns, np.float64)))
        h = layer(h, mask, None)
    last = np.array(h[0, -1], np.float64)
    gradient = np.array(model.lm_head.weight[event.target], np.float64) / np.sqrt((last**2).mean() + inner.norm.eps)
    parts = [part for part in event.components if part["component"] == "attention"]
    for part, share in zip(parts, shares, strict=True):
        assert part["heads"] == pytest.approx((share @ gradient).tolist(), abs=1e-5)
        assert part["rest"] == 0
    assert event.heads_absent is None


@pytest.mark.parametrize("name", ["qwen2", "gpt2", "mixtral", "deepseek_v3", "qwen3_next", "gpt_oss"])
def test_heads_and_the_projections_bias_add_up_to_attention(walk: MakeWalk, tiny: LoadedModel, name: str) -> None:
    """Among them: biases, gates after the kernel, latent values, sinks, layers without attention."""
    event = by_head(walk(loaded_as(tiny, build(name))), len(PROMPT))
    split = [part for part in event.components if "heads" in part]
    assert len(split) == (2 if name == "qwen3_next" else 4)
    for part in split:
        assert len(part["heads"]) == 4
        assert sum(part["heads"]) + part["rest"] == pytest.approx(part["value"], abs=1e-5)
    assert any(part["rest"] for part in split) == (name in ("gpt2", "gpt_oss"))
    if name == "qwen3_next":
        assert event.heads_absent == "in layers 0, 2 what attention adds is not known as a sum over heads"


@pytest.mark.parametrize("name", ["gemma3", "olmo2"])
def test_attention_that_is_normed_before_it_is_added_is_not_split(walk: MakeWalk, tiny: LoadedModel, name: str) -> None:
    event = by_head(walk(loaded_as(tiny, build(name))), len(PROMPT))
    assert not [part for part in event.components if "heads" in part]
    assert str(event.heads_absent).endswith("not known as a sum over heads")


def test_heads_that_were_not_kept_are_said_to_be_absent(walk: MakeWalk) -> None:
    made = walk()
    request, _ = run(made, "follow")
    event = made.attribution(request, len(PROMPT), heads=True)
    assert isinstance(event, Attribution)
    assert not [part for part in event.components if "heads" in part]
    assert "level full" in str(event.heads_absent)


@pytest.mark.parametrize(
    ("capture", "says"),
    [
        (
            {"level": "follow"},
            r"no longer in memory, where the newest 64 MiB are kept; `tokenwalk trace bake FILE` reads",
        ),
        ({"tensors": "attention_out"}, "no longer in memory, where the newest 64 MiB are kept$"),
        ({"tensors": "attention"}, "was not captured$"),
        ({"positions": [[0, 2]]}, "was not captured$"),
        ("light", "was not captured$"),
    ],
    ids=str,
)
def test_a_reading_says_whether_its_residual_was_let_go_of_or_never_there(
    tiny: LoadedModel, capture: Any, says: str
) -> None:
    bench = Bench(tiny, EngineConfig(kv_memory=2**21))
    sequence = bench.add([1, 2, 3, 4], 4, capture=CapturePlan.parse(capture))
    bench.run()
    readings = Readings(bench.core.taps, tiny.tokenizer.label, ResidualStore(), bench.emit)
    for read in (readings.lens, readings.attribution):
        absent = read(sequence, 3)
        assert isinstance(absent, Absent)
        assert absent.reason == "not_captured"
        assert absent.detail is not None
        assert re.search(says, absent.detail)
    bench.core.close()
