"""The traces this server can show: the person's own, recorded or uploaded, and those that come with Tokenwalk.

A trace is found by looking its name up in the folders' listings. No path is ever built from a name that a client sent.
"""

from __future__ import annotations

import os
import re
import secrets
import unicodedata
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backend.errors import ApiError, not_found
from engine.errors import TraceError
from engine.trace import open_trace

SUFFIX = ".mcap"
MAX_NAME_BYTES = 120  # well below the 255 that file systems take, also in a script of three bytes a letter


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """A trace file."""

    name: str
    path: Path
    bundled: bool
    size_bytes: int
    modified_ns: int


class TraceLibrary:
    """The traces on disk.

    Args:
        folder: where runs are recorded and uploads go. Need not exist yet.
        bundled: the folder of those that come with Tokenwalk.
        extra: one more file to show, wherever it lies: what `replay` was given.
    """

    def __init__(self, folder: Path, bundled: Path, *, extra: Path | None = None) -> None:
        self.folder = folder
        self.bundled = bundled
        self.extra = extra
        self._summaries: dict[Path, tuple[int, int, dict[str, Any]]] = {}

    def all(self) -> dict[str, StoredTrace]:
        """Every trace by its name; of two with one name, the one given on the command line, then the person's own."""
        found: dict[str, StoredTrace] = {}
        for path, bundled in [*_listed(self.bundled, True), *_listed(self.folder, False)]:
            _add(found, path, bundled=bundled)
        if self.extra is not None:
            _add(found, self.extra, bundled=False)
        return found

    def find(self, name: str) -> StoredTrace:
        """The trace of that name.

        Raises:
            ApiError: 404.
        """
        trace = self.all().get(name)
        if trace is None:
            raise not_found("trace", name, "GET /v1/traces lists them")
        return trace

    def default(self) -> str | None:
        """The bundled trace to show a newcomer: the first by name."""
        return next((trace.name for trace in self.all().values() if trace.bundled), None)

    def summary(self, trace: StoredTrace) -> dict[str, Any]:
        """What a list shows of a trace. Reads the file once, and again only when it has changed.

        A file that cannot be read is listed with its `error`: the person should see that it is there and what is wrong.
        """
        known = self._summaries.get(trace.path)
        if known is None or known[:2] != (trace.size_bytes, trace.modified_ns):
            known = self._summaries[trace.path] = (trace.size_bytes, trace.modified_ns, _summarise(trace))
        return {
            "name": trace.name,
            "size_bytes": trace.size_bytes,
            "modified": datetime.fromtimestamp(trace.modified_ns / 1e9, UTC).isoformat(timespec="seconds"),
            "bundled": trace.bundled,
            "live": False,
            **known[2],
        }

    async def upload(self, name: str, chunks: AsyncIterator[bytes]) -> StoredTrace:
        """Store an uploaded trace. It gets its name only once it has been opened and found to be a trace.

        Raises:
            ApiError: 400 when it is not one, 507 when the folder cannot take it.
        """
        partial = self.folder / f".upload-{secrets.token_hex(8)}.part"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with partial.open("xb") as file:
                async for chunk in chunks:
                    file.write(chunk)
            try:
                open_trace(partial).close()
            except TraceError as error:
                reason = str(error).replace(str(partial), f"the uploaded file {name!r}")
                raise ApiError(400, reason, code="invalid_trace") from error
            return self._settle(partial, safe_name(name))
        except OSError as error:
            raise ApiError(507, f"cannot store the upload in {self.folder}: {error.strerror}") from error
        finally:
            partial.unlink(missing_ok=True)

    def _settle(self, partial: Path, stem: str) -> StoredTrace:
        """Give the file the first free name. Creating it exclusively settles who was first, where two want the same."""
        taken = self.all()
        for number in range(1, 10_000):
            name = stem if number == 1 else f"{stem}-{number}"
            if name in taken:
                continue
            target = self.folder / f"{name}{SUFFIX}"
            with suppress(FileExistsError):
                target.open("xb").close()
                os.replace(partial, target)
                return self.find(name)
        raise ApiError(507, f"there are too many traces called {stem}")


def safe_name(given: str) -> str:
    """A file name, without its suffix, that means nothing to any file system: letters, digits, `.`, `_`, `-`."""
    last = re.split(r"[/\\]", given)[-1].removesuffix(SUFFIX)
    plain = unicodedata.normalize("NFKC", last)
    name = re.sub(r"[^\w.-]+", "-", plain).encode()[:MAX_NAME_BYTES].decode(errors="ignore")
    return name.strip(".-_") or "upload"


def _listed(folder: Path, bundled: bool) -> list[tuple[Path, bool]]:
    try:
        return [(path, bundled) for path in sorted(folder.iterdir()) if path.suffix == SUFFIX and path.name[0] != "."]
    except OSError:
        return []


def _add(found: dict[str, StoredTrace], path: Path, *, bundled: bool) -> None:
    with suppress(OSError):  # it was removed since it was listed
        stat = path.stat()
        found[path.stem] = StoredTrace(path.stem, path, bundled, stat.st_size, stat.st_mtime_ns)


def _summarise(trace: StoredTrace) -> dict[str, Any]:
    try:
        with open_trace(trace.path) as opened:
            model, requests = opened.header.get("model") or {}, opened.requests()
            return {
                "model": model.get("name"),
                "started_at": opened.header.get("started_at"),
                "complete": opened.complete,
                "requests": len(requests),
                "error": None,
            }
    except TraceError as error:
        return {"model": None, "started_at": None, "complete": False, "requests": 0, "error": str(error)}
