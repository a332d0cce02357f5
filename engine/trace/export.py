"""Events as lines of text: JSON for programs, one short line for people."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import orjson

from engine.codec import Frame, parse

_ROUTING = frozenset({"kind", "seq", "t_ns", "request", "step", "position"})
_WIDE = 48


def json_line(frame: Frame, *, data: bool = False) -> bytes:
    """The event as one line of JSON, without a newline. A tensor's `data` becomes nested lists, if asked for.

    Raises:
        TraceError: when the frame is damaged.
    """
    if not frame.binary:
        return frame.payload if b"\n" not in frame.payload else orjson.dumps(orjson.loads(frame.payload))
    (length,) = struct.unpack_from("<I", frame.payload)
    header = frame.payload[4 : 4 + length]
    if not data:
        return header
    _, array = parse(frame.payload, binary=True)
    assert array is not None
    return orjson.dumps({**orjson.loads(header), "data": _numbers(array)})


def text_line(frame: Frame) -> str:
    """The event as one line for people: seq, milliseconds, kind, what it belongs to, and its fields in short.

    Raises:
        TraceError: when the frame is damaged.
    """
    fields, array = parse(frame.payload, binary=frame.binary)
    belongs = [frame.request or ""]
    belongs += [f"step {frame.step}"] if frame.step is not None else []
    belongs += [f"at {frame.position}"] if frame.position is not None else []
    rest = [f"{name}={_short(value)}" for name, value in fields.items() if name not in _ROUTING and value is not None]
    if array is not None:
        rest.insert(0, f"{array.dtype}[{'×'.join(map(str, array.shape))}]")
    return f"{frame.seq:>7} {frame.t_ns / 1e6:>11.3f} ms  {frame.kind:<18} {' '.join(belongs):<28} {' '.join(rest)}"


def printable(line: str) -> str:
    """The line with everything escaped that could play tricks on a terminal: a trace may come from anybody."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        numbers = len(value) <= 3 and all(isinstance(item, (int, float)) for item in value)
        return "[" + ", ".join(map(_short, value)) + "]" if numbers else f"[{len(value)} items]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_short(item)}" for name, item in list(value.items())[:3]) + "}"
    if isinstance(value, str):
        return repr(value if len(value) <= _WIDE else value[:_WIDE] + "…")
    return str(value)


def _numbers(array: np.ndarray) -> Any:
    if np.isfinite(array).all():
        return array.tolist()
    return _spelled_out(array.tolist())


def _spelled_out(value: Any) -> Any:
    if isinstance(value, list):
        return [_spelled_out(item) for item in value]
    if value != value:
        return {"$float": "NaN"}
    return {"$float": "Infinity" if value > 0 else "-Infinity"} if abs(value) == float("inf") else value
