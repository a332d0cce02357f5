"""`trace verify` holds what was captured against what was asked for: nothing can be taken out unnoticed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.attention_rows import AttentionRows
from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.events import Absent, Attention, AttentionSummary, Event, RequestArrived
from engine.models import LoadedModel
from engine.trace import open_trace
from engine.trace.rewrite import Reduction, rewrite
from engine.trace.verify import verify
from tests.engine import trace_run
from tests.engine.test_batching import Bench
from tests.engine.test_trace_verify_serving import frames

NAME = "captured, or said to be absent"
SHARED = list(range(60, 110))
PLANS = [
    CapturePlan(level="follow"),
    CapturePlan(level="follow", budget_bytes=30_000),
    CapturePlan(level="follow", layers=(1, 3), heads=(0, 2), positions=("generated", (4, 9))),
    CapturePlan(level="light"),
    CapturePlan(level="full"),
    CapturePlan(level="follow", tensors=("attention",), budget_bytes=20_000),
    CapturePlan(level="off"),
    CapturePlan(level="follow", tensors=("residual",), dtype="f16"),
    CapturePlan(level="follow", tensors=("lens", "attention_out")),
]


def recorded(tiny: LoadedModel, plans: list[CapturePlan], blocks: int = 9, **config: Any) -> list[Event]:
    """A run in which requests share beginnings, give way and are cancelled; the header comes first."""
    config = {"slots": 4, "prefill_budget": 24, "kv_memory": blocks * 16 * 1024, "time_every": 5} | config
    bench = Bench(tiny, EngineConfig(**config))
    header = trace_run.header()
    model = header.model | {"layers": tiny.info.layers, "heads": tiny.info.heads}
    bench.events.insert(0, dataclasses.replace(header, kv=bench.core.kv.facts, model=model))
    for index, plan in enumerate(plans):
        prompt = [*SHARED[: 40 if index % 2 else 20], index, *range(10 + index)]
        bench.add(prompt, 24, capture=plan)
    for _ in range(12):
        bench.step()
    bench.core.cancel(bench.core.scheduler.running[-1])
    bench.run()
    bench.core.close()
    return bench.events


@pytest.fixture(scope="module")
def run(tiny: LoadedModel) -> list[Event]:
    events = recorded(tiny, PLANS)
    kinds = {event.kind for event in events}
    assert {"block.reused", "request.preempted", "kernel", "attention.summary", "attention_out"} <= kinds
    assert {"prefix_cached", "over_budget", "not_captured"} <= {e.reason for e in events if isinstance(e, Absent)}
    return events


def check(tmp_path: Path, events: list[Event]) -> Any:
    with open_trace(trace_run.record(tmp_path / "t.mcap", frames(events))) as trace:
        return next(check for check in verify(trace) if check.name == NAME)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"blocks": 64, "time_every": 1},
        {"kv_store": "concat", "kv_memory": 2**22},
        {"kv_store": "prealloc", "kv_memory": 2**22, "policy": "static", "time_every": 0},
    ],
)
def test_a_real_run_lacks_nothing(tiny: LoadedModel, tmp_path: Path, config: dict[str, Any]) -> None:
    found = check(tmp_path, recorded(tiny, PLANS, **config))
    assert found.ok, found.detail


@pytest.mark.parametrize("plan", ["off", "light"])
def test_where_nothing_was_asked_for_nothing_is_looked_for(tiny: LoadedModel, tmp_path: Path, plan: Any) -> None:
    assert check(tmp_path, recorded(tiny, [CapturePlan(level=plan)] * 2)).ok is None


def places(events: list[Event], kind: str, wanted: Callable[[Any], bool] = lambda event: True) -> list[int]:
    return [index for index, event in enumerate(events) if event.kind == kind and wanted(event)]


def without(events: list[Event], place: int) -> list[Event]:
    return [*events[:place], *events[place + 1 :]]


@pytest.mark.parametrize("which", [0, 7, -1])
@pytest.mark.parametrize("kind", ["attention", "attention.summary", "residual", "attention_out"])
def test_a_frame_that_was_taken_out_is_missed(tmp_path: Path, run: list[Event], kind: str, which: int) -> None:
    place = places(run, kind)[which]
    gone: Any = run[place]
    found = check(tmp_path, without(run, place))
    assert found.ok is False
    assert f"{kind} of {gone.request} position {gone.position}" in found.detail


@pytest.mark.parametrize("kind", ["attention", "attention.summary"])
def test_one_layer_of_a_timed_step_is_missed(tmp_path: Path, run: list[Event], kind: str) -> None:
    timed = {event.step for event in run if event.kind == "step.finished" and event.timing}  # type: ignore[attr-defined]
    of_one = places(run, kind, lambda event: event.step in timed and len(event.data) == 1)
    assert of_one
    place = of_one[len(of_one) // 2]
    gone = run[place]
    assert isinstance(gone, Attention | AttentionSummary)
    layer = gone.layer if isinstance(gone, Attention) else gone.layers[0]
    found = check(tmp_path, without(run, place))
    assert found.ok is False
    assert f"{kind} of {gone.request} position {gone.position}, of layer {layer} is missing" in found.detail


def test_an_absence_that_was_taken_out_is_missed(tmp_path: Path, run: list[Event]) -> None:
    """All that says of computed positions why they have nothing: without it, they should have something."""

    def tells(event: Any) -> bool:
        return event.reason in ("over_budget", "not_captured") and event.what in ("attention", "residual")

    told = [place for place in places(run, "absent", tells) if run[place].heads is None]  # type: ignore[attr-defined]
    plans = {event.request: event.capture for event in run if isinstance(event, RequestArrived)}
    for place in told:
        event: Any = run[place]
        left_out = event.detail.startswith(("the capture plan leaves it out", "capture level"))
        if plans[event.request]["level"] in ("light", "off") or left_out:  # what was not asked for is not looked for
            continue
        found = check(tmp_path, without(run, place))
        assert found.ok is False, event
        assert event.request in found.detail


def test_all_of_a_kind_that_were_taken_out_are_missed(tmp_path: Path, run: list[Event]) -> None:
    for kind in ("attention", "attention.summary", "residual"):
        assert check(tmp_path, [event for event in run if event.kind != kind]).ok is False, kind


def test_a_frame_that_nobody_asked_for_is_noticed(tmp_path: Path, run: list[Event]) -> None:
    light = next(e.request for e in run if isinstance(e, RequestArrived) and e.capture["level"] == "light")
    place = places(run, "residual")[0]
    stray = dataclasses.replace(run[place], request=light)  # type: ignore[call-arg]
    found = check(tmp_path, [*run[: place + 1], stray, *run[place + 1 :]])
    assert found.ok is False
    assert f"residual of {light}" in found.detail


@pytest.mark.parametrize("kind", ["attention", "residual"])
def test_a_frame_that_comes_twice_is_noticed(tmp_path: Path, run: list[Event], kind: str) -> None:
    place = places(run, kind)[3]
    found = check(tmp_path, [*run[:place], run[place], *run[place:]])
    assert found.ok is False
    assert "a second time" in found.detail


def test_slices_lack_nothing_and_copies_say_what_they_left_out(tmp_path: Path, run: list[Event]) -> None:
    path = trace_run.record(tmp_path / "run.mcap", frames(run))
    with open_trace(path) as trace:
        for request in [found["id"] for found in trace.requests()]:
            rewrite(trace, tmp_path / "s.mcap", request=request, facts={"slice_of": request})
            with open_trace(tmp_path / "s.mcap") as part:
                failed = [found for found in verify(part) if found.ok is False]
            assert not failed
        rewrite(trace, tmp_path / "d.mcap", reduction=Reduction(drop=frozenset({"attention", "attention_out"})))
    with open_trace(tmp_path / "d.mcap") as copy:
        assert [found for found in verify(copy) if found.ok is False] == []
        rewrite(copy, tmp_path / "e.mcap", reduction=Reduction(drop=frozenset({"residual"}), dtype="f16"))
    with open_trace(tmp_path / "e.mcap") as copy:
        assert copy.metadata["dropped"] == "attention,attention_out,residual"
        found = {check.name: check.ok for check in verify(copy)}
    assert not [name for name, ok in found.items() if ok is False]


def test_a_run_that_breaks_off_anywhere_lacks_only_what_would_have_come(tmp_path: Path, run: list[Event]) -> None:
    for end in range(20, len(run), len(run) // 23):
        found = check(tmp_path, run[:end])
        assert found.ok is not False, (end, found.detail)


def test_where_events_are_missing_it_is_not_looked_for(tmp_path: Path, run: list[Event]) -> None:
    stamped = frames(run)
    del stamped[places(run, "attention")[4]]
    with open_trace(trace_run.record(tmp_path / "t.mcap", stamped)) as trace:
        found = {check.name: check.ok for check in verify(trace)}
    assert found[NAME] is None
    assert found["no events missing"] is False


def test_a_timed_step_that_was_interrupted_is_not_said_to_lack_anything(
    tiny: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tiny, EngineConfig(slots=2, kv_memory=2**21, time_every=1))
    header = trace_run.header()
    model = header.model | {"layers": tiny.info.layers, "heads": tiny.info.heads}
    bench.events.insert(0, dataclasses.replace(header, kv=bench.core.kv.facts, model=model))
    sequences = [bench.add([number, 5, 6, 7], 8, capture=CapturePlan(level="follow")) for number in (1, 2)]
    for _ in range(3):
        bench.step()
    take, calls = AttentionRows.take, []

    def interrupted(self: AttentionRows, *seen: Any, **more: Any) -> None:
        calls.append(1)
        if len(calls) == 6:  # in the third of four layers
            raise KeyboardInterrupt
        take(self, *seen, **more)

    monkeypatch.setattr(AttentionRows, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bench.step()
    bench.core.give_up(sequences)
    bench.core.close()
    partly = [event for event in bench.events if isinstance(event, Attention) and event.step == 4]
    assert len(partly) == 5
    found = check(tmp_path, bench.events)
    assert found.ok, found.detail
