"""Several streams at once, in this process: our engine against mlx-lm's BatchGenerator on the same weights."""

from __future__ import annotations

import time
from collections.abc import Iterator

from engine.device import mx

from mlx_lm.generate import BatchGenerator

from engine.bench.contestants import LIGHT, run_streams
from engine.bench.figures import Figure, Streams, figure, take_turns
from engine.bench.prompts import story
from engine.engine import Engine
from engine.models import LoadedModel

Outcome = tuple[Streams, list[list[int]]]


class StreamsBench:
    """Rounds of `streams` streams each.

    Args:
        engine: ours.
        peer: the same weights, loaded on the calling thread.
        streams: how many at once.
        tokens: most tokens a stream.
    """

    def __init__(self, engine: Engine, peer: LoadedModel, *, streams: int, tokens: int) -> None:
        self._engine, self._peer = engine, peer
        self._streams, self._tokens = streams, tokens
        self._rounds: list[dict[str, Outcome]] = []

    def run(self, rounds: int, seconds: float) -> Iterator[None]:
        """A warm-up and the rounds; yields after each round."""
        contestants = {"ours": self._ours, "peer": self._theirs}
        for contestant in contestants.values():
            contestant(-1)
        for samples in take_turns(contestants, rounds, seconds):
            self._rounds.append(samples)
            yield

    def figures(self) -> list[Figure]:
        ours = [samples["ours"][0].rate for samples in self._rounds]
        peer = [samples["peer"][0].rate for samples in self._rounds]
        what = f"{self._streams} streams, prompts included, light capture, recording"
        return [figure("streams8", what, "tokens/s", ours, peer, base_name="mlx-lm BatchGenerator", at_least=1.0)]

    @property
    def agreement(self) -> float:
        """Share of the streams whose tokens are the same as the peer's, which batches in another shape."""
        pairs = [
            one == other
            for samples in self._rounds
            for one, other in zip(samples["ours"][1], samples["peer"][1], strict=True)
        ]
        return sum(pairs) / len(pairs)

    def _prompts(self, number: int) -> list[list[int]]:
        return [self._engine.tokenizer.encode(story(number, stream)).ids for stream in range(self._streams)]

    def _tokens_of(self, number: int) -> int:
        return self._tokens if number >= 0 else min(4, self._tokens)

    def _ours(self, number: int) -> Outcome:
        return run_streams(self._engine, self._prompts(number), self._tokens_of(number), LIGHT)

    def _theirs(self, number: int) -> Outcome:
        prompts = self._prompts(number)
        start = time.perf_counter()
        ends = [[token] for token in self._engine.tokenizer.eos_ids]
        generator = BatchGenerator(self._peer.model, stop_tokens=ends, max_tokens=self._tokens_of(number))
        try:
            streams = {uid: stream for stream, uid in enumerate(generator.insert(prompts))}
            arrivals: list[list[float]] = [[] for _ in prompts]
            ids: list[list[int]] = [[] for _ in prompts]
            while responses := generator.next_generated():
                now = time.perf_counter()
                for response in responses:
                    ids[streams[response.uid]].append(int(response.token))
                    arrivals[streams[response.uid]].append(now)
        finally:
            generator.close()
        mx.clear_cache()
        return Streams(start, arrivals, [len(one) for one in ids]), ids
