"""HTTP on the socket: uvicorn's, with an end to what a client may send before its request begins."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 1 << 16
"""Longest request line and headers. A body has limits of its own, by route."""


class Http(HttpToolsProtocol):
    """One connection. A request whose head has no end would be kept in memory for as long as it comes."""

    _in_head = True
    _head_bytes = 0
    _piece_bytes = 0

    def data_received(self, data: bytes) -> None:
        self._piece_bytes = len(data)
        super().data_received(data)
        if not self._in_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The request line and headers are over {MAX_HEAD_BYTES // 1024} KiB.")

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        # The next head begins somewhere in this piece, which is not counted for it.
        self._in_head, self._head_bytes = True, -self._piece_bytes
