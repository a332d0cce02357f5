"""GGML's quantised tensor types, taken apart with NumPy.

All of them are affine: weight = code × scale + bias, with one scale and bias for each group of 16 or 32 neighbours.
Taken apart into codes, scales and biases, a tensor can be dequantised exactly (in float32), or packed again in MLX's
own layout without loss. MLX's `mx.load` does this too, but knows fewer types and gives those it does not keep in
float16. Layouts: `ggml-common.h` of github.com/ggml-org/ggml.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.models.gguf import TENSOR_TYPES

BLOCK_BYTES = {name: size for name, _, size in TENSOR_TYPES.values()}
_CHUNK = 1 << 18  # weights

Bytes = NDArray[np.integer[Any]]  # uint8 throughout; shifting by a plain number widens only the type, not the array
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Groups:
    """A quantised tensor taken apart: weight[g, i] = codes[g, i] × scales[g] + biases[g].

    Attributes:
        codes: ``[groups, group size]``, each below 2**bits.
        scales: ``[groups]``.
        biases: ``[groups]``.
        bits: width of a code.
    """

    codes: Bytes
    scales: Floats
    biases: Floats
    bits: int

    def dequantise(self, out: Floats) -> None:
        """Write the weights in float32 into ``out``, ``[groups, group size]``."""
        np.multiply(self.codes, self.scales[:, None], out=out)
        out += self.biases[:, None]

    def pack(self) -> NDArray[np.uint32]:
        """The codes in MLX's layout, flat: as many as fit in each 32-bit word, lowest bits first. For 4 and 8 bits."""
        codes = self.codes.reshape(-1)
        if self.bits == 4:
            codes = codes[0::2] | (codes[1::2] << 4)
        return np.ascontiguousarray(codes).view("<u4")


def _half(blocks: Bytes, at: int) -> Floats:
    """A float16 of each block, ``[blocks]``."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")[:, 0].astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """``[blocks, n]`` → ``[blocks, 2n]``: all low halves, then all high halves."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth_bits(blocks: Bytes, at: int) -> Bytes:
    """The fifth bits of 32 codes, worth 16 each, ``[blocks, 32]``."""
    bits = np.unpackbits(np.ascontiguousarray(blocks[:, at : at + 4]), axis=1, bitorder="little")
    return bits << 4


def _q4_0(b: Bytes) -> Groups:
    d = _half(b, 0)
    return Groups(_nibbles(b[:, 2:18]), d, -8 * d, 4)


def _q4_1(b: Bytes) -> Groups:
    return Groups(_nibbles(b[:, 4:20]), _half(b, 0), _half(b, 2), 4)


def _q5_0(b: Bytes) -> Groups:
    d = _half(b, 0)
    return Groups(_nibbles(b[:, 6:22]) | _fifth_bits(b, 2), d, -16 * d, 5)


def _q5_1(b: Bytes) -> Groups:
    return Groups(_nibbles(b[:, 8:24]) | _fifth_bits(b, 4), _half(b, 0), _half(b, 2), 5)


def _q8_0(b: Bytes) -> Groups:
    d = _half(b, 0)
    return Groups(b[:, 2:34] ^ 128, d, -128 * d, 8)  # int8 + 128, as uint8


