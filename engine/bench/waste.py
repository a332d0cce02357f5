"""How much of the KV cache's held blocks holds nothing, while requests of many lengths come and go."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from queue import SimpleQueue

from engine.bench.figures import Figure, figure
from engine.capture import CapturePlan
from engine.engine import Engine
from engine.errors import TokenwalkError
from engine.events import RequestFinished, Token
from engine.request import GenerationRequest, SamplingParams

PROMPTS, ANSWERS = (16, 1024), (16, 256)
"""Shortest and longest, in tokens."""

EVERY = 32
"""Tokens between two looks."""


class WasteBench:
    """Rounds of requests, all asked at once, whose lengths are spread evenly over their orders of magnitude.

    On average the last block of each request is half empty: half a block over the mean length is wasted. So the lengths
    decide, and the model does not.

    Args:
        engine: ours, with a paged cache.
        requests: how many a round.
    """

    def __init__(self, engine: Engine, *, requests: int) -> None:
        self._engine, self._requests = engine, requests
        self._empty: list[float] = []
        self._held: list[float] = []

    def run(self, rounds: int, seconds: float) -> Iterator[None]:
        """The rounds; yields after each. What is measured is our own, so nobody takes turns."""
        del seconds  # a round is short
        for number in range(rounds):
            empty, held = self._round(random.Random(number))
            self._empty.append(empty)
            self._held.append(held)
            yield

    def figures(self) -> list[Figure]:
        what = (
            f"KV positions that hold nothing, of those in held blocks; prompts of {PROMPTS[0]} to {PROMPTS[1]:,} "
            f"tokens, answers of {ANSWERS[0]} to {ANSWERS[1]}"
        )
        return [figure("waste", what, "positions", self._empty, self._held, base_name="held", at_most=0.04)]

    def _round(self, draw: random.Random) -> tuple[float, float]:
        """Means over a round, in positions: empty ones, and all that the held blocks have.

        Raises:
            TokenwalkError: when a generation fails, or nothing was held at any look.
        """
        outputs: SimpleQueue[Token | RequestFinished] = SimpleQueue()
        for _ in range(self._requests):
            request = GenerationRequest(
                prompt=[draw.randrange(100, 200) for _ in range(_length(draw, *PROMPTS))],
                max_tokens=_length(draw, *ANSWERS),
                sampling=SamplingParams(temperature=1, seed=draw.randrange(2**31)),
                capture=CapturePlan(level="light"),
                source="bench",
            )
            self._engine.submit(request, outputs.put)
        empty, held = [], []
        unfinished, tokens = self._requests, 0
        while unfinished:
            event = outputs.get()
            if isinstance(event, RequestFinished):
                unfinished -= 1
                if event.reason == "error":
                    raise TokenwalkError(f"the generation failed: {event.detail}")
                continue
            tokens += 1
            if tokens % EVERY == 0:
                state = self._engine.cache_state()
                positions = sum(block["state"] == "held" for block in state["map"]) * state["block_size"]
                held.append(positions)
                empty.append(state["waste"] * positions)
        if not sum(held):
            raise TokenwalkError("no block was held at any look: this model's cache is not paged")
        return sum(empty) / len(empty), sum(held) / len(held)


def _length(draw: random.Random, least: int, most: int) -> int:
    return round(math.exp(draw.uniform(math.log(least), math.log(most))))
