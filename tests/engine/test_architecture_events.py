"""What the engine says of models whose insides are not a plain stack: windows, absent streams, heads that vary."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from engine.device import mx

import numpy as np
import pytest

from engine.events import Absent, Attention, Event, Lens, Residual, Token
from engine.keys import KeyPositions
from engine.models import LoadedModel
from engine.taps import Tape, Taps
from tests.engine.conftest import MakeWalk
from tests.engine.tiny_architectures import build, fields
from tests.engine.tiny_fields import VOCAB, WINDOW

PROMPT = [3, 17, 5, 80, 9, 2, 41, 7, 100, 23, 6, 11]
NEW = 6
RAN = len(PROMPT) + NEW - 1
"""Positions that had a pass: the last token chosen has none."""


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    """Compiling a fused operation takes seconds on a CPU."""
    mx.disable_compile()
    yield
    mx.enable_compile()


def run(walk: MakeWalk, tiny: LoadedModel, name: str) -> list[Event]:
    model: Any = build(name)
    info = dataclasses.replace(tiny.info, vocab=VOCAB, layers=len(model.layers))
    made = walk(LoadedModel(model, tiny.tokenizer, info), prefill_budget=5)
    return list(made.generate(PROMPT, max_tokens=NEW, capture="full"))


def of(events: list[Event], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def absent(events: list[Event]) -> list[tuple[str, str, list[int] | None]]:
    return [(event.what, event.reason, event.layers) for event in of(events, Absent)]


@pytest.mark.parametrize("name", ["gemma3", "gpt_oss"])
def test_sliding_layers_attend_to_their_window_and_to_nothing_else(
    walk: MakeWalk, tiny: LoadedModel, name: str
) -> None:
    events = run(walk, tiny, name)
    assert len(of(events, Token)) == NEW
    assert absent(events) == []
    frames = {event.position: np.array(event.data) for event in of(events, Attention)}
    assert sorted(frames) == list(range(RAN))
    for position, rows in frames.items():
        attended = rows[:, 0] > 0  # [layers, keys]
        window = np.arange(position + 1) > position - WINDOW
        assert (attended == [window, window | True, window, window | True]).all(), position


@pytest.mark.parametrize("name", ["gemma3n", "iquestloopcoder", "deepseek_v41"])
def test_without_a_residual_stream_residual_and_lens_are_absent_and_said_once(
    walk: MakeWalk, tiny: LoadedModel, name: str
) -> None:
    events = run(walk, tiny, name)
    assert of(events, Residual) == of(events, Lens) == []
    said = absent(events)
    assert said.count(("residual", "unsupported", None)) == said.count(("lens", "unsupported", None)) == 1


def test_a_lens_that_would_not_give_the_models_logits_is_absent(walk: MakeWalk, tiny: LoadedModel) -> None:
    events = run(walk, tiny, "kimi_k3")
    assert len(of(events, Residual)) == RAN
    assert of(events, Lens) == []
    assert absent(events).count(("lens", "unsupported", None)) == 1


def test_layers_with_another_number_of_heads_are_absent(walk: MakeWalk, tiny: LoadedModel) -> None:
    events = run(walk, tiny, "openelm")
    assert {event.data.shape[:2] for event in of(events, Attention)} == {(2, 4)}
    assert ("attention", "unsupported", [2, 3]) in absent(events)


def test_a_quantised_cache_is_not_attended_through_the_kernel_and_so_is_absent() -> None:
    from mlx_lm.models import llama
    from mlx_lm.models.cache import QuantizedKVCache

    plain = fields(llama.ModelArgs, "llama") | {"head_dim": 64, "layer_types": None}
    model = llama.Model(llama.ModelArgs(**plain))

    def caches() -> list[QuantizedKVCache]:
        return [QuantizedKVCache(group_size=32, bits=8) for _ in model.layers]

    untapped = np.array(model(mx.array([PROMPT]), cache=caches()))
    taps = Taps(model)
    watched = caches()
    keys = KeyPositions(watched)
    tape = Tape(rows=[0, 5], keys=keys)
    keys.begin(0, len(PROMPT))
    logits = np.array(taps.forward(mx.array([PROMPT]), watched, tape))
    taps.remove()
    assert tape.attention == {}
    assert len(tape.residual) == len(model.layers) + 1
    assert (logits == untapped[0]).all()
