"""Choosing the next token, on the host, in stages that are recorded as they really happened.

Everything here is NumPy on one row of logits. Reductions over a vocabulary of 50,000 take MLX's CPU backend
milliseconds and NumPy tenths of one, and a choice made on the host depends on nothing but the row, the seed and the
position: the same alone and in any batch, on any device. A greedy choice that needs no change of logits is made on
the device instead (`runner`), so that the next step can be submitted before this one has been looked at; it is
described here afterwards.

The order of stages: logit_bias, repetition_penalty, presence_penalty and frequency_penalty change logits; temperature
scales them; top_k, top_p and min_p then remove candidates, each working on the distribution that the stage before
left.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.distribution import Distribution, Floats, distributions, height_for
from engine.request import SamplingParams

TOP_CANDIDATES = 20
"""How many candidates a token event lists: as many as the OpenAI API's top_logprobs may ask for."""

FIRST_CANDIDATES = 1024
"""Candidates sorted at first. Sorting the whole vocabulary is ten times dearer, and hardly ever needed."""

Doubles: TypeAlias = NDArray[np.float64]
Ids: TypeAlias = NDArray[np.int64]


class NonFiniteLogits(ValueError):
    """The logits hold NaN or +infinity, or nothing but −infinity: no token can be chosen."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen token and how it was chosen. Field meanings are those of `engine.events.Token`."""

    token: int
    logprob: float | None = None
    entropy_bits: float | None = None
    rank: int | None = None
    top: list[dict[str, Any]] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)
    draw: dict[str, Any] = field(default_factory=dict)


def drawn_seed() -> int:
    """A seed for a request that gives none, of 53 bits: what JavaScript, and so the page, can tell exactly."""
    return secrets.randbits(53)


class Sampler:
    """Chooses the tokens of one request.

    Args:
        params: the sampling parameters.
        prompt: the prompt's token ids, which the repetition penalty looks at.
        statistics: whether probabilities are worked out and recorded; the choice is the same either way.
    """

    def __init__(self, params: SamplingParams, prompt: list[int], *, statistics: bool = True) -> None:
        self.params = params
        self.seed = drawn_seed() if params.seed is None else params.seed
        self.statistics = statistics
        self._answer: Counter[int] = Counter()
        self._seen = set(prompt)

    @property
    def on_device(self) -> bool:
        """True when the choice is the largest logit as it is, which the device can find by itself."""
        return self.params.greedy and not self.params.adjusts_logits

    def choose(
        self, logits: Floats, position: int, *, token: int | None = None, distribution: Distribution | None = None
    ) -> Choice:
        """Choose the token for `position`.

        Args:
            logits: `[vocab]`, float32, not changed.
            position: the place that the token will take; with the seed it fixes the random number.
            token: the token, when the device has chosen it already (`on_device`).
            distribution: of the logits, when it has been worked out with those of other rows.

        Raises:
            NonFiniteLogits: when no token can be chosen.
        """
        if distribution is None and self.statistics:
            (distribution,) = distributions_of([logits])
        largest = float(logits.max()) if distribution is None else distribution.largest  # NaN if any is NaN
        if not math.isfinite(largest):
            raise NonFiniteLogits(f"the largest logit at position {position} is {largest}; expected a finite number")
        record = None if distribution is None else _Record(distribution)
        adjusted = self._adjust(logits, record)
        if self.params.greedy:
            chosen = int(adjusted.argmax()) if token is None else token
            draw: dict[str, Any] = {"method": "greedy"}
        else:
            chosen, draw = self._draw(adjusted, position, record)
        self._answer[chosen] += 1
        self._seen.add(chosen)
        return record.choice(chosen, draw) if record else Choice(chosen, draw=draw)

    def _adjust(self, logits: Floats, record: _Record | None) -> Floats:
        """Apply the stages that change single logits."""
        params = self.params
        if not params.adjusts_logits:
            return logits
        adjusted = logits.copy()
        if params.logit_bias:
            ids = np.fromiter(params.logit_bias, np.int64)
            adjusted[ids] += np.fromiter(params.logit_bias.values(), np.float32)
            _note(record, "logit_bias", len(ids), adjusted)
        if params.repetition_penalty != 1:
            ids = np.fromiter(self._seen, np.int64)
            seen = adjusted[ids]
            adjusted[ids] = np.where(seen > 0, seen / params.repetition_penalty, seen * params.repetition_penalty)
            _note(record, "repetition_penalty", params.repetition_penalty, adjusted)
        ids = np.fromiter(self._answer, np.int64)
        if params.presence_penalty != 0:
            adjusted[ids] -= params.presence_penalty
            _note(record, "presence_penalty", params.presence_penalty, adjusted)
        if params.frequency_penalty != 0:
            adjusted[ids] -= params.frequency_penalty * np.fromiter(self._answer.values(), np.float32)
            _note(record, "frequency_penalty", params.frequency_penalty, adjusted)
        return adjusted

    def _draw(self, logits: Floats, position: int, record: _Record | None) -> tuple[int, dict[str, Any]]:
        """Scale, filter, and draw by inverting the cumulated distribution, candidates in falling order."""
        params = self.params
        probabilities = softmax(logits, params.temperature)
        if record:
            record.stage("temperature", params.temperature, logits.size, 1.0, probabilities)
        generator = np.random.Generator(np.random.Philox(key=self.seed % 2**64, counter=position))
        u = float(generator.random())
        few = min(FIRST_CANDIDATES, logits.size)
        draw = self._draw_from(_largest(logits, few), probabilities, u, record)
        if draw is None:  # the filters or the draw reach further down than the first candidates
            draw = self._draw_from(_largest(logits, logits.size), probabilities, u, record)
        assert draw is not None, "the whole vocabulary always holds the draw"
        chosen, low, high = draw
        return chosen, {"method": "inverse_cdf", "u": u, "seed": self.seed, "low": low, "high": high}

    def _draw_from(
        self, order: Ids, probabilities: Doubles, u: float, record: _Record | None
    ) -> tuple[int, float, float] | None:
        """Filter and draw among `order`, the most probable candidates in falling order.

        Returns the token and its interval of cumulated probability, or None when `order` is too short to decide.
        """
        params, whole = self.params, order.size == probabilities.size
        p = probabilities[order]
        total = 1.0  # probability of all that the filters have kept so far
        stages: list[tuple[str, float, int, float]] = []
        kept = probabilities.size
        if params.top_k and params.top_k < kept:
            if params.top_k > order.size:
                return None
            kept = params.top_k
            total = float(p[:kept].sum())
            stages.append(("top_k", params.top_k, kept, total))
        if params.top_p < 1:
            reached = np.cumsum(p[: min(kept, order.size)]) >= params.top_p * total
            if not reached.any():
                if not whole and order.size < kept:
                    return None
                reached[-1] = True
            kept = int(reached.argmax()) + 1
            mass = float(p[:kept].sum())
            stages.append(("top_p", params.top_p, kept, min(1.0, mass / total)))
            total = mass
        if params.min_p > 0:
            above = p[: min(kept, order.size)] >= params.min_p * p[0]
            if above.all() and not whole and order.size < kept:
                return None
            kept = int(above.sum())
            mass = float(p[:kept].sum())
            stages.append(("min_p", params.min_p, kept, min(1.0, mass / total)))
            total = mass
        cumulated = np.cumsum(p[: min(kept, order.size)]) / total
        place = int(np.searchsorted(cumulated, u, side="right"))
        if place >= cumulated.size:
            if not whole and order.size < kept:
                return None
            place = cumulated.size - 1  # the sum fell short of 1 by rounding
        if record:
            record.filters(stages, order, p)
        low = float(cumulated[place - 1]) if place else 0.0
        return int(order[place]), low, float(cumulated[place])


