"""From token bytes to text that can be sent: whole characters only, and never the beginning of a stop text.

Two things hold text back. A character may be split over tokens: its bytes wait until it is whole. And the end of the
text may be the beginning of a stop text: it waits until that is decided. Whatever waits is released at the end, so
the bytes of all tokens joined always equal the UTF-8 of the streamed text, unless the model wrote bytes that are no
UTF-8, which become U+FFFD.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Released:
    """What one token released."""

    text: str
    held_back_bytes: int
    """Bytes that wait: of an unfinished character, or of a possible stop text."""
    stopped_by: str | None
    """The stop text that ended the answer."""


class Detokenizer:
    """Incremental decoder of one answer."""

    def __init__(self, stop: tuple[str, ...] = ()) -> None:
        self._stop = stop
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""  # whole characters that may begin a stop text
        self.text_length = 0
        """Characters released so far."""

    def add(self, data: bytes) -> Released:
        """Add one token's bytes."""
        return self._release(self._utf8.decode(data), final=False)

    def finish(self) -> Released:
        """The answer has ended: release everything that waits."""
        return self._release(self._utf8.decode(b"", True), final=True)

    def _release(self, new: str, *, final: bool) -> Released:
        text = self._waiting + new
        found = self._first_stop(text)
        if found is not None:
            start, stop = found
            text, self._waiting = text[:start], ""
            self._utf8.reset()
            self.text_length += len(text)
            return Released(text, 0, stop)
        keep = 0 if final else self._possible_stop(text)
        text, self._waiting = text[: len(text) - keep], text[len(text) - keep :]
        self.text_length += len(text)
        unfinished = len(self._utf8.getstate()[0])
        return Released(text, unfinished + len(self._waiting.encode()), None)

    def _first_stop(self, text: str) -> tuple[int, str] | None:
        """The stop text that occurs first; of several at the same place, the longest."""
        found = [(text.find(stop), -len(stop), stop) for stop in self._stop if stop in text]
        if not found:
            return None
        start, _, stop = min(found)
        return start, stop

    def _possible_stop(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop text."""
        longest = 0
        for stop in self._stop:
            for length in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:length]):
                    longest = length
                    break
        return longest
