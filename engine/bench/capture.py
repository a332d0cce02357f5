"""What looking costs: tokens a second and bytes a token at every capture level, against level off."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from engine.bench.contestants import TurningEngine, run_streams
from engine.bench.figures import take_turns
from engine.bench.in_turn import seconds_in_turn
from engine.bench.prompts import passage, story
from engine.capture import CapturePlan, Level
from engine.codec import Frame, parse
from engine.config import EngineConfig
from engine.errors import TokenwalkError

LEVELS: tuple[Level, ...] = ("off", "light", "follow", "full")
BASE: Level = "off"
BLOCK = 80
"""Tokens of a KV block here: an answer to a long prompt has room in one."""

SHORT = 16
"""Tokens of a short prompt: no more than a block, so that it is never found in the prefix cache."""

LONG = 2000 + 1
"""Tokens of a long prompt: whole KV blocks, which are found in the prefix cache, and one token more, the only one that
a contestant computes."""

MOST_AFTER_LONG = BLOCK - 1
"""Most tokens of an answer to a long prompt. It fills no block, so nothing of it is found or kept: one that is kept
would lie where the next contestant's keys would have to go on, and every other one would have its keys in two places,
which takes half as long again."""

WHOLE_EVERY = 8
"""Rounds, of which everybody generates whole answers in one: no bar is held against those."""

IN_TURN = 147
"""Tokens of an answer in which levels take turns: twelve turns of each, in all orders twice."""

IN_TURN_AFTER_LONG = 75
"""Likewise after a long prompt: half as many turns, and no more tokens than `MOST_AFTER_LONG`."""

CONFIG = EngineConfig(kv_memory=2**30, block_size=BLOCK)
"""Of the engine that is measured: 8 prompts of 2,000 tokens of the built-in model take 0.75 GB."""


def most_cost(level: str, streams: int) -> float | None:
    """The bar: the largest part of the decode rate that a level may cost; None where there is none."""
    if level == "light":
        return 0.02
    if level == "follow":
        return 0.10 if streams == 1 else 0.05
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is generated.

    Attributes:
        streams: how many at once, each with a prompt of its own.
        context: tokens of each prompt.
    """

    streams: int
    context: int

    @property
    def name(self) -> str:
        return f"{'short' if self.context == SHORT else self.context - 1}x{self.streams}"

    @property
    def positions(self) -> int:
        """KV positions of all prompts together."""
        return self.streams * self.context


SHAPES = tuple(Shape(streams=streams, context=context) for context in (SHORT, LONG) for streams in (1, 8))


@dataclass(frozen=True, slots=True)
class Sample:
    """Whole answers of all streams."""

    rate: float
    """Tokens a second after all have begun."""
    bytes_per_token: float | None = None
    """Of events, as they are written before compression; None for a peer, which records nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one contestant did in one shape, over all rounds that it was in."""

    shape: str
    streams: int
    context: int
    name: str
    rate: float
    """Median tokens a second, of whole answers."""
    in_turn: float | None
    """Mean over the rounds of level off's seconds a token ÷ its own, the levels taking turns within one run; None for
    what does not take part."""
    in_turn_error: float | None
    """Its standard error; None where one round cannot tell."""
    whole: float
    """Median over the rounds of its rate ÷ that of level off in the same round, of whole answers."""
    whole_spread: tuple[float, float]
    """Smallest and largest ratio of a round."""
    bytes_per_token: float | None
    rounds: int
    """In which it took its turns; of what does not, those of whole answers."""
    bar: float | None
    """The ratio that it must reach; None where there is none."""

    @property
    def holds(self) -> bool | None:
        return None if self.bar is None or self.in_turn is None else self.in_turn >= self.bar

    @property
    def certain(self) -> bool | None:
        """Whether the bar is further away than two standard errors: else another run may well say the opposite."""
        if self.bar is None or self.in_turn is None or self.in_turn_error is None:
            return None
        return abs(self.in_turn - self.bar) > 2 * self.in_turn_error


Peer = Callable[[list[list[int]], int], float]
"""Continues all prompts by so many tokens, and returns the tokens a second after all have begun."""


