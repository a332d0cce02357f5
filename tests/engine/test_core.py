"""The step loop on `tiny`: capture changes nothing, requests end where they should, and what is missing says so."""

from __future__ import annotations

import threading
from concurrent.futures import Executor
from typing import Any

from engine.device import mx

import numpy as np
import pytest

from engine.core import EngineCore
from engine.errors import RequestError
from engine.events import Absent, Attention, Event, RequestFinished, Residual, StepFinished, StepStarted, Token
from engine.models import LoadedModel, load
from engine.request import SamplingParams
from engine.runner import Step
from engine.sequence import Sequence
from tests.engine.conftest import MakeWalk

PROMPT = "The quick brown fox"


def of(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize("sampling", [SamplingParams(temperature=0), SamplingParams(temperature=1.1, top_k=30, seed=5)])
def test_capture_changes_neither_tokens_nor_a_bit_of_the_logits(
    walk: MakeWalk, logits_seen: list[bytes], sampling: SamplingParams
) -> None:
    outcomes = []
    for level in ("off", "light", "follow", "full"):
        logits_seen.clear()
        events = list(walk(prefill_budget=7).generate(PROMPT, max_tokens=12, sampling=sampling, capture=level))
        outcomes.append(([token.id for token in of(events, Token)], list(logits_seen)))
    assert len(outcomes[0][0]) == 12
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_an_attention_row_of_every_position_that_had_a_pass_and_no_other(walk: MakeWalk) -> None:
    events = list(walk(prefill_budget=7).generate(PROMPT, max_tokens=5))
    last = len(PROMPT) + 5 - 1
    attention = of(events, Attention)
    assert sorted(event.position for event in attention) == list(range(last))
    assert sorted(event.position for event in of(events, Residual)) == list(range(last))
    for event in attention:
        assert event.data.shape == (4, 4, event.position + 1)
        assert event.data.dtype == np.float32
        np.testing.assert_allclose(event.data.sum(-1), 1, atol=1e-5)
        assert event.row_sum_error < 1e-5


def test_attention_does_not_depend_on_how_the_prompt_was_cut(walk: MakeWalk) -> None:
    rows = []
    for budget in (256, 5, 1):
        events = walk(prefill_budget=budget).generate(PROMPT, max_tokens=3)
        rows.append({event.position: event.data for event in events if isinstance(event, Attention)})
    for other in rows[1:]:
        for position, row in rows[0].items():
            np.testing.assert_allclose(other[position], row, atol=2e-5)


def test_norms_are_those_of_what_was_added(walk: MakeWalk) -> None:
    """tiny's layers add attention and MLP: a change is at most the sum of both norms, at least their difference."""
    for event in of(list(walk().generate(PROMPT, max_tokens=2)), Residual):
        change = np.linalg.norm(np.diff(event.data, axis=0), axis=-1)
        attention, mlp = np.array(event.attention_norms), np.array(event.mlp_norms)
        assert (change <= attention + mlp + 1e-4).all()
        assert (change >= np.abs(attention - mlp) - 1e-4).all()
        np.testing.assert_allclose(event.norms, np.linalg.norm(event.data, axis=-1), rtol=1e-5)


def test_light_capture_says_that_attention_is_absent(walk: MakeWalk) -> None:
    events = list(walk().generate(PROMPT, max_tokens=2, capture="light"))
    assert not of(events, Attention)
    assert {(event.what, event.reason) for event in of(events, Absent)} == {
        ("attention", "not_captured"),
        ("residual", "not_captured"),
    }


@pytest.mark.parametrize("max_tokens", [1, 2, 7])
def test_exactly_max_tokens_come_and_the_end_is_length(walk: MakeWalk, max_tokens: int) -> None:
    events = list(walk().generate(PROMPT, max_tokens=max_tokens))
    finished = of(events, RequestFinished)[0]
    assert len(of(events, Token)) == finished.completion_tokens == max_tokens
    assert finished.reason == "length"
    assert len(of(events, StepStarted)) == len(of(events, StepFinished)) == max_tokens


def test_a_prompt_of_one_token_runs(walk: MakeWalk) -> None:
    assert len(of(list(walk().generate("a", max_tokens=2)), Token)) == 2


def test_an_end_token_ends_the_answer_is_reported_and_carries_no_text(tiny: LoadedModel, walk: MakeWalk) -> None:
    plain = of(list(walk().generate(PROMPT, max_tokens=6)), Token)
    eos = min(tiny.info.eos_ids)
    bias = SamplingParams(temperature=0, logit_bias={eos: 100})
    events = list(walk().generate(PROMPT, max_tokens=6, sampling=bias))
    tokens = of(events, Token)
    assert [token.id for token in tokens] == [eos]
    assert (tokens[0].text, tokens[0].bytes_hex, tokens[0].special) == ("", "", True)
    assert of(events, RequestFinished)[0].reason == "stop"
    assert plain[0].id != eos


def test_a_stop_text_ends_the_answer_and_is_not_part_of_it(walk: MakeWalk) -> None:
    whole = "".join(token.text for token in of(list(walk().generate(PROMPT, max_tokens=20)), Token))
    stop = whole[4:6]
    events = list(walk().generate(PROMPT, max_tokens=20, stop=(stop,)))
    assert "".join(token.text for token in of(events, Token)) == whole[: whole.index(stop)]
    finished = of(events, RequestFinished)[0]
    assert (finished.reason, finished.detail) == ("stop", stop)


def test_bytes_of_all_tokens_joined_are_the_streamed_text(walk: MakeWalk) -> None:
    sampling = SamplingParams(temperature=1.5, seed=2)
    tokens = of(list(walk().generate(PROMPT, max_tokens=40, sampling=sampling)), Token)
    data = b"".join(bytes.fromhex(token.bytes_hex) for token in tokens)
    text = "".join(token.text for token in tokens)
    assert text == data.decode("utf-8", "replace")
    assert tokens[-1].text_length == len(text)


def test_leaving_the_loop_cancels_and_the_next_request_runs_as_if_nothing_had_been(walk: MakeWalk) -> None:
    core = walk()
    expected = [token.id for token in of(list(core.generate(PROMPT, max_tokens=6)), Token)]
    for event in core.generate(PROMPT, max_tokens=50):
        if isinstance(event, Token) and event.index == 2:
            break
    assert [token.id for token in of(list(core.generate(PROMPT, max_tokens=6)), Token)] == expected


def test_numbers_that_are_none_end_the_request_and_say_where(walk: MakeWalk) -> None:
    broken = load("tiny")
    broken.model.lm_head.weight = mx.full(broken.model.lm_head.weight.shape, float("nan"))
    events = list(walk(broken).generate(PROMPT, max_tokens=4))
    finished = of(events, RequestFinished)[0]
    assert finished.reason == "error"
    assert "nan" in (finished.detail or "")
    assert not of(events, Token)


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": [9999]}, "prompt"),
        ({"prompt": "x" * 5000}, "prompt"),
        ({"prompt": "x", "max_tokens": 4096}, "max_tokens"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "x", "stop": ("",)}, "stop"),
        ({"prompt": "x", "sampling": SamplingParams(logit_bias={70_000: 1})}, "logit_bias"),
        ({"prompt": "x", "capture": "everything"}, "tokenwalk.capture.level"),
        ({"prompt": "x", "capture": {"layers": [4]}}, "tokenwalk.capture.layers"),
        ({"prompt": "x", "capture": {"max_bytes": 100}}, "tokenwalk.capture.max_bytes"),
    ],
)
def test_a_wrong_request_is_refused_by_name(walk: MakeWalk, arguments: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        list(walk().generate(**arguments))
    assert caught.value.param == param


def test_a_row_of_events_is_numbered_and_timed_in_order(walk: MakeWalk) -> None:
    events = list(walk().generate(PROMPT, max_tokens=3))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.t_ns for event in events] == sorted(event.t_ns for event in events)
    assert events[0].kind == "run.header"


