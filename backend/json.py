"""JSON as responses carry it."""

from __future__ import annotations

import math
from typing import Any

import orjson
from starlette.responses import Response


def dumps(value: Any) -> bytes:
    """JSON as UTF-8. NaN and infinity, which JSON lacks, become null."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


MAX_DEPTH = 64
"""Deepest nesting that is taken. What would be deeper has no use here, and would exhaust whoever prints or walks it."""


def loads(text: str | bytes) -> Any:
    """Read JSON that somebody sent.

    Raises:
        ValueError: when it is not JSON, or nested deeper than `MAX_DEPTH`.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(_where(text, error)) from error
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return value
    raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


def _where(text: str | bytes, error: orjson.JSONDecodeError) -> str:
    """What is wrong with a text, without the parser's own words."""
    if not text.strip():
        return "it is empty"
    if isinstance(text, bytes):
        try:
            text.decode()
        except UnicodeDecodeError as wrong:
            return f"byte {wrong.start} ({text[wrong.start]:#04x}) is not UTF-8"
    return f"it goes wrong at line {error.lineno}, column {error.colno}"


class JSON(Response):
    """A JSON response."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumps(content)


def finite(logprob: float | None) -> float:
    """A log-probability that JSON can write. OpenAI writes −9999 for one too small to tell, such as log 0."""
    return -9999.0 if logprob is None or not math.isfinite(logprob) else max(logprob, -9999.0)
