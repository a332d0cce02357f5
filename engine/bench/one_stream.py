"""One stream: our engine at each capture level against mlx-lm's own generation loop, on the same tokens."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from engine.bench.contestants import run_streams
from engine.bench.figures import Figure, figure, take_turns
from engine.capture import CapturePlan, Level
from engine.engine import Engine
from engine.errors import TokenwalkError
from engine.models import LoadedModel

PROMPT_TOKENS = 16
"""No more than a KV block: every contestant gets the same prompt, and none may find it in the prefix cache."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One generation, timed from outside."""

    first_s: float
    """From the call to the first token."""
    decode_s: float
    """From the first token to the last."""
    ids: tuple[int, ...]

    @property
    def decode_rate(self) -> float:
        """Tokens a second after the first."""
        return (len(self.ids) - 1) / self.decode_s

    @property
    def total_rate(self) -> float:
        """Tokens a second, prompt processing included."""
        return len(self.ids) / (self.first_s + self.decode_s)


Contestant = Callable[[list[int], int], Sample]
"""Generates that many tokens greedily after these ids."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a contestant did over all rounds."""

    name: str
    decode_rate: float
    """Median tokens a second."""
    decode_ratio: float
    """Median over rounds of its decode rate ÷ the baseline's."""
    total_ratio: float
    """Likewise, prompt included."""
    first_s: float
    """Median time to the first token."""
    spread: tuple[float, float]
    """Smallest and largest decode ratio of a round."""


@dataclass(slots=True)
class Race:
    """Contestants that take turns; the first is the baseline of all ratios."""

    contestants: dict[str, Contestant]
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def run(self, prompt: list[int], tokens: int, rounds: int, seconds: float) -> Iterator[None]:
        """Run a warm-up and then the rounds, none begun after `seconds`; yields after each.

        Raises:
            TokenwalkError: when contestants disagree about the tokens: a figure would compare different work.
        """
        for name, generate in self.contestants.items():
            generate(prompt, min(tokens, 8))
            self.samples[name] = []
        turns = {name: partial(_generate, generate, prompt, tokens) for name, generate in self.contestants.items()}
        for number, samples in enumerate(take_turns(turns, rounds, seconds)):
            for name, sample in samples.items():
                self.samples[name].append(sample)
            self._check(number)
            yield

    def results(self) -> list[Result]:
        baseline = next(iter(self.samples.values()))
        return [_result(name, samples, baseline) for name, samples in self.samples.items()]

    def figures(self) -> list[Figure]:
        """Light capture against the baseline."""
        base_name, base = next(iter(self.samples.items()))
        rates = [sample.decode_rate for sample in self.samples["tokenwalk light"]]
        base_rates = [sample.decode_rate for sample in base]
        what = "1 stream, decoding, light capture, recording"
        return [figure("streams1", what, "tokens/s", rates, base_rates, base_name=base_name, at_least=0.95)]

    def ratio(self, name: str, base: str) -> float:
        """Median over rounds of one contestant's decode rate ÷ another's."""
        pairs = zip(self.samples[name], self.samples[base], strict=True)
        return statistics.median(sample.decode_rate / other.decode_rate for sample, other in pairs)

    def _check(self, number: int) -> None:
        produced = {name: samples[number].ids for name, samples in self.samples.items()}
        first_name, first = next(iter(produced.items()))
        for name, ids in produced.items():
            if ids != first:
                place = next((i for i, (a, b) in enumerate(zip(ids, first, strict=False)) if a != b), "the end")
                raise TokenwalkError(
                    f"{name} and {first_name} differ from token {place} on: their speeds cannot be compared"
                )


def _generate(generate: Contestant, prompt: list[int], tokens: int, number: int) -> Sample:
    """The same work in every round."""
    del number
    return generate(prompt, tokens)


def _result(name: str, samples: list[Sample], baseline: list[Sample]) -> Result:
    decode = [sample.decode_rate / base.decode_rate for sample, base in zip(samples, baseline, strict=True)]
    total = [sample.total_rate / base.total_rate for sample, base in zip(samples, baseline, strict=True)]
    return Result(
        name=name,
        decode_rate=statistics.median(sample.decode_rate for sample in samples),
        decode_ratio=statistics.median(decode),
        total_ratio=statistics.median(total),
        first_s=statistics.median(sample.first_s for sample in samples),
        spread=(min(decode), max(decode)),
    )


def mlx_lm_contestant(loaded: LoadedModel) -> Contestant:
    """mlx-lm's own generation loop, on the calling thread: the peer."""
    from engine.device import mx

    from mlx_lm.generate import generate_step

    def generate(prompt: list[int], tokens: int) -> Sample:
        start = time.perf_counter()
        ids, first = [], start
        for token, _ in generate_step(mx.array(prompt), loaded.model, max_tokens=tokens):
            ids.append(int(token))
            if len(ids) == 1:
                first = time.perf_counter()
        return Sample(first - start, time.perf_counter() - first, tuple(ids))

    return generate


def engine_contestant(engine: Engine, level: Level) -> Contestant:
    """Our engine thread, seen from another thread, as a server sees it."""

    def generate(prompt: list[int], tokens: int) -> Sample:
        streams, (ids,) = run_streams(engine, [prompt], tokens, CapturePlan(level=level))
        (times,) = streams.arrivals
        return Sample(streams.first_s, times[-1] - times[0], tuple(ids))

    return generate
