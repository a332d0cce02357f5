"""Bodies of the routes that generate: what the OpenAI API takes and this server can honour.

A parameter that cannot be honoured is refused by name. Ignoring it would give an answer that looks like what was asked
for and is not. One whose value asks for nothing (null, or the API's default) passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from backend.errors import ApiError
from backend.validation import first_fault
from engine.capture import CapturePlan
from engine.errors import shown
from engine.request import SamplingParams

MAX_CHOICES = 16
MAX_TOP_LOGPROBS = 20
MAX_NAME = 200

REFUSED: dict[str, tuple[object, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "metadata": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "prompt_cache_key": (),
    "prompt_cache_retention": (),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "safety_identifier": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": (),
    "web_search_options": (),
}
"""OpenAI parameters that cannot be honoured, with the values that ask for nothing."""


MAX_DIGITS = 9
"""Of a token's id: Python refuses to read thousands of them, and no vocabulary has a billion tokens."""


def _stop_texts(value: object) -> object:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise ValueError("expected a text or a list of texts, none of them empty")
    return tuple(texts)


def _biases(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("expected an object of token id to bias")
    if wrong := [key for key in value if not (key.isdecimal() and len(key) <= MAX_DIGITS)]:
        raise ValueError(f"{shown(wrong[0])} is not a token id")
    return {int(key): bias for key, bias in value.items()}


StopTexts = Annotated[
    tuple[str, ...],
    BeforeValidator(_stop_texts),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
LogitBias = Annotated[
    dict[int, float],
    BeforeValidator(_biases),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "number"}}),
]


class Body(BaseModel):
    """A request body: types are not converted, unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid")


class StreamOptions(Body):
    """Options of a streamed answer."""

    include_usage: bool | None = None
    include_obfuscation: Annotated[bool | None, Field(description="Only false: nothing is padded here.")] = None


class Extras(Body):
    """Tokenwalk's own part of a request."""

    capture: Annotated[
        Any,
        Field(
            description="Capture level (off, light, follow, full), or a plan: an object with level, dtype, max_bytes, "
            "positions, layers, heads, tensors, over_budget, kernels (traces/FORMAT.md)."
        ),
    ] = None
    name: Annotated[str | None, Field(max_length=MAX_NAME, description="A name to find the request by.")] = None
    priority: Annotated[int | None, Field(description="Larger runs sooner.")] = None
    detached: Annotated[
        bool, Field(description="Run on when the client leaves; POST /v1/requests/{id}/cancel ends it.")
    ] = False


class Parameters(Body):
    """What all routes that generate take."""

    model: Annotated[str | None, Field(description="The model that is loaded; may be left out.")] = None
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: StopTexts | None = None
    n: Annotated[int | None, Field(ge=1, le=MAX_CHOICES)] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: LogitBias | None = None
    user: Annotated[
        str | None, Field(max_length=MAX_NAME, description="Names the request when tokenwalk.name does not.")
    ] = None
    tokenwalk: Extras | None = None

    @property
    def extras(self) -> Extras:
        """Tokenwalk's own part, empty when left out."""
        return self.tokenwalk or Extras()

    @property
    def alternatives(self) -> int | None:
        """Alternatives a token in the log-probabilities; None for none at all."""
        raise NotImplementedError

    @property
    def include_usage(self) -> bool:
        """Whether the stream ends with a chunk of token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def check(self, *, vocab: int, capture: CapturePlan, wants_logprobs: bool) -> None:
        """What types alone do not say.

        Raises:
            ApiError: 400, naming the field.
        """
        if self.stream_options is not None and not self.stream:
            raise ApiError(400, "stream_options is given without stream: true", param="stream_options")
        if self.stream_options is not None and self.stream_options.include_obfuscation:
            raise ApiError(
                400, "this server does not pad its chunks; leave include_obfuscation out",
                param="stream_options.include_obfuscation", code="unsupported_parameter",
            )  # fmt: skip
        for token in self.logit_bias or {}:
            if token >= vocab:
                raise ApiError(
                    400, f"logit_bias names token {token}; the model has {vocab:,}, from 0", param="logit_bias"
                )
        if wants_logprobs and not capture.statistics:
            raise ApiError(400, "logprobs are not computed at capture level 'off'; use 'light'", param="logprobs")

    def sampling(self, choice: int, base: SamplingParams) -> SamplingParams:
        """Sampling of one of the `n` choices, each with a seed of its own.

        Args:
            base: what holds where the body says nothing.

        Raises:
            RequestError: for a value out of range.
        """
        names = (
            "temperature", "top_p", "top_k", "min_p",
            "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias",
        )  # fmt: skip
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        seed = base.seed if self.seed is None else self.seed
        if seed is not None and choice:
            seed = (seed + choice) % 2**64
        return replace(base, seed=seed, **given)

    def capture(self, default: CapturePlan) -> CapturePlan:
        """The capture plan asked for, or the server's.

        Raises:
            RequestError: when it is not a plan.
        """
        return default if self.extras.capture is None else CapturePlan.parse(self.extras.capture)


Model = TypeVar("Model", bound=BaseModel)


def parse_body(model: type[Model], value: Mapping[str, Any]) -> Model:
    """Validate a body.

    Raises:
        ApiError: 400, naming the first field that is wrong.
    """
    for name, neutral in REFUSED.items():
        if name in value and name not in model.model_fields and value[name] is not None and value[name] not in neutral:
            raise ApiError(
                400,
                f"{name} is not supported by this server, and ignoring it would give another answer than was asked for",
                param=name,
                code="unsupported_parameter",
            )
    known = {key: item for key, item in value.items() if key in model.model_fields or key not in REFUSED}
    try:
        return model.model_validate(known)
    except ValidationError as error:
        fault = first_fault(error.errors(include_url=False), known)
        if fault.kind == "extra_forbidden":
            known_names = ", ".join(sorted(_fields_at(model, fault.location[:-1])))
            message = f"there is no parameter {fault.param!r}; expected one of {known_names}"
            raise ApiError(400, message, param=fault.param, code="unknown_parameter") from error
        raise ApiError(400, fault.message, param=fault.param) from error


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> set[str]:
    """The names that an object in a body may have, at a place where one was given that it may not."""
    for part in location:
        if isinstance(part, str) and part in model.model_fields:
            inner = [kind for kind in _kinds(model.model_fields[part].annotation) if isinstance(kind, type)]
            model = next((kind for kind in inner if issubclass(kind, BaseModel)), model)
    return set(model.model_fields)


def _kinds(annotation: Any) -> list[Any]:
    """A type, and all those that it is made of."""
    return [annotation, *(kind for part in get_args(annotation) for kind in _kinds(part))]
