"""`/v1/traces…`: the stored traces and the live run, to list, upload, download and read frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from backend.body import bounded_body
from backend.errors import ApiError
from backend.json import JSON
from backend.live import LiveRun
from backend.operation import Operation, Query
from backend.site import Site, site_of
from backend.wsframes import MEDIA_TYPE, framed
from engine.codec import Frame, parse
from engine.events import KINDS
from engine.trace import open_trace

MAX_UPLOAD_BYTES = 4 * 2**30
BATCH_BYTES = 1 << 20

Source = Callable[[int, int | None, frozenset[str] | None, str | None], Iterator[Frame]]


async def traces(request: Request) -> Response:
    """Every trace: the live run first, then the person's own from new to old, then the bundled ones."""
    return JSON({"object": "list", "data": await asyncio.to_thread(_listing, site_of(request))})


def _listing(site: Site) -> list[dict[str, Any]]:
    live = site.live
    own = {path.stem for path in live.recorder.paths} if live and live.recorder else set()
    stored = [trace for trace in site.library.all().values() if trace.name not in own]
    stored.sort(key=lambda trace: (trace.bundled, trace.name if trace.bundled else -trace.modified_ns))
    entries = [site.library.summary(trace) for trace in stored]
    return ([_live_entry(live)] if live else []) + entries


def _live_entry(live: LiveRun) -> dict[str, Any]:
    header = parse(live.bus.header.payload, binary=False)[0] if live.bus.header else {}
    return {
        "name": live.name,
        "size_bytes": live.recorder.bytes_written if live.recorder else 0,
        "modified": None,
        "bundled": False,
        "live": True,
        "recording": live.recorder is not None and live.recorder.failure is None,
        "model": (header.get("model") or {}).get("name"),
        "started_at": header.get("started_at"),
        "complete": False,
        "requests": len(live.engine.requests()) if live.loaded else 0,
        "error": live.recorder.failure if live.recorder else None,
    }


async def upload(request: Request) -> Response:
    """Take a trace file: as the raw body (name in `?name=`), or as the first file of a form."""
    site = site_of(request)
    media_type, options = parse_options_header(request.headers.get("content-type"))
    if media_type == b"multipart/form-data":
        if not options.get(b"boundary"):
            raise ApiError(400, "the form's content type names no boundary")
        stored = await _upload_form(request, site)
    elif media_type in (b"application/octet-stream", b"application/x-mcap", b"application/vnd.mcap"):
        name = request.query_params.get("name", "upload")
        stored = await site.library.upload(name, bounded_body(request, MAX_UPLOAD_BYTES))
    else:
        given = request.headers.get("content-type", "")
        raise ApiError(
            415, f"the content type is {given!r}; expected 'application/octet-stream' or 'multipart/form-data'"
        )
    summary = await asyncio.to_thread(site.library.summary, stored)
    return JSON(summary, status_code=201, headers={"location": f"/v1/traces/{quote(stored.name)}"})


async def _upload_form(request: Request, site: Site) -> Any:
    try:
        async with aclosing(bounded_body(request, MAX_UPLOAD_BYTES)) as body:
            form = await MultiPartParser(request.headers, body, max_files=1, max_fields=8).parse()
    except MultiPartException as error:
        raise ApiError(400, f"the form cannot be read: {error.message}") from error
    except OSError as error:  # a large file waits in the folder for temporary files
        raise ApiError(507, f"cannot take the form: {error.strerror}; send the trace as a raw body") from error
    files = [value for value in form.values() if isinstance(value, UploadFile)]
    try:
        if not files:
            raise ApiError(400, "the form holds no file; send the trace as a file field", param="file")
        return await site.library.upload(files[0].filename or "upload", _chunks(files[0]))
    finally:
        await form.close()


