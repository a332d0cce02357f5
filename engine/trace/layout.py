"""What a trace file is: names, limits, and the MCAP records that are written and read by the thousand.

A trace is an MCAP file (https://mcap.dev/spec) of profile ``tokenwalk``: a metadata record that names the run, then one
chunk a step, then MCAP's own index. ``traces/FORMAT.md`` describes it for people.
"""

from __future__ import annotations

import struct

from mcap.data_stream import RecordBuilder
from mcap.records import McapRecord

from engine.codec import Frame, parse
from engine.errors import TraceError

MAGIC = b"\x89MCAP0\r\n"
PROFILE = "tokenwalk"
JSON_ENCODING = "json"
TENSOR_ENCODING = "tokenwalk.tensor"
SCHEMA_ENCODING = "jsonschema"
RUN_METADATA = "tokenwalk.run"
"""Name of the first metadata record. Its `run_header` is the run.header event's JSON: a file cut off early has it."""

PART_BYTES = 512 << 20
"""A run longer than this continues in a next file."""
CHUNK_BYTES = 4 << 20
"""A step's frames beyond this start a further chunk, so that reading one never needs much memory."""
MAX_CHUNK_BYTES = 256 << 20
"""No reader allocates more than this for one chunk, whatever a file claims."""

# Record layouts up to their first variable part; opcode and length come first in each.
RECORD = struct.Struct("<BQ")
MESSAGE = struct.Struct("<BQHIQQ")  # channel, sequence, log time, publish time
CHUNK = struct.Struct("<BQQQQII4sQ")  # start, end, uncompressed size, crc, 4, b"zstd", compressed size
CHUNK_COMPRESSION = b"\x04\x00\x00\x00zstd"
CHUNK_COMPRESSION_AT = 37
"""Where `CHUNK_COMPRESSION` stands in a chunk record: by it chunks are found again behind damage."""


def record_bytes(*records: McapRecord) -> bytes:
    """MCAP records as bytes."""
    builder = RecordBuilder()
    for record in records:
        record.write(builder)
    data: bytes = builder.end()  # type: ignore[no-untyped-call]
    return data


def frame_of(payload: bytes, *, binary: bool) -> Frame:
    """The frame that `payload` is, its routing fields read from within.

    Raises:
        TraceError: when it is not an event in the format.
    """
    fields, _ = parse(payload, binary=binary)
    kind, seq, t_ns = fields.get("kind"), fields.get("seq"), fields.get("t_ns")
    if not (isinstance(kind, str) and isinstance(seq, int) and isinstance(t_ns, int) and min(seq, t_ns) >= 0):
        raise TraceError(f"a frame of {len(payload)} bytes lacks kind, seq or t_ns")
    request, step, position = fields.get("request"), fields.get("step"), fields.get("position")
    return Frame(
        kind=kind,
        seq=seq,
        t_ns=t_ns,
        request=request if isinstance(request, str) else None,
        step=step if isinstance(step, int) else None,
        position=position if isinstance(position, int) else None,
        parts=(payload,),
        binary=binary,
    )
