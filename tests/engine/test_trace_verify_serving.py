"""What `trace verify` replays of the serving: each check passes on a real run, and fails on a damaged one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.capture import CapturePlan
from engine.codec import Frame, decode, encode
from engine.config import EngineConfig
from engine.events import Event, StreamSent, Token
from engine.models import LoadedModel
from engine.trace import open_trace
from engine.trace.rewrite import rewrite
from engine.trace.verify import verify
from tests.engine import trace_run
from tests.engine.test_batching import Bench

SHARED = list(range(60, 110))
CHECK = {"request": "r", "layer": 0, "position": 3, "error": 1e-7, "largest": 1.0}
REPLAYED = {
    "block refs are their holders",
    "no block leaks",
    "positions in their blocks",
    "slots are held by one",
    "steps follow",
    "events belong to their steps",
    "operations add up to steps",
}
MEASURED = {"weights × values are output", "row sums as measured"}
Change = Callable[[Any], dict[str, Any]]


@pytest.fixture(scope="module")
def run(tiny: LoadedModel) -> list[Event]:
    """A run in which requests share a prefix, give way, are timed, and one is cancelled; the header comes first."""
    # 1 KiB a position: 9 blocks of 16, where the requests need 5 each
    bench = Bench(tiny, EngineConfig(slots=4, prefill_budget=24, kv_memory=9 * 16 * 1024, time_every=5))
    bench.events.insert(0, dataclasses.replace(trace_run.header(), kv=bench.core.kv.facts))
    for index in range(6):
        prompt = [*SHARED[: 40 if index % 2 else 20], index, *range(10 + index)]
        bench.add(prompt, 24, capture=CapturePlan.parse("follow" if index == 0 else "light"))
    for _ in range(12):
        bench.step()
    bench.core.cancel(bench.core.scheduler.running[0])
    bench.run()
    kinds = {event.kind for event in bench.events}
    assert {"block.reused", "block.stored", "block.freed", "request.preempted", "kernel"} <= kinds
    bench.core.close()
    return bench.events


def frames(events: list[Event]) -> list[Frame]:
    stamped = []
    for seq, event in enumerate(events, start=1):
        stamped.append(encode(dataclasses.replace(event, seq=seq, t_ns=seq * 1000)))
    return stamped


def checks(tmp_path: Path, events: list[Event]) -> dict[str, bool | None]:
    with open_trace(trace_run.record(tmp_path / "t.mcap", frames(events))) as trace:
        return {check.name: check.ok for check in verify(trace)}


def failed(tmp_path: Path, events: list[Event]) -> list[str]:
    return [name for name, ok in checks(tmp_path, events).items() if ok is False]


def changed(events: list[Event], kind: str, change: Change, number: int = 0) -> list[Event]:
    places = [index for index, event in enumerate(events) if event.kind == kind]
    place = places[number]
    new: Any = events[place]
    return [*events[:place], dataclasses.replace(new, **change(new)), *events[place + 1 :]]


def test_a_real_run_passes_all_of_them(tmp_path: Path, run: list[Event]) -> None:
    found = checks(tmp_path, run)
    assert [name for name, ok in found.items() if ok is False] == []
    assert {name for name, ok in found.items() if ok} >= REPLAYED | MEASURED


@pytest.mark.parametrize(
    ("kind", "change", "check"),
    [
        ("block.allocated", lambda event: {"refs": 2}, "block refs are their holders"),
        ("block.allocated", lambda event: {"block": 9999}, "block refs are their holders"),
        ("block.reused", lambda event: {"prefix_hash": "00"}, "block refs are their holders"),
        ("block.freed", lambda event: {"block": event.block + 1}, "block refs are their holders"),
        ("block.freed", lambda event: {"request": "r-nobody"}, "block refs are their holders"),
        ("block.allocated", lambda event: {"positions": [16, 32], "logical": 0}, "positions in their blocks"),
        ("block.allocated", lambda event: {"logical": 7, "positions": [112, 128]}, "positions in their blocks"),
        ("block.stored", lambda event: {"parent_hash": "00"}, "positions in their blocks"),
        ("block.stored", lambda event: {"logical": 9, "positions": [144, 160]}, "positions in their blocks"),
        ("slot.assigned", lambda event: {"slot": 3}, "slots are held by one"),
        ("slot.released", lambda event: {"request": "r-nobody"}, "slots are held by one"),
        ("step.started", lambda event: {"tokens": event.tokens + 1}, "steps follow"),
        ("step.started", lambda event: {"token_budget": 1}, "steps follow"),
        ("step.started", lambda event: {"step": event.step + 50}, "steps follow"),
        ("step.finished", lambda event: {"step": event.step + 1}, "steps follow"),
        ("request.scheduled", lambda event: {"cached_tokens": 5}, "steps follow"),
        ("token", lambda event: {"step": event.step + 1}, "events belong to their steps"),
        ("attention", lambda event: {"step": event.step + 1}, "events belong to their steps"),
        ("residual", lambda event: {"position": event.position + 60}, "events belong to their steps"),
        ("kernel", lambda event: {"duration_ns": event.duration_ns + 1}, "operations add up to steps"),
        ("kernel", lambda event: {"duration_ns": -1}, "operations add up to steps"),
        ("kernel", lambda event: {"step": event.step + 1}, "operations add up to steps"),
        ("step.finished", lambda event: {"attention_check": CHECK | {"error": 1e-3}}, "weights × values are output"),
        (
            "step.finished",
            lambda event: {"attention_check": CHECK | {"error": math.nan}},
            "weights × values are output",
        ),
        ("step.finished", lambda event: {"row_sum_error": 0.0}, "row sums as measured"),
        ("attention", lambda event: {"row_sum_error": 1e-3}, "row sums as measured"),
    ],
)
def test_a_damaged_event_fails_its_check(
    tmp_path: Path, run: list[Event], kind: str, change: Change, check: str
) -> None:
    assert check in failed(tmp_path, changed(run, kind, change))


def test_a_row_that_jumps_fails(tmp_path: Path, run: list[Event]) -> None:
    def jump(event: Any) -> dict[str, Any]:
        (first, *others) = event.rows
        return {"rows": [{**first, "from": first["from"] + 1}, *others], "tokens": event.tokens - 1}

    assert "steps follow" in failed(tmp_path, changed(run, "step.started", jump))


def test_a_row_in_another_slot_fails(tmp_path: Path, run: list[Event]) -> None:
    def swap(event: Any) -> dict[str, Any]:
        return {"rows": [{**row, "slot": row["slot"] + 1} for row in event.rows]}

    assert failed(tmp_path, changed(run, "step.started", swap)) == ["slots are held by one"]


def test_a_block_that_is_never_given_back_is_a_leak(tmp_path: Path, run: list[Event]) -> None:
    finished = next(index for index, event in enumerate(run) if event.kind == "request.finished")
    request = run[finished].request  # type: ignore[attr-defined]
    held = [i for i in range(finished) if run[i].kind in ("block.freed", "block.ref_changed")]
    own = [index for index in held if run[index].request == request]  # type: ignore[attr-defined]
    assert "no block leaks" in failed(tmp_path, [*run[: own[-1]], *run[own[-1] + 1 :]])


def test_operations_that_take_longer_than_their_step_fail(tmp_path: Path, run: list[Event]) -> None:
    steps = [event for event in run if event.kind == "step.finished"]
    number = next(i for i, event in enumerate(steps) if event.timing)  # type: ignore[attr-defined]
    short = changed(run, "step.finished", lambda event: {"eval_ns": event.operations_ns - 1}, number)
    assert failed(tmp_path, short) == ["operations add up to steps"]


def test_where_events_are_missing_nothing_is_said_of_what_they_would_have_told(
    tmp_path: Path, run: list[Event]
) -> None:
    stamped = frames(run)
    del stamped[40:60]
    with open_trace(trace_run.record(tmp_path / "t.mcap", stamped)) as trace:
        found = {check.name: check for check in verify(trace)}
    assert {name for name in REPLAYED if found[name].ok is not None} == set()
    assert "20 events are missing" in found["no block leaks"].detail
    assert found["no events missing"].ok is False


def test_a_slice_is_checked_in_what_it_holds(tmp_path: Path, run: list[Event]) -> None:
    path = trace_run.record(tmp_path / "t.mcap", frames(run))
    request = next(event.request for event in run if event.kind == "request.preempted")  # type: ignore[attr-defined]
    with open_trace(path) as trace:
        rewrite(trace, tmp_path / "s.mcap", request=request, facts={"slice_of": request})
    with open_trace(tmp_path / "s.mcap") as trace:
        found = {check.name: check.ok for check in verify(trace)}
    assert [name for name, ok in found.items() if ok is False] == []
    own = {"positions in their blocks", "steps follow", "events belong to their steps", "operations add up to steps"}
    assert {name for name in REPLAYED if found[name]} == own


def sent(run: list[Event]) -> list[Event]:
    """The run, with each token of its first answer sent in a chunk of its own."""
    request = next(event.request for event in run if event.kind == "token")  # type: ignore[attr-defined]
    events: list[Event] = []
    for event in run:
        events.append(event)
        if isinstance(event, Token) and event.request == request:
            data = len(event.text.encode())
            events.append(
                StreamSent(
                    request=request,
                    chunk=event.index,
                    position=event.position,
                    chunk_bytes=data,
                    text_bytes=data,
                    held_back_bytes=event.held_back_bytes,
                    queued_ns=1,
                    sent_ns=2,
                    to="stdout",
                )
            )
    return events


def test_what_was_sent_must_be_the_text(tmp_path: Path, run: list[Event]) -> None:
    good = sent(run)
    assert checks(tmp_path, good)["what was sent is the text"] is True
    for change in ({"text_bytes": 9}, {"chunk": 7}, {"position": 3}):
        bad = changed(good, "stream.sent", lambda event, change=change: change, 2)
        assert failed(tmp_path, bad) == ["what was sent is the text"]


def test_decoding_a_frame_gives_the_event_that_was_encoded(run: list[Event]) -> None:
    """Guards the tests above: what is written is what was changed."""
    frame = frames(changed(run, "slot.assigned", lambda event: {"slot": 3}))
    events = [decode(one.payload, binary=one.binary) for one in frame if one.kind == "slot.assigned"]
    assert events[0].slot == 3  # type: ignore[attr-defined]
