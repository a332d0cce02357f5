"""Made-up runs for measuring the page: SmolLM2's sizes, real events in the real encoding, a prompt and its answer."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from engine.codec import encode
from engine.events import (
    Attention,
    BlockAllocated,
    BlockStored,
    Event,
    Lens,
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
    StreamSent,
    Token,
)
from engine.trace.writer import TraceWriter

LAYERS, HEADS, HIDDEN, VOCAB = 30, 9, 576, 49_152
BLOCK, CHUNK = 16, 256
WORDS = (" the", " capital", " of", " a", " river", ",", " and", " in", " history", ".", " it", " was", " city", " old")
Emit = Callable[[Event], object]


def header(epoch: str, *, layers: int = LAYERS, heads: int = HEADS, slots: int = 8, blocks: int = 1024) -> RunHeader:
    """A header with the built-in model's sizes."""
    sizes = {"layers": layers, "heads": heads, "kv_heads": 3, "head_dim": 64, "hidden": HIDDEN, "vocab": VOCAB}
    return RunHeader(
        epoch=epoch,
        engine_version="bench",
        model={
            **sizes,
            "name": "made up, of SmolLM2's size",
            "architecture": "llama",
            "dtype": "float32",
            "quantisation": "Q4_1",
            "context": 8192,
            "parameters": 135_000_000,
            "weights_bytes": 93_000_000,
            "eos_ids": [2],
        },
        tokenizer={"kind": "byte-level BPE", "vocab": VOCAB, "chat_template": True},
        machine={"chip": "none", "os": "none", "python": "3", "mlx": "0", "mlx_lm": "0", "device": "cpu", "blas": None},
        kv={"store": "paged", "block_size": BLOCK, "blocks": blocks, "dtype": "float32"},
        slots=slots,
        started_at="2026-01-01T00:00:00+00:00",
    )


@functools.cache
def scores(most: int) -> tuple[np.ndarray, np.ndarray]:
    """Made-up scores with a sink, `[layers, heads, most]`, and their running sums: a row is made by one division."""
    noise = np.random.default_rng(7).random((LAYERS, HEADS, most), np.float32) ** 12
    noise[..., 0] = 8
    return noise, noise.cumsum(-1)


