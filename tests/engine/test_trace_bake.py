from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from engine.codec import decode, encode, parse
from engine.errors import TraceError
from engine.events import Attribution
from engine.models import LoadedModel, load
from engine.notebook import Walk
from engine.trace import open_trace
from engine.trace.bake import bake
from engine.trace.rewrite import Reduction, rewrite
from engine.trace.verify import verify
from tests.engine import trace_run
from tests.engine.conftest import MakeWalk
from tests.engine.tiny_architectures import build
from tests.engine.tiny_fields import VOCAB


def record_walk(walk: Walk, path: Path, prompt: str = "Hello", max_tokens: int = 4, capture: str = "follow") -> Path:
    return trace_run.record(
        path, [encode(event) for event in walk.generate(prompt, max_tokens=max_tokens, capture=capture)]
    )


def test_baking_adds_lens_and_attribution_for_every_recorded_position(
    tmp_path: Path, tiny: LoadedModel, walk: MakeWalk
) -> None:
    path = record_walk(walk(), tmp_path / "t.mcap")
    done: list[tuple[int, int]] = []
    with open_trace(path) as trace:
        residuals = {frame.position for frame in trace.frames(kinds={"residual"})}
        written = bake(trace, tmp_path / "baked.mcap", tiny, done=lambda *progress: done.append(progress))
        before = list(trace.frames())
    with open_trace(tmp_path / "baked.mcap") as baked:
        assert list(baked.frames())[: len(before)] == before
        lenses = [parse(frame.payload, binary=False)[0] for frame in baked.frames(kinds={"lens"})]
        sums = [parse(frame.payload, binary=False)[0] for frame in baked.frames(kinds={"attribution"})]
        checks = {check.name: check for check in verify(baked)}
    assert {lens["position"] for lens in lenses} == residuals
    assert {event["position"] for event in sums} == residuals
    assert written.added == len(lenses) + len(sums) == 2 * len(residuals)
    assert done[-1] == (len(lenses), len(lenses))
    assert all(event["how"] == "baked" for event in lenses + sums)
    assert all([part["component"] for part in event["components"]].count("mlp") == 4 for event in sums)
    assert checks["parts add up to the logit"].ok, checks["parts add up to the logit"].detail
    assert checks["last lens row is the logits"].ok, checks["last lens row is the logits"].detail
    assert not [check for check in checks.values() if check.ok is False]


def test_the_target_of_a_lens_is_the_token_that_came_next(tmp_path: Path, tiny: LoadedModel, walk: MakeWalk) -> None:
    path = record_walk(walk(), tmp_path / "t.mcap")
    with open_trace(path) as trace:
        bake(trace, tmp_path / "baked.mcap", tiny)
    with open_trace(tmp_path / "baked.mcap") as baked:
        events = [parse(frame.payload, binary=frame.binary)[0] for frame in baked.frames()]
    ids = [token["id"] for event in events if event["kind"] == "request.tokenized" for token in event["tokens"]]
    ids += [event["id"] for event in events if event["kind"] == "token"]
    for lens in (event for event in events if event["kind"] == "lens"):
        following = lens["position"] + 1
        assert lens["target"] == (ids[following] if following < len(ids) else None)
        if lens["position"] >= len(ids) - 5:  # greedy: the chosen token is the last layer's first
            assert lens["layers"][-1]["rank"] == 1


def test_the_lens_is_read_before_residuals_are_reduced_or_dropped(
    tmp_path: Path, tiny: LoadedModel, walk: MakeWalk
) -> None:
    path = record_walk(walk(), tmp_path / "t.mcap")
    with open_trace(path) as trace:
        bake(trace, tmp_path / "a.mcap", tiny)
        bake(trace, tmp_path / "b.mcap", tiny, reduction=Reduction(dtype="f16", drop=frozenset({"residual"})))
    with open_trace(tmp_path / "a.mcap") as a, open_trace(tmp_path / "b.mcap") as b:
        layers = [
            [parse(frame.payload, binary=False)[0]["layers"] for frame in trace.frames(kinds={"lens"})]
            for trace in (a, b)
        ]
        assert layers[0] == layers[1]
        assert not list(b.frames(kinds={"residual"}))
        assert {parse(f.payload, binary=True)[1].dtype for f in b.frames(kinds={"attention"})} == {np.dtype(np.float16)}  # type: ignore[union-attr]


