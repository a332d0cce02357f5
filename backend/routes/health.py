"""`GET /health` and `GET /metrics`: whether this server works, and what it has done."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from backend.errors import ApiError
from backend.json import JSON
from backend.live import LiveRun
from backend.operation import Operation
from backend.site import Site, site_of
from engine.codec import parse
from engine.version import VERSION


async def health(request: Request) -> Response:
    """200 while requests can be served, or a trace is replayed; else 503 with the reason."""
    site = site_of(request)
    body = _of_live(site.live) if site.live else {"status": "replay", "reason": None, "mode": "replay"}
    body |= {"run": site.run, "default_trace": site.library.default(), "version": VERSION}
    return JSON(body, status_code=503 if body["status"] == "error" else 200)


def _of_live(live: LiveRun) -> dict[str, Any]:
    reason, steps = live.health()
    header = parse(live.bus.header.payload, binary=False)[0] if live.bus.header else {}
    machine = header.get("machine")
    return {
        "status": "ok" if reason is None else "error",
        "reason": reason,
        "mode": "live",
        "epoch": live.bus.epoch,
        "model": header.get("model"),
        "machine": machine,
        "kv": header.get("kv"),
        "slots": header.get("slots"),
        "blas_warning": blas_warning(machine or {}),
        "steps": steps,
        "last_seq": live.bus.last_seq,
        "readable_bytes": live.readable_bytes,
        "recording": live.recorder is not None and live.recorder.failure is None,
        "recording_failure": live.recorder.failure if live.recorder else None,
        "capture_default": live.capture_default.as_dict(),
        "seed_default": live.sampling_default.seed,
    }


def blas_warning(machine: dict[str, Any]) -> str | None:
    """What to do about a slow BLAS, if that is what MLX computes with."""
    blas = machine.get("blas")
    if not isinstance(blas, dict) or blas.get("fast") is not False:
        return None
    return f"MLX computes with the {blas.get('name')} BLAS, which is several times too slow: {blas.get('remedy')}"


async def metrics(request: Request) -> Response:
    """Prometheus metrics of the live run."""
    site: Site = site_of(request)
    if site.live is None:
        raise ApiError(404, "a replayed trace has no metrics", code="not_found")
    return Response(site.live.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


OPERATIONS = [
    Operation(method="GET", path="/health", handler=health, summary="Whether requests can be served", errors=(503,)),
    Operation(
        method="GET",
        path="/metrics",
        handler=metrics,
        summary="Prometheus metrics",
        answer=("text/plain",),
        errors=(404,),
    ),
]
