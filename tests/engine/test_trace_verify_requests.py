"""What `trace verify` finds of requests and tokens that are not as a run leaves them, though no seq is missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.capture import CapturePlan
from engine.codec import Frame, encode
from engine.config import EngineConfig
from engine.events import Event, RequestFinished, RequestTokenized, StreamSent, Token
from engine.models import LoadedModel
from engine.request import GenerationRequest, SamplingParams
from engine.trace import open_trace
from engine.trace.rewrite import Reduction, rewrite
from engine.trace.verify import verify
from tests.engine import trace_run
from tests.engine.test_batching import Bench

NEW = {
    "requests end once",
    "text is the tokens' bytes",
    "counts are the tokens'",
    "steps choose their tokens",
    "choices are as described",
    "tokens are the same everywhere",
    "request times add up",
    "readings are of the next token",
    "no NaN passes unsaid",
}
Change = Callable[[Any], dict[str, Any]]


@pytest.fixture(scope="module")
def run(tiny: LoadedModel) -> list[Event]:
    """Requests that share a prefix, give way, are cancelled running and waiting, draw, stop at a text, and fork."""
    bench = Bench(tiny, EngineConfig(slots=4, prefill_budget=24, kv_memory=7 * 16 * 1024))
    bench.events.insert(0, dataclasses.replace(trace_run.header(), kv=bench.core.kv.facts))
    drawn = SamplingParams(temperature=1.5, top_k=40, top_p=0.95, seed=7, logit_bias={65: 2.0}, frequency_penalty=0.5)
    first = bench.add([*range(60, 90)], 20, capture=CapturePlan.parse("full"))
    for choice in range(2):  # as two choices of one prompt
        bench.add([*range(60, 95)], 18, sampling=dataclasses.replace(drawn, seed=choice), name="two")
    stopped = bench.add([1, 2, 3], 24)
    gone = [bench.add([*range(60, 80), index], 24) for index in range(2)]
    for index in range(4):  # more than the blocks are enough for
        bench.add([*range(120, 140 + index), index], 40)
    for _ in range(6):
        bench.step()
    bench.core.cancel(bench.core.scheduler.running[-1])
    bench.core.cancel(gone[1])
    bench.run()
    text = bytes(bench.answer(stopped)).decode()
    bench.add([1, 2, 3], 24, stop=(text[2:5], "never said"))
    bench.run()
    fork = GenerationRequest(prompt=[70], max_tokens=6, sampling=SamplingParams(temperature=0), source="fork")
    bench.core.scheduler.add(bench.preparation.prepare_fork(fork, lambda event: None, first, first.prompt_tokens + 3))
    bench.run()
    bench.core.readings.lens(first, first.prompt_tokens + 1)
    bench.core.close()
    ends = {event.reason for event in bench.events if isinstance(event, RequestFinished)}
    kinds = {event.kind for event in bench.events}
    assert ends == {"length", "cancelled", "stop"}
    assert {"request.preempted", "lens", "attribution"} <= kinds
    return bench.events


def frames(events: list[Event]) -> list[Frame]:
    """The events as the bus would have numbered them: without those that were taken out, nothing is missing."""
    return [encode(dataclasses.replace(event, seq=seq, t_ns=seq * 1000)) for seq, event in enumerate(events, start=1)]


def failed(path: Path) -> list[str]:
    with open_trace(path) as trace:
        return [check.name for check in verify(trace) if check.ok is False]


def after(tmp_path: Path, events: list[Event]) -> list[str]:
    return failed(trace_run.record(tmp_path / "t.mcap", frames(events)))


def places(events: list[Event], kind: str, such: Callable[[Any], bool] = lambda event: True) -> list[int]:
    return [index for index, event in enumerate(events) if event.kind == kind and such(event)]


def changed(events: list[Event], place: int, change: Change) -> list[Event]:
    event: Any = events[place]
    return [*events[:place], dataclasses.replace(event, **change(event)), *events[place + 1 :]]


def without(events: list[Event], place: int) -> list[Event]:
    return [*events[:place], *events[place + 1 :]]


def test_a_real_run_passes_every_check(tmp_path: Path, run: list[Event]) -> None:
    with open_trace(trace_run.record(tmp_path / "t.mcap", frames(run))) as trace:
        found = {check.name: check.ok for check in verify(trace)}
    assert [name for name, ok in found.items() if ok is False] == []
    assert {name for name, ok in found.items() if ok} >= NEW


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_run_cut_off_anywhere_passes_but_for_that(tmp_path: Path, run: list[Event], share: float) -> None:
    path = trace_run.record(tmp_path / "t.mcap", frames(run))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert failed(path) == ["file closed properly"]
    with open_trace(path) as trace:
        rewrite(trace, tmp_path / "whole.mcap", facts={"recovered": "yes"})
        rewrite(trace, tmp_path / "copy.mcap", reduction=Reduction(dtype="f16"))
    assert failed(tmp_path / "whole.mcap") == []
    assert failed(tmp_path / "copy.mcap") == [], "a copy of what was cut off says that it was"


@pytest.mark.parametrize("end", [3, 40, 41, 42, 43, 44, 45, 46, 47, 48, 200])
def test_a_run_that_goes_on_in_a_next_file_passes(tmp_path: Path, run: list[Event], end: int) -> None:
    """A part is closed properly, wherever in the run it ends."""
    assert failed(trace_run.record(tmp_path / "t.mcap", frames(run[:end]), part_bytes=1 << 10)) == []
    assert "requests end once" in failed(trace_run.record(tmp_path / "t.mcap", frames(run[:end])))


def test_every_part_of_a_long_run_passes(tmp_path: Path, run: list[Event]) -> None:
    trace_run.record(tmp_path / "t.mcap", frames(run), part_bytes=1 << 17)
    parts = sorted(tmp_path.glob("t*.mcap"))
    assert len(parts) > 3
    assert [failed(part) for part in parts] == [[]] * len(parts)


def test_slices_and_reduced_copies_pass(tmp_path: Path, run: list[Event]) -> None:
    path = trace_run.record(tmp_path / "t.mcap", frames(run))
    with open_trace(path) as trace:
        for known in trace.requests():
            rewrite(trace, tmp_path / "s.mcap", request=known["id"], facts={"slice_of": known["id"]})
            assert failed(tmp_path / "s.mcap") == []
        small = Reduction(dtype="f16", drop=frozenset({"attention", "residual"}))
        rewrite(trace, tmp_path / "small.mcap", reduction=small)
    assert failed(tmp_path / "small.mcap") == []


def test_an_event_that_was_taken_out_and_the_rest_renumbered_is_missed(tmp_path: Path, run: list[Event]) -> None:
    finds = {
        "request.arrived": "requests end once",
        "request.tokenized": "requests end once",
        "request.scheduled": "steps follow",
        "request.preempted": "requests end once",
        "request.finished": "requests end once",
        "slot.assigned": "slots are held by one",
        "slot.released": "requests end once",
        "step.started": "events belong to their steps",
        "step.finished": "steps follow",
        "token": "steps choose their tokens",
        "block.allocated": "positions in their blocks",
        "block.freed": "block refs are their holders",
    }
    for kind, check in finds.items():
        found = places(run, kind)
        for place in {found[0], found[len(found) // 2]}:
            assert check in after(tmp_path, without(run, place)), f"{kind}, event {place}"


def test_the_end_of_each_request_is_missed(tmp_path: Path, run: list[Event]) -> None:
    for place in places(run, "request.finished"):
        assert "requests end once" in after(tmp_path, without(run, place))


def test_each_token_is_missed(tmp_path: Path, run: list[Event]) -> None:
    request = run[places(run, "request.finished", lambda event: event.reason == "length")[0]].request  # type: ignore[attr-defined]
    tokens = places(run, "token", lambda event: event.request == request)
    for place in (tokens[0], tokens[5], tokens[-1]):
        assert {"positions follow", "steps choose their tokens"} <= set(after(tmp_path, without(run, place)))


def test_what_happens_to_a_request_after_its_end_is_noticed(tmp_path: Path, run: list[Event]) -> None:
    place = places(run, "request.finished")[0]
    assert "requests end once" in after(tmp_path, [*run[:place], run[place], *run[place:]])
    token = next(event for event in run if isinstance(event, Token) and event.request == run[place].request)  # type: ignore[attr-defined]
    assert "requests end once" in after(tmp_path, [*run, token])


def up(entry: Any) -> dict[str, Any]:
    return {"rank": entry["rank"] + 1}


def each(entries: list[Any], change: Change) -> list[Any]:
    return [{**entry, **change(entry)} for entry in entries]


@pytest.mark.parametrize(
    ("kind", "change", "check"),
    [
        ("request.finished", lambda event: {"prompt_tokens": event.prompt_tokens + 1}, "counts are the tokens'"),
        ("request.finished", lambda event: {"completion_tokens": 3}, "counts are the tokens'"),
        ("request.arrived", lambda event: {"max_tokens": event.max_tokens + 1}, "counts are the tokens'"),
        ("request.arrived", lambda event: {"max_tokens": 2}, "counts are the tokens'"),
        ("token", lambda event: {"index": event.index + 1}, "counts are the tokens'"),
        ("token", lambda event: {"text_length": event.text_length + 1}, "counts are the tokens'"),
        ("token", lambda event: {"held_back_bytes": 1}, "text is the tokens' bytes"),
        ("token", lambda event: {"text": event.text + "x"}, "text is the tokens' bytes"),
        ("request.tokenized", lambda event: {"tokens": event.tokens[:-1]}, "counts are the tokens'"),
        ("step.finished", lambda event: {"unused_rows": event.unused_rows + 1}, "steps choose their tokens"),
        ("token", lambda event: {"id": event.id + 1}, "tokens are the same everywhere"),
        ("token", lambda event: {"bytes_hex": "e9"}, "tokens are the same everywhere"),
        ("token", lambda event: {"label": "?"}, "tokens are the same everywhere"),
        ("token", lambda event: {"special": True}, "tokens are the same everywhere"),
        ("token", lambda event: {"logprob": event.logprob - 0.01}, "choices are as described"),
        ("token", lambda event: {"rank": event.rank + 1}, "choices are as described"),
        ("token", lambda event: {"top": event.top[::-1]}, "choices are as described"),
        ("token", lambda event: {"top": [event.top[0], *event.top[:-1]]}, "choices are as described"),
        ("token", lambda one: {"top": each(one.top, lambda e: {"logit": 9 * e["logit"]})}, "choices are as described"),
        ("token", lambda event: {"top": event.top[5:], "stages": []}, "choices are as described"),
        ("token", lambda event: {"draw": {"method": "hope"}}, "choices are as described"),
        ("lens", lambda event: {"target": event.target + 1}, "readings are of the next token"),
        ("lens", lambda event: {"position": event.position + 1}, "readings are of the next token"),
        ("attribution", lambda event: {"target": event.target + 1}, "readings are of the next token"),
        ("lens", lambda one: {"layers": each(one.layers, up)}, "readings are of the next token"),
        ("lens", lambda one: {"layers": each(one.layers, lambda e: {"logprob": -1e-3})}, "last lens row is the logits"),
        ("request.scheduled", lambda event: {"waited_ns": event.waited_ns + 1}, "request times add up"),
        ("request.finished", lambda event: {"timings": {**event.timings, "total_ns": 1}}, "request times add up"),
        ("request.finished", lambda event: {"timings": {**event.timings, "ttft_ns": 1}}, "request times add up"),
    ],
)  # fmt: skip
def test_a_wrong_event_fails_its_check(tmp_path: Path, run: list[Event], kind: str, change: Change, check: str) -> None:
    first = run[places(run, "lens")[0]].request  # type: ignore[attr-defined]
    place = places(run, kind, lambda event: getattr(event, "request", first) == first)[0]
    if kind in ("lens", "token"):  # not the first: of an answer's first token less is known
        place = places(run, kind, lambda event: event.request == first and event.position > 30)[3]
    assert check in after(tmp_path, changed(run, place, change))


@pytest.mark.parametrize(
    "change",
    [
        lambda draw: {"u": draw["u"] / 2},
        lambda draw: {"seed": draw["seed"] + 1},
        lambda draw: {"low": draw["high"]},
        lambda draw: {"high": draw["u"]},
    ],
)
def test_a_draw_is_made_again(tmp_path: Path, run: list[Event], change: Change) -> None:
    place = places(run, "token", lambda event: event.draw["method"] == "inverse_cdf")[4]
    wrong = changed(run, place, lambda event: {"draw": event.draw | change(event.draw)})
    assert after(tmp_path, wrong) == ["choices are as described"]


def test_a_stop_text_must_have_been_asked_for(tmp_path: Path, run: list[Event]) -> None:
    arrived = places(run, "request.arrived", lambda event: "never said" in event.sampling["stop"])[0]
    request = run[arrived].request  # type: ignore[attr-defined]
    place = places(run, "request.finished", lambda event: event.request == request)[0]
    assert after(tmp_path, changed(run, place, lambda event: {"detail": "nobody asked"})) == ["counts are the tokens'"]
    unasked = changed(run, arrived, lambda event: {"sampling": {**event.sampling, "stop": []}})
    assert "text is the tokens' bytes" in after(tmp_path, unasked)


def test_a_fork_must_begin_as_its_parent(tmp_path: Path, run: list[Event]) -> None:
    fork = run[places(run, "request.arrived", lambda event: event.forked_from is not None)[0]].request  # type: ignore[attr-defined]
    place = places(run, "request.tokenized", lambda event: event.request == fork)[0]
    tokenized = run[place]
    assert isinstance(tokenized, RequestTokenized)
    tokens = [tokenized.tokens[1], *tokenized.tokens[1:]]
    assert after(tmp_path, changed(run, place, lambda event: {"tokens": tokens})) == ["tokens are the same everywhere"]


def test_what_was_sent_of_a_token_that_is_not_there_is_noticed(tmp_path: Path, run: list[Event]) -> None:
    sent: list[Event] = []
    chunks: dict[str, int] = {}
    for event in run:
        sent.append(event)
        if isinstance(event, Token) and event.text:
            size, chunk = len(event.text.encode()), chunks.get(event.request, 0)
            chunks[event.request] = chunk + 1
            sent.append(
                StreamSent(
                    request=event.request, chunk=chunk, position=event.position, chunk_bytes=size, text_bytes=size,
                    held_back_bytes=event.held_back_bytes, queued_ns=1, sent_ns=2, to="sse",
                )
            )  # fmt: skip
    assert after(tmp_path, sent) == []
    place = places(sent, "token", lambda event: event.text != "" and event.index == 4)[0]
    assert "what was sent is the text" in after(tmp_path, without(sent, place))
    place = places(sent, "stream.sent", lambda event: event.chunk == 4)[0]
    assert "what was sent is the text" in after(tmp_path, without(sent, place))
