"""Chat messages as the OpenAI API takes them, brought into the form that chat templates take."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from backend.parameters import Body


class TextPart(Body):
    """A piece of text. Images and sounds are not understood by the models that run here."""

    type: Literal["text"]
    text: str


def _only_nothing(value: object) -> None:
    """Accept what an OpenAI client writes back for fields that were empty in an answer."""
    if value not in (None, [], {}, ""):
        raise ValueError("only text is supported by this server")


Unsupported = Annotated[None, BeforeValidator(_only_nothing)]


def _role(value: object) -> object:
    if value in ("tool", "function"):
        raise ValueError("tool calls are not supported by this server; expected system, user or assistant")
    return value


class Message(Body):
    """One turn of a chat."""

    role: Annotated[Literal["system", "developer", "user", "assistant"], BeforeValidator(_role)]
    content: Annotated[str | list[TextPart], Field(union_mode="left_to_right")]
    name: Unsupported = None
    refusal: Unsupported = None
    audio: Unsupported = None
    tool_calls: Unsupported = None
    tool_call_id: Unsupported = None
    function_call: Unsupported = None
    annotations: Unsupported = None
    reasoning_content: Unsupported = None


def as_template_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """Role and text. `developer` is OpenAI's newer word for what templates call `system`."""
    return [
        {
            "role": "system" if message.role == "developer" else message.role,
            "content": message.content
            if isinstance(message.content, str)
            else "".join(part.text for part in message.content),
        }
        for message in messages
    ]
