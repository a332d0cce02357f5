"""Read a GGUF file's header: metadata and where each tensor lies. Nothing in the file is trusted.

Every count and length is checked against the file's size before it is used, so a cut-off, damaged or hostile file ends
in one `ModelError`, not in a crash, a hang or all memory. The format: github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ModelError, ModelNotFound

MAGIC = b"GGUF"
_MOST_DIMENSIONS = 8

# Metadata value types: struct format by the number that the file gives.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

# Tensor types: name, elements a block, bytes a block.
TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of the file.

    Attributes:
        shape: outermost dimension first, as NumPy and MLX count them (the file has them the other way round).
        type: its storage type by name, such as ``Q4_1``.
        offset: first byte, from the file's start.
        nbytes: size in the file.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says about itself: metadata (plain Python values) and tensors by name."""

    path: Path
    version: int
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]

    @property
    def architecture(self) -> str:
        """Name of the architecture; also the prefix of its metadata."""
        return str(self.metadata.get("general.architecture", "unknown"))


def read_header(path: Path) -> GgufHeader:
    """Read and check the header of a GGUF file.

    Raises:
        ModelNotFound: when there is no such file.
        ModelError: when it is not GGUF, is cut off, or contradicts itself.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size < 24 or file.read(4) != MAGIC:
                raise ModelError(f"{path} is not a GGUF file: it does not begin with the letters GGUF")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data, size).header()
    except FileNotFoundError:
        raise ModelNotFound(f"there is no file {path}; give the path of a .gguf file") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error


class _Reader:
    """A place in the file, moving forward. Every read is within the file or raises."""

    def __init__(self, path: Path, data: mmap.mmap, size: int) -> None:
        self.path = path
        self.data = data
        self.size = size
        self.at = 4

    def header(self) -> GgufHeader:
        version = self.scalar("I")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            found = "is big-endian" if swapped in (2, 3) else f"has GGUF version {version}"
            raise ModelError(f"{self.path} {found}; versions 2 and 3, little-endian, are supported: convert it again")
        tensor_count, entry_count = self.scalar("Q"), self.scalar("Q")
        self.check_count(tensor_count, 24, "tensors")
        self.check_count(entry_count, 13, "metadata entries")
        metadata: dict[str, Any] = {}
        for _ in range(entry_count):
            key = self.string()
            if key in metadata:
                raise ModelError(f"{self.path} is damaged: it has the metadata entry {key[:80]!r} twice")
            metadata[key] = self.value(self.scalar("I"))
        infos = [self.tensor_info() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0 or alignment % 8 or alignment > 1 << 20:
            raise ModelError(f"{self.path} is damaged: general.alignment is {str(alignment)[:40]}, not a multiple of 8")
        start = (self.at + alignment - 1) // alignment * alignment
        tensors: dict[str, TensorInfo] = {}
        for name, shape, number, offset in infos:
            if name in tensors:
                raise ModelError(f"{self.path} is damaged: it has the tensor {name[:80]!r} twice")
            tensors[name] = self.place(name, shape, number, start + offset)
        return GgufHeader(self.path, version, metadata, tensors)

    def take(self, count: int) -> int:
        """Move forward by `count` bytes and return where they begin."""
        start = self.at
        if count > self.size - start:
            raise ModelError(
                f"{self.path} is cut off or damaged: {count} bytes are expected at byte {start}, but the file ends at "
                f"{self.size}; get it again"
            )
        self.at = start + count
        return start

    def check_count(self, count: int, least_bytes: int, what: str) -> None:
        """Refuse a count that the rest of the file could not hold even if each had the least possible size."""
        if count * least_bytes > self.size - self.at:
            raise ModelError(
                f"{self.path} is cut off or damaged: it claims {count} {what} in {self.size} bytes; get it again"
            )

    def scalar(self, format: str) -> Any:
        layout = struct.Struct("<" + format)
        return layout.unpack_from(self.data, self.take(layout.size))[0]

    def string(self) -> str:
        length = self.scalar("Q")
        start = self.take(length)
        try:
            return self.data[start : start + length].decode("utf-8")
        except UnicodeDecodeError:
            raise ModelError(f"{self.path} is damaged: the text at byte {start} is not UTF-8") from None

    def value(self, type: int) -> Any:
        if type == _STRING:
            return self.string()
        if type == _ARRAY:
            return self.array()
        if type not in _SCALARS:
            raise ModelError(f"{self.path} is damaged: metadata type {type} at byte {self.at} does not exist")
        return self.scalar(_SCALARS[type])

    def array(self) -> list[Any]:
        type, count = self.scalar("I"), self.scalar("Q")
        if type == _STRING:
            self.check_count(count, 8, "texts in one array")
            return [self.string() for _ in range(count)]
        if type not in _SCALARS:  # arrays in arrays exist in the format but in no model
            raise ModelError(f"{self.path} is damaged: an array of metadata type {type} at byte {self.at}")
        width = struct.calcsize("<" + _SCALARS[type])
        self.check_count(count, width, "numbers in one array")
        return list(struct.unpack_from(f"<{count}{_SCALARS[type]}", self.data, self.take(count * width)))

    def tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.string()
        dimensions = self.scalar("I")
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise ModelError(f"{self.path} is damaged: tensor {name[:80]!r} has {dimensions} dimensions")
        shape = tuple(reversed([self.scalar("Q") for _ in range(dimensions)]))
        return name, shape, self.scalar("I"), self.scalar("Q")

    def place(self, name: str, shape: tuple[int, ...], number: int, offset: int) -> TensorInfo:
        """Check that a tensor has a type, whole blocks, and lies within the file."""
        if number not in TENSOR_TYPES:
            raise ModelError(
                f"{self.path}: tensor {name[:80]!r} has type {number}, which is unknown; convert the model again"
            )
        type, block, block_bytes = TENSOR_TYPES[number]
        if min(shape) < 1 or shape[-1] % block:
            raise ModelError(f"{self.path} is damaged: tensor {name[:80]!r} of type {type} has shape {list(shape)}")
        nbytes = math.prod(shape) // block * block_bytes
        if offset + nbytes > self.size:
            raise ModelError(
                f"{self.path} is cut off or damaged: tensor {name[:80]!r} ends at byte {offset + nbytes}, the file at "
                f"{self.size}; get it again"
            )
        return TensorInfo(name, shape, type, offset, nbytes)
