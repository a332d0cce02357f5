"""What `tokenwalk trace info` says of a trace, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.codec import parse
from engine.trace import Trace


def answers(trace: Trace) -> dict[str, str]:
    """The text of each request's answer, by the request's id, as far as the file holds it."""
    found: dict[str, str] = {}
    for frame in trace.frames(kinds={"token"}):
        text = parse(frame.payload, binary=frame.binary)[0].get("text")
        if frame.request is not None and isinstance(text, str):
            found[frame.request] = found.get(frame.request, "") + text
    return found


def info_lines(facts: dict[str, Any]) -> Iterator[str]:
    """`Trace.info()`, with each request's `answer`, line by line."""
    model, machine = facts["model"] or {}, facts["machine"] or {}
    state = "whole" if facts["complete"] else f"cut off or still being written, {facts['lost_bytes']} bytes lost"
    yield f"{facts['path']}: {size(facts['size_bytes'])}, {state}"
    schema = f"schema {facts['schema_version']}{'' if facts['schema_known'] else ' (not known to this Tokenwalk)'}"
    yield f"  run      {facts['epoch']} from {facts['started_at']}, Tokenwalk {facts['engine_version']}, {schema}"
    yield f"  file     {', '.join(f'{name} {value}' for name, value in facts['file'].items())}"
    stored = model.get("quantisation") or model.get("dtype")
    shape = f"{model.get('layers')} layers × {model.get('heads')} heads"
    yield f"  model    {model.get('name')}: {model.get('architecture')}, {shape}, {stored}"
    yield f"  machine  {machine.get('chip')}, {machine.get('os')}, MLX {machine.get('mlx')} on {machine.get('device')}"
    yield f"  events   {facts['frames']} in {facts['chunks']} chunks over {facts['duration_ns'] / 1e9:.2f} s"
    yield f"           {', '.join(f'{kind} {count}' for kind, count in facts['kinds'].items())}"
    for request in facts["requests"]:
        yield f"  request  {request['id']} ({request['source']}): {_end(request)}"
        yield f"           prompt {_start(request['text'])}"
        yield f"           answer {_start(request['answer'])}"
    for line in facts["damage"]:
        yield f"  damage   {line}"


def size(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / 1e6:.2f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def _end(request: dict[str, Any]) -> str:
    if request["reason"] is None:
        return "its end is not in this file"
    if request["completion_tokens"] is None:
        return f"rejected: {request['reason']}"
    detail = "" if request["detail"] is None else f" ({request['detail']})"
    return f"{request['prompt_tokens']} + {request['completion_tokens']} tokens, {request['reason']}{detail}"


def _start(text: Any) -> str:
    return "not kept" if not isinstance(text, str) else repr(text if len(text) <= 100 else text[:100] + "…")
