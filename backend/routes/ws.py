"""`WS /ws`: the live event stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeGuard

import orjson
from starlette.websockets import WebSocket, WebSocketDisconnect

from backend.errors import ApiError
from backend.feed import COMMAND_KEYS, Missing, command_name, parse_command
from backend.hub import Client
from backend.live import LiveRun
from backend.routes.kernels import time_steps
from backend.site import site_of
from engine.codec import Frame
from engine.errors import RequestError, TokenwalkError, shown

MAX_READ_POSITIONS = 1024
"""Positions in one lens or attribution command. Each takes the engine some milliseconds; those who decode wait."""

MOST_ECHOED = 100
"""Characters of what a client sent that an error says back."""

BACKFILL_BYTES = 4 * 2**20
"""How much is read from the trace file at a time for a client that missed more than memory holds."""


async def stream(websocket: WebSocket) -> None:
    """Serve one client until it leaves."""
    live = site_of(websocket).live
    await websocket.accept()
    if live is None:
        await _say_error(websocket, None, "this server replays a trace; read its frames from /v1/traces/{name}/frames")
        await websocket.close(1000, "no live run")
        return
    client = live.hub.join(recorded=live.recorder is not None)
    tasks = [
        asyncio.create_task(_receive(websocket, live, client)),
        asyncio.create_task(_send(websocket, live, client)),
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        live.hub.leave(client)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        fault = task.exception()
        if fault is not None and not isinstance(fault, WebSocketDisconnect):
            raise fault


async def _receive(websocket: WebSocket, live: LiveRun, client: Client) -> None:
    """Obey commands."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        name, command = None, {}
        try:
            if message.get("text") is None:
                raise RequestError("commands are JSON in text messages; this was a binary one")
            command = parse_command(message["text"])
            name = command_name(command)
            if name == "lens":
                await _read(live.engine.lens, command)
            elif name == "attribution":
                await _read(partial(live.engine.attribution, heads=_heads(command)), command)
            elif name == "time":
                time_steps(live, {key: value for key, value in command.items() if key not in COMMAND_KEYS})
            else:
                client.feed.command(command)
        except (TokenwalkError, ApiError) as error:
            await _say_error(websocket, name, str(error), _whose(command))
        client.due.set()


async def _read(reading: Callable[[str, list[int]], None], command: dict[str, object]) -> None:
    """Ask for the lens, or for attribution, of positions; it arrives as ordinary events."""
    request, positions = command.get("request"), command.get("positions")
    if not isinstance(request, str):
        raise RequestError(f"request is {shown(request)}; expected a request's id", param="request")
    if not _are_positions(positions):
        raise RequestError(
            f"positions is {shown(positions)}; expected a list of at most {MAX_READ_POSITIONS:,} positions, from 0",
            param="positions",
        )
    await asyncio.to_thread(reading, request, positions)


def _are_positions(given: object) -> TypeGuard[list[int]]:
    return (
        isinstance(given, list)
        and len(given) <= MAX_READ_POSITIONS
        and all(type(item) is int and 0 <= item < 2**31 for item in given)
    )


def _whose(command: dict[str, object]) -> dict[str, object]:
    """What a reading was asked of, so that its error can be told from another's, and shown where it was asked for."""
    request, positions = command.get("request"), command.get("positions")
    if not isinstance(request, str) or len(request) > MOST_ECHOED or not _are_positions(positions):
        return {}
    return {"request": request, "positions": positions}


def _heads(command: dict[str, object]) -> bool:
    heads = command.get("heads", False)
    if not isinstance(heads, bool):
        raise RequestError(f"heads is {shown(heads)}; expected true or false", param="heads")
    return heads


async def _send(websocket: WebSocket, live: LiveRun, client: Client) -> None:
    """Send what is due, at the client's pace."""
    while True:
        await client.due.wait()
        client.due.clear()
        while (item := client.feed.next()) is not None:
            if isinstance(item, Missing):
                await _backfill(websocket, live, client, item)
            else:
                await _send_frame(websocket, item)


async def _backfill(websocket: WebSocket, live: LiveRun, client: Client, missing: Missing) -> None:
    """Read what memory no longer holds from the trace file, piece by piece."""
    source = live.frames(missing.from_seq, missing.to_seq, None, None)
    found = False
    try:
        while batch := await asyncio.to_thread(_batch, source):
            found = True
            client.feed.backfill(batch)
            while client.feed.has_backlog:
                item = client.feed.next()
                if isinstance(item, Frame):
                    await _send_frame(websocket, item)
                elif client.feed.has_backlog:  # paused, or waiting for an acknowledgement
                    await client.due.wait()
                    client.due.clear()
    except TokenwalkError:
        found = False
    if not found:
        client.feed.backfill([])


def _batch(source: Iterator[Frame]) -> list[Frame]:
    batch, size = [], 0
    for frame in source:
        batch.append(frame)
        size += frame.size
        if size >= BACKFILL_BYTES:
            break
    return batch


async def _send_frame(websocket: WebSocket, frame: Frame) -> None:
    if frame.binary:
        await websocket.send_bytes(frame.payload)
    else:
        await websocket.send_text(frame.payload.decode())


async def _say_error(
    websocket: WebSocket, command: str | None, message: str, whose: dict[str, object] | None = None
) -> None:
    name = None if command is None else command[:MOST_ECHOED]
    said = {"kind": "error", "command": name, "message": message, **(whose or {})}
    await websocket.send_text(orjson.dumps(said).decode())
