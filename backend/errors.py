"""Errors as the OpenAI API writes them: `{"error": {"message", "type", "param", "code"}}`, with the right status."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from backend.json import JSON
from engine.errors import EngineStopped, ModelError, QueueFull, RequestError, TokenwalkError, TraceError

log = logging.getLogger(__name__)

RETRY_AFTER_S = 1
"""What a refused caller is told to wait. A place in the queue becomes free with every request that ends."""


MAX_MESSAGE, MAX_PARAM = 1500, 200
"""Characters of what an error says. It quotes what was sent, which may be megabytes."""


class ApiError(Exception):
    """An error with its HTTP status.

    Args:
        status: HTTP status code.
        message: what was given, what was expected, what to do.
        param: the field at fault, as the caller wrote it.
        code: a stable word for programs.
        headers: further response headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = _cut(message, MAX_MESSAGE)
        self.param = None if param is None else _cut(param, MAX_PARAM)
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, object]:
        """The error as the body's JSON."""
        return {"error": {"message": self.message, "type": _kind(self.status), "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The error as a response."""
        return JSON(self.body(), status_code=self.status, headers=self.headers)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def not_found(what: str, given: str, known: str) -> ApiError:
    """404: there is no such thing; `known` says where to look."""
    return ApiError(404, f"there is no {what} {given!r}; {known}", code="not_found")


def from_engine(error: TokenwalkError) -> ApiError:
    """The HTTP form of an error that the engine raised."""
    message = str(error)
    if isinstance(error, RequestError):
        return ApiError(400, message, param=error.param, code=error.code)
    if isinstance(error, QueueFull):
        return ApiError(429, message, code="queue_full", headers={"Retry-After": str(RETRY_AFTER_S)})
    if isinstance(error, TraceError):
        return ApiError(400, message, code="invalid_trace")
    if isinstance(error, (EngineStopped, ModelError)):
        return ApiError(503, message, code="not_ready")
    return ApiError(500, message)


async def on_api_error(request: Request, error: Exception) -> Response:
    """Exception handler for ApiError."""
    assert isinstance(error, ApiError)
    return error.response()


async def on_engine_error(request: Request, error: Exception) -> Response:
    """Exception handler for the engine's exception tree."""
    assert isinstance(error, TokenwalkError)
    return from_engine(error).response()


async def on_http_error(request: Request, error: Exception) -> Response:
    """Exception handler for what Starlette raises itself: unknown path, wrong method."""
    assert isinstance(error, HTTPException)
    message = {
        404: f"nothing is at {request.url.path}; /openapi.json lists all routes",
        405: f"{request.method} is not possible at {request.url.path}; see /openapi.json",
    }.get(error.status_code, error.detail)
    return ApiError(error.status_code, message, headers=error.headers).response()


async def on_fault(request: Request, error: Exception) -> Response:
    """Exception handler for our own faults: the log gets the traceback, the caller a plain word."""
    log.error("a fault while answering %s %s", request.method, request.url.path)
    return ApiError(500, "Tokenwalk made a mistake; its log has the details", code="internal_error").response()


def _kind(status: int) -> str:
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    return kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
