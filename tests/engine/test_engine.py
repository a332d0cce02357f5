"""The engine thread: queue, cancellation, and a death that everybody hears of."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from typing import Any

import jinja2
import pytest

from engine.bus import EventBus
from engine.codec import Frame
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.engine import Engine
from engine.errors import EngineStopped, ModelError, ModelNotFound, QueueFull, RequestError
from engine.events import RequestFinished, Token
from engine.models import load
from engine.request import GenerationRequest, SamplingParams

Outputs = queue.SimpleQueue


@pytest.fixture
def engine() -> Iterator[Engine]:
    bus = EventBus()
    engine = Engine(lambda: load("tiny"), EngineConfig(slots=1, max_queue=2, kv_memory=2**22), bus)
    engine.start()
    yield engine
    engine.stop()
    bus.close()


def long(max_tokens: int = 2000) -> GenerationRequest:
    return GenerationRequest(
        prompt="hello", max_tokens=max_tokens, sampling=SamplingParams(temperature=0, logit_bias={256: -100, 258: -100})
    )


def end(outputs: Outputs[Token | RequestFinished]) -> RequestFinished:
    """The last thing delivered."""
    while True:
        event = outputs.get(timeout=30)
        if isinstance(event, RequestFinished):
            return event


def test_a_request_delivers_its_tokens_and_then_its_end(engine: Engine) -> None:
    outputs: Outputs[Token | RequestFinished] = queue.SimpleQueue()
    engine.submit(long(3), outputs.put)
    kinds = [outputs.get(timeout=30).kind for _ in range(4)]
    assert kinds == ["token", "token", "token", "request.finished"]


def test_running_and_queued_requests_can_be_cancelled(engine: Engine) -> None:
    running: Outputs[Token | RequestFinished] = queue.SimpleQueue()
    queued: Outputs[Token | RequestFinished] = queue.SimpleQueue()
    first = engine.submit(long(), running.put)
    second = engine.submit(long(), queued.put)
    running.get(timeout=30)
    assert engine.cancel(second)
    assert end(queued).reason == "cancelled"
    assert engine.cancel(first)
    finished = end(running)
    assert finished.reason == "cancelled"
    assert finished.completion_tokens < 2000
    assert not engine.cancel(first)
    assert not engine.cancel("no such request")
    assert [slot["state"] for slot in engine.slots_view()] == ["free"]


def test_requests_that_come_together_start_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the next, as many as there are slots: here so long that a busy machine cannot come between."""
    monkeypatch.setattr("engine.engine.COMPANY_S", 60.0)
    steps: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    bus = EventBus()
    bus.subscribe(lambda frame: steps.put(frame) if frame.kind == "step.started" else None)
    batched = Engine(lambda: load("tiny"), EngineConfig(slots=3, kv_memory=2**22), bus)
    batched.start()
    for _ in range(3):
        batched.submit(long(2), lambda event: None)
    assert len(json.loads(steps.get(timeout=30).payload)["rows"]) == 3
    batched.stop()
    bus.close()


def test_a_compiler_that_fails_is_told_in_a_line() -> None:
    def load_and_compile() -> Any:
        raise RuntimeError(
            '[Compile::eval_cpu] Failed to compile function C: Failed to execute command with return code 1: "g++ x", '
            "the output is: /tmp/x.cpp:1: fatal error: error closing /tmp/x.s: No space left on device\n"
            "compilation terminated.\n"
        )

    bus = EventBus()
    with pytest.raises(ModelError, match=r"with g\+\+ \(.*No space left on device.*TMPDIR") as caught:
        Engine(load_and_compile, EngineConfig(), bus).start()
    assert "\n" not in str(caught.value)
    bus.close()


