"""What a client is sent next, without sockets: places, gaps, acknowledgements, pauses and filters."""

from typing import Any

import numpy as np
import pytest

from backend import feed as feed_module
from backend.feed import Feed, Missing
from backend.history import History
from engine.bus import EventBus
from engine.codec import Frame, encode, parse
from engine.errors import RequestError
from engine.events import Attention, AttentionSummary, Kernel, RunHeader, SlotAssigned


class Run:
    """A bus whose frames land in a history of 10 kB, as the hub does it."""

    def __init__(self, limit_bytes: int = 10_000) -> None:
        self.bus = EventBus()
        self.history = History(limit_bytes)
        self.bus.subscribe(self.history.append)
        self.dropped: list[int] = []
        self.bus.emit(
            RunHeader(
                epoch=self.bus.epoch,
                engine_version="",
                model={},
                tokenizer={},
                machine={},
                kv={},
                slots=1,
                started_at="",
            )
        )
        self.bus.flush()

    def events(self, count: int, request: str = "r", padding: int = 0) -> None:
        for _ in range(count):
            self.bus.emit(SlotAssigned(slot=0, request=request + " " * padding))
        self.bus.flush()

    def feed(self, *, recorded: bool = False, **hello: Any) -> Feed:
        feed = Feed(self.bus, self.history, recorded=recorded, dropped=self.dropped.append)
        feed.command({"kind": "hello", **hello})
        return feed


def drain(feed: Feed) -> list[Frame]:
    frames = []
    while (item := feed.next()) is not None:
        assert isinstance(item, Frame)
        frames.append(item)
    return frames


def seqs(feed: Feed) -> list[int]:
    return [frame.seq for frame in drain(feed)]


def gap_of(frame: Frame) -> tuple[int, int, str]:
    assert frame.kind == "gap"
    fields, _ = parse(frame.payload, binary=False)
    assert frame.seq == fields["to_seq"]
    return fields["from_seq"], fields["to_seq"], fields["reason"]


def test_nothing_is_sent_before_hello() -> None:
    run = Run()
    assert Feed(run.bus, run.history, recorded=False).next() is None


def test_hello_is_answered_by_the_header_and_all_that_was_missed() -> None:
    run = Run()
    run.events(3)
    frames = drain(run.feed())
    assert frames[0] is run.bus.header
    assert [frame.seq for frame in frames] == [1, 2, 3, 4]


def test_hello_goes_on_after_the_last_seq_of_the_same_run() -> None:
    run = Run()
    run.events(3)
    assert seqs(run.feed(last_seq=3, epoch=run.bus.epoch)) == [1, 4]
    assert seqs(run.feed(last_seq=3)) == [1, 4]
    assert seqs(run.feed(last_seq=99, epoch=run.bus.epoch)) == [1]


def test_hello_of_another_run_starts_from_the_beginning() -> None:
    run = Run()
    run.events(2)
    assert seqs(run.feed(last_seq=3, epoch="another")) == [1, 2, 3]


def test_hello_with_null_starts_now() -> None:
    run = Run()
    run.events(2)
    feed = run.feed(last_seq=None)
    assert seqs(feed) == [1]
    run.events(1)
    assert seqs(feed) == [4]


def test_hello_before_the_header_waits_for_it() -> None:
    bus, history = EventBus(), History()
    feed = Feed(bus, history, recorded=False)
    feed.command({"kind": "hello"})
    assert feed.next() is None


def test_what_memory_no_longer_holds_is_one_gap_at_hello() -> None:
    run = Run(limit_bytes=1_000)
    run.events(100)
    frames = drain(run.feed())
    assert gap_of(frames[1]) == (2, run.history.oldest - 1, "not_kept")
    assert [frame.seq for frame in frames[2:]] == list(range(run.history.oldest, 102))
    assert run.dropped == [run.history.oldest - 2]


def test_what_memory_no_longer_holds_is_read_from_the_recording() -> None:
    run = Run(limit_bytes=1_000)
    kept: list[Frame] = []
    run.bus.subscribe(kept.append)
    run.events(100)
    feed = run.feed(recorded=True)
    assert feed.next() is run.bus.header
    missing = feed.next()
    assert missing == Missing(2, run.history.oldest - 1)
    feed.backfill(kept[: missing.to_seq - 1])
    assert seqs(feed) == list(range(2, 102))
    assert run.dropped == []


def test_a_recording_that_lacks_them_too_leaves_a_gap() -> None:
    run = Run(limit_bytes=1_000)
    run.events(100)
    feed = run.feed(recorded=True)
    assert feed.next() is run.bus.header
    assert isinstance(feed.next(), Missing)
    feed.backfill([])
    assert gap_of(drain(feed)[0])[2] == "not_kept"


def test_a_slow_client_gets_one_gap_and_room_to_breathe() -> None:
    run = Run(limit_bytes=10_000)
    feed = run.feed()
    drain(feed)
    run.events(1000)
    frames = drain(feed)
    start, end, reason = gap_of(frames[0])
    assert (start, reason) == (2, "slow_client")
    assert end > run.history.oldest + 10  # it does not go on where the next frame would push it out again
    assert [frame.seq for frame in frames[1:]] == list(range(end + 1, 1002))
    assert run.dropped == [end - 1]


def test_what_was_sent_during_a_pause_follows_or_is_a_gap() -> None:
    run = Run(limit_bytes=2_000)
    feed = run.feed()
    drain(feed)
    feed.command({"kind": "pause"})
    run.events(2)
    assert feed.next() is None
    feed.command({"kind": "resume"})
    assert seqs(feed) == [2, 3]
    feed.command({"kind": "pause"})
    run.events(200)
    feed.command({"kind": "resume"})
    assert gap_of(drain(feed)[0]) == (4, run.history.oldest - 1, "paused")


