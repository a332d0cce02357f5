"""`POST /v1/requests/{id}/fork`: what if it had said something else? Another request from any position of one."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from backend.body import read_json
from backend.errors import ApiError
from backend.live import LiveRun
from backend.operation import Operation
from backend.parameters import MAX_TOP_LOGPROBS, Parameters, parse_body
from backend.routes.completions import ANSWERS, ERRORS, respond
from backend.routes.requests import find
from backend.site import site_of
from engine.request import GenerationRequest, RequestView


class ForkBody(Parameters):
    """Where to branch off and what comes there instead. Sampling and stop texts left out are the first request's."""

    position: Annotated[int, Field(ge=1, description="First position that differs; those before it are shared.")]
    token: Annotated[int | None, Field(ge=0, description="The token at that position; or give text.")] = None
    text: Annotated[str | None, Field(description="The text from that position on; empty draws again.")] = None
    logprobs: Annotated[int | None, Field(ge=0, le=MAX_TOP_LOGPROBS)] = None

    @property
    def alternatives(self) -> int | None:
        """Alternatives a token in the log-probabilities; None for none at all."""
        return self.logprobs

    def instead(self) -> str | list[int]:
        """What comes at the position: token ids or text.

        Raises:
            ApiError: 400, unless exactly one of token and text is given.
        """
        if self.text is not None and self.token is None:
            return self.text
        if self.token is not None and self.text is None:
            return [self.token]
        given = "neither" if self.token is None else "both"
        raise ApiError(400, f"{given} of token and text given; expected exactly one", param="token")


async def fork(request: Request) -> Response:
    """Continue a running or recent request from a position with another token or text, sharing what comes before.

    The answer is a text completion of a new request; its text is what follows the given token or text.
    """
    live = site_of(request).live_run()
    parent = find(live, request.path_params["id"])
    body = parse_body(ForkBody, await read_json(request))
    added = body.instead()
    known = parent.prompt_tokens + parent.completion_tokens
    if body.position > known:
        raise ApiError(400, f"position is {body.position}; {parent.id} has {known} tokens so far", param="position")
    choices = [_request(live, body, parent, added, choice) for choice in range(body.n or 1)]
    submit = partial(live.engine.fork, parent.id, body.position)
    return await respond(request, live, body, "text", choices, prompts=1, submit=submit)


def _request(
    live: LiveRun, body: ForkBody, parent: RequestView, added: str | list[int], choice: int
) -> GenerationRequest:
    """One continuation."""
    return GenerationRequest(
        prompt=added,
        max_tokens=body.max_tokens,  # else what the parent had left
        sampling=body.sampling(choice, parent.sampling),
        stop=parent.stop if body.stop is None else body.stop,
        capture=body.capture(live.capture_default),
        name=body.extras.name or body.user,
        priority=body.extras.priority or 0,
        source="fork",
    )


OPERATIONS = [
    Operation(
        method="POST",
        path="/v1/requests/{id}/fork",
        handler=fork,
        summary="Continue a request from a position in another way",
        body=ForkBody,
        answer=ANSWERS,
        errors=ERRORS,
    )
]
