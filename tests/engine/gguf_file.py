"""Write GGUF files: whole ones for models made up in tests, and wrong ones on purpose."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.models.gguf import TENSOR_TYPES
from engine.tokenizer import byte_alphabet

TYPE_NUMBERS = {name: number for number, (name, _, _) in TENSOR_TYPES.items()}
ALIGNMENT = 32


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(item: Any) -> bytes:
    """A metadata value with its type in front."""
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<Ii", 5, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    kind, data = {
        str: (8, lambda: b"".join(text(each) for each in item)),
        int: (5, lambda: struct.pack(f"<{len(item)}i", *item)),
        float: (6, lambda: struct.pack(f"<{len(item)}f", *item)),
    }[type(item[0])]
    return struct.pack("<IIQ", 9, kind, len(item)) + data()


def gguf_bytes(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]],
    *,
    version: int = 3,
    tensor_count: int | None = None,
    entry_count: int | None = None,
) -> bytes:
    """A GGUF file. `tensors`: name → (type, shape with the outermost dimension first, data)."""
    counts = (
        len(tensors) if tensor_count is None else tensor_count,
        len(metadata) if entry_count is None else entry_count,
    )
    head = b"GGUF" + struct.pack("<IQQ", version, *counts)
    head += b"".join(text(key) + value(item) for key, item in metadata.items())
    offset = 0
    body = b""
    for name, (kind, shape, data) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", TYPE_NUMBERS[kind], offset)
        padded = data + bytes(-len(data) % ALIGNMENT)
        body += padded
        offset += len(padded)
    return head + bytes(-len(head) % ALIGNMENT) + body


def f32(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    return "F32", array.shape, array.astype("<f4").tobytes()


def byte_level_metadata(pre: str = "gpt-2", extra: tuple[str, ...] = ("<|im_start|>", "<|im_end|>")) -> dict[str, Any]:
    """A byte-level tokenizer: 256 bytes, a few merges, and control tokens."""
    alphabet = sorted(byte_alphabet(), key=byte_alphabet().__getitem__)
    merges = ["h e", "l l", "he ll", "Ġ t", "1 2", "12 3", "A ĥ"]
    tokens = [*alphabet, *(merge.replace(" ", "") for merge in merges), *extra]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in extra else 1 for token in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": len(tokens) - 1,
        "tokenizer.ggml.bos_token_id": len(tokens) - 2,
        "tokenizer.ggml.add_bos_token": False,
    }


def permute_like_llama_cpp(weight: np.ndarray, heads: int) -> np.ndarray:
    """Reorder q's or k's rows as llama.cpp's converter does for Llama: each head's two halves are interleaved."""
    rows = weight.shape[0]
    return weight.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
