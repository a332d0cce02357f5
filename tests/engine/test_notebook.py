"""`engine.instrument`: the model is looked into, and left exactly as it was found."""

from __future__ import annotations

import datetime
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from engine.device import mx

import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

import engine
from engine import by_layer, captured
from engine.codec import encode
from engine.config import EngineConfig
from engine.errors import EngineStopped, RequestError
from engine.events import RequestArrived, RequestFinished, RunHeader, Token
from engine.models import LoadedModel, load
from engine.notebook import Walk
from engine.runner import Runner, Step
from engine.trace import open_trace
from engine.trace.verify import verify
from tests.engine.conftest import MakeWalk
from tests.engine.trace_run import record

LOOK = """
import sys, engine, engine.events, engine.codec, engine.trace
assert not [name for name in sys.modules if name.split(".")[0] in ("mlx", "mlx_lm")], "MLX was imported"
"""


def snapshot(model: nn.Module) -> tuple[list[type], list[str], object]:
    parameters = tree_flatten(model.parameters())
    assert isinstance(parameters, list)
    return [type(m) for m in model.modules()], [name for name, _ in parameters], mx.fast.scaled_dot_product_attention


def test_leaving_the_context_restores_the_model_exactly() -> None:
    loaded = load("tiny")
    before = snapshot(loaded.model)
    ids = mx.array([[1, 2, 3]])
    plain = loaded.model(ids)
    with engine.instrument(loaded.model, loaded.tokenizer) as walk:
        assert snapshot(loaded.model)[0] != before[0]
        assert snapshot(loaded.model)[1] == before[1]
        kinds = [event.kind for event in walk.generate("hello", max_tokens=3)]
    assert {"run.header", "token", "attention", "residual", "step.finished", "request.finished"} <= set(kinds)
    assert snapshot(loaded.model) == before
    assert mx.array_equal(loaded.model(ids), plain)


def test_leaving_early_restores_the_model_too(tiny: LoadedModel) -> None:
    before = snapshot(tiny.model)
    with engine.instrument(tiny.model, tiny.tokenizer) as walk:
        for event in walk.generate("hello", max_tokens=300):
            if event.kind == "token":
                break
    assert snapshot(tiny.model) == before


def test_what_needs_no_model_imports_without_mlx() -> None:
    subprocess.run([sys.executable, "-c", LOOK], check=True, timeout=60)


def test_two_generations_at_once_each_yield_all_of_their_own_events(tiny: LoadedModel) -> None:
    with engine.instrument(tiny.model, tiny.tokenizer) as walk:
        alone = [event.id for event in walk.generate("hello", max_tokens=8) if isinstance(event, Token)]
        first, second = walk.generate("hello", max_tokens=8), walk.generate("hello", max_tokens=8)
        begun = [next(first) for _ in range(20)]
        others = list(second)
        begun += first
    for events in (begun, others):
        seqs = [event.seq for event in events]
        assert seqs == sorted(set(seqs))
    arrived = [event.request for event in begun if isinstance(event, RequestArrived)]
    assert len(arrived) == 2
    for events, request in ((begun, arrived[0]), (others, arrived[1])):
        assert [event.id for event in events if isinstance(event, Token) and event.request == request] == alone
        assert [event.request for event in events if isinstance(event, RequestFinished)][-1:]


def test_a_closed_walk_generates_no_more(tiny: LoadedModel) -> None:
    with engine.instrument(tiny.model, tiny.tokenizer) as walk:
        under_way = walk.generate("hello", max_tokens=300)
        next(under_way)
    assert [event.kind for event in under_way if event.kind == "token"] == []
    with pytest.raises(EngineStopped, match="closed"):
        next(walk.generate("hello", max_tokens=2))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"stop": "ab"}, "stop is 'ab'; expected texts"),
        ({"stop": (3,)}, "stop is"),
        ({"max_tokens": "5"}, "max_tokens is '5'"),
        ({"max_tokens": 1.5}, "max_tokens is 1.5"),
        ({"prompt": 5}, "prompt is 5"),
        ({"prompt": [1.5]}, r"prompt is \[1.5\]"),
    ],
)
def test_an_argument_of_another_type_is_named(tiny: LoadedModel, arguments: dict[str, Any], says: str) -> None:
    with engine.instrument(tiny.model, tiny.tokenizer) as walk, pytest.raises(RequestError, match=says):
        next(walk.generate(**{"prompt": "hello"} | arguments))


INTERRUPTED = [
    (by_layer, "_hand_over", 11),
    (Runner, "_result", 4),
    (Runner, "_result", 9),
    (Step, "wait", 5),
    (Step, "wait", 12),
]


@pytest.mark.parametrize("where", INTERRUPTED)
def test_an_interruption_in_a_step_ends_all_that_share_it_and_the_walk_goes_on(
    walk: MakeWalk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: tuple[Any, str, int]
) -> None:
    """A step that was submitted in part has lost rows: a request that went on would wait for them, or invent them."""
    monkeypatch.setattr(captured, "BY_LAYER_BYTES", 0)
    owner, name, call = where
    prompt = [(7 * index + 3) % 251 for index in range(150)]
    made = walk(prefill_budget=64)
    one, other = made.generate(prompt, max_tokens=12), made.generate(prompt[5:], max_tokens=12)
    events = [next(one)]
    original, calls = getattr(owner, name), []

    def interrupted(*args: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*args, **more)

    monkeypatch.setattr(owner, name, interrupted)
    next(other)
    with pytest.raises(KeyboardInterrupt):
        events += one
    seen = {id(event) for event in events}
    events += [event for event in other if id(event) not in seen]
    finished = [event for event in events if isinstance(event, RequestFinished)]
    assert [event.reason for event in finished] == ["cancelled", "cancelled"]
    after = list(made.generate(prompt, max_tokens=12))
    again = [event.id for event in after if isinstance(event, Token)]
    alone = [event.id for event in walk().generate(prompt, max_tokens=12) if isinstance(event, Token)]
    assert again == alone
    with open_trace(record(tmp_path / "t.mcap", [encode(event) for event in events + after])) as trace:
        assert [check for check in verify(trace) if check.ok is False] == []


def test_the_run_started_when_its_clock_began_not_when_its_model_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page adds an event's `t_ns` to it, to say when a request came."""
    began = time.time() - 3600
    monkeypatch.setattr("engine.notebook.monotonic_ns", lambda: lambda: int((time.time() - began) * 1e9))
    with Walk(load("tiny"), EngineConfig()) as walk:
        header = next(iter(walk.generate("hello", max_tokens=1)))
    assert isinstance(header, RunHeader)
    assert datetime.datetime.fromisoformat(header.started_at).timestamp() == pytest.approx(began, abs=0.01)
