"""The description of the HTTP interface, made from the same records that the routes are made from."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from backend.json import JSON
from backend.operation import Operation
from engine.version import VERSION

_REFS = "#/components/schemas/{model}"
_ANYWHERE = (401, 403)

ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def describe(operations: list[Operation]) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    models = [(operation.body, "validation") for operation in operations if operation.body is not None]
    _, definitions = models_json_schema(models, ref_template=_REFS)  # type: ignore[arg-type]
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tokenwalk",
            "version": VERSION,
            "description": "Watch one token travel through a running language model. The live event stream is the "
            "WebSocket /ws; its messages are described in traces/FORMAT.md.",
        },
        "paths": paths,
        "components": {
            "schemas": {**definitions.get("$defs", {}), "Error": ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def operation_of(operations: list[Operation]) -> Operation:
    """The operation that serves the description, itself included."""

    async def openapi(request: Request) -> Response:
        return JSON(description)

    own = Operation(method="GET", path="/openapi.json", handler=openapi, summary="This description")
    description = describe([*operations, own])
    return own


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.handler.__name__,
        "summary": operation.summary,
        "responses": _responses(operation),
    }
    if operation.handler.__doc__:
        described["description"] = operation.handler.__doc__
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", operation.path)
    ]
    parameters += [
        {"name": query.name, "in": "query", "schema": query.schema, "description": query.description}
        for query in operation.query
    ]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        schema = {"$ref": _REFS.format(model=operation.body.__name__)}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if operation.uploads:
        content = {media_type: {"schema": _upload_schema(media_type)} for media_type in operation.uploads}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _responses(operation: Operation) -> dict[str, Any]:
    good = {media_type: {"schema": _answer_schema(media_type)} for media_type in operation.answer}
    responses: dict[str, Any] = {str(operation.status): {"description": operation.summary, "content": good}}
    for status in sorted({*operation.errors, *_ANYWHERE}):
        content = {"application/json": {"schema": {"$ref": _REFS.format(model="Error")}}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    return responses


def _answer_schema(media_type: str) -> dict[str, Any]:
    if media_type == "application/json":
        return {"type": "object"}
    return {"type": "string"} if media_type.startswith("text/") else {"type": "string", "format": "binary"}


def _upload_schema(media_type: str) -> dict[str, Any]:
    file = {"type": "string", "format": "binary"}
    return {"type": "object", "properties": {"file": file}} if media_type.startswith("multipart/") else file
