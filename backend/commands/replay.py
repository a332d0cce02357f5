"""`tokenwalk replay`: the dashboard on a recorded trace, with neither model nor MLX."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from backend.commands import options
from backend.commands.site_server import server_of, settings_from, show_until_stopped
from backend.library import TraceLibrary
from backend.paths import bundled_traces_dir, default_traces_dir
from backend.server import bind
from backend.site import Site
from engine.trace import open_trace

File = Annotated[Path, typer.Argument(metavar="FILE", help="The trace.", show_default=False)]


def replay(
    file: File,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8642,
    open_browser: options.OpenBrowser = False,
    traces: options.Traces = None,
    access_token: options.AccessToken = None,
    allow_host: options.AllowHosts = None,
    allow_origin: options.AllowOrigins = None,
    debug: options.Debug = False,
) -> None:
    """Show a recorded trace in the dashboard. Needs no model.

    Example: tokenwalk replay run.mcap --open
    """
    open_trace(file).close()  # says in one line what is wrong with it, before anything is started
    library = TraceLibrary(traces or default_traces_dir(), bundled_traces_dir(), extra=file.absolute())
    with closing(bind(host, port)) as listener:
        settings = settings_from(listener, host, access_token, allow_host, allow_origin)
        site = Site(settings=settings, library=library, replayed=file.stem)
        asyncio.run(show_until_stopped(site, server_of(site, listener), open_browser=open_browser))