@pytest.mark.parametrize("reading", ["lens", "attribution"])
def test_those_who_decode_wait_for_one_position_at_a_time(engine: Engine, reading: str) -> None:
    outputs: Outputs[Token | RequestFinished] = queue.SimpleQueue()
    kinds: queue.SimpleQueue[str] = queue.SimpleQueue()
    read = engine.submit(long(20), outputs.put)
    end(outputs)
    running = engine.submit(long(), outputs.put)
    outputs.get(timeout=30)
    engine.bus.subscribe(lambda frame: kinds.put(frame.kind))
    getattr(engine, reading)(read, list(range(20)))
    seen: list[str] = []
    while seen.count(reading) < 20:
        seen.append(kinds.get(timeout=30))
    between = seen[seen.index(reading) :]
    assert between.count("step.finished") >= 18
    engine.cancel(running)


@pytest.mark.parametrize("reading", ["lens", "attribution"])
def test_a_position_that_is_asked_for_early_is_read_once_it_has_run(engine: Engine, reading: str) -> None:
    """A page asks as soon as it knows of a token, which a prompt's are before they run."""
    outputs: Outputs[Token | RequestFinished] = queue.SimpleQueue()
    said: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    engine.bus.subscribe(lambda frame: said.put(frame) if frame.kind in (reading, "absent") else None)
    before = engine.submit(long(), outputs.put)  # has the only slot
    waiting = engine.submit(long(3), outputs.put)
    getattr(engine, reading)(waiting, [2])
    engine.cache_state()
    engine.cancel(before)
    frame = said.get(timeout=30)
    assert (frame.kind, frame.request) == (reading, waiting)


def test_the_last_position_of_a_request_that_ends_before_it_ran_is_absent(engine: Engine) -> None:
    outputs: Outputs[Token | RequestFinished] = queue.SimpleQueue()
    said: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    engine.bus.subscribe(lambda frame: said.put(frame) if frame.kind in ("lens", "absent") else None)
    before = engine.submit(long(), outputs.put)
    waiting = engine.submit(long(3), outputs.put)
    engine.lens(waiting, [2])
    engine.cancel(waiting)
    frame = said.get(timeout=30)
    assert (frame.kind, frame.request) == ("absent", waiting)
    engine.cancel(before)


@pytest.mark.parametrize("reading", ["lens", "attribution"])
def test_a_reading_that_cannot_be_is_told_the_caller_and_nobody_else(engine: Engine, reading: str) -> None:
    read = getattr(engine, reading)
    outputs: Outputs[Token | RequestFinished] = queue.SimpleQueue()
    request = engine.submit(long(3), outputs.put)
    tokens = end(outputs).prompt_tokens + 3
    engine.cache_state()  # what its last step led to has been said by then
    before = engine.bus.last_seq
    with pytest.raises(RequestError, match="this run has no request 'xxx") as caught:
        read("x" * 100_000, [1])
    assert len(str(caught.value)) < 400
    for position in (tokens, 2**31 - 1, -1):
        with pytest.raises(RequestError, match=f"positions holds {position}; {request} has {tokens} tokens"):
            read(request, [0, position])
    assert engine.bus.last_seq == before
    said: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    engine.bus.subscribe(said.put)
    read(request, [1, 1, 1])
    assert said.get(timeout=30).request == request
    for _ in range(2):  # a turn of the engine each, in which another reading would have been made
        engine.cache_state()
    assert engine.bus.last_seq == before + 1


