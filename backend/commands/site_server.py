"""What `serve` and `replay` have in common: settings, what is printed, and the server's life."""

from __future__ import annotations

import asyncio
import socket
import threading
import webbrowser
from typing import Any
from urllib.parse import quote

from rich.markup import escape

from backend.app import create_app
from backend.commands.console import err, out
from backend.ending import SILENT_S, WAITS
from backend.routes.health import blas_warning
from backend.server import Server, ServerError, until_started
from backend.settings import Authority, Origin, Settings
from backend.site import Site
from backend.sizes import show_size
from engine.codec import parse
from engine.version import VERSION


def settings_from(
    listener: socket.socket,
    host: str,
    access_token: str | None,
    allow_hosts: list[str] | None,
    allow_origins: list[str] | None,
) -> Settings:
    """Settings for the socket that was opened.

    Raises:
        ServerError: for a host or origin that is none.
    """
    for name in allow_hosts or []:
        if Authority.parse(name) is None:
            raise ServerError(f"--allow-host {name!r} is not a host; expected NAME or NAME:PORT")
    for origin in allow_origins or []:
        if Origin.parse(origin) is None:
            raise ServerError(f"--allow-origin {origin!r} is not an origin; expected http://NAME or https://NAME:PORT")
    return Settings(
        host=host,
        port=listener.getsockname()[1],
        access_token=access_token or None,
        allow_hosts=tuple(allow_hosts or ()),
        allow_origins=tuple(allow_origins or ()),
    )


def server_of(site: Site, listener: socket.socket) -> Server:
    """The server that shows a site on a socket."""

    async def before_end() -> None:
        if site.live is None:
            return
        ending = asyncio.create_task(asyncio.to_thread(site.live.stop))
        done, _ = await asyncio.wait((ending,), timeout=SILENT_S)
        if not done:
            err.print(f"  {WAITS}")
        await ending

    return Server(create_app(site), listener, before_end)


async def show_until_stopped(site: Site, server: Server, *, open_browser: bool) -> None:
    """Serve until Ctrl-C. The page can be opened at once; a model loads meanwhile.

    Raises:
        TokenwalkError: when the model cannot be loaded.
    """
    if site.live is not None:
        site.live.hub.attach(asyncio.get_running_loop())
    serving = asyncio.create_task(server.run_until_stopped())
    try:
        await until_started(server)
        _announce(site, open_browser)
        if site.live is not None:
            loading = asyncio.create_task(site.live.load())
            await asyncio.wait((loading, serving), return_when=asyncio.FIRST_COMPLETED)
            if not loading.done():
                loading.cancel()
            else:
                loading.result()
                _announce_model(site)
    finally:
        # Whatever happened: by Ctrl-C the server has begun to end by itself, after an error it is told to.
        if site.live is not None and site.live.failure is not None:
            server.stop()
        await serving


def _announce(site: Site, open_browser: bool) -> None:
    settings = site.settings
    token = f"/?token={quote(settings.access_token, safe='')}" if settings.access_token else ""
    url = settings.url + token
    out.print(f"[bold]Tokenwalk {VERSION}[/]  [bold cyan]{escape(url)}[/]")
    live = site.live
    if live is None:
        out.print(f"  replays {escape(site.replayed or '')}; Ctrl-C ends")
    else:
        place = live.recorder.path if live.recorder else "nowhere (--no-record)"
        out.print(f"  records to {escape(str(place))}")
        out.print(f"  loading {escape(live.spec)} …")
    if not settings.loopback and settings.access_token is None:
        err.print(
            f"[yellow]  whoever reaches {escape(settings.host)} can read prompts and use the model; "
            "--access-token asks them for a word[/]"
        )
    if open_browser:
        # A thread of its own, and not waited for: a browser of the terminal runs until it is left.
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _capacity(header: dict[str, Any]) -> str:
    """How many requests run at once, and where their keys and values are."""
    slots, kv = header.get("slots", 1), header.get("kv") or {}
    text = f"{slots} slot{'s' if slots != 1 else ''}; KV {kv.get('store') or 'not described'}"
    if kv.get("blocks"):
        tokens = kv["blocks"] * kv["block_size"]
        text += f": {kv['blocks']:,} blocks × {kv['block_size']} positions = {tokens:,} tokens"
        if kv.get("block_bytes"):
            text += f" in {show_size(kv['blocks'] * kv['block_bytes'])}"
    if kv.get("batched") is False:
        text += f"; one at a time: {kv.get('batching')}"
    return text


def _announce_model(site: Site) -> None:
    live = site.live
    assert live is not None
    info = live.engine.info
    out.print(
        f"  {escape(info.name)} is ready after {live.load_seconds:.1f} s: {info.architecture}, {info.layers} layers × "
        f"{info.heads} heads, context {info.context:,}. Ctrl-C ends."
    )
    live.bus.flush()
    header = parse(live.bus.header.payload, binary=False)[0] if live.bus.header else {}
    out.print(f"  {escape(_capacity(header))}")
    warning = blas_warning(header.get("machine") or {})
    if warning:
        err.print(f"[yellow]  {escape(warning)}[/]")
