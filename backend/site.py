"""What one server serves: a live run, or a replayed trace, and the library of stored ones."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from backend.errors import ApiError
from backend.library import TraceLibrary
from backend.live import LiveRun
from backend.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Everything that routes need, in one place."""

    settings: Settings
    library: TraceLibrary
    live: LiveRun | None = None
    replayed: str | None = None
    """Name of the trace that `replay` was given."""

    @property
    def run(self) -> str | None:
        """Name, among the traces, of the run that this server is about."""
        return self.live.name if self.live else self.replayed

    def live_run(self) -> LiveRun:
        """The live run.

        Raises:
            ApiError: 503 when there is none.
        """
        if self.live is None:
            raise ApiError(
                503, "this server replays a trace and has no model; `tokenwalk serve` starts one", code="not_ready"
            )
        return self.live


def site_of(connection: HTTPConnection) -> Site:
    """The site that a request or WebSocket belongs to."""
    site = connection.app.state.site
    assert isinstance(site, Site)
    return site
