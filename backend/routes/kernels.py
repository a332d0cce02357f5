"""`POST /v1/kernels`: where the time of the next steps goes, operation by operation."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from backend.body import read_json
from backend.json import JSON
from backend.live import LiveRun
from backend.operation import Operation
from backend.parameters import parse_body
from backend.site import site_of

MAX_STEPS = 1000
"""Steps that one call may have timed. Each is slower than normal, for all requests."""


class KernelsBody(BaseModel):
    """How many steps to time."""

    model_config = ConfigDict(extra="forbid", strict=True)

    steps: Annotated[int, Field(ge=1, le=MAX_STEPS, description="Time the operations of that many steps.")] = 1


async def kernels(request: Request) -> Response:
    """Time the operations of the next steps, with a barrier after each: slower than normal, same tokens.

    The times come as `kernel` events of the live stream; `step.finished` says what such a step normally takes. What
    is already asked for is not added to.
    """
    return JSON(time_steps(site_of(request).live_run(), await read_json(request)))


def time_steps(live: LiveRun, given: dict[str, Any]) -> dict[str, Any]:
    """Obey the call, whichever way it came.

    Raises:
        ApiError: when the number of steps is wrong, or the engine is not there.
    """
    body = parse_body(KernelsBody, given)
    live.engine.time_steps(body.steps)
    return {"steps": body.steps}


OPERATIONS = [
    Operation(
        method="POST",
        path="/v1/kernels",
        handler=kernels,
        summary="Time the operations of the next steps",
        body=KernelsBody,
        errors=(400, 413, 415, 503),
    )
]
