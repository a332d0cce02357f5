"""The one encoding of events, for the WebSocket, the trace file and the frames route.

A plain event is UTF-8 JSON. A tensor event is binary::

    u32 little-endian   length of the header
    header              JSON: the event plus dtype, shape, byte_length
    padding             zero bytes up to a multiple of 8 from the frame's start
    data                the array, C order, little-endian

A float that JSON cannot write becomes ``{"$float": "NaN"}``, ``"Infinity"`` or ``"-Infinity"``, which both decoders
turn back into the number: a probability of zero has a logarithm of −infinity and must survive the journey. (Not a
bare string: a token's text may well be "NaN".)
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import numpy as np
import orjson

from engine.apart import Apart
from engine.errors import TraceError, shown
from engine.events import KINDS, Event, TensorEvent

DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "u8": np.dtype("u1"),
    "i32": np.dtype("<i4"),
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NON_FINITE_NAMES = list(_NON_FINITE)  # a list, so that asking for what cannot be hashed is no error


_NAMES = {kind: tuple(field.name for field in dataclasses.fields(cls)) for kind, cls in KINDS.items()}
_VALUES = {kind: operator.attrgetter(*names) for kind, names in _NAMES.items()}


Part: TypeAlias = bytes | memoryview | np.ndarray
"""Bytes of a frame; an array of them, `[rows, bytes]`, where the rows lie apart in memory."""


@dataclass(slots=True, frozen=True, eq=False)
class Frame:
    """One encoded event and the few fields by which frames are routed, so that nobody decodes it to forward it.

    A tensor's frame holds the event's own array until somebody needs it in one piece. The recorder does not, and an
    array copied once less is a decode step slowed down less. Frames are equal when their fields and bytes are.
    """

    kind: str
    seq: int
    t_ns: int
    request: str | None
    step: int | None
    position: int | None
    parts: tuple[Part, ...]
    """The encoded event, one part after the other."""
    binary: bool
    size: int = field(init=False)
    """Bytes of the payload."""

    def __post_init__(self) -> None:
        size = 0
        for part in self.parts:
            size += part.nbytes if isinstance(part, np.ndarray) else len(part)
        object.__setattr__(self, "size", size)

    @property
    def payload(self) -> bytes:
        """The encoded event: binary framing when `binary`, UTF-8 JSON otherwise."""
        whole, *more = self.parts
        if more or not isinstance(whole, bytes):
            whole = joined(self.parts)
            object.__setattr__(self, "parts", (whole,))  # for whoever asks next, and the array is let go of
        return whole

    def _all(self) -> tuple[object, ...]:
        about = (self.kind, self.seq, self.t_ns, self.request, self.step, self.position, self.binary)
        return (*about, self.payload)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash((self.kind, self.seq))


def joined(parts: Iterable[Part]) -> bytes:
    """Parts as one."""
    return b"".join([part.tobytes() if isinstance(part, np.ndarray) else part for part in parts])


def encode(event: Event) -> Frame:
    """Encode an event.

    Raises:
        TypeError: for an array of a dtype that frames cannot carry.
    """
    kind = event.kind
    header: dict[str, Any] = {"kind": kind}
    header.update(zip(_NAMES[kind], _VALUES[kind](event), strict=True))
    parts: tuple[Part, ...] = _encode_tensor(header) if isinstance(event, TensorEvent) else (_dumps(header),)
    return Frame(
        kind=kind,
        seq=event.seq,
        t_ns=event.t_ns,
        request=header.get("request"),
        step=header.get("step"),
        position=header.get("position"),
        parts=parts,
        binary=isinstance(event, TensorEvent),
    )


def _encode_tensor(header: dict[str, Any]) -> tuple[Part, ...]:
    data = header.pop("data")
    array = data if isinstance(data, Apart) else np.asarray(data, order="C")
    name = DTYPE_NAMES.get(array.dtype)
    if name is None:
        raise TypeError(f"a frame cannot carry dtype {array.dtype}; expected one of {', '.join(DTYPES)}")
    header |= {"dtype": name, "shape": list(array.shape), "byte_length": array.nbytes}
    head = _dumps(header)
    padding = bytes(-(4 + len(head)) % 8)
    opening = b"".join((struct.pack("<I", len(head)), head, padding))
    if not array.size:
        return (opening,)
    if isinstance(array, Apart):
        return (opening, *map(_as_bytes, array.parts))
    return opening, array.data.cast("B")


def _as_bytes(array: np.ndarray) -> Part:
    if array.flags.c_contiguous:
        return array.data.cast("B")
    return array.view(np.uint8).reshape(-1, array.shape[-1] * array.itemsize)


def parse(payload: bytes, *, binary: bool) -> tuple[dict[str, Any], np.ndarray | None]:
    """Split a frame into its JSON fields and its array (a read-only view of `payload`; None for a plain event).

    Unknown kinds and fields are kept as they are: a newer writer's trace stays readable.

    Raises:
        TraceError: when the frame is not what the format says.
    """
    try:
        if not binary:
            return _loads(payload), None
        (length,) = struct.unpack_from("<I", payload)
        header = _loads(payload[4 : 4 + length])
        dtype, shape = DTYPES[header.pop("dtype")], tuple(header.pop("shape"))
        if not all(isinstance(n, int) and n >= 0 for n in shape):  # a string would be multiplied, and fill the memory
            raise ValueError(f"{shape!r:.40} is not the shape of an array")
        start = 4 + length + (-(4 + length) % 8)
        count = math.prod(shape)
        if header.pop("byte_length") != count * dtype.itemsize or len(payload) - start != count * dtype.itemsize:
            raise ValueError(f"{len(payload) - start} bytes of data for shape {list(shape)} of {dtype}")
        return header, np.frombuffer(payload, dtype, count, start).reshape(shape)
    except (
        orjson.JSONDecodeError,
        struct.error,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise TraceError(f"a frame of {len(payload)} bytes is not in the format: {error}") from error


def decode(payload: bytes, *, binary: bool) -> Event:
    """Decode a frame into its event.

    Fields that this version does not know are dropped.

    Raises:
        TraceError: for a damaged frame, an unknown kind, or one that lacks a field.
    """
    header, array = parse(payload, binary=binary)
    kind = header.pop("kind", None)
    cls = KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise TraceError(f"unknown kind of event {kind!r}; this version knows {', '.join(KINDS)}")
    known = {f.name for f in dataclasses.fields(cls)}
    values = {name: value for name, value in header.items() if name in known}
    if array is not None:
        values["data"] = array
    try:
        return cls(**values)
    except TypeError as error:
        raise TraceError(f"a {kind} event lacks a field: {error}") from error


def misfit(fields: dict[str, Any]) -> str | None:
    """What is wrong with the outermost types of an event's fields, in words; None when nothing is.

    Files come from anywhere. What reads a field as a dict or prints it as a text may do so after this. Fields that are
    missing or null, and those of a newer version, are no misfits.
    """
    for name, hint in _hints(fields.get("kind")).items():
        value = fields.get(name)
        if value is not None and not _fits(value, hint):
            return f"{name} is {shown(value)}; expected {getattr(hint, '__name__', hint)}"
    return None


@functools.cache
def _hints(kind: str) -> dict[str, Any]:
    cls = KINDS.get(kind)
    hints = {} if cls is None else get_type_hints(cls)
    return {} if cls is None else {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.name != "data"}


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if origin is Literal or hint is str:  # a newer version may know further words
        return isinstance(value, str)
    if hint is Any:
        return True
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def _dumps(fields: dict[str, Any]) -> bytes:
    """JSON with non-finite floats spelled out. orjson writes those as null, which would lose them."""
    text = orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)
    nulls = text.count(b"null")
    if not nulls or nulls == sum(value is None for value in fields.values()) or nulls == _nones(fields, nulls):
        return text
    return orjson.dumps(_spell_out(fields), option=orjson.OPT_SERIALIZE_NUMPY)


def _loads(text: bytes) -> dict[str, Any]:
    value = orjson.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, found {type(value).__name__}")
    restored: dict[str, Any] = _restore(value) if b'"$float"' in text else value
    return restored


def _nones(value: Any, most: int) -> int:
    """How many None are in it, as far as that many. From its end: how a token was chosen stands last, and has some."""
    found = 0
    for inner in reversed(value.values() if isinstance(value, dict) else value):
        if inner is None:
            found += 1
        elif isinstance(inner, (dict, list, tuple)):
            found += _nones(inner, most - found)
        if found == most:
            break
    return found


def _spell_out(value: Any) -> Any:
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isfinite(number):
            return number
        return {"$float": "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"}
    if isinstance(value, dict):
        return {key: _spell_out(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _spell_out(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_spell_out(item) for item in value]
    return value


def _restore(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) == 1 and value.get("$float") in _NON_FINITE_NAMES:
            return _NON_FINITE[value["$float"]]
        return {key: _restore(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restore(item) for item in value]
    return value
