"""What is captured of a request: levels, and plans that say it in detail. (Costs: `engine.capture_schedule`.)"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal, cast, get_args

import numpy as np

from engine.errors import RequestError, shown

Level = Literal["off", "light", "follow", "full"]
CaptureDtype = Literal["auto", "f16", "f32"]
Tensor = Literal["attention", "residual", "attention_out", "lens", "attribution"]
OverBudget = Literal["summarise", "refuse"]
Part = Literal["prompt", "generated"]

Positions = tuple[int | tuple[int, int] | Part, ...]
"""Positions, ranges [from, to), and the two words."""
Numbers = tuple[int | tuple[int, int], ...]
"""Layers or heads: numbers, and ranges [from, to)."""

MIB = 2**20
DEFAULT_BUDGET_BYTES = 256 * MIB
FULL_TIMES_EVERY = 16
"""At level full, one step in this many is timed."""
LARGEST = 2**53 - 1
"""Largest number in a plan: beyond it JSON's readers differ."""
MOST_ITEMS = 256
"""Most numbers and ranges in a list of a plan."""

_BY_LEVEL: dict[Level, tuple[Tensor, ...]] = {
    "off": (),
    "light": (),
    "follow": ("attention", "residual", "attention_out"),
    "full": ("attention", "residual", "attention_out", "lens", "attribution"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturePlan:
    """How much of a request is written down.

    ==========  ========================================================================================================
    level       captured
    ==========  ========================================================================================================
    ``off``     tokens and their text alone
    ``light``   and logprob, entropy, candidates, sampler stages of every generated token
    ``follow``  and attention rows of all layers and heads, residuals and what attention wrote to them, for every
                position while the budget lasts: of what is beyond it, attention is summarised
    ``full``    as follow; and the logit lens and attribution of every captured position, computed at once; and one
                step in 16 is timed operation by operation
    ==========  ========================================================================================================

    The other fields narrow a level down. Capture only reads: tokens and logits are the same, bit by bit, whatever the
    plan, and so is in which steps requests meet.
    """

    level: Level = "light"
    dtype: CaptureDtype = "auto"
    """How arrays are stored: auto is f32 where the model computes in float32, f16 elsewhere."""
    budget_bytes: int = DEFAULT_BUDGET_BYTES
    """Most bytes of arrays that one request may capture (`max_bytes` to the API)."""
    positions: Positions | None = None
    """Passes to capture; None: all. ``"prompt"`` is those over the prompt's tokens; ``"generated"`` those that choose a
    token, from the prompt's last position on."""
    layers: Numbers | None = None
    """Layers whose attention is captured; None: all. Residuals are of all layers always: what they are read for needs
    the whole."""
    heads: Numbers | None = None
    """Query heads whose attention is captured; None: all."""
    tensors: tuple[Tensor, ...] | None = None
    """What is captured; None: what the level says."""
    over_budget: OverBudget = "summarise"
    """Whether a request whose arrays exceed the budget runs, summarised, or is refused with the numbers."""
    kernels: int | None = None
    """While the request runs, one step in this many is timed operation by operation, which slows it for all who share
    it; 0: none; None: as the level has it."""

    @property
    def time_every(self) -> int:
        """One step in this many is to be timed; 0: none."""
        default = FULL_TIMES_EVERY if self.level == "full" else 0
        return default if self.kernels is None else self.kernels

    @property
    def statistics(self) -> bool:
        """Whether probabilities of the generated tokens are computed."""
        return self.level != "off"

    @property
    def wanted(self) -> frozenset[Tensor]:
        """What is captured beside tokens and their statistics."""
        return _as_set(_BY_LEVEL[self.level] if self.tensors is None else self.tensors)

    @property
    def arrays(self) -> bool:
        """Whether anything inside the model is looked at."""
        return bool(self.wanted)

    def as_dict(self) -> dict[str, Any]:
        """The plan as events carry it: what was not given is left out."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        if self.over_budget == "summarise":
            del fields["over_budget"]
        return fields

    def positions_wanted(self, prompt_tokens: int, stop: int) -> np.ndarray:
        """For each position below `stop`, whether its pass is to be captured: `[stop]` bool."""
        if self.positions is None:
            return np.ones(stop, bool)
        words = {"prompt": (0, prompt_tokens), "generated": (prompt_tokens - 1, stop)}
        mask = np.zeros(stop, bool)
        for item in self.positions:
            first, end = words[item] if isinstance(item, str) else _range(item)
            mask[first:end] = True
        return mask

    def layers_of(self, count: int) -> list[int]:
        """The layers whose attention is wanted, of a model with so many.

        Raises:
            RequestError: when the plan names one that there is not.
        """
        return _chosen("layers", self.layers, count)

    def heads_of(self, count: int) -> list[int]:
        """The query heads wanted. Raises as `layers_of`."""
        return _chosen("heads", self.heads, count)

    @classmethod
    def parse(cls, value: object) -> CapturePlan:
        """Read a plan as the API takes it: a level's name, or an object.

        Its fields: `level`, `dtype`, `max_bytes`, `positions`, `layers`, `heads`, `tensors`, `over_budget`, `kernels`.
        A list holds numbers and ranges `[from, to)`, of positions also `"prompt"` and `"generated"`; one number or word
        may stand without its list. Nothing counts from the end: where the answer ends is not known beforehand.

        Raises:
            RequestError: for anything else, naming the field.
        """
        if isinstance(value, str):
            value = {"level": value}
        if not isinstance(value, dict):
            raise _wrong("", value, f"a level ({', '.join(get_args(Level))}) or an object")
        unknown = sorted(set(value) - _FIELDS)
        if unknown:
            raise RequestError(
                f"{_NAME} has a field {shown(unknown[0])}; expected none but {', '.join(sorted(_FIELDS))}",
                param=f"{_NAME}.{unknown[0]}",
            )
        budget = value.get("max_bytes", DEFAULT_BUDGET_BYTES)
        if not _is_number(budget):
            raise _wrong(".max_bytes", budget, f"a number of bytes, 0 to {LARGEST}")
        return cls(
            level=cast(Level, _word("level", value.get("level", "follow"), get_args(Level))),
            dtype=cast(CaptureDtype, _word("dtype", value.get("dtype", "auto"), get_args(CaptureDtype))),
            budget_bytes=budget,
            positions=cast("Positions | None", _items("positions", value.get("positions"), get_args(Part))),
            layers=cast("Numbers | None", _items("layers", value.get("layers"))),
            heads=cast("Numbers | None", _items("heads", value.get("heads"))),
            tensors=_tensors(value.get("tensors")),
            over_budget=cast(
                OverBudget, _word("over_budget", value.get("over_budget", "summarise"), get_args(OverBudget))
            ),
            kernels=_steps(value.get("kernels")),
        )

    @classmethod
    def read(cls, text: str) -> CapturePlan:
        """Read a plan from a command line: a level's name, or an object as JSON.

        Raises:
            RequestError: as `parse`, by the names that a command line has.
        """
        try:
            return cls.parse(json.loads(text) if text.lstrip().startswith("{") else text)
        except RequestError as error:
            raise RequestError(str(error).replace(_NAME, "--capture", 1), param="--capture") from error
        except ValueError as error:
            raise RequestError(
                f"--capture is {shown(text)}; expected a level, or an object in JSON ({error})", param="--capture"
            ) from error


_NAME = "tokenwalk.capture"
"""What the API calls a plan."""
_FIELDS = {"level", "dtype", "max_bytes", "positions", "layers", "heads", "tensors", "over_budget", "kernels"}


@cache
def _as_set(tensors: tuple[Tensor, ...]) -> frozenset[Tensor]:
    return frozenset(tensors)


def _wrong(field: str, given: object, expected: str) -> RequestError:
    name = f"{_NAME}{field}"
    return RequestError(f"{name} is {shown(given)}; expected {expected}", param=name)


def _steps(given: object) -> int | None:
    if given is not None and not _is_number(given):
        raise _wrong(".kernels", given, f"a number of steps up to {LARGEST}, of which one is timed; 0 times none")
    return cast("int | None", given)


def _is_number(given: object) -> bool:
    return type(given) is int and 0 <= given <= LARGEST


def _word(field: str, given: object, allowed: tuple[str, ...]) -> str:
    if not isinstance(given, str) or given not in allowed:
        raise _wrong(f".{field}", given, f"one of {', '.join(allowed)}")
    return given


def _items(field: str, given: object, words: tuple[str, ...] = ()) -> tuple[Any, ...] | None:
    """A list of numbers, ranges and words, as a tuple with ranges as pairs; None for what was not given."""
    if given is None:
        return None
    items = given if isinstance(given, list) else [given]
    also = f", or {' or '.join(map(repr, words))}" if words else ""
    if not 1 <= len(items) <= MOST_ITEMS:
        raise _wrong(f".{field}", given, f"1 to {MOST_ITEMS} numbers and ranges [from, to]{also}")
    read: list[Any] = []
    for item in items:
        ends = item if isinstance(item, list) and all(map(_is_number, item)) else []
        if len(ends) == 2 and ends[0] < ends[1]:
            read.append((ends[0], ends[1]))
        elif _is_number(item) or (isinstance(item, str) and item in words):
            read.append(item)
        else:
            raise _wrong(f".{field}", item, f"a number from 0 to {LARGEST}, a range [from, to] with from < to{also}")
    return tuple(read)


def _tensors(given: object) -> tuple[Tensor, ...] | None:
    if given is None:
        return None
    names = given if isinstance(given, list) else [given]
    expected = f"one or more of {', '.join(get_args(Tensor))}"
    if not names:
        raise _wrong(".tensors", given, f"{expected}; for none, the level light")
    for name in names:
        if name not in get_args(Tensor):
            raise _wrong(".tensors", name, expected)
    return tuple(cast(Tensor, name) for name in get_args(Tensor) if name in names)


def _range(item: int | tuple[int, int]) -> tuple[int, int]:
    return (item, item + 1) if isinstance(item, int) else item


def _chosen(field: str, items: Numbers | None, count: int) -> list[int]:
    if items is None:
        return list(range(count))
    chosen: set[int] = set()
    for first, stop in map(_range, items):
        if stop > count:
            given = first if stop == first + 1 else [first, stop]
            raise _wrong(f".{field}", given, f"{field} of this model: 0 to {count - 1}, a range up to {count}")
        chosen.update(range(first, stop))
    return sorted(chosen)
