"""What is wrong with a body is said in plain words: what was given, what was expected, where the caller wrote it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from backend.errors import ApiError
from backend.parameters import Body, parse_body
from backend.routes.capture import EstimateBody
from backend.routes.completions import ChatBody, CompletionBody
from backend.routes.fork import ForkBody
from backend.routes.kernels import KernelsBody
from backend.routes.models import DetokenizeBody, TokenizeBody
from backend.validation import EXPECTED

USER = [{"role": "user", "content": "x"}]
LIBRARY = re.compile(r"[Ii]nput|valid|dictionary|instance|should|None|True|False|list\[|constrained")


def said(model: type[Body], body: dict[str, Any]) -> tuple[str | None, str]:
    with pytest.raises(ApiError) as caught:
        parse_body(model, body)
    return caught.value.param, caught.value.message


@pytest.mark.parametrize(
    ("model", "body", "param", "message"),
    [
        (ChatBody, {"messages": []}, "messages", "messages is []; expected a list of at least 1"),
        (ChatBody, {}, "messages", "messages is required, and was not given"),
        (ChatBody, {"messages": [3]}, "messages[0]", "messages[0] is 3; expected an object"),
        (
            ChatBody,
            {"messages": [{"role": "user", "content": None}]},
            "messages[0].content",
            "messages[0].content is null; expected a text or a list",
        ),
        (
            ChatBody,
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].type",
            "messages[0].content[0].type is 'image_url'; expected 'text'",
        ),
        (
            ChatBody,
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
            "messages[0].content[0].text is required, and was not given",
        ),
        (
            ChatBody,
            {"messages": [{"role": "user", "content": "x", "tool_calls": [1]}]},
            "messages[0].tool_calls",
            "messages[0].tool_calls is [1]; only text is supported by this server",
        ),
        (ChatBody, {"messages": USER, "max_tokens": True}, "max_tokens", "max_tokens is true; expected an integer"),
        (ChatBody, {"messages": USER, "stream": "yes"}, "stream", "stream is 'yes'; expected true or false"),
        (ChatBody, {"messages": USER, "n": 17}, "n", "n is 17; expected at most 16"),
        (
            ChatBody,
            {"messages": USER, "logit_bias": {"1": "x"}},
            "logit_bias.1",
            "logit_bias.1 is 'x'; expected a number",
        ),
        (
            EstimateBody,
            {"logprobs": "x"},
            "logprobs",
            "logprobs is 'x'; expected true or false or an integer",
        ),
        (EstimateBody, {"prompt": ["x"]}, "prompt[0]", "prompt[0] is 'x'; expected an integer"),
    ],
)
def test_what_was_given_and_what_was_expected(
    model: type[Body], body: dict[str, Any], param: str, message: str
) -> None:
    assert said(model, body) == (param, message)


def test_no_words_of_the_library_reach_the_caller() -> None:
    odd: list[Any] = [
        None,
        True,
        3,
        -1,
        1.5,
        "x",
        "x" * 300,
        [],
        [None],
        ["x"],
        [-1],
        [[1]],
        [{}],
        {},
        {"x": 1},
        10**400,
    ]
    bodies: dict[type[Any], dict[str, Any]] = {
        ChatBody: {"messages": USER},
        CompletionBody: {"prompt": "x"},
        ForkBody: {"position": 1},
        TokenizeBody: {},
        DetokenizeBody: {"tokens": []},
        KernelsBody: {},
        EstimateBody: {},
    }
    refused: list[tuple[str, ApiError]] = []
    for model, whole in bodies.items():
        for name in (*model.model_fields, "messages.role", "messages.content", "tokenwalk.name", "tokenwalk.priority"):
            field, _, inner = name.partition(".")
            if field not in model.model_fields:
                continue
            for value in odd:
                nested = {"role": "user", "content": "x", inner: value} if field == "messages" else {inner: value}
                given = value if not inner else [nested] if field == "messages" else nested
                try:
                    parse_body(model, {**whole, field: given})
                except ApiError as error:
                    refused.append((field, error))
    assert len(refused) > 300
    for field, fault in refused:
        unquoted = re.sub(r" is .*?; ", " is …; ", fault.message)
        assert not LIBRARY.search(unquoted), fault.message
        assert "/openapi.json" not in fault.message, "a kind of fault without words of its own"
        assert re.match(r"[\w.\[\]]+ is |there is no parameter", fault.message), fault.message
        assert str(fault.param).startswith(field)


def test_every_kind_of_fault_has_words() -> None:
    context = {"ge": 1, "le": 2, "min_length": 1, "max_length": 2000, "expected": "'text'"}
    assert all(words(context) for words in EXPECTED.values())
    assert EXPECTED["string_too_long"](context) == "at most 2,000 characters"
