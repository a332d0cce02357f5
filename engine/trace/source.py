"""Reads bytes and MCAP records from a file that may come from anybody.

Every size that a file states is checked against the file's own before anything is read or allocated.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import TypeVar

from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import Header

from engine.errors import TraceError
from engine.trace import layout

Record = TypeVar("Record")


class Damaged(Exception):
    """Bytes that are not what the format says; the message tells which. Does not leave this package."""


class Source:
    """A file read at any place from any thread. `size` is what it was when opened: a file may still be growing."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by close
        self.size = os.fstat(self._file.fileno()).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`.

        Raises:
            Damaged: when the file has not so many.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise Damaged(f"{length} bytes at {offset} reach beyond the file's {self.size}")
        try:
            data = os.pread(self._file.fileno(), length, offset)
        except OSError as error:
            raise Damaged(f"{length} bytes at {offset} could not be read: {error.strerror}") from error
        if len(data) != length:
            raise Damaged(f"{length} bytes at {offset} could not be read")
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def open_source(path: Path) -> Source:
    """Open a file and see that it is a trace, as far as its first bytes tell.

    Raises:
        TraceError: when it is not there or not a trace.
    """
    if not path.is_file():
        raise TraceError(f"{path} is {'not a file' if path.exists() else 'not there'}; expected a trace (.mcap)")
    try:
        source = Source(path)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}") from error
    try:
        if source.size == 0:
            raise TraceError(f"{path} is empty, not a trace (.mcap)")
        beginning = source.read(0, min(source.size, 4096))
        if not beginning.startswith(layout.MAGIC[: len(beginning)]):
            raise TraceError(f"{path} is not a trace: expected an MCAP file, found {_what_it_looks_like(beginning)}")
        opcode, at, length = next(records(source, len(layout.MAGIC)))
        profile = read_record(Header.read, source.read(at, length)).profile if opcode == Opcode.HEADER else None
        if profile != layout.PROFILE:
            raise TraceError(f"{path} is an MCAP file but not a Tokenwalk trace: its profile is {profile!r:.40}")
    except (Damaged, StopIteration):
        source.close()
        raise TraceError(f"{path} was cut off before the run's header: nothing in it can be read") from None
    except TraceError:
        source.close()
        raise
    return source


def records(source: Source, at: int) -> Iterator[tuple[int, int, int]]:
    """(opcode, offset of the body, its length) of each record from `at` to the file's end."""
    while at < source.size:
        opcode, length = layout.RECORD.unpack(source.read(at, layout.RECORD.size))
        at += layout.RECORD.size
        if not 1 <= opcode <= 0x0F or at + length > source.size:
            raise Damaged(f"no whole record at byte {at - layout.RECORD.size}")
        yield opcode, at, length
        at += length


def read_record(read: Callable[[ReadDataStream], Record], body: bytes) -> Record:
    """A record read by `mcap` from bytes in memory, so that no stated size makes it allocate more than there is."""
    try:
        return read(ReadDataStream(BytesIO(body)))
    except (McapError, struct.error, UnicodeDecodeError, OverflowError) as error:
        raise Damaged(f"a record cannot be read: {str(error) or type(error).__name__}") from error


def _what_it_looks_like(beginning: bytes) -> str:
    known = {
        b"\x89PNG": "a PNG image",
        b"GGUF": "a GGUF model",
        b"\x1f\x8b": "a gzip file",
        b"PK\x03\x04": "a zip file",
    }
    found = next((what for magic, what in known.items() if beginning.startswith(magic)), None)
    if found is None:
        start = beginning[:24].decode(errors="ignore")
        if len(start.encode()) >= len(beginning[:24]) - 3 and all(c.isprintable() or c in "\r\n\t" for c in start):
            return f"text ({start!r} …)"
        return f"bytes that begin with {beginning[:8].hex(' ')}"
    return found
