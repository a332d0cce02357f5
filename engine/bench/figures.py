"""Turns, ratios, and what a figure is held against."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

Sample = TypeVar("Sample")


def take_turns(
    contestants: Mapping[str, Callable[[int], Sample]],
    rounds: int,
    seconds: float,
    *,
    every: Mapping[str, int] | None = None,
) -> Iterator[dict[str, Sample]]:
    """Let everybody run once a round, in changing order; yields each round's samples.

    Args:
        contestants: by name; called with the round's number.
        rounds: how many.
        seconds: begin no further round after this time. One round always runs.
        every: who runs only in the first of so many rounds: what is slow, and held against no bar.
    """
    shuffle = random.Random(1)
    end = time.monotonic() + seconds
    for number in range(rounds):
        order = [name for name in contestants if number % (every or {}).get(name, 1) == 0]
        shuffle.shuffle(order)
        yield {name: contestants[name](number) for name in order}
        if time.monotonic() > end:
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One ratio, how it came about, and its bar."""

    part: str
    what: str
    unit: str
    ours: float
    """Median over the rounds."""
    base: float
    """Likewise, of what ours is divided by."""
    base_name: str
    ratio: float
    """Median over the rounds of ours ÷ base within a round."""
    spread: tuple[float, float]
    """Smallest and largest ratio of a round."""
    rounds: int
    bar: float
    at_least: bool
    """Whether the ratio must reach the bar; otherwise it must not exceed it."""

    @property
    def holds(self) -> bool:
        return self.ratio >= self.bar if self.at_least else self.ratio <= self.bar


def figure(
    part: str,
    what: str,
    unit: str,
    ours: list[float],
    base: list[float],
    *,
    base_name: str,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Figure:
    """Compare round by round; exactly one of `at_least` and `at_most` is the bar."""
    bar = at_least if at_least is not None else at_most
    assert bar is not None
    ratios = [one / other for one, other in zip(ours, base, strict=True)]
    return Figure(
        part=part,
        what=what,
        unit=unit,
        ours=statistics.median(ours),
        base=statistics.median(base),
        base_name=base_name,
        ratio=statistics.median(ratios),
        spread=(min(ratios), max(ratios)),
        rounds=len(ratios),
        bar=bar,
        at_least=at_least is not None,
    )


@dataclass(frozen=True, slots=True)
class Streams:
    """Several streams at once, timed from outside; seconds on `time.perf_counter`."""

    start_s: float
    """When the first was asked for."""
    arrivals: list[list[float]]
    """Per stream, when each piece of its answer came."""
    tokens: list[int]
    """Per stream, how many tokens it gave."""

    @property
    def rate(self) -> float:
        """Tokens a second of all streams together, prompts included, until the last has ended."""
        return sum(self.tokens) / (max(times[-1] for times in self.arrivals) - self.start_s)

    @property
    def first_s(self) -> float:
        """Until every stream had begun."""
        return max(times[0] for times in self.arrivals) - self.start_s

    @property
    def decode_s(self) -> float:
        """From when every stream had begun to the end of the last."""
        return max(times[-1] for times in self.arrivals) - self.start_s - self.first_s

    @property
    def decode_rate(self) -> float:
        """Tokens a second of all streams together, after every stream had begun."""
        begun = self.start_s + self.first_s
        return sum(time > begun for times in self.arrivals for time in times) / self.decode_s