def test_baked_attribution_is_what_the_engine_says_live(tmp_path: Path, walk: MakeWalk, tiny: LoadedModel) -> None:
    made = walk()
    path = record_walk(made, tmp_path / "t.mcap")
    with open_trace(path) as trace:
        bake(trace, tmp_path / "baked.mcap", tiny)
    with open_trace(tmp_path / "baked.mcap") as baked:
        for frame in baked.frames(kinds={"attribution"}):
            event = decode(frame.payload, binary=False)
            live = made.attribution(str(frame.request), int(frame.position or 0))
            assert isinstance(event, Attribution)
            assert dataclasses.replace(event, seq=0, t_ns=0, how="live") == dataclasses.replace(live, seq=0, t_ns=0)  # type: ignore[arg-type]


def test_of_a_trace_without_what_attention_wrote_layers_are_whole(
    tmp_path: Path, tiny: LoadedModel, walk: MakeWalk
) -> None:
    path = record_walk(walk(), tmp_path / "t.mcap")
    with open_trace(path) as trace:
        rewrite(trace, tmp_path / "less.mcap", reduction=Reduction(drop=frozenset({"attention_out"})))
    with open_trace(tmp_path / "less.mcap") as trace:
        bake(trace, tmp_path / "baked.mcap", tiny)
    with open_trace(tmp_path / "baked.mcap") as baked:
        sums = [parse(frame.payload, binary=False)[0] for frame in baked.frames(kinds={"attribution"})]
        assert not [check for check in verify(baked) if check.ok is False]
    for event in sums:
        kinds = [part["component"] for part in event["components"]]
        assert kinds == ["embedding", "layer", "layer", "layer", "layer", "bias"]


def test_a_model_that_has_no_attribution_says_so_in_the_trace(
    tmp_path: Path, tiny: LoadedModel, walk: MakeWalk
) -> None:
    model = build("nanochat")
    loaded = LoadedModel(model, tiny.tokenizer, dataclasses.replace(tiny.info, vocab=VOCAB, layers=len(model.layers)))
    path = record_walk(walk(loaded), tmp_path / "t.mcap", prompt="abc")
    with open_trace(path) as trace:
        bake(trace, tmp_path / "baked.mcap", loaded)
    with open_trace(tmp_path / "baked.mcap") as baked:
        said = [parse(frame.payload, binary=False)[0] for frame in baked.frames(kinds={"absent"})]
        assert [(event["what"], event["reason"]) for event in said] == [("attribution", "unsupported")]
        assert list(baked.frames(kinds={"lens"}))


def test_a_baked_trace_has_nothing_left_to_bake(tmp_path: Path, tiny: LoadedModel, walk: MakeWalk) -> None:
    path = record_walk(walk(), tmp_path / "t.mcap")
    with open_trace(path) as trace:
        bake(trace, tmp_path / "baked.mcap", tiny)
    with open_trace(tmp_path / "baked.mcap") as baked, pytest.raises(TraceError, match="nothing to bake"):
        bake(baked, tmp_path / "again.mcap", tiny)


def test_a_light_capture_has_nothing_to_bake(tmp_path: Path, tiny: LoadedModel, walk: MakeWalk) -> None:
    path = record_walk(walk(), tmp_path / "t.mcap", capture="light")
    with open_trace(path) as trace, pytest.raises(TraceError, match="holds no residuals"):
        bake(trace, tmp_path / "baked.mcap", tiny)


def test_a_model_of_another_shape_is_refused(tmp_path: Path, tiny: LoadedModel) -> None:
    with (
        open_trace(trace_run.record(tmp_path / "t.mcap", trace_run.frames())) as trace,
        pytest.raises(TraceError, match=r"recorded with made-up \(layers 3\).* is another model"),
    ):
        bake(trace, tmp_path / "baked.mcap", tiny)
    assert not (tmp_path / "baked.mcap").exists()


def test_a_model_of_the_same_shape_that_says_otherwise_is_refused(
    tmp_path: Path, tiny: LoadedModel, walk: MakeWalk
) -> None:
    path = record_walk(walk(), tmp_path / "t.mcap")
    other = load("tiny")
    norm = other.model.model.norm
    norm.weight = norm.weight * 3.0
    with open_trace(path) as trace, pytest.raises(TraceError, match="is not the model that recorded it"):
        bake(trace, tmp_path / "baked.mcap", other)
    assert not (tmp_path / "baked.mcap").exists()


@pytest.mark.model
def test_the_built_in_models_lens_agrees_with_its_logits(tmp_path: Path, smollm2: LoadedModel, walk: MakeWalk) -> None:
    path = record_walk(walk(smollm2), tmp_path / "t.mcap", prompt="The capital of France is", max_tokens=2)
    with open_trace(path) as trace:
        bake(trace, tmp_path / "baked.mcap", smollm2, reduction=Reduction(dtype="f16"))
    with open_trace(tmp_path / "baked.mcap") as baked:
        assert not [check for check in verify(baked) if check.ok is False]
