"""What is wrong with a request body, said as every other error here is: what was given, and what was expected.

Pydantic finds it; its own words ("input should be a valid dictionary or instance of Message", "at least 1 item after
validation, not 0") are about its workings, and its paths name members of unions that nobody wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

MOST_QUOTED = 60
"""Characters of a value that are quoted."""

Location = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Args:
        kind: pydantic's name for it.
        location: where, as pydantic has it.
        param: where, as the caller wrote it: ``messages[0].role``.
        message: what was given and what was expected.
    """

    kind: str
    location: Location
    param: str
    message: str


def first_fault(errors: list[Any], body: Mapping[str, Any]) -> Fault:
    """The first thing that is wrong; where a value may be of several forms, what is wrong with the nearest of them.

    Args:
        errors: of pydantic's `ValidationError.errors()`, with their context; at least one.
        body: what was validated.
    """
    places = [_place(error, body) for error in errors]
    near = [(place, error) for place, error in zip(places, errors, strict=True) if place[: len(places[0])] == places[0]]
    deepest = max(len(place) for place, _ in near)
    place = next(place for place, _ in near if len(place) == deepest)
    here = [error for other, error in near if other == place]
    param, first = _path(place), here[0]
    if first["type"] == "missing":
        message = f"{param} is required, and was not given"
    elif first["type"] == "value_error":
        message = f"{param} is {quoted(first['input'])}; {first['msg'].removeprefix('Value error, ')}"
    else:
        expected = " or ".join(dict.fromkeys(_expected(error) for error in here))
        message = f"{param} is {quoted(first['input'])}; expected {expected}"
    return Fault(first["type"], first["loc"], param, message)


def quoted(value: object) -> str:
    """A value of a body as its writer knows it, shortened."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= MOST_QUOTED else f"{text[: MOST_QUOTED - 3]}…"


def _place(error: Any, body: Mapping[str, Any]) -> Location:
    """Where an error is, without the members of unions that pydantic puts into the path."""
    value: Any = body
    place: list[int | str] = []
    location = error["loc"]
    for depth, part in enumerate(location, start=1):
        if isinstance(value, Mapping) and str(part) in value:  # ids of tokens are texts in JSON
            place.append(str(part))
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            place.append(part)
            value = value[part]
        elif depth == len(location) and error["type"] == "missing":
            place.append(part)
    return tuple(place)


def _path(place: Location) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


EXPECTED: dict[str, Callable[[dict[str, Any]], str]] = {
    "string_type": lambda _: "a text",
    "int_type": lambda _: "an integer",
    "int_parsing_size": lambda _: "an integer of fewer digits",
    "float_type": lambda _: "a number",
    "finite_number": lambda _: "a finite number",
    "bool_type": lambda _: "true or false",
    "list_type": lambda _: "a list",
    "dict_type": lambda _: "an object",
    "model_type": lambda _: "an object",
    "greater_than_equal": lambda context: f"at least {context['ge']:,}",
    "less_than_equal": lambda context: f"at most {context['le']:,}",
    "too_short": lambda context: f"a list of at least {context['min_length']:,}",
    "too_long": lambda context: f"a list of at most {context['max_length']:,}",
    "string_too_long": lambda context: f"at most {context['max_length']:,} characters",
    "none_required": lambda _: "null",
    "literal_error": lambda context: str(context["expected"]),
}
"""What would have been right, by pydantic's name for what is wrong and its context."""


def _expected(error: Any) -> str:
    if error["type"] == "int_type" and isinstance(error["input"], float) and abs(error["input"]) >= 2**63:
        return "an integer of at most 64 bits"  # JSON's reader makes a float of it
    words = EXPECTED.get(error["type"])
    return words(error.get("ctx", {})) if words else "what /openapi.json says of it"
