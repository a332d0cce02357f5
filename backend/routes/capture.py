"""`POST /v1/capture/estimate`: what looking inside a request would cost, to the byte, before it is sent."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from backend.body import read_json
from backend.errors import ApiError
from backend.json import JSON
from backend.messages import Message, as_template_messages
from backend.operation import Operation
from backend.parameters import Parameters, parse_body
from backend.routes.models import check_model
from backend.site import site_of
from engine.request import GenerationRequest


class EstimateBody(Parameters):
    """A completion's or a chat completion's body; or, in the place of prompt or messages, a number of tokens."""

    prompt: Annotated[str | list[Annotated[int, Field(ge=0)]] | None, Field(description="A text or token ids.")] = None
    messages: Annotated[list[Message] | None, Field(description="A chat.")] = None
    prompt_tokens: Annotated[int | None, Field(ge=1, description="Tokens of a prompt that is not given.")] = None
    max_completion_tokens: Annotated[int | None, Field(ge=1)] = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None

    @property
    def limit(self) -> int | None:
        """Most tokens to generate; None: as many as the context holds."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


async def estimate_capture(request: Request) -> Response:
    """Say how many bytes of arrays the request's capture plan would hold, and what its budget would leave out.

    The numbers are exact for a request that finds nothing in the prefix cache and generates `max_tokens` tokens; found
    positions and an earlier end make them smaller. Of several choices it is one. "prompt" counts the passes over the
    prompt but its last, "generated" those that choose a token. `refused` says why such a request would be a 400.
    """
    live = site_of(request).live_run()
    engine = live.engine
    body = parse_body(EstimateBody, await read_json(request))
    check_model(live, body.model)
    plan = body.capture(live.capture_default)
    given = [name for name in ("prompt", "messages", "prompt_tokens") if getattr(body, name) is not None]
    if len(given) != 1:
        said = " and ".join(given) or "none of them"
        raise ApiError(400, f"expected exactly one of prompt, messages and prompt_tokens; given {said}", param="prompt")
    if body.prompt_tokens is not None:
        if body.limit is None:
            raise ApiError(400, "prompt_tokens is given without max_tokens; give both", param="max_tokens")
        return JSON(engine.estimate_of(body.prompt_tokens, body.limit, plan))
    asked = GenerationRequest(
        messages=None if body.messages is None else as_template_messages(body.messages),
        prompt=body.prompt,
        max_tokens=body.limit,
        capture=plan,
    )
    answer: dict[str, Any] = await asyncio.to_thread(engine.estimate, asked)
    return JSON(answer)


OPERATIONS = [
    Operation(
        method="POST",
        path="/v1/capture/estimate",
        handler=estimate_capture,
        summary="Bytes that a capture plan would hold",
        body=EstimateBody,
        errors=(400, 404, 413, 415, 500, 503),
    )
]
