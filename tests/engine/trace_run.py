"""A small made-up run of two requests: right in everything that `trace verify` recomputes, and quick to make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from engine.codec import Frame, encode
from engine.events import (
    Attention,
    BlockAllocated,
    BlockFreed,
    BlockRefChanged,
    BlockReused,
    Event,
    RequestArrived,
    RequestFinished,
    RequestScheduled,
    RequestTokenized,
    Residual,
    RunHeader,
    SlotAssigned,
    SlotReleased,
    StepFinished,
    StepStarted,
    Token,
)
from engine.trace import Recorder

LAYERS, HEADS, HIDDEN, VOCAB = 3, 2, 8, 300
TIMINGS = {"queue_ns": 1, "prefill_ns": 4, "decode_ns": 2, "ttft_ns": 5, "total_ns": 7}
ANSWER = ["Pa", "ris", " \U0001f5fc"]


def header() -> RunHeader:
    return RunHeader(
        epoch="e1",
        engine_version="0.1.0",
        model={
            "name": "made-up",
            "layers": LAYERS,
            "heads": HEADS,
            "hidden": HIDDEN,
            "vocab": VOCAB,
            "path": "/a/b.gguf",
        },
        tokenizer={"kind": "made-up"},
        machine={"chip": "none", "blas": {"name": "none", "path": "/lib/libblas.so"}},
        kv={"store": "paged", "block_size": 16, "blocks": 8, "dtype": "float32"},
        slots=2,
        started_at="2026-01-02T03:04:05+00:00",
    )


def run_events(steps: int = 3, keys_dtype: Any = np.float32) -> Iterator[Event]:
    """The events of requests r1 and r2, whose steps alternate, unstamped."""
    yield header()
    for slot, request in enumerate(("r1", "r2")):
        yield from _arrival(request, slot, steps)
    answer = (ANSWER * steps)[:steps]
    for index, piece in enumerate(answer):
        for number, request in enumerate(("r1", "r2")):
            yield from _step(2 * index + number + 1, request, number, index, piece, answer[:index], keys_dtype)
    for slot, request in enumerate(("r1", "r2")):
        if slot == 0:
            yield BlockRefChanged(block=7, request=request, logical=1, positions=[16, 32], prefix_hash="7", refs=1)
        else:
            yield BlockFreed(block=7, request=request, logical=1, positions=[16, 32], prefix_hash="7", refs=0)
        yield BlockFreed(block=slot, request=request, logical=0, positions=[0, 16], refs=0)
        yield SlotReleased(slot=slot, request=request)
        yield RequestFinished(
            request=request, reason="length", prompt_tokens=2, completion_tokens=steps, timings=TIMINGS
        )


def frames(steps: int = 3, keys_dtype: Any = np.float32) -> list[Frame]:
    """The same as the bus would publish them."""
    stamped = []
    for seq, event in enumerate(run_events(steps, keys_dtype), start=1):
        event.seq, event.t_ns = seq, seq * 1000
        stamped.append(encode(event))
    return stamped


def record(path: Path, sequence: list[Frame], **options: Any) -> Path:
    """Record frames to a file, and close it."""
    recorder = Recorder(path, **options)
    for frame in sequence:
        recorder(frame)
    recorder.close()
    assert recorder.failure is None
    return path


def _arrival(request: str, slot: int, steps: int) -> Iterator[Event]:
    capture = {"level": "follow"}
    yield RequestArrived(request=request, source="test", text="Hi", sampling={}, max_tokens=steps, capture=capture)
    prompt = [{"id": i, "bytes_hex": "48", "start": i, "end": i + 1, "role": "user", "special": False} for i in (0, 1)]
    yield RequestTokenized(request=request, tokens=prompt, duration_ns=7)
    yield SlotAssigned(slot=slot, request=request)
    yield RequestScheduled(request=request, waited_ns=1, reason="a slot was free", cached_tokens=1)
    yield BlockAllocated(block=slot, request=request, logical=0, positions=[0, 16], refs=1)
    if slot == 0:
        yield BlockAllocated(block=7, request=request, logical=1, positions=[16, 32], prefix_hash="7", refs=1)
    else:
        yield BlockReused(block=7, request=request, logical=1, positions=[16, 32], prefix_hash="7", refs=2)


def _step(step: int, request: str, slot: int, index: int, piece: str, before: list[str], dtype: Any) -> Iterator[Event]:
    position = index + 1
    rng = np.random.default_rng(step)
    row = {"request": request, "slot": slot, "phase": "decode", "from": position, "to": position + 1}
    yield StepStarted(step=step, rows=[row], tokens=1, token_budget=16)
    yield Token(
        request=request,
        step=step,
        position=position + 1,
        index=index,
        id=10 + index,
        bytes_hex=piece.encode().hex(),
        special=False,
        label=piece,
        text=piece,
        text_length=len("".join([*before, piece])),
        held_back_bytes=0,
        logprob=-0.5,
        entropy_bits=1.0,
        rank=1,
        top=[{"id": 10 + index, "label": piece, "logprob": -0.5, "logit": 3.0}],
        stages=[],
        draw={"method": "greedy"},
    )
    weights = rng.random((LAYERS, HEADS, position + 1)) + 0.1
    weights = (weights / weights.sum(axis=-1, keepdims=True)).astype(dtype)  # [layers, heads, keys]
    yield Attention(request=request, step=step, position=position, source_dtype="float32", data=weights)
    residual = rng.normal(size=(LAYERS + 1, HIDDEN)).astype(np.float32)  # [layers + 1, hidden]
    yield Residual(
        request=request,
        step=step,
        position=position,
        source_dtype="float32",
        norms=np.linalg.norm(residual, axis=-1).tolist(),
        attention_norms=[None] * LAYERS,
        mlp_norms=[None] * LAYERS,
        data=residual,
    )
    yield StepFinished(step=step, build_ns=1, eval_ns=2, wait_ns=1)
