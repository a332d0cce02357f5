"""`POST /v1/chat/completions` and `POST /v1/completions`, streaming and not, as the OpenAI API defines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from backend.answer import Answer, Api, Form
from backend.body import read_json
from backend.errors import ApiError
from backend.generation import Generation, Submit
from backend.live import LiveRun
from backend.messages import Message, as_template_messages
from backend.operation import Operation
from backend.parameters import MAX_TOP_LOGPROBS, Parameters, parse_body
from backend.routes.models import check_model
from backend.routes.requests import dashboard_url
from backend.site import site_of
from backend.stream import EventStream, WholeAnswer
from engine.request import GenerationRequest

COMPLETION_MAX_TOKENS = 16
"""What the OpenAI API generates for a text completion that names no limit."""

MAX_PROMPTS = 64


class ChatBody(Parameters):
    """Body of a chat completion."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int | None, Field(ge=1)] = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int | None, Field(ge=0, le=MAX_TOP_LOGPROBS)] = None

    @property
    def alternatives(self) -> int | None:
        """Alternatives a token in the log-probabilities; None for none at all."""
        if self.top_logprobs is not None and not self.logprobs:
            raise ApiError(400, "top_logprobs is given without logprobs: true", param="top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def limit(self) -> int | None:
        """Most tokens to generate."""
        older, newer = self.max_tokens, self.max_completion_tokens
        if older is not None and newer is not None and older != newer:
            raise ApiError(
                400, f"max_tokens is {older} and max_completion_tokens {newer}; give one", param="max_tokens"
            )
        return older if newer is None else newer


Prompt = str | list[int]


def _prompts(value: object) -> list[Prompt]:
    """One prompt or several, each a text or token ids, as a list of prompts."""
    one = not isinstance(value, list) or all(type(item) is int for item in value)
    prompts: list[Any] = [value] if one or not isinstance(value, list) else value
    if not 1 <= len(prompts) <= MAX_PROMPTS:
        raise ValueError(f"{len(prompts)} prompts; expected 1 to {MAX_PROMPTS}")
    for prompt in prompts:
        ids = isinstance(prompt, list) and all(type(token) is int and token >= 0 for token in prompt)
        if not isinstance(prompt, str) and not ids:
            raise ValueError("expected a text, token ids, or a list of these")
    return prompts


Prompts = Annotated[
    list[Any],
    BeforeValidator(_prompts),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "integer", "minimum": 0}},
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_PROMPTS},
                {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
            ]
        }
    ),
]


class CompletionBody(Parameters):
    """Body of a text completion."""

    prompt: Prompts
    logprobs: Annotated[int | None, Field(ge=0, le=MAX_TOP_LOGPROBS)] = None

    @property
    def alternatives(self) -> int | None:
        """Alternatives a token in the log-probabilities; None for none at all."""
        return self.logprobs

    @property
    def limit(self) -> int | None:
        """Most tokens to generate."""
        return self.max_tokens


async def chat_completions(request: Request) -> Response:
    """Answer a chat."""
    live = site_of(request).live_run()
    _ = live.engine  # 503 before anything else: what the body asks for cannot be judged without a model
    body = parse_body(ChatBody, await read_json(request))
    messages = as_template_messages(body.messages)
    choices = [_request(live, body, choice, body.limit, messages=messages) for choice in range(body.n or 1)]
    return await respond(request, live, body, "chat", choices, prompts=1)


async def completions(request: Request) -> Response:
    """Continue one text, or several."""
    live = site_of(request).live_run()
    _ = live.engine
    body = parse_body(CompletionBody, await read_json(request))
    choices = [
        _request(live, body, choice, body.limit, prompt=prompt)
        for prompt in body.prompt
        for choice in range(body.n or 1)
    ]
    return await respond(request, live, body, "text", choices, prompts=len(body.prompt))


def _request(
    live: LiveRun,
    body: ChatBody | CompletionBody,
    choice: int,
    limit: int | None,
    *,
    messages: list[dict[str, Any]] | None = None,
    prompt: Prompt | None = None,
) -> GenerationRequest:
    """One generation."""
    return GenerationRequest(
        messages=messages,
        prompt=prompt,
        max_tokens=limit,
        usual_tokens=COMPLETION_MAX_TOKENS if messages is None else None,
        sampling=body.sampling(choice, live.sampling_default),
        stop=body.stop or (),
        capture=body.capture(live.capture_default),
        name=body.extras.name or body.user,
        priority=body.extras.priority or 0,
        source="completions" if messages is None else "chat.completions",
    )


async def respond(
    request: Request,
    live: LiveRun,
    body: Parameters,
    api: Api,
    choices: list[GenerationRequest],
    *,
    prompts: int,
    submit: Submit | None = None,
) -> Response:
    """Submit the choices and answer in the way that was asked for.

    Args:
        body: says how to answer.
        choices: what to generate; the choices of one prompt are neighbours.
        prompts: how many prompts they are for.
        submit: how each is handed to the engine; None is `engine.submit`.
    """
    engine = live.engine
    check_model(live, body.model)
    body.check(
        vocab=engine.info.vocab,
        capture=body.capture(live.capture_default),
        wants_logprobs=body.alternatives is not None,
    )
    generation = await Generation.start(engine, live.bus, choices, submit)
    form = Form(
        api=api,
        requests=generation.requests,
        prompts=prompts,
        model=engine.info.name,
        url=dashboard_url(request, live.name, generation.requests[0]),
        tokenizer=engine.tokenizer,
        top_logprobs=body.alternatives,
        include_usage=body.include_usage,
    )
    response: Callable[..., Response] = EventStream if body.stream else WholeAnswer
    return response(generation, Answer(form), live.bus, detached=body.extras.detached)


ERRORS = (400, 404, 413, 415, 429, 500, 503)
"""Statuses that an operation which generates may end with."""

ANSWERS = ("application/json", "text/event-stream")
"""Media types of its answer: whole, or streamed."""

OPERATIONS = [
    Operation(
        method="POST",
        path="/v1/chat/completions",
        handler=chat_completions,
        summary="Answer a chat",
        body=ChatBody,
        answer=ANSWERS,
        errors=ERRORS,
    ),
    Operation(
        method="POST",
        path="/v1/completions",
        handler=completions,
        summary="Continue a text",
        body=CompletionBody,
        answer=ANSWERS,
        errors=ERRORS,
    ),
]
