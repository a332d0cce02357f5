"""`GET /v1/slots` and `GET /v1/cache`: who holds which place in the batch, and which KV blocks."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from backend.json import JSON
from backend.operation import Operation
from backend.site import site_of


async def slots(request: Request) -> Response:
    """Who holds which scheduler slot."""
    live = site_of(request).live_run()
    return JSON({"object": "list", "data": live.engine.slots_view()})


async def cache(request: Request) -> Response:
    """The block map between two steps, and `seq`, the last event that it follows from.

    `map` has one entry a block: state (free, cached or held), refs, holders, logical (index in their block tables),
    positions, prefix_hash, parent_hash, last_use_ns. `waste` is the share of the held blocks' positions that hold no
    token; `fragmentation` counts the unbroken stretches of free blocks and the unbroken runs of all block tables. Where
    the cache is not in blocks, `map` is empty and both are null.
    """
    live = site_of(request).live_run()
    # It waits for the engine thread, which answers between two steps.
    return JSON(await asyncio.to_thread(live.engine.cache_state))


OPERATIONS = [
    Operation(method="GET", path="/v1/slots", handler=slots, summary="Scheduler slots", errors=(503,)),
    Operation(method="GET", path="/v1/cache", handler=cache, summary="The block map of the KV cache", errors=(503,)),
]
