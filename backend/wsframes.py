"""Frames in the WebSocket's own framing (RFC 6455, server to client: unmasked, no extensions), for the frames route.

A reader of the live stream and a reader of a stored trace thus see the same bytes.
"""

from __future__ import annotations

import struct

from engine.codec import Frame, joined

MEDIA_TYPE = "application/vnd.tokenwalk.frames"

_FIN_TEXT, _FIN_BINARY = 0x81, 0x82


def framed(frame: Frame) -> bytes:
    """A frame as one WebSocket message: text for JSON, binary for tensors."""
    first, size = _FIN_BINARY if frame.binary else _FIN_TEXT, frame.size
    if size < 126:
        head = struct.pack("!BB", first, size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", first, 126, size)
    else:
        head = struct.pack("!BBQ", first, 127, size)
    return joined((head, *frame.parts))
