"""What a caller asks for, validated, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import NoneType
from typing import Any

from engine.capture import CapturePlan
from engine.errors import RequestError, shown
from engine.events import FinishReason

MAX_STOPS, MAX_STOP_CHARACTERS = 64, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen from the logits. The defaults change nothing: sample from the model's distribution.

    Raises:
        RequestError: for a value out of range, naming the field.
    """

    temperature: float = 1.0
    """Logits are divided by it; 0 means greedy: the most probable token, no draw."""
    top_p: float = 1.0
    """Keep the fewest candidates whose probabilities reach this sum (nucleus sampling, Holtzman et al. 2020)."""
    top_k: int = 0
    """Keep this many candidates; 0 keeps all."""
    min_p: float = 0.0
    """Drop candidates less probable than this fraction of the best one."""
    repetition_penalty: float = 1.0
    """Divide positive and multiply negative logits of tokens seen so far, prompt included (Keskar et al. 2019)."""
    presence_penalty: float = 0.0
    """Subtract from the logit of every token that the answer contains."""
    frequency_penalty: float = 0.0
    """Subtract from a token's logit, times the number of its occurrences in the answer."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of these token ids."""
    seed: int | None = None
    """Same seed, same prompt, same settings: same text. None draws one, which the trace records."""

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0, 100)
        _check("top_p", self.top_p, 0, 1)
        _check("top_k", self.top_k, 0, 2**31 - 1)
        _check("min_p", self.min_p, 0, 1)
        _check("repetition_penalty", self.repetition_penalty, 0.01, 100)
        _check("presence_penalty", self.presence_penalty, -100, 100)
        _check("frequency_penalty", self.frequency_penalty, -100, 100)
        if self.top_p == 0:
            raise RequestError(
                "top_p is 0, which would keep no candidate; give a number above 0, up to 1", param="top_p"
            )
        if self.seed is not None:
            _check("seed", self.seed, -(2**63), 2**64 - 1)
        for token, bias in self.logit_bias.items():
            _check(f"logit_bias[{token}]", bias, -100, 100, param="logit_bias")

    @property
    def greedy(self) -> bool:
        """True when no random number is needed."""
        return self.temperature == 0

    @property
    def adjusts_logits(self) -> bool:
        """True when some logit is changed before the choice, beyond scaling."""
        return bool(
            self.logit_bias or self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0
        )

    def as_dict(self) -> dict[str, Any]:
        """The parameters as JSON can write them (its object keys are strings)."""
        values = asdict(self)
        values["logit_bias"] = {str(token): bias for token, bias in self.logit_bias.items()}
        return values


def _check(name: str, value: float, low: float, high: float, *, param: str | None = None) -> None:
    if isinstance(value, bool) or not math.isfinite(value) or not low <= value <= high:
        raise RequestError(f"{name} is {value!r}; expected a number from {low} to {high}", param=param or name)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One generation, as asked for: either chat `messages` or a `prompt` (text, or token ids)."""

    messages: list[dict[str, Any]] | None = None
    prompt: str | list[int] | None = None
    max_tokens: int | None = None
    """Most tokens to generate, the end token included; None: as many as the context holds."""
    usual_tokens: int | None = None
    """Where `max_tokens` is None: generate no more than this, and fewer where the context has less room."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    """Texts that end the answer; they are not part of it."""
    capture: CapturePlan | None = None
    """What to look at; None takes the engine's default."""
    name: str | None = None
    priority: int = 0
    source: str = "engine"
    id: str | None = None
    """None: the engine makes one."""

    def __post_init__(self) -> None:
        if (self.messages is None) == (self.prompt is None):
            raise RequestError("give either messages (a chat) or a prompt, not both and not neither", param="prompt")
        prompt: object = self.prompt
        ids = isinstance(prompt, list) and all(type(token) is int for token in prompt)
        if not ids and not isinstance(prompt, (str, NoneType)):
            raise RequestError(f"prompt is {shown(prompt)}; expected a text, or a list of token ids", param="prompt")
        if self.max_tokens is not None and (type(self.max_tokens) is not int or self.max_tokens < 1):
            raise RequestError(f"max_tokens is {shown(self.max_tokens)}; expected 1 or more", param="max_tokens")
        stop: object = self.stop
        if not isinstance(stop, (tuple, list)) or not all(isinstance(text, str) for text in stop):
            raise RequestError(f"stop is {shown(stop)}; expected texts, such as ('###',)", param="stop")
        if len(stop) > MAX_STOPS or any(len(text) > MAX_STOP_CHARACTERS for text in stop):
            longest = max(map(len, stop), default=0)
            raise RequestError(
                f"stop holds {len(stop)} texts of up to {longest:,} characters; expected at most {MAX_STOPS} of at "
                f"most {MAX_STOP_CHARACTERS:,}: each token is held against all of them",
                param="stop",
            )
        if any(not text for text in self.stop):
            raise RequestError("stop holds an empty text, which would end every answer at once", param="stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """A request as `GET /v1/requests` shows it."""

    id: str
    name: str | None
    state: str
    """queued, prefill, decode or finished."""
    slot: int | None
    prompt_tokens: int
    completion_tokens: int
    max_tokens: int
    source: str
    text_start: str
    """Beginning of the prompt's text, for a list."""
    sampling: SamplingParams
    stop: tuple[str, ...]
    preemptions: int
    """How often it had to give way."""
    finish_reason: FinishReason | None
    arrived_ns: int
    finished_ns: int | None