def distributions_of(rows: list[Floats]) -> list[Distribution]:
    """What `Sampler.choose` records of each of some rows, which are as long as each other."""
    return distributions(rows, TOP_CANDIDATES)


def softmax(logits: Floats, temperature: float = 1.0) -> Doubles:
    """`[vocab]` probabilities, in float64: single precision makes sums over a vocabulary miss 1 by 1e-4."""
    scaled = logits.astype(np.float64)
    scaled -= scaled.max()
    scaled /= temperature
    np.exp(scaled, out=scaled)
    scaled /= scaled.sum()
    return scaled


def _largest(logits: Floats, count: int) -> Ids:
    """Indices of the `count` largest logits, in falling order; equal ones by index.

    In columns, as in `engine.distribution`.
    """
    height = height_for(logits.size, count)
    width = logits.size // height
    columns = logits[: height * width].reshape(height, width)
    heads = np.maximum.reduce(columns, axis=0)
    least = np.partition(heads, width - count)[width - count]  # that many logits are no smaller than this
    found = (heads >= least).nonzero()[0]
    row, column = (columns[:, found] >= least).nonzero()
    ids = row * width + found[column]  # ascending
    if height * width < logits.size:
        ids = np.append(ids, (logits[height * width :] >= least).nonzero()[0] + height * width)
    order: Ids = ids[(-logits[ids]).argsort(kind="stable")][:count]
    return order


class _Record:
    """Collects what `Choice` reports, for the candidates that lead before any stage."""

    def __init__(self, distribution: Distribution) -> None:
        self._before = distribution
        self._ids = np.array(distribution.ids)
        self._logprobs = distribution.logprobs
        raw = [math.exp(logprob) for logprob in self._logprobs]
        self._stages: list[dict[str, Any]] = []
        self._append("raw", None, distribution.logits.size, 1.0, raw)

    def stage(self, name: str, value: float, kept: int, mass: float, probabilities: Doubles) -> None:
        self._append(name, value, kept, mass, probabilities[self._ids].tolist())

    def filters(self, stages: list[tuple[str, float, int, float]], order: Ids, p: Doubles) -> None:
        """Note the filters: each keeps the first `kept` of `order`."""
        # place of each shown candidate in the order; past its end for one that is not in it
        match = order[None, :] == self._ids[:, None]  # [shown, order]
        place = np.where(match.any(1), match.argmax(1), order.size)
        for name, value, kept, mass in stages:
            probabilities = np.append(p[:kept], np.zeros(order.size - kept + 1))[place] / p[:kept].sum()
            self._append(name, value, kept, mass, probabilities.tolist())

    def choice(self, token: int, draw: dict[str, Any]) -> Choice:
        before = self._before
        leading = zip(before.ids, self._logprobs, before.leading, strict=True)
        return Choice(
            token=token,
            logprob=before.logprob(token),
            entropy_bits=before.entropy_bits,
            rank=before.rank(token),
            top=[{"id": id, "logprob": logprob, "logit": logit} for id, logprob, logit in leading],
            stages=self._stages,
            draw=draw,
        )

    def _append(self, name: str, value: float | None, kept: int, mass: float, shown: list[float]) -> None:
        self._stages.append({"name": name, "value": value, "kept": kept, "mass": mass, "probabilities": shown})


def _note(record: _Record | None, name: str, value: float, logits: Floats) -> None:
    if record:
        record.stage(name, value, logits.size, 1.0, softmax(logits))