def _k_scales(packed: Bytes) -> tuple[Floats, Floats]:
    """Q4_K's and Q5_K's 12 bytes: eight 6-bit scales and eight 6-bit minima, each ``[blocks, 8]``."""
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=1)
    minima = np.concatenate([middle & 63, (high >> 4) | ((middle >> 6) << 4)], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _k_groups(codes: Bytes, b: Bytes, bits: int) -> Groups:
    """Q4_K and Q5_K: ``codes`` is ``[blocks, 8, 32]``."""
    scales, minima = _k_scales(b[:, 4:16])
    scales *= _half(b, 0)[:, None]
    minima *= -_half(b, 2)[:, None]
    return Groups(codes.reshape(-1, 32), scales.reshape(-1), minima.reshape(-1), bits)


def _q4_k(b: Bytes) -> Groups:
    packed = b[:, 16:144].reshape(-1, 4, 32)  # 32 bytes hold 64 codes: 32 low halves, then 32 high halves
    return _k_groups(_nibbles(packed), b, 4)


def _q5_k(b: Bytes) -> Groups:
    codes = _nibbles(b[:, 48:176].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    fifth = (b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None]) & 1  # [blocks, 8, 32]
    return _k_groups(codes | (fifth << 4), b, 5)


def _q6_k(b: Bytes) -> Groups:
    low = b[:, 0:128].reshape(-1, 2, 2, 32)  # [blocks, halves, rows, 32]
    low = np.concatenate([low & 15, low >> 4], axis=2)  # [blocks, halves, 4, 32]
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = (b[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3
    codes = low | (high << 4)
    scales = np.ascontiguousarray(b[:, 192:208]).view(np.int8).astype(np.float32) * _half(b, 208)[:, None]
    return Groups(codes.reshape(-1, 16), scales.reshape(-1), -32 * scales.reshape(-1), 6)


def _two_bit_codes(packed: Bytes) -> Bytes:
    """Q2_K's and Q3_K's 64 bytes: ``[blocks, halves, 4, 32]``, two bits each."""
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    return (packed.reshape(-1, 2, 1, 32) >> shifts) & 3


def _q2_k(b: Bytes) -> Groups:
    scales = (b[:, 0:16] & 15).astype(np.float32) * _half(b, 80)[:, None]
    minima = (b[:, 0:16] >> 4).astype(np.float32) * -_half(b, 82)[:, None]
    return Groups(_two_bit_codes(b[:, 16:80]).reshape(-1, 16), scales.reshape(-1), minima.reshape(-1), 2)


def _q3_k(b: Bytes) -> Groups:
    third = (b[:, None, 0:32] >> np.arange(8, dtype=np.uint8)[None, :, None]) & 1  # [blocks, 8, 32]
    codes = _two_bit_codes(b[:, 32:96]).reshape(-1, 8, 32) | (third << 2)
    packed = b[:, 96:108]
    low = _nibbles(packed[:, 0:8])  # [blocks, 16]
    shifts = np.repeat(np.arange(0, 8, 2, dtype=np.uint8), 4)
    high = (np.tile(packed[:, 8:12], (1, 4)) >> shifts) & 3
    scales = ((low | (high << 4)).astype(np.float32) - 32) * _half(b, 108)[:, None]
    return Groups(codes.reshape(-1, 16), scales.reshape(-1), -4 * scales.reshape(-1), 3)


_TAKE_APART: dict[str, Callable[[Bytes], Groups]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}

QUANTISED = frozenset(_TAKE_APART)
"""The quantised types that can be taken apart."""

PLAIN: dict[str, str] = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8"}
"""The floating-point types, and the NumPy dtype of their bytes (bfloat16's upper halves of float32 as integers)."""


def take_apart(type: str, data: Bytes) -> Groups:
    """Take a tensor of one of the `QUANTISED` types apart.

    Args:
        type: its type by name.
        data: the tensor's bytes, flat.

    Raises:
        ValueError: when a scale is infinite or no number, as in damaged files.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        groups = _TAKE_APART[type](data.reshape(-1, BLOCK_BYTES[type]))
    if not (np.isfinite(groups.scales).all() and np.isfinite(groups.biases).all()):
        raise ValueError("it has scales that are infinite or no numbers")
    return groups


def dequantise(type: str, data: Bytes, count: int) -> Floats:
    """The ``count`` weights of a tensor of any type in `QUANTISED` or `PLAIN`, flat, in float32.

    Raises:
        ValueError: when a weight is infinite or no number, as in damaged files.
    """
    if type in PLAIN:
        weights = _plain(type, data)
        if not np.isfinite(weights).all():
            raise ValueError("it has weights that are infinite or no numbers")
        return weights
    weights = np.empty(count, np.float32)
    per_block = count * BLOCK_BYTES[type] // len(data)
    step = _CHUNK // per_block * BLOCK_BYTES[type]  # pieces stay in the processor's cache: three times faster
    for first in range(0, len(data), step):
        groups = take_apart(type, data[first : first + step])
        start = first // BLOCK_BYTES[type] * per_block
        groups.dequantise(weights[start : start + groups.codes.size].reshape(groups.codes.shape))
    return weights


def _plain(type: str, data: Bytes) -> Floats:
    values = data.view(PLAIN[type])
    if type == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):
        return values.astype(np.float32)