def test_a_request_that_is_remembered_no_more_has_no_readings(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine import remembered as module

    monkeypatch.setattr(module, "REMEMBERED", 1)
    monkeypatch.setattr(module, "KNOWN_OF", 1)
    outputs: Outputs[Token | RequestFinished] = queue.SimpleQueue()
    ids = []
    for _ in range(3):
        ids.append(engine.submit(long(2), outputs.put))
        end(outputs)
    said: list[Frame] = []
    engine.cache_state()
    engine.bus.flush()
    engine.bus.subscribe(said.append)
    engine.lens(ids[1], [1])
    engine.bus.flush()
    assert [(frame.kind, frame.request) for frame in said] == [("absent", ids[1])]
    with pytest.raises(RequestError, match="positions holds 7"):
        engine.lens(ids[1], [7])
    with pytest.raises(RequestError, match="knows of it no more"):
        engine.lens(ids[0], [1])


def test_why_a_request_was_refused_is_told_in_bounds(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def render(messages: list[dict[str, str]]) -> str:
        raise jinja2.TemplateError("no: " + messages[0]["content"])

    monkeypatch.setattr(engine.tokenizer, "_render", render)
    said: list[Frame] = []
    engine.bus.flush()
    engine.bus.subscribe(said.append)
    with pytest.raises(RequestError, match="no: xxx") as caught:
        engine.submit(GenerationRequest(messages=[{"role": "user", "content": "x" * 1_000_000}]), lambda event: None)
    engine.bus.flush()
    assert len(str(caught.value)) < 1200
    assert [frame.kind for frame in said] == ["request.rejected"]
    assert len(said[0].payload) < 1000


def test_a_full_queue_refuses_and_forgets_nothing(engine: Engine) -> None:
    outputs: Outputs[Token | RequestFinished] = queue.SimpleQueue()
    ids = [engine.submit(long(), outputs.put) for _ in range(3)]
    with pytest.raises(QueueFull, match="2 requests wait"):
        engine.submit(long(), outputs.put)
    for request in ids:
        engine.cancel(request)
    assert [end(outputs).reason for _ in ids] == ["cancelled"] * 3


def test_a_wrong_request_is_refused_on_the_callers_thread(engine: Engine) -> None:
    with pytest.raises(RequestError, match="empty"):
        engine.submit(GenerationRequest(prompt=""), lambda event: None)
    assert engine.health().ok


def test_who_watches_hears_of_refused_requests_too(engine: Engine) -> None:
    frames: Outputs[Frame] = queue.SimpleQueue()
    engine.bus.subscribe(frames.put)
    with pytest.raises(RequestError):
        engine.submit(GenerationRequest(prompt="", id="empty"), print)
    for _ in range(3):
        engine.submit(long(), lambda event: None)
    with pytest.raises(QueueFull):
        engine.submit(long(), print)
    engine.bus.flush()
    refused = []
    while not frames.empty():
        frame = frames.get()
        if frame.kind == "request.rejected":
            refused.append(json.loads(frame.payload))
    assert [event["request"] == "empty" for event in refused] == [True, False]
    assert "the prompt is empty" in refused[0]["reason"]
    assert "wait already" in refused[1]["reason"]


def test_stopping_ends_what_runs() -> None:
    bus = EventBus()
    engine = Engine(lambda: load("tiny"), EngineConfig(kv_memory=2**22), bus)
    engine.start()
    outputs: Outputs[Token | RequestFinished] = queue.SimpleQueue()
    engine.submit(long(), outputs.put)
    outputs.get(timeout=30)
    engine.stop()
    bus.close()
    assert end(outputs).reason == "cancelled"
    with pytest.raises(EngineStopped):
        engine.submit(long(), outputs.put)


def test_a_model_that_does_not_load_is_said_to_whoever_starts_the_engine() -> None:
    bus = EventBus()
    engine = Engine(lambda: load("/nowhere/model.gguf"), EngineConfig(kv_memory=2**22), bus)
    with pytest.raises(ModelNotFound, match="nowhere"):
        engine.start()
    bus.close()


def test_when_the_thread_dies_health_says_so_and_every_request_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = EventBus()
    engine = Engine(lambda: load("tiny"), EngineConfig(kv_memory=2**22), bus)
    engine.start()
    died = threading.Event()
    step = EngineCore.step

    def failing(self: EngineCore) -> None:
        if self.steps >= 3:
            died.set()
            raise MemoryError("no memory left")
        step(self)

    monkeypatch.setattr(EngineCore, "step", failing)
    running: Outputs[Token | RequestFinished] = queue.SimpleQueue()
    waiting: Outputs[Token | RequestFinished] = queue.SimpleQueue()
    engine.submit(long(), running.put)
    engine.submit(long(), waiting.put)
    assert died.wait(30)
    for outputs in (running, waiting):
        finished = end(outputs)
        assert finished.reason == "error"
        assert "no memory left" in (finished.detail or "")
    assert not engine.health().ok
    assert "MemoryError" in (engine.health().reason or "")
    with pytest.raises(EngineStopped, match="MemoryError"):
        engine.submit(long(), running.put)
    engine.stop()
    bus.close()
