"""Two measures under load, over HTTP: many streams at once, and a long prompt that arrives while others decode."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial

from backend.bench.client import TIMEOUT_S, Client
from engine.bench.figures import Figure, Streams, figure, take_turns
from engine.bench.prompts import passage, story
from engine.errors import TokenwalkError
from engine.tokenizer import Tokenizer

PEER = "mlx_lm.server"


class HttpStreamsBench:
    """Rounds of `streams` clients at once against each server.

    Args:
        ports: of `ours` and `peer`.
        streams: clients at once.
        tokens: most tokens an answer.
    """

    def __init__(self, ports: Mapping[str, int], *, streams: int, tokens: int) -> None:
        self._ports, self._streams, self._tokens = ports, streams, tokens
        self._rounds: list[dict[str, Streams]] = []

    def run(self, rounds: int, seconds: float) -> Iterator[None]:
        """A warm-up and the rounds; yields after each round."""
        for port in self._ports.values():
            self._answer(port, 4, -1)
        turns = {name: partial(self._answer, port, self._tokens) for name, port in self._ports.items()}
        for samples in take_turns(turns, rounds, seconds):
            self._rounds.append(samples)
            yield

    def figures(self) -> list[Figure]:
        ours = [samples["ours"].rate for samples in self._rounds]
        peer = [samples["peer"].rate for samples in self._rounds]
        what = f"{self._streams} streams over HTTP, prompts included, light capture, recording"
        return [figure("http8", what, "tokens/s", ours, peer, base_name=PEER, at_least=1.15)]

    def _answer(self, port: int, tokens: int, number: int) -> Streams:
        clients = [Client(port, story(number, stream), tokens) for stream in range(self._streams)]
        start = time.perf_counter()
        for client in clients:
            client.start()
        for client in clients:
            client.finish()
        return Streams(start, [client.arrivals for client in clients], [client.tokens for client in clients])


class GapBench:
    """Rounds in which a long prompt arrives while others decode: how long do those wait for their next token?

    Args:
        ports: of `ours` and `peer`.
        tokenizer: to make the prompt as long as it should be.
        streams: clients that decode.
        prompt_tokens: length of the prompt that arrives.
    """

    BEFORE = 6
    """Pieces that every stream has got when the prompt arrives."""
    AFTER = 2
    """Pieces that every stream gets after the prompt has been answered."""

    def __init__(self, ports: Mapping[str, int], tokenizer: Tokenizer, *, streams: int, prompt_tokens: int) -> None:
        self._ports, self._tokenizer = ports, tokenizer
        self._streams, self._prompt_tokens = streams, prompt_tokens
        self._rounds: list[dict[str, float]] = []

    def run(self, rounds: int, seconds: float) -> Iterator[None]:
        """The rounds; yields after each."""
        turns = {name: partial(self._gap, port) for name, port in self._ports.items()}
        for samples in take_turns(turns, rounds, seconds):
            self._rounds.append(samples)
            yield

    def figures(self) -> list[Figure]:
        ours = [samples["ours"] for samples in self._rounds]
        peer = [samples["peer"] for samples in self._rounds]
        what = f"worst gap of {self._streams} decoding streams while {self._prompt_tokens} prompt tokens arrive"
        return [figure("gap", what, "s", ours, peer, base_name=PEER, at_most=0.5)]

    def _gap(self, port: int, number: int) -> float:
        """Longest time between two pieces of a stream from the prompt's arrival on."""
        prompt = Client(port, passage(self._tokenizer, self._prompt_tokens, number), 1)
        # Long enough to decode all the while; they leave before.
        decoding = [Client(port, story(1000 + number, stream), 3000) for stream in range(self._streams)]
        for client in decoding:
            client.start()
        self._wait(decoding, [self.BEFORE] * self._streams)
        arrived = time.perf_counter()
        prompt.start()
        prompt.finish()
        self._wait(decoding, [len(client.arrivals) + self.AFTER for client in decoding])
        for client in decoding:
            client.leave()
        for client in decoding:
            client.finish()
        time.sleep(0.5)  # until the server has seen that they have gone
        return max(
            later - earlier
            for client in decoding
            for earlier, later in zip(client.arrivals, client.arrivals[1:], strict=False)
            if later > arrived
        )

    def _wait(self, clients: list[Client], pieces: list[int]) -> None:
        """Until each has got so many pieces of text."""
        end = time.monotonic() + TIMEOUT_S
        while any(len(client.arrivals) < count for client, count in zip(clients, pieces, strict=True)):
            for client in clients:
                client.check()
                if not client.is_alive() or time.monotonic() > end:
                    raise TokenwalkError(
                        f"a stream ended after {len(client.arrivals)} pieces, before the long prompt was answered: "
                        "there is no gap to measure; take another model"
                    )
            time.sleep(0.005)
