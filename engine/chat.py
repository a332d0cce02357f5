"""Chat templates: from messages to the one text a model reads, and back to who wrote which part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from engine.errors import RequestError, shown

Render = Callable[[list[dict[str, Any]]], str]
"""From messages to text, with the beginning of the assistant's turn at the end."""

_MAX_WORDS = 1000
"""Characters of what a template says: it may quote the messages."""

_MOST_NOT_FOUND = 200

_ROLES = {"system": "system", "developer": "system", "user": "user", "tool": "user", "assistant": "assistant"}


@dataclass(frozen=True)
class Prompt:
    """A rendered chat.

    Attributes:
        text: what the model reads. It holds the template's own control tokens: encode it with ``add_special=False``.
        roles: (start, end, role) in characters, ascending: which part is whose message. The rest is the template's.
    """

    text: str
    roles: list[tuple[int, int, str]]

    def roles_of(self, spans: Sequence[tuple[int, int]]) -> list[str]:
        """The role of each span (ascending): that of the message it overlaps most, ``template`` outside all of them."""
        found = []
        first = 0
        for start, end in spans:
            while first < len(self.roles) and self.roles[first][1] <= start:
                first += 1
            best, role = 0, "template"
            for low, high, name in self.roles[first:]:
                if low >= end:
                    break
                overlap = min(end, high) - max(start, low)
                if overlap > best:
                    best, role = overlap, name
            found.append(role if 2 * best >= end - start and best > 0 else "template")
        return found


def template_renderer(template: str, special_tokens: dict[str, str]) -> Render:
    """A renderer for a Jinja template, in the sandbox and with the functions that transformers gives such templates.

    Args:
        template: the Jinja source.
        special_tokens: what the template may write by name, such as ``bos_token``.
    """
    from transformers.utils.chat_template_utils import render_jinja_template  # slow to import

    def render(messages: list[dict[str, Any]]) -> str:
        arguments: dict[str, Any] = {"chat_template": template, "add_generation_prompt": True, **special_tokens}
        rendered: Any = render_jinja_template([messages], **arguments)
        return str(rendered[0][0])

    return render


def render_chat(render: Render | None, messages: list[dict[str, Any]]) -> Prompt:
    """Render `messages` and find each message's content in the text.

    Raises:
        RequestError: with param ``messages`` when they are malformed, or the template refuses them (its words).
    """
    if render is None:
        raise RequestError(
            "this model has no chat template, so it cannot take messages; send a plain prompt instead", param="messages"
        )
    plain = [_plain(message, index) for index, message in enumerate(messages)]
    if not plain:
        raise RequestError("messages is empty; give at least one message with role and content", param="messages")
    try:
        text = render(plain)
    except jinja2.TemplateError as error:
        message = (error.message or type(error).__name__)[:_MAX_WORDS]
        raise RequestError(f"the model's chat template refused the messages: {message}", param="messages") from error
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        # Templates call Python's own operations on what they are given, such as str + None.
        message = str(error)[:_MAX_WORDS]
        raise RequestError(f"the model's chat template failed on the messages: {message}", param="messages") from error
    return Prompt(text, _spans_by_markers(render, plain, text) or _spans_by_search(plain, text))


def _plain(message: Any, index: int) -> dict[str, Any]:
    """The message with its content as one text: templates of text models expect no list of parts."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(f"messages[{index}] is not an object with a role and a content", param="messages")
    if message["role"] not in _ROLES:
        known = ", ".join(_ROLES)
        raise RequestError(
            f"messages[{index}] has role {shown(message['role'])}; expected one of {known}", param="messages"
        )
    content = message.get("content")
    if isinstance(content, list):
        texts = [part["text"] for part in content if _is_text_part(part)]
        if len(texts) != len(content):
            raise RequestError(f"messages[{index}].content has a part that is not text", param="messages")
        content = "".join(texts)
    if content is None and message["role"] == "assistant" and message.get("tool_calls"):
        content = ""
    if not isinstance(content, str):
        raise RequestError(f"messages[{index}].content is not a text; expected a string", param="messages")
    if not content.isprintable() and any("\ud800" <= char <= "\udfff" for char in content):
        raise RequestError(f"messages[{index}].content holds half of a surrogate pair", param="messages")
    return {**message, "content": content}


def _is_text_part(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _spans_by_markers(render: Render, messages: list[dict[str, Any]], text: str) -> list[tuple[int, int, str]] | None:
    """Render once more with a marker for each content; what stands between the markers is the template's.

    None when the template does more with the contents than putting (or stripping) them in their places.
    """
    markers = [f"\ue0f0{index}\ue0f1" for index in range(len(messages))]
    try:
        skeleton = render([{**message, "content": mark} for message, mark in zip(messages, markers, strict=True)])
    except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError):
        return None
    spans = []
    position = at = 0  # in the text, and in the skeleton
    for message, mark in zip(messages, markers, strict=True):
        found = skeleton.find(mark, at)
        if found < 0 or not text.startswith(before := skeleton[at:found], position):
            return None
        position, at = position + len(before), found + len(mark)
        following = skeleton.find("\ue0f0", at)
        after = skeleton[at : len(skeleton) if following < 0 else following]
        for content in (message["content"], message["content"].strip()):
            if text.startswith(content + after, position):
                break
        else:
            return None
        if content:
            spans.append((position, position + len(content), _ROLES[message["role"]]))
        position += len(content)
    return spans if text[position:] == skeleton[at:] else None


def _spans_by_search(messages: list[dict[str, Any]], text: str) -> list[tuple[int, int, str]]:
    """Look for each content after the one before. What a template rewrote is not found, and counts as its own.

    After many that are not found no more are looked for: each takes a look at the whole text.
    """
    spans: list[tuple[int, int, str]] = []
    position = 0
    for index, message in enumerate(messages):
        if index - len(spans) > _MOST_NOT_FOUND:
            break
        for content in (message["content"], message["content"].strip()):
            start = text.find(content, position) if content else -1
            if start >= 0:
                position = start + len(content)
                spans.append((start, position, _ROLES[message["role"]]))
                break
    return spans
