"""`GET /`, the files under `/static/`, and Plotly from the installed package: the page needs nothing from elsewhere."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

from backend.errors import ApiError
from backend.operation import Operation
from backend.paths import frontend_dir, plotly_js
from backend.preloads import Preloads

PLOTLY_CACHE = "public, max-age=604800"
"""A week. Sent as it is, not compressed: over the loopback address 4.8 MB take 5 ms, compressing them 150."""


SMALL = 64 * 1024
"""Bytes up to which a file is read at once. The page is many such; piece by piece, each goes through five threads."""


class PageFiles(StaticFiles):
    """The page's own files. The browser may keep them, but asks each time whether they have changed."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        whole = scope["method"] == "GET" and "range" not in Headers(scope=scope)
        if isinstance(response, FileResponse) and whole and stat_result.st_size <= SMALL:
            del response.headers["content-length"]  # it may have changed since
            return Response(Path(full_path).read_bytes(), status_code, dict(response.headers))
        return response

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "no-cache"
        return response


async def index(request: Request) -> Response:
    """The dashboard."""
    path = frontend_dir() / "index.html"
    if not path.is_file():
        raise ApiError(404, f"the page is missing: there is no {path}; install Tokenwalk again", code="not_found")
    page = _preloads(path.parent).into(path.read_text(encoding="utf-8"))
    return HTMLResponse(page, headers={"cache-control": "no-cache"})


_preloads = functools.cache(Preloads)


async def plotly(request: Request) -> Response:
    """Plotly, from the installed package."""
    path = plotly_js()
    response = FileResponse(path, stat_result=path.stat(), media_type="text/javascript")
    response.headers["cache-control"] = PLOTLY_CACHE
    if request.headers.get("if-none-match") == response.headers["etag"]:
        return NotModifiedResponse(response.headers)
    return response


def static_routes() -> list[BaseRoute]:
    """Routes of files; they are not operations, so the description does not list them."""
    files = PageFiles(directory=frontend_dir(), check_dir=False)
    return [
        Route("/static/plotly.min.js", plotly, include_in_schema=False),
        Mount("/static", files, name="static"),
    ]


OPERATIONS = [
    Operation(method="GET", path="/", handler=index, summary="The dashboard", answer=("text/html",), errors=(404,)),
]
