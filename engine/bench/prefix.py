"""A second request that begins like the first: what the prefix cache saves."""

from __future__ import annotations

from collections.abc import Iterator

from engine.bench.contestants import LIGHT, run_streams
from engine.bench.figures import Figure, figure
from engine.bench.prompts import passage, story
from engine.engine import Engine


class PrefixBench:
    """Rounds of two requests: the second shares the first's beginning and ends otherwise.

    Args:
        engine: ours.
        shared: tokens that they share.
    """

    def __init__(self, engine: Engine, *, shared: int) -> None:
        self._engine, self._shared = engine, shared
        self._first: list[float] = []
        self._second: list[float] = []

    def run(self, rounds: int, seconds: float) -> Iterator[None]:
        """The rounds; yields after each. What is measured is our own, so nobody takes turns."""
        del seconds  # a round is short
        self._pair(-1)
        for number in range(rounds):
            first, second = self._pair(number)
            self._first.append(first)
            self._second.append(second)
            yield

    def figures(self) -> list[Figure]:
        what = f"time to first token, with {self._shared} tokens shared"
        return [figure("prefix", what, "s", self._second, self._first, base_name="first request", at_most=0.15)]

    def _pair(self, number: int) -> tuple[float, float]:
        tokenizer = self._engine.tokenizer
        shared = tokenizer.encode(passage(tokenizer, self._shared, number)).ids[: self._shared]
        times = []
        for ending in (0, 1):
            prompt = [*shared, *tokenizer.encode(" " + story(number, ending), add_special=False).ids]
            streams, _ = run_streams(self._engine, [prompt], 1, LIGHT)
            times.append(streams.first_s)
        return times[0], times[1]
