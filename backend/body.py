"""Request bodies, read within bounds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import ClientDisconnect, Request

from backend.errors import ApiError
from backend.json import loads

MAX_BODY_BYTES = 4 * 2**20
"""Largest JSON body. A context of 128,000 tokens is well under a megabyte of text."""


async def read_json(request: Request) -> dict[str, Any]:
    """The body as a JSON object.

    Raises:
        ApiError: 415 for another content type, 413 for a body too large, 400 for what is not a JSON object.
    """
    given = request.headers.get("content-type", "")
    media_type = given.partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(415, f"the content type is {given!r}; expected 'application/json'", code="not_json")
    body = b"".join([chunk async for chunk in bounded_body(request, MAX_BODY_BYTES)])
    try:
        value = loads(body)
    except ValueError as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from error
    if not isinstance(value, dict):
        raise ApiError(400, f"the body is a JSON {type(value).__name__}; expected an object", code="invalid_json")
    return value


async def bounded_body(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    """The body's chunks, none of them read when its declared length exceeds `limit` bytes.

    Raises:
        ApiError: 413, when the body is larger than `limit`; 400, for nobody to read, when the client leaves within it.
    """
    too_large = ApiError(413, f"the body is larger than {limit:,} bytes, the most that is taken here", code="too_large")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large
    received = 0
    try:
        async for chunk in request.stream():
            received += len(chunk)
            if received > limit:
                raise too_large
            yield chunk
    except ClientDisconnect as error:
        raise ApiError(400, f"the body ended after {received:,} bytes, before it was whole") from error
