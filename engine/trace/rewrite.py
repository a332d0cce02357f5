"""Writes a trace anew: one request cut out, a torn file made whole, tensors made smaller, events added at the end."""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
import orjson

from engine.codec import Frame, decode, encode, parse
from engine.errors import TraceError
from engine.events import TENSOR_KINDS, Absent, AttentionSummary, Event, TensorEvent
from engine.trace.reader import Trace
from engine.trace.writer import TraceWriter

Seen = Callable[[Frame], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """What makes a copy smaller.

    Attributes:
        dtype: store float32 tensors as float16; one whose values go beyond float16's 65,504 stays as it is.
        drop: tensor kinds to leave out. The copy says so with `absent` events.
        strip_paths: of file paths in run.header keep the last name only: others need not know where things lie here.

    Raises:
        TraceError: for a kind that is not a tensor's.
    """

    dtype: Literal["f16"] | None = None
    drop: frozenset[str] = frozenset()
    strip_paths: bool = False

    def __post_init__(self) -> None:
        unknown = self.drop - TENSOR_KINDS
        if unknown:
            raise TraceError(
                f"cannot drop {', '.join(sorted(unknown))}; expected any of {', '.join(sorted(TENSOR_KINDS))}"
            )

    def apply(self, frame: Frame) -> Frame:
        """The frame, made smaller where that is asked for and loses no value to infinity."""
        if self.strip_paths and frame.kind == "run.header":
            return _without_paths(frame)
        if self.dtype is None or not frame.binary:
            return frame
        try:
            event = decode(frame.payload, binary=True)
        except TraceError:
            return frame  # a kind of a newer version: kept as it is
        if not isinstance(event, TensorEvent):
            return frame
        array = np.asarray(event.data)
        if array.dtype != np.float32:
            return frame
        if isinstance(event, AttentionSummary):  # positions beyond 2,048 are no float16 numbers
            return frame
        with np.errstate(over="ignore"):
            smaller = array.astype(np.float16)
        if np.isinf(smaller).sum() != np.isinf(array).sum():
            return frame
        return encode(dataclasses.replace(event, data=smaller))


@dataclass(slots=True)
class Written:
    """What a rewrite wrote."""

    path: Path
    frames: int = 0
    added: int = 0
    """Of these, events that the source did not have."""
    gaps: int = 0
    """Of these, gaps that stand for damage in the source."""
    size_bytes: int = 0
    dropped: dict[str, set[str]] = field(default_factory=dict)
    """By kind: the requests whose tensors were left out."""


def rewrite(
    trace: Trace,
    output: str | os.PathLike[str],
    *,
    request: str | None = None,
    reduction: Reduction | None = None,
    facts: dict[str, str] | None = None,
    add: Iterable[Event] = (),
    seen: Seen | None = None,
) -> Written:
    """Copy a trace, frame by frame, into a whole new file.

    Args:
        output: the new file; it appears under this name only when it is whole, and may be the source's own.
        request: copy only what belongs to this request.
        reduction: how to make it smaller.
        facts: further facts about the file for its metadata record.
        add: events to append; their `seq` and `t_ns` are set here.
        seen: called with every frame of the source, for showing progress.

    Raises:
        TraceError: when the output cannot be written, or no such request is in the trace.
    """
    reduction = reduction or Reduction()
    known = [found["id"] for found in trace.requests()]
    if request is not None and request not in known:
        listed = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
        raise TraceError(f"{trace.path} has no request {request}; it has {listed or 'none'}")
    output = Path(output)
    partial = output.with_name(f".{output.name}.{secrets.token_hex(4)}.part")
    facts = (
        trace.metadata
        | {"part": "1"}
        | ({} if trace.open_end is None else {"open_end": trace.open_end})
        | (facts or {})
    )
    if reduction.drop:
        before = set(filter(None, facts.get("dropped", "").split(",")))
        facts["dropped"] = ",".join(sorted(reduction.drop | before))
    writer = TraceWriter(partial, facts=facts)
    written = Written(output)
    try:
        last = _copy(trace, writer, request, reduction, written, seen)
        for event in (*_absences(written), *add):
            written.added += 1
            event.seq, event.t_ns = last.seq + written.added, last.t_ns
            writer.add(encode(event))
        writer.finish()
        os.replace(partial, output)
    except OSError as error:
        raise TraceError(f"cannot write {output}: {error.strerror}") from error
    finally:
        writer.abandon()
        with suppress(FileNotFoundError):
            partial.unlink()
    written.frames, written.size_bytes = writer.frames_written, writer.bytes_written
    return written


def _copy(
    trace: Trace, writer: TraceWriter, request: str | None, reduction: Reduction, written: Written, seen: Seen | None
) -> Frame:
    last: Frame | None = None
    for last in trace.frames(request=request):
        if seen is not None:
            seen(last)
        if last.kind in reduction.drop:
            written.dropped.setdefault(last.kind, set()).add(last.request or "")
            continue
        written.gaps += last.kind == "gap"
        writer.add(reduction.apply(last))
    assert last is not None, "a trace that opens has a header"
    return last


def _without_paths(header: Frame) -> Frame:
    fields, _ = parse(header.payload, binary=False)
    return dataclasses.replace(header, parts=(orjson.dumps(_last_names(fields)),))


def _last_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _last_names(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_last_names(item) for item in value]
    if isinstance(value, str) and (value.startswith(("/", "~")) or value[1:3] == ":\\"):
        return PurePosixPath(value.replace("\\", "/")).name
    return value


def _absences(written: Written) -> list[Event]:
    return [
        Absent(what=kind, reason="not_captured", request=request, detail="left out when this file was written")
        for kind, requests in sorted(written.dropped.items())
        for request in sorted(requests)
    ]
