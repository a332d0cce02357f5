"""`GET /v1/models`, `POST /v1/tokenize`, `POST /v1/detokenize`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from backend.body import read_json
from backend.errors import ApiError
from backend.json import JSON
from backend.live import LiveRun
from backend.messages import Message, as_template_messages
from backend.operation import Operation
from backend.parameters import Body, parse_body
from backend.site import site_of
from engine.errors import shown

if TYPE_CHECKING:
    from engine.tokenizer import Tokenizer


MAX_DESCRIBED = 262_144
"""Tokens that one call describes: no model that runs here has a longer context, and each takes 300 bytes."""


class TokenizeBody(Body):
    """A text, or chat messages."""

    model: str | None = None
    text: str | None = None
    messages: Annotated[list[Message] | None, Field(description="Rendered with the model's chat template.")] = None
    add_special: Annotated[bool, Field(description="Whether to add what the tokenizer puts around a text.")] = True


class DetokenizeBody(Body):
    """Token ids."""

    model: str | None = None
    tokens: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=1_000_000)]


def check_model(live: LiveRun, name: str | None) -> None:
    """Refuse a model that is not the one loaded.

    Raises:
        ApiError: 404, or 503 while none is loaded.
    """
    known = model_names(live)
    if name is not None and name not in known:
        raise ApiError(
            404,
            f"the model {shown(name)} is not loaded here; loaded is {known[0]!r}",
            param="model",
            code="model_not_found",
        )


def model_names(live: LiveRun) -> list[str]:
    """Names under which the loaded model may be asked for."""
    return list(dict.fromkeys((live.engine.info.name, live.spec)))


async def models(request: Request) -> Response:
    """The loaded model, as OpenAI lists models."""
    live = site_of(request).live_run()
    info = live.engine.info
    created = int(time.time() - live.bus.now_ns() / 1e9)
    entry = {
        "id": info.name,
        "object": "model",
        "created": created,
        "owned_by": "tokenwalk",
        "tokenwalk": info.as_dict(),
    }
    return JSON({"object": "list", "data": [entry]})


async def tokenize(request: Request) -> Response:
    """Tokens of a text or of a rendered chat: id, bytes, place in the text, role."""
    live = site_of(request).live_run()
    tokenizer = live.engine.tokenizer
    body = parse_body(TokenizeBody, await read_json(request))
    check_model(live, body.model)
    if (body.text is None) == (body.messages is None):
        raise ApiError(400, "give either text or messages, not both and not neither", param="text")
    # Of a long text even the answer takes long to write down.
    return await asyncio.to_thread(lambda: JSON(_tokenized(tokenizer, body)))


def _tokenized(tokenizer: Tokenizer, body: TokenizeBody) -> dict[str, Any]:
    if body.messages is not None:
        prompt = tokenizer.render_chat(as_template_messages(body.messages))
        text = prompt.text
        _check_described(tokenizer.fewest_tokens(text), "messages")
        encoding = tokenizer.encode(text, add_special=False)
        roles = tokenizer.roles(prompt, encoding.spans)
    else:
        text = body.text or ""
        _check_described(tokenizer.fewest_tokens(text), "text")
        encoding = tokenizer.encode(text, add_special=body.add_special)
        roles = ["user"] * len(encoding.ids)
    _check_described(len(encoding.ids), "text" if body.messages is None else "messages")
    tokens = [
        {
            "id": token,
            "label": tokenizer.label(token),
            "bytes_hex": tokenizer.token_bytes(token).hex(),
            "start": start,
            "end": end,
            "role": role,
            "special": tokenizer.is_special(token),
        }
        for token, (start, end), role in zip(encoding.ids, encoding.spans, roles, strict=True)
    ]
    return {"text": text, "count": len(tokens), "tokens": tokens}


def _check_described(tokens: int, param: str) -> None:
    """Refuse a text whose tokens would be an answer of a hundred megabytes."""
    if tokens > MAX_DESCRIBED:
        raise ApiError(
            400,
            f"the text has {tokens:,} tokens or more; at most {MAX_DESCRIBED:,} are described at once; send parts",
            param=param,
        )


async def detokenize(request: Request) -> Response:
    """The text that token ids stand for."""
    live = site_of(request).live_run()
    tokenizer = live.engine.tokenizer
    body = parse_body(DetokenizeBody, await read_json(request))
    check_model(live, body.model)
    return JSON({"text": await asyncio.to_thread(_detokenized, tokenizer, body.tokens)})


def _detokenized(tokenizer: Tokenizer, tokens: list[int]) -> str:
    for index, token in enumerate(tokens):
        if token >= tokenizer.vocab_size:
            raise ApiError(
                400, f"token {token} is outside the vocabulary of {tokenizer.vocab_size:,}", param=f"tokens[{index}]"
            )
    return tokenizer.decode(tokens)


_BAD = (400, 404, 413, 415, 503)

OPERATIONS = [
    Operation(method="GET", path="/v1/models", handler=models, summary="The loaded model", errors=(503,)),
    Operation(
        method="POST", path="/v1/tokenize", handler=tokenize, summary="Tokens of a text", body=TokenizeBody, errors=_BAD
    ),
    Operation(
        method="POST",
        path="/v1/detokenize",
        handler=detokenize,
        summary="Text of tokens",
        body=DetokenizeBody,
        errors=_BAD,
    ),
]
