"""The bus: one order, one encoding, no listener that can harm another."""

from __future__ import annotations

import json
import logging
import threading

import numpy as np
import pytest

from engine.bus import EventBus
from engine.codec import Frame
from engine.events import AttentionOut, SlotAssigned, StepFinished


def event() -> SlotAssigned:
    return SlotAssigned(slot=0, request="r")


def test_events_of_many_threads_arrive_in_one_strictly_increasing_order() -> None:
    bus, frames = EventBus(), []
    bus.subscribe(frames.append)
    threads = [threading.Thread(target=lambda: [bus.emit(event()) for _ in range(200)]) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bus.close()
    assert [frame.seq for frame in frames] == list(range(1, 1001))
    times = [frame.t_ns for frame in frames]
    assert times == sorted(times)


def test_a_steps_arrays_come_with_its_end_and_to_whoever_asks_before() -> None:
    bus, frames = EventBus(), []
    bus.subscribe(frames.append)

    def array() -> AttentionOut:
        return AttentionOut(request="r", step=1, position=0, source_dtype="f32", data=np.zeros((2, 3), np.float32))

    for _ in range(3):
        for _ in range(50):
            bus.emit(array())
        bus.flush()
        assert [frame.seq for frame in frames] == list(range(1, bus.last_seq + 1))
    seen = threading.Event()
    bus.subscribe(lambda frame: seen.set() if frame.kind == "step.finished" else None)
    for _ in range(50):
        bus.emit(array())
    bus.emit(StepFinished(step=1, build_ns=0, eval_ns=0, wait_ns=0))
    assert seen.wait(10)
    assert len(frames) == 201
    last = threading.Event()
    bus.subscribe(lambda frame: last.set() if frame.seq == 251 else None)
    for _ in range(50):
        bus.emit(array())
    assert last.wait(10), "what nothing follows is delivered, too"
    for seq in range(252, 262):  # each right after the one before, for which the publisher was woken
        came = threading.Event()
        leave = bus.subscribe(lambda frame, seq=seq, came=came: came.set() if frame.seq == seq else None)  # type: ignore[misc]
        bus.emit(event())
        assert came.wait(10), "and so is an event soon after another"
        leave()
    bus.close()


def test_all_listeners_get_the_same_frame() -> None:
    bus = EventBus()
    one: list[Frame] = []
    other: list[Frame] = []
    bus.subscribe(one.append)
    bus.subscribe(other.append)
    bus.emit(event())
    bus.close()
    assert one[0] is other[0]


def test_a_listener_that_fails_reaches_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    bus, frames = EventBus(), []

    def broken(frame: Frame) -> None:
        raise RuntimeError("no")

    bus.subscribe(broken)
    bus.subscribe(frames.append)
    with caplog.at_level(logging.ERROR):
        bus.emit(event())
        bus.emit(event())
        bus.close()
    assert len(frames) == 2
    assert "a listener failed on slot.assigned event 1" in caplog.text


def test_after_unsubscribing_nothing_comes() -> None:
    bus, frames = EventBus(), []
    unsubscribe = bus.subscribe(frames.append)
    bus.emit(event())
    bus.flush()
    unsubscribe()
    bus.emit(event())
    bus.close()
    assert len(frames) == 1


def test_an_event_that_cannot_be_written_is_a_gap_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """One value too large, or half a surrogate pair from a caller, must not end the stream for everybody."""
    bus, frames = EventBus(), []
    bus.subscribe(frames.append)
    with caplog.at_level(logging.ERROR):
        bus.emit(event())
        bus.emit(SlotAssigned(slot=2**64, request="r"))
        bus.emit(SlotAssigned(slot=0, request="\ud800"))
        bus.emit(event())
        bus.flush()
        bus.close()
    assert [(frame.kind, frame.seq) for frame in frames] == [
        ("slot.assigned", 1),
        ("gap", 2),
        ("gap", 3),
        ("slot.assigned", 4),
    ]
    gap = json.loads(frames[1].payload)
    assert (gap["from_seq"], gap["to_seq"], gap["reason"]) == (2, 2, "not_encodable")
    assert "slot.assigned event 2 cannot be encoded" in caplog.text
