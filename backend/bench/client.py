"""A client of a streamed completion, the same for every server: it notes when each piece of text came."""

from __future__ import annotations

import threading
import time
from http.client import HTTPConnection, HTTPException
from typing import Any

import orjson

from engine.errors import TokenwalkError

TIMEOUT_S = 600.0


class Client(threading.Thread):
    """Asks for one greedy completion and reads it to the end, or until told to leave.

    Attributes:
        arrivals: when each piece of text came, seconds on `time.perf_counter`.
        tokens: how many tokens the answer has, as the server counts; 0 until it has ended.
        prompt_tokens: likewise, of the prompt.
    """

    def __init__(self, port: int, prompt: str, max_tokens: int) -> None:
        super().__init__(daemon=True)
        self.arrivals: list[float] = []
        self.tokens = self.prompt_tokens = 0
        self._port = port
        self._body = orjson.dumps(
            {
                "prompt": prompt,
                "max_tokens": max_tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        self._leaving = threading.Event()
        self._failure: str | None = None

    def leave(self) -> None:
        """Close the connection at the next piece."""
        self._leaving.set()

    def finish(self) -> None:
        """Wait for the end.

        Raises:
            TokenwalkError: when the server refused or broke off.
        """
        self.join(TIMEOUT_S)
        if self.is_alive():
            self._failure = f"no end within {TIMEOUT_S:.0f} s"
        self.check()

    def check(self) -> None:
        """Raise what has gone wrong so far."""
        if self._failure is not None:
            raise TokenwalkError(f"the server on port {self._port} failed: {self._failure}")

    def run(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", "/v1/completions", self._body, {"content-type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                self._failure = f"{response.status}: {response.read(400).decode(errors='replace')}"
                return
            for line in response:
                now = time.perf_counter()
                if line.startswith(b"data: {"):
                    self._take(orjson.loads(line[6:]), now)
                if self._leaving.is_set():
                    return
        except (OSError, HTTPException, orjson.JSONDecodeError) as error:
            self._failure = f"{type(error).__name__}: {error}"
        finally:
            connection.close()

    def _take(self, chunk: dict[str, Any], now: float) -> None:
        if chunk.get("error"):
            self._failure = str(chunk["error"])
        choices = chunk.get("choices") or [{}]
        if choices[0].get("text"):
            self.arrivals.append(now)
        if usage := chunk.get("usage"):
            self.tokens, self.prompt_tokens = usage["completion_tokens"], usage["prompt_tokens"]