def weights(keys: int) -> np.ndarray:
    """Made-up rows over so many keys, `[layers, heads, keys]` in float16."""
    noise, sums = scores(-(-keys // 1024) * 1024)
    rows: np.ndarray = (noise[..., :keys] / sums[..., keys - 1 : keys]).astype(np.float16)
    return rows


@dataclass
class Story:
    """One request, told event by event."""

    request: str
    emit: Emit
    now_ns: Callable[[], int]
    first_block: int = 0
    slot: int = 0
    step: int = 0
    prompt: int = 0
    answer: int = 0
    blocks: int = 0
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    weights: Callable[[int], np.ndarray] = weights
    """Attention rows for a number of keys."""

    @property
    def position(self) -> int:
        """Of the next token."""
        return self.prompt + self.answer

    def ask(self, tokens: int) -> None:
        """Arrive with a prompt of so many tokens, and compute it."""
        self.prompt = tokens
        words = [WORDS[i % len(WORDS)] for i in range(tokens)]
        listed, at = [], 0
        for i, word in enumerate(words):
            end = at + len(word)
            listed.append(
                {"id": 300 + i % 40_000, "bytes_hex": word.encode().hex(), "start": at, "end": end, "role": "user"}
                | {"label": word, "special": False}
            )
            at = end
        sampling = {"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0, "seed": None}
        self.emit(
            RequestArrived(
                request=self.request,
                source="bench",
                text="".join(words),
                sampling=sampling,
                max_tokens=8192,
                capture={"level": "follow", "dtype": "f16", "budget_bytes": 2**28},
            )
        )
        self.emit(RequestTokenized(request=self.request, tokens=listed, duration_ns=2_000_000))
        self.emit(RequestScheduled(request=self.request, waited_ns=300_000, reason="a slot was free"))
        self.emit(SlotAssigned(request=self.request, slot=self.slot))
        for start in range(0, tokens, CHUNK):
            self._pass("prefill", start, min(tokens, start + CHUNK))

    def _pass(self, phase: str, start: int, end: int) -> None:
        self.step += 1
        while self.blocks * BLOCK < end:
            fields = {
                "block": self.first_block + self.blocks,
                "request": self.request,
                "logical": self.blocks,
                "refs": 1,
            }
            self.emit(BlockAllocated(**fields, positions=[self.blocks * BLOCK, (self.blocks + 1) * BLOCK]))  # type: ignore[arg-type]
            self.blocks += 1
        row = {"request": self.request, "slot": self.slot, "phase": phase, "from": start, "to": end}
        self.emit(StepStarted(step=self.step, rows=[row], tokens=end - start, token_budget=CHUNK))
        for logical in range(math.ceil((start + 1) / BLOCK) - 1, end // BLOCK):
            if start < (logical + 1) * BLOCK <= end:
                fields = {"block": self.first_block + logical, "request": self.request, "logical": logical, "refs": 1}
                self.emit(BlockStored(**fields, prefix_hash=f"{self.first_block + logical:032x}"))  # type: ignore[arg-type]
        self.emit(StepFinished(step=self.step, build_ns=2_000_000, eval_ns=40_000_000, wait_ns=38_000_000))

    def say(self, *, rows: bool, lens: bool = False) -> None:
        """One more token, by the pass over the one before it; with that pass's arrays where wanted."""
        position, word = self.position, WORDS[self.position % len(WORDS)]
        if self.answer:
            self._pass("decode", position - 1, position)
        if rows:
            self._arrays(position - 1)
        top = [{"id": 900 + i, "label": f" word{i}", "logprob": -0.2 - i, "logit": 14.0 - i} for i in range(20)]
        top[0] |= {"label": word, "id": 300 + position % 40_000}
        self.emit(
            Token(
                request=self.request,
                step=self.step,
                position=position,
                index=self.answer,
                id=300 + position % 40_000,
                bytes_hex=word.encode().hex(),
                special=False,
                label=word,
                text=word,
                text_length=8 * self.answer,
                held_back_bytes=0,
                logprob=-0.2,
                entropy_bits=1.1,
                rank=1,
                top=top,
                stages=[{"name": "raw", "value": None, "kept": VOCAB, "mass": 1, "probabilities": [0.8] + [0.01] * 19}],
                draw={"method": "greedy", "u": None, "seed": None, "low": None, "high": None},
            )
        )
        if lens:
            self._lens(position - 1, 300 + position % 40_000, top)
        now = self.now_ns()
        self.emit(
            StreamSent(
                request=self.request,
                chunk=self.answer,
                position=position,
                chunk_bytes=212,
                text_bytes=len(word),
                held_back_bytes=0,
                queued_ns=now + 20_000,
                sent_ns=now + 300_000,
                to="sse",
            )
        )
        self.answer += 1

    def _arrays(self, position: int) -> None:
        place = {"request": self.request, "step": self.step, "position": position, "source_dtype": "float32"}
        self.emit(Attention(**place, data=self.weights(position + 1)))  # type: ignore[arg-type]
        residual = self.random.standard_normal((LAYERS + 1, HIDDEN)).astype(np.float16)
        norms = [float(n) for n in np.linspace(2, 600, LAYERS + 1)]
        added = norms[1:]
        self.emit(Residual(**place, data=residual, norms=norms, attention_norms=added, mlp_norms=added))  # type: ignore[arg-type]

    def _lens(self, position: int, target: int, top: list[dict[str, object]]) -> None:
        layers = [
            {"layer": i, "top": top[:5], "rank": max(1, 3000 - 100 * i), "logprob": -9 + i / 4, "entropy_bits": 5.0}
            for i in range(LAYERS)
        ]
        self.emit(
            Lens(
                request=self.request, position=position, target=target, layers=layers, residual_dtype="f16", how="baked"
            )
        )

    def end(self) -> None:
        """The answer is at its limit."""
        timings = {"queue_ns": 1, "prefill_ns": 1, "decode_ns": 1, "ttft_ns": 1, "total_ns": 1}
        self.emit(
            RequestFinished(
                request=self.request,
                reason="length",
                prompt_tokens=self.prompt,
                completion_tokens=self.answer,
                timings=timings,
            )
        )
        self.emit(SlotReleased(request=self.request, slot=self.slot))


def write_trace(path: Path, *, tokens: int, followed: int) -> None:
    """A recording of one request of so many tokens; the last `followed` of them have their rows and lenses."""
    answer = followed + 76
    seq = now_ns = 0
    writer = TraceWriter(path)

    def emit(event: Event) -> None:
        nonlocal seq, now_ns
        seq, now_ns = seq + 1, now_ns + 1_000_000
        event.seq, event.t_ns = seq, now_ns
        writer.add(encode(event))

    emit(header("bench"))
    story = Story("r-long", emit, lambda: now_ns)
    story.ask(tokens - answer)
    for i in range(answer):
        rows = i >= answer - followed
        story.say(rows=rows, lens=rows)
    story.end()
    writer.finish()
