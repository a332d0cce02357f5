"""Adds lens and attribution of every recorded position to a trace, so that they can be read where the model is not.

The one part of this package that needs MLX and the model; it imports them when called.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.codec import parse
from engine.errors import TraceError
from engine.events import Absent, Attribution, Lens
from engine.residuals import Kept
from engine.trace.reader import Trace
from engine.trace.rewrite import Reduction, Written, rewrite

if TYPE_CHECKING:
    from engine.attribution import Readout
    from engine.models import LoadedModel

Done = Callable[[int, int], None]
At = tuple[str, int]
"""Request and position."""

_SAME_MODEL = 0.25
"""Nats by which the last lens row may differ from the recorded log-probabilities before the model is another one."""


def bake(
    trace: Trace,
    output: str | os.PathLike[str],
    loaded: LoadedModel,
    *,
    request: str | None = None,
    reduction: Reduction | None = None,
    done: Done | None = None,
) -> Written:
    """Write a copy of a trace with a `lens` and an `attribution` event for each recorded residual that has none yet.

    Args:
        loaded: the model that recorded the trace.
        request: as in `rewrite`, and likewise `reduction`; what is added is read before tensors are reduced.
        done: called with (positions done, of how many).

    Raises:
        TraceError: when the trace holds no residuals, or the model is not the one that recorded it.
    """
    recorded, given = trace.header.get("model") or {}, loaded.info.as_dict()
    for name in ("layers", "hidden", "vocab"):
        if recorded.get(name) != given.get(name):
            raise TraceError(
                f"{trace.path} was recorded with {recorded.get('name')} ({name} {recorded.get(name)}); "
                f"{given.get('name')} ({name} {given.get(name)}) is another model: pass the same with --model"
            )
    wanted = _wanted(trace, request)
    if not wanted.positions:
        raise TraceError(
            f"{trace.path} holds no residuals without lens and attribution: nothing to bake. Record with capture follow"
        )
    read = _read(trace, loaded, wanted, request, done)
    return rewrite(trace, output, request=request, reduction=reduction, facts={"baked": "lens,attribution"}, add=read)


@dataclass(slots=True)
class _Wanted:
    """What a trace lacks, by request and position."""

    lens: set[At]
    attribution: set[At]
    separable: set[At]
    """Where it is known what attention wrote."""

    @property
    def positions(self) -> set[At]:
        return self.lens | self.attribution


def _wanted(trace: Trace, request: str | None) -> _Wanted:
    found: dict[str, set[At]] = {kind: set() for kind in ("residual", "attention_out", "lens", "attribution")}
    for frame in trace.frames(kinds=set(found), request=request):
        if frame.kind in found and frame.request is not None and frame.position is not None:
            found[frame.kind].add((frame.request, frame.position))
    followed = {(name, position - 1) for name, position in _tokens(trace, request)[0]}
    return _Wanted(
        lens=found["residual"] - found["lens"],
        attribution=(found["residual"] & followed) - found["attribution"],
        separable=found["residual"] & found["attention_out"],
    )


def _read(
    trace: Trace, loaded: LoadedModel, wanted: _Wanted, request: str | None, done: Done | None
) -> Iterator[Lens | Attribution | Absent]:
    from engine.attribution import Readout
    from engine.taps import Taps

    taps = Taps(loaded.model)
    readout = Readout(taps)
    try:
        if wanted.attribution and readout.unsupported is not None:
            for name in sorted({name for name, _ in wanted.attribution}):
                yield Absent(what="attribution", reason="unsupported", request=name, detail=readout.unsupported)
            wanted.attribution.clear()
        yield from _each(trace, loaded, readout, wanted, request, done)
    finally:
        taps.remove()


def _each(
    trace: Trace, loaded: LoadedModel, readout: Readout, wanted: _Wanted, request: str | None, done: Done | None
) -> Iterator[Lens | Attribution | Absent]:
    from engine.attribution import attribution_or_why
    from engine.lens import lens_event

    tokens, said = _tokens(trace, request)
    total, label = len(wanted.positions), loaded.tokenizer.label
    for count, (at, kept) in enumerate(_kept(trace, wanted, request), 1):
        name, position = at
        target = tokens.get((name, position + 1))
        if at in wanted.lens:
            lens = lens_event(
                readout.taps, label, kept.residual, request=name, position=position, target=target, how="baked"
            )
            _must_agree(trace, lens, said.get(at, {}))
            yield lens
        if at in wanted.attribution and target is not None:
            yield attribution_or_why(readout, kept, request=name, position=position, target=target, how="baked")
        if done is not None:
            done(count, total)


def _kept(trace: Trace, wanted: _Wanted, request: str | None) -> Iterator[tuple[At, Kept]]:
    """What was recorded of each position: of two passes of one, say after a preemption, the first."""
    left = set(wanted.positions)
    waiting: dict[At, np.ndarray] = {}  # residuals whose attention_out is still to come
    for frame in trace.frames(kinds={"residual", "attention_out"}, request=request):
        at = (frame.request or "", frame.position or 0)
        if at not in left:
            continue
        fields, array = parse(frame.payload, binary=frame.binary)
        if array is None:
            continue
        if fields.get("scale") is not None:
            array = array.astype(np.float32) * np.float32(fields["scale"])
        if frame.kind == "residual" and at in wanted.separable:
            waiting.setdefault(at, array)
        elif frame.kind == "residual":
            left.discard(at)
            yield at, Kept(array)
        elif at in waiting:
            left.discard(at)
            yield at, Kept(waiting.pop(at), array)


def _tokens(trace: Trace, request: str | None) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], Any]]:
    """Token ids by (request, position), and the recorded top log-probabilities by the position that chose them."""
    ids: dict[tuple[str, int], int] = {}
    said: dict[tuple[str, int], dict[int, float]] = {}
    for frame in trace.frames(kinds={"request.tokenized", "token"}, request=request):
        fields, _ = parse(frame.payload, binary=frame.binary)
        if frame.kind == "request.tokenized":
            ids |= {(fields["request"], position): token["id"] for position, token in enumerate(fields["tokens"])}
        elif frame.kind == "token":
            ids[fields["request"], fields["position"]] = fields["id"]
            top = {entry["id"]: entry["logprob"] for entry in fields["top"]}
            said[fields["request"], fields["position"] - 1] = top
    return ids, said


def _must_agree(trace: Trace, lens: Lens, said: dict[int, float]) -> None:
    last = lens.layers[-1]["top"]
    if said and not any(abs(said.get(entry["id"], -99.0) - entry["logprob"]) <= _SAME_MODEL for entry in last):
        raise TraceError(
            f"at position {lens.position} the model given says otherwise than {trace.path} recorded: "
            "it is not the model that recorded it; pass the same with --model"
        )
