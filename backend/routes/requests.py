"""`/v1/requests…`: what runs, what has run lately, and each request's part of the trace."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from backend.errors import ApiError, not_found
from backend.json import JSON
from backend.live import LiveRun
from backend.operation import Operation
from backend.site import site_of
from engine.request import RequestView
from engine.trace.writer import TraceWriter


def dashboard_url(request: Request, run: str, request_id: str) -> str:
    """The address that shows a request in the dashboard."""
    return f"{request.base_url}#run={quote(run, safe='')}&request={quote(request_id, safe='')}"


async def requests(request: Request) -> Response:
    """Live and recent requests, the newest first."""
    live = site_of(request).live_run()
    return JSON({"object": "list", "data": [_shown(request, live, view) for view in live.engine.requests()]})


async def one_request(request: Request) -> Response:
    """One request."""
    live = site_of(request).live_run()
    return JSON(_shown(request, live, find(live, request.path_params["id"])))


async def cancel(request: Request) -> Response:
    """End a request within a step. Cancelling one that has ended changes nothing."""
    live = site_of(request).live_run()
    view = find(live, request.path_params["id"])
    return JSON({"id": view.id, "cancelled": live.engine.cancel(view.id)})


async def trace_of_request(request: Request) -> Response:
    """The request's own frames, and the steps and slots that touched it, as a trace file."""
    live = site_of(request).live_run()
    view = find(live, request.path_params["id"])
    path = await asyncio.to_thread(_slice, live, view)
    return FileResponse(
        path,
        media_type="application/octet-stream",
        filename=f"{live.name}-{view.id}.mcap",
        background=BackgroundTask(path.unlink, missing_ok=True),
    )


def find(live: LiveRun, request_id: str) -> RequestView:
    """A live or recent request.

    Raises:
        ApiError: 404 when there is none of that id, 503 while no model is loaded.
    """
    for view in live.engine.requests():
        if view.id == request_id:
            return view
    raise not_found("request", request_id, "GET /v1/requests lists live and recent ones")


def _shown(request: Request, live: LiveRun, view: RequestView) -> dict[str, Any]:
    return {**dataclasses.asdict(view), "url": dashboard_url(request, live.name, view.id)}


def _slice(live: LiveRun, view: RequestView) -> Path:
    handle, name = tempfile.mkstemp(suffix=".mcap", prefix="tokenwalk-")
    os.close(handle)
    path = Path(name)
    live.bus.flush()
    try:
        facts = {"slice_of": live.name, "request": view.id}
        if view.state != "finished":
            facts["open_end"] = "the request was still running"
        writer = TraceWriter(path, facts=facts)
        for frame in live.frames(0, None, None, view.id):
            writer.add(frame)
            if frame.kind == "step.finished":
                writer.end_chunk()
        writer.finish()
    except OSError as error:
        path.unlink(missing_ok=True)
        raise ApiError(507, f"cannot write the slice: {error.strerror}") from error
    return path


OPERATIONS = [
    Operation(method="GET", path="/v1/requests", handler=requests, summary="Live and recent requests", errors=(503,)),
    Operation(method="GET", path="/v1/requests/{id}", handler=one_request, summary="One request", errors=(404, 503)),
    Operation(
        method="POST",
        path="/v1/requests/{id}/cancel",
        handler=cancel,
        summary="End a request within a step",
        errors=(404, 503),
    ),
    Operation(
        method="GET",
        path="/v1/requests/{id}/trace",
        handler=trace_of_request,
        summary="The request's part of the trace, as a file",
        answer=("application/octet-stream",),
        errors=(404, 503, 507),
    ),
]
