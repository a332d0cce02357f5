"""What one WebSocket client is to be sent next: pure bookkeeping, no sockets.

A feed is a place in the run (`cursor`) plus what the client asked for. It reads the shared `History`; when the client
is so far behind that the ring has moved on, it is owed a `gap` that says which frames it lacks. Right after `hello` and
`resume`, frames that the ring no longer holds may come from the file that is being recorded instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from backend.history import History
from backend.json import loads
from engine.bus import EventBus
from engine.codec import Frame, encode, parse
from engine.errors import RequestError, shown
from engine.events import KINDS, TENSOR_KINDS, Gap

WINDOW_BYTES = 8 * 2**20
WINDOW_FRAMES = 1000


@dataclass(frozen=True, slots=True)
class Selection:
    """Which frames a client wants. Frames are never rewritten: one that covers several layers comes whole."""

    kinds: frozenset[str] | None = None
    requests: frozenset[str] | None = None
    layers: frozenset[int] | None = None
    tensors: bool = True

    @classmethod
    def parse(cls, command: dict[str, Any]) -> Selection:
        """Read a `subscribe` command: lists (null for all) and, as `capture`, whether tensor frames are wanted.

        Raises:
            RequestError: naming the field.
        """
        kinds = _listed(command, "kinds", str)
        unknown = sorted((kinds or frozenset()) - KINDS.keys())
        if unknown:
            raise RequestError(f"kinds holds {shown(unknown[0])}; known are {', '.join(KINDS)}", param="kinds")
        capture = command.get("capture")
        if capture is not None and not isinstance(capture, bool):
            raise RequestError(f"capture is {shown(capture)}; expected true or false", param="capture")
        return cls(kinds, _listed(command, "requests", str), _listed(command, "layers", int), capture is not False)

    def admits(self, frame: Frame) -> bool:
        """Whether the client wants this frame."""
        if self.kinds is not None and frame.kind not in self.kinds:
            return False
        if self.requests is not None and frame.request is not None and frame.request not in self.requests:
            return False
        if not self.tensors and frame.kind in TENSOR_KINDS:
            return False
        return self.layers is None or _layer(frame) is None or _layer(frame) in self.layers


def _layer(frame: Frame) -> int | None:
    """The one layer that a frame is about; None when it is about several or none."""
    if frame.kind not in ("attention", "attention.summary", "kernel"):
        return None
    header, data = parse(frame.payload, binary=frame.binary)
    if data is not None and data.shape[0] != 1:
        return None
    layers = header.get("layers")  # of a summary, which has no first layer
    layer: int | None = layers[0] if layers else header.get("layer")
    return layer


def _listed(command: dict[str, Any], name: str, of: type) -> frozenset[Any] | None:
    value = command.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or any(type(item) is not of for item in value):
        raise RequestError(f"{name} is {shown(value)}; expected a list of {of.__name__}, or null for all", param=name)
    return frozenset(value)


@dataclass(frozen=True, slots=True)
class Missing:
    """The ring no longer holds these frames, but the recorded file may: read them and call `Feed.backfill`."""

    from_seq: int
    to_seq: int


class Feed:
    """One client's place in the run.

    Args:
        bus: the run.
        history: its newest frames.
        recorded: whether frames older than the ring can be read from a file.
        dropped: called with the number of frames that a gap stands for.
    """

    def __init__(
        self, bus: EventBus, history: History, *, recorded: bool, dropped: Callable[[int], None] = lambda count: None
    ) -> None:
        self._bus = bus
        self._history = history
        self._recorded = recorded
        self._dropped = dropped
        self._selection = Selection()
        self._started = False
        self._header_due = False
        self._paused = False
        self._was_paused = False
        self._fresh = False  # still owed what was missed before hello or resume
        self._cursor = 0
        self._backlog: deque[Frame] = deque()
        self._acking = False
        self._in_flight: deque[tuple[int, int]] = deque()  # seq, bytes
        self._in_flight_bytes = 0

    def command(self, command: dict[str, Any]) -> None:
        """Obey one command.

        Raises:
            RequestError: when it is not one, or a field is wrong.
        """
        name = command_name(command)
        match name:
            case "hello":
                self._hello(command.get("last_seq", -1), command.get("epoch"))
            case "subscribe":
                self._selection = Selection.parse(command)
            case "ack":
                self._ack(command.get("seq"))
            case "pause":
                self._paused = self._was_paused = True
            case "resume":
                self._paused, self._fresh = False, True
            case _:
                raise RequestError(
                    f"the command is {shown(name)}; expected hello, subscribe, ack, pause, resume, lens, attribution "
                    "or time",
                    param="kind",
                )

    def next(self) -> Frame | Missing | None:
        """What to send now, or None until something changes: a new frame, or a command."""
        if not self._started or self._bus.header is None:
            return None
        if self._header_due:  # the answer to hello, which a client waits for even when it wants no more for now
            self._header_due = False
            self._cursor = max(self._cursor, self._bus.header.seq)  # it is the first event of every run
            return self._sent(self._bus.header)
        if self._paused or self._window_full():
            return None
        while True:
            found = self._take()
            if not isinstance(found, Frame):
                return found
            self._cursor = found.seq
            if found.kind == "gap" or self._selection.admits(found):
                return self._sent(found)

    @property
    def has_backlog(self) -> bool:
        """Whether frames that were read from the file still wait to be sent."""
        return bool(self._backlog)

    def backfill(self, frames: Iterable[Frame]) -> None:
        """Take frames read from the file. None at all means that the file lacks them too."""
        self._backlog.extend(frame for frame in frames if frame.seq > self._cursor)
        if not self._backlog:
            self._recorded = False

    def _take(self) -> Frame | Missing | None:
        """The next frame of the run for this client, or the gap in its place."""
        if self._backlog:
            return self._backlog.popleft()
        wanted = self._cursor + 1
        frame = self._history.get(wanted)
        if frame is not None:
            self._fresh = self._was_paused = False
            return frame
        oldest = self._history.oldest
        if wanted >= oldest:
            self._fresh = self._was_paused = False  # up to date: from here on, what it misses it was too slow for
            return None
        if self._fresh and self._recorded:
            return Missing(wanted, oldest - 1)
        return self._gap(wanted)

    def _gap(self, wanted: int) -> Frame:
        if self._was_paused:
            reason, goes_on = "paused", self._history.oldest
        elif self._fresh:
            reason, goes_on = "not_kept", self._history.oldest
        else:
            # Going on at the very end of the ring would lose the next frames too: a gap after every frame.
            reason, goes_on = "slow_client", self._history.newer_half()
        self._dropped(goes_on - wanted)
        return gap_frame(wanted, goes_on - 1, reason, self._bus.now_ns())

    def _hello(self, last_seq: object, epoch: object) -> None:
        if self._started:
            raise RequestError("hello was already said on this connection", param="kind")
        if last_seq is not None and type(last_seq) is not int:
            raise RequestError(f"last_seq is {shown(last_seq)}; expected an integer, or null for now", param="last_seq")
        if epoch is not None and not isinstance(epoch, str):
            raise RequestError(f"epoch is {shown(epoch)}; expected a string or null", param="epoch")
        if last_seq is None:
            self._cursor = self._history.newest
        elif epoch not in (None, self._bus.epoch):
            self._cursor = 0  # it knows another run
        else:
            self._cursor = min(max(last_seq, 0), self._history.newest)
        self._started = self._header_due = self._fresh = True

    def _ack(self, seq: object) -> None:
        if type(seq) is not int:
            raise RequestError(f"seq is {shown(seq)}; expected the seq of a frame", param="seq")
        self._acking = True
        while self._in_flight and self._in_flight[0][0] <= seq:
            self._in_flight_bytes -= self._in_flight.popleft()[1]

    def _window_full(self) -> bool:
        """A client that acknowledges is never sent more than it can be working on."""
        return self._acking and (len(self._in_flight) >= WINDOW_FRAMES or self._in_flight_bytes >= WINDOW_BYTES)

    def _sent(self, frame: Frame) -> Frame:
        self._in_flight.append((frame.seq, frame.size))
        self._in_flight_bytes += frame.size
        # Without acks this is only a record of the newest, so that the first ack finds something to count from.
        while not self._acking and len(self._in_flight) > WINDOW_FRAMES:
            self._in_flight_bytes -= self._in_flight.popleft()[1]
        return frame


def gap_frame(from_seq: int, to_seq: int, reason: str, now_ns: int) -> Frame:
    """The frame that says what is missing. It is made for one reader and is no part of the run."""
    return encode(Gap(seq=to_seq, t_ns=now_ns, from_seq=from_seq, to_seq=to_seq, reason=reason))


COMMAND_KEYS = ("kind", "type", "command")
"""Under which of these a client names its command."""


def command_name(command: dict[str, Any]) -> str:
    """The command's name, under any of the keys that clients use."""
    for key in COMMAND_KEYS:
        if isinstance(name := command.get(key), str):
            return name
    raise RequestError('the command has no kind, a text; expected {"kind": "hello", …}', param="kind")


def parse_command(text: str) -> dict[str, Any]:
    """Read a client's message.

    Raises:
        RequestError: when it is not a JSON object.
    """
    try:
        value = loads(text)
    except ValueError as error:
        raise RequestError(f"the message is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RequestError('the message is not a JSON object; expected {"kind": "hello", …}')
    return value