async def _chunks(file: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await file.read(BATCH_BYTES):
        yield chunk


async def download(request: Request) -> Response:
    """The trace file as it is. The live run's ends where it has got to."""
    site, name = site_of(request), request.path_params["name"]
    live = _live(site, name)
    if live is not None:
        return await _download_live(live)
    trace = site.library.find(name)
    return FileResponse(trace.path, media_type="application/octet-stream", filename=trace.path.name)


async def _download_live(live: LiveRun) -> Response:
    """The file of the run so far. It grows while it is sent, so its length is fixed beforehand."""
    if live.recorder is None:
        raise ApiError(404, "the live run is not being recorded, so there is no file", code="not_found")
    await asyncio.to_thread(live.recorder.flush)
    path = live.recorder.paths[0]
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ApiError(404, f"the live run's file cannot be read: {error.strerror}", code="not_found") from error
    if not size:
        raise ApiError(404, "the live run has written nothing yet", code="not_found")
    disposition = f"attachment; filename*=utf-8''{quote(path.name)}"
    headers = {"content-length": str(size), "content-disposition": disposition}
    return StreamingResponse(_first_bytes(path, size), media_type="application/octet-stream", headers=headers)


def _first_bytes(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while size and (chunk := file.read(min(size, BATCH_BYTES))):
            size -= len(chunk)
            yield chunk


async def info(request: Request) -> Response:
    """What a trace is and holds."""
    site, name = site_of(request), request.path_params["name"]
    return JSON(await asyncio.to_thread(_info, site, name))


def _info(site: Site, name: str) -> dict[str, Any]:
    live = _live(site, name)
    if live is not None and live.recorder is None:
        return {**_live_entry(live), "last_seq": live.history.newest}
    if live is not None and live.recorder is not None:
        live.recorder.flush()
    stored = site.library.find(name)
    with open_trace(stored.path) as trace:
        facts = {key: value for key, value in trace.info().items() if key != "path"}
    return {"name": name, "bundled": stored.bundled, "live": live is not None, **facts}


async def frames(request: Request) -> Response:
    """Frames of a trace, in the WebSocket's framing, read chunk by chunk while they are sent."""
    site, name, query = site_of(request), request.path_params["name"], request.query_params
    source = await asyncio.to_thread(_source, site, name)
    wanted = source(
        _number(query.get("from"), "from", 0) or 0,
        _number(query.get("to"), "to", None),
        _kinds(query.get("kinds")),
        query.get("request") or None,
    )
    # The first batch is read before the answer begins: a file that cannot be read is an error, not a short answer.
    first = await asyncio.to_thread(_batch, wanted)
    return StreamingResponse(_stream(first, wanted), media_type=MEDIA_TYPE, headers={"cache-control": "no-store"})


def _source(site: Site, name: str) -> Source:
    live = _live(site, name)
    if live is not None:
        live.bus.flush()
        return live.frames
    path = site.library.find(name).path

    def read(from_seq: int, to_seq: int | None, kinds: frozenset[str] | None, request: str | None) -> Iterator[Frame]:
        with open_trace(path) as trace:
            yield from trace.frames(from_seq, to_seq, kinds, request)

    return read


async def _stream(first: bytes, wanted: Iterator[Frame]) -> AsyncIterator[bytes]:
    batch = first
    while batch:
        yield batch
        batch = await asyncio.to_thread(_batch, wanted)


def _batch(wanted: Iterator[Frame]) -> bytes:
    """About a megabyte of frames; empty at the end."""
    parts, size = [], 0
    for frame in wanted:
        parts.append(framed(frame))
        size += len(parts[-1])
        if size >= BATCH_BYTES:
            break
    return b"".join(parts)


def _live(site: Site, name: str) -> LiveRun | None:
    return site.live if site.live is not None and name == site.live.name else None


def _number(text: str | None, name: str, default: int | None) -> int | None:
    if text is None or text == "":
        return default
    try:
        return int(text)
    except ValueError:
        raise ApiError(400, f"{name} is {text!r}; expected a seq, an integer", param=name) from None


def _kinds(text: str | None) -> frozenset[str] | None:
    if not text:
        return None
    kinds = frozenset(text.split(","))
    if unknown := sorted(kinds - KINDS.keys()):
        raise ApiError(400, f"kinds holds {unknown[0]!r}; known are {', '.join(KINDS)}", param="kinds")
    return kinds


_INTEGER, _STRING = {"type": "integer"}, {"type": "string"}

OPERATIONS = [
    Operation(method="GET", path="/v1/traces", handler=traces, summary="All traces, the live run included"),
    Operation(
        method="POST",
        path="/v1/traces",
        handler=upload,
        summary="Upload a trace",
        uploads=("application/octet-stream", "multipart/form-data"),
        query=(Query(name="name", schema=_STRING, description="Name for a raw body"),),
        status=201,
        errors=(400, 413, 415, 507),
    ),
    Operation(
        method="GET",
        path="/v1/traces/{name}",
        handler=download,
        summary="Download a trace",
        answer=("application/octet-stream",),
        errors=(404,),
    ),
    Operation(
        method="GET", path="/v1/traces/{name}/info", handler=info, summary="What a trace holds", errors=(400, 404)
    ),
    Operation(
        method="GET",
        path="/v1/traces/{name}/frames",
        handler=frames,
        summary="Frames of a trace, in RFC 6455 framing",
        query=(
            Query(name="from", schema=_INTEGER, description="First seq"),
            Query(name="to", schema=_INTEGER, description="Last seq"),
            Query(name="kinds", schema=_STRING, description="Kinds of event, separated by commas"),
            Query(name="request", schema=_STRING, description="A request's id: only what belongs to it"),
        ),
        answer=(MEDIA_TYPE,),
        errors=(400, 404),
    ),
]