def test_an_interruption_waits_for_the_thread_that_looks_at_the_step_before(
    walk: MakeWalk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would go on beside the cancellation that follows, and a request could end twice."""
    order: list[str] = []
    cancelling = threading.Event()
    looked_at, cancel, start = EngineCore._look_at, EngineCore.cancel, Step.start

    def look_late(core: EngineCore, step: Step) -> None:
        if order:
            cancelling.wait(0.2)
        looked_at(core, step)
        order.append("looked")

    def cancelled(core: EngineCore, sequence: Sequence) -> None:
        cancelling.set()
        if not sequence.finished:  # asked again, it does nothing
            order.append("cancelled")
        cancel(core, sequence)

    def interrupted(step: Step, beside: Executor) -> None:
        if step.number == 4:
            monkeypatch.setattr(Step, "start", start)
            raise KeyboardInterrupt
        start(step, beside)

    monkeypatch.setattr("engine.core.works_while_submitting", lambda: True)
    monkeypatch.setattr(EngineCore, "_look_at", look_late)
    monkeypatch.setattr(EngineCore, "cancel", cancelled)
    monkeypatch.setattr(Step, "start", interrupted)
    made = walk()
    events: list[Event] = []
    with pytest.raises(KeyboardInterrupt):
        events.extend(made.generate(PROMPT, max_tokens=12, capture="light"))
    assert order == ["looked", "looked", "looked", "cancelled"]
    monkeypatch.undo()
    again = list(made.generate(PROMPT, max_tokens=4))
    assert [event.reason for event in of(again, RequestFinished)] == ["cancelled", "length"]