def test_a_client_that_acknowledges_is_never_sent_more_than_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "WINDOW_FRAMES", 5)
    run = Run()
    feed = run.feed()
    assert seqs(feed) == [1]
    feed.command({"kind": "ack", "seq": 1})
    run.events(20)
    assert seqs(feed) == [2, 3, 4, 5, 6]
    feed.command({"kind": "ack", "seq": 4})
    assert seqs(feed) == [7, 8, 9]
    feed.command({"kind": "ack", "seq": 9})
    assert seqs(feed) == [10, 11, 12, 13, 14]


def test_the_window_counts_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "WINDOW_BYTES", 2_000)
    run = Run()
    feed = run.feed()
    drain(feed)
    feed.command({"kind": "ack", "seq": 1})
    run.events(10, padding=900)
    assert seqs(feed) == [2, 3, 4]  # the third one crosses the line
    feed.command({"kind": "ack", "seq": 2})
    assert seqs(feed) == [5]


def test_a_selection_leaves_frames_out_without_calling_them_missing() -> None:
    run = Run()
    run.events(1, "a")
    run.events(1, "b")
    run.bus.emit(Kernel(step=1, layer=4, operation="norm", start_ns=0, duration_ns=1, timing="barriers"))
    run.bus.emit(Kernel(step=1, layer=5, operation="norm", start_ns=0, duration_ns=1, timing="barriers"))
    whole = np.zeros((2, 1, 3), np.float32)
    run.bus.emit(Attention(request="a", step=1, position=2, data=whole, source_dtype="f32"))
    run.bus.flush()

    def selected(**selection: Any) -> list[int]:
        feed = Feed(run.bus, run.history, recorded=False)
        feed.command({"kind": "subscribe", **selection})
        feed.command({"kind": "hello"})
        return seqs(feed)[1:]  # the header always comes

    assert selected() == [2, 3, 4, 5, 6]
    assert selected(kinds=["kernel"]) == [4, 5]
    assert selected(requests=["b"]) == [3, 4, 5]  # a step's kernels belong to nobody
    assert selected(capture=False) == [2, 3, 4, 5]
    assert selected(layers=[5]) == [2, 3, 5, 6]  # attention of several layers comes whole
    assert selected(kinds=["attention"], layers=[5]) == [6]


def test_a_layer_of_a_timed_step_is_one_layers() -> None:
    run = Run()
    about: dict[str, Any] = {"request": "a", "step": 1, "position": 2, "source_dtype": "f32"}
    for layer in (4, 5):
        run.bus.emit(Attention(**about, layer=layer, data=np.zeros((1, 1, 3), np.float32)))
    for layer in (4, 5):
        more: dict[str, Any] = {"layers": [layer], "heads": [0], "keys": 3, "kept": 1, "mass": 1.0, "least_mass": 1.0}
        run.bus.emit(AttentionSummary(**about, **more, data=np.zeros((1, 1, 4), np.float32)))
    run.bus.flush()
    feed = Feed(run.bus, run.history, recorded=False)
    feed.command({"kind": "subscribe", "layers": [5]})
    feed.command({"kind": "hello"})
    assert seqs(feed)[1:] == [3, 5]


@pytest.mark.parametrize(
    ("command", "param"),
    [
        ({}, "kind"),
        ({"kind": "dance"}, "kind"),
        ({"kind": "hello", "last_seq": "x"}, "last_seq"),
        ({"kind": "hello", "last_seq": True}, "last_seq"),
        ({"kind": "hello", "epoch": 5}, "epoch"),
        ({"kind": "subscribe", "kinds": "token"}, "kinds"),
        ({"kind": "subscribe", "kinds": ["tokens"]}, "kinds"),
        ({"kind": "subscribe", "layers": ["0"]}, "layers"),
        ({"kind": "subscribe", "capture": "light"}, "capture"),
        ({"kind": "ack"}, "seq"),
    ],
)
def test_a_wrong_command_names_its_field(command: dict[str, Any], param: str) -> None:
    run = Run()
    with pytest.raises(RequestError) as caught:
        Feed(run.bus, run.history, recorded=False).command(command)
    assert caught.value.param == param


def test_hello_can_be_said_once() -> None:
    run = Run()
    feed = run.feed()
    with pytest.raises(RequestError, match="already"):
        feed.command({"kind": "hello"})


def test_the_history_keeps_the_newest_frames_within_its_bytes() -> None:
    history = History(limit_bytes=1_000)
    frames = []
    for seq in range(1, 50):
        event = SlotAssigned(slot=0, request="r" * 50)
        event.seq = seq
        frames.append(encode(event))
        history.append(frames[-1])
    kept = [frame for frame in frames if history.get(frame.seq) is not None]
    assert kept == frames[history.oldest - 1 :]
    assert (
        sum(len(frame.payload) for frame in kept) <= 1_000 < sum(len(f.payload) for f in frames[history.oldest - 2 :])
    )
    assert history.oldest < history.newer_half() < history.newest == 49


def test_the_history_keeps_the_newest_frame_however_large() -> None:
    history = History(limit_bytes=10)
    for seq in (1, 2):
        event = SlotAssigned(slot=0, request="r" * 50)
        event.seq = seq
        history.append(encode(event))
    assert (history.oldest, history.newest) == (2, 2)
