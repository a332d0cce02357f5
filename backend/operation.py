"""One HTTP operation: what the router needs to serve it and the description needs to say about it, in one record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query parameter."""

    name: str
    schema: dict[str, Any]
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A method on a path."""

    method: str
    path: str
    handler: Handler
    summary: str
    body: type[BaseModel] | None = None
    """The JSON body's model."""
    uploads: tuple[str, ...] = ()
    """Media types of a body that is a file."""
    query: tuple[Query, ...] = ()
    answer: tuple[str, ...] = ("application/json",)
    """Media types of a good answer."""
    status: int = 200
    errors: tuple[int, ...] = ()
    """Statuses that this operation answers with beside those that any may (401, 403)."""