@dataclass(slots=True)
class CaptureBench:
    """Rounds of one shape. In each, the levels that are held against a bar take turns within one run, some tokens each;
    in some, every level generates whole answers as well. The former is what a level costs: it tells half a percent,
    where runs differ by ten. The latter also have the prompts' own positions to tell and to record.

    Long prompts are computed once, before the rounds, and found in the prefix cache by every contestant alike: what is
    measured is decoding with that much behind it. Bytes are those of the passes that chose tokens, without
    those of the requests' beginnings and ends.

    Args:
        engine: ours, with a bus that encodes and records.
        shape: what is generated.
        tokens: of each answer, at most.
        peer: something else to measure beside, by its name.
    """

    engine: TurningEngine
    shape: Shape
    tokens: int
    peers: dict[str, Peer] = field(default_factory=dict)
    rounds: list[dict[str, Sample]] = field(default_factory=list)
    """Of whole answers, by name, of those that took part."""
    turns: list[dict[str, float]] = field(default_factory=list)
    """Of each round, seconds a token, by level."""
    _ids: list[list[int]] | None = None
    _bytes: int = 0
    _computed: int = 0
    """Prompt tokens that were not found in the cache."""

    def __post_init__(self) -> None:
        if self.shape.context > SHORT:
            self.tokens = min(self.tokens, MOST_AFTER_LONG)

    def run(self, rounds: int, seconds: float) -> Iterator[None]:
        """Compute the prompts, warm up, and run the rounds; yields after each, and once before the first.

        Raises:
            TokenwalkError: when levels disagree about the tokens, or a long prompt was computed twice.
        """
        prompts = self._prompts()
        unsubscribe = self.engine.bus.subscribe(self._count)
        try:
            run_streams(self.engine, prompts, 2, CapturePlan(level=BASE))
            for level in LEVELS:
                run_streams(self.engine, prompts, 4, CapturePlan(level=level))
            yield
            turns: dict[str, Callable[[int], Sample]] = {level: partial(self._ours, prompts, level) for level in LEVELS}
            turns |= {name: partial(self._theirs, prompts, peer) for name, peer in self.peers.items()}
            for samples in take_turns(turns, rounds, seconds, every=dict.fromkeys(turns, WHOLE_EVERY)):
                self.rounds.append(samples)
                self.turns.append(self._in_turn(prompts, len(self.turns)))
                yield
        finally:
            unsubscribe()

    def costs(self) -> list[Cost]:
        """What each contestant did."""
        return [self._cost(name) for name in (*LEVELS, *self.peers)]

    def _cost(self, name: str) -> Cost:
        rounds = [samples for samples in self.rounds if name in samples]
        samples, whole = [one[name] for one in rounds], [one[name].rate / one[BASE].rate for one in rounds]
        in_turn = [seconds[BASE] / mine for seconds in self.turns if (mine := seconds.get(name))]
        most = most_cost(name, self.shape.streams)
        sizes = [sample.bytes_per_token for sample in samples if sample.bytes_per_token is not None]
        return Cost(
            shape=self.shape.name,
            streams=self.shape.streams,
            context=self.shape.context,
            name=name,
            rate=statistics.median(sample.rate for sample in samples),
            in_turn=statistics.mean(in_turn) if in_turn else None,
            in_turn_error=statistics.stdev(in_turn) / math.sqrt(len(in_turn)) if len(in_turn) > 1 else None,
            whole=statistics.median(whole),
            whole_spread=(min(whole), max(whole)),
            bytes_per_token=statistics.median(sizes) if sizes else None,
            rounds=len(in_turn) or len(samples),
            bar=None if most is None else 1 - most,
        )

    def _prompts(self) -> list[list[int]]:
        tokenizer = self.engine.tokenizer
        if self.shape.context == SHORT:
            texts = [story(0, stream) for stream in range(self.shape.streams)]
        else:
            texts = [passage(tokenizer, self.shape.context, number) for number in range(self.shape.streams)]
        return [tokenizer.encode(text).ids[: self.shape.context] for text in texts]

    def _ours(self, prompts: list[list[int]], level: Level, number: int) -> Sample:
        del number  # the same work in every round
        self._settle()
        self._bytes = self._computed = 0
        streams, ids = run_streams(self.engine, prompts, self.tokens, CapturePlan(level=level))
        self._settle()
        self._must_agree(ids, f"level {level}")
        if self.shape.context > SHORT and self._computed > len(prompts) * BLOCK:
            raise TokenwalkError(
                f"{self._computed} tokens of the prompts were computed again: the KV memory does not hold them all"
            )
        return Sample(streams.decode_rate, self._bytes / sum(streams.tokens))

    def _in_turn(self, prompts: list[list[int]], number: int) -> dict[str, float]:
        self._settle()
        tokens = IN_TURN if self.shape.context == SHORT else IN_TURN_AFTER_LONG
        seconds, ids = seconds_in_turn(self.engine, prompts, tokens, number)
        self._must_agree(ids, "levels in turn")
        return seconds

    def _must_agree(self, ids: list[list[int]], who: str) -> None:
        if self._ids is None:
            self._ids = ids
        if any(one[: len(other)] != other[: len(one)] for one, other in zip(ids, self._ids, strict=True)):
            raise TokenwalkError(f"{who} generated other tokens: the speeds cannot be compared")

    def _settle(self) -> None:
        """Wait for what is said of the last step: an answer's end is delivered before that."""
        self.engine.cache_state()  # is answered between two steps
        self.engine.bus.flush()

    def _theirs(self, prompts: list[list[int]], peer: Peer, number: int) -> Sample:
        del number
        return Sample(peer(prompts, self.tokens))

    def _count(self, frame: Frame) -> None:
        if frame.kind == "request.scheduled":
            self._computed += self.shape.context - parse(frame.payload, binary=False)[0]["cached_tokens"]
        own = frame.position is None or frame.position >= self.shape.context - 1
        if own and not frame.kind.startswith(("request.", "block.", "absent", "run.")):
            self._bytes += frame.size
