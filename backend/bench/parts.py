"""The parts of `tokenwalk bench engine`: what each needs, and in which order they run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from engine.device import mx

from backend.bench.load import GapBench, HttpStreamsBench
from backend.bench.servers import our_server, peer_server
from engine.bench.contestants import recording_engine
from engine.bench.figures import Figure
from engine.bench.folder import peer_folder
from engine.bench.one_stream import PROMPT_TOKENS, Race, engine_contestant, mlx_lm_contestant
from engine.bench.prefix import PrefixBench
from engine.bench.prompts import story
from engine.bench.streams import StreamsBench
from engine.bench.waste import WasteBench
from engine.config import EngineConfig
from engine.models import LoadedModel, load
from engine.tokenizer import Tokenizer

IN_PROCESS = ("streams1", "streams8", "prefix")
OVER_HTTP = ("http8", "gap")
OF_BLOCKS = ("waste",)
PARTS = (*IN_PROCESS, *OVER_HTTP, *OF_BLOCKS)

STREAMS, DECODING, LONG_PROMPT, SHARED_PREFIX = 8, 4, 800, 700
"""The sizes that the bars are for."""

MIXED, MIXED_KV = 32, 2**25
"""Requests of mixed lengths a round, and bytes of KV memory, which hold 8 of the longest."""

Track = Callable[[str, Iterator[None], int], None]
"""Runs a part's rounds to the end, showing how far it is: the part's name, its rounds, how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured."""

    tokens: int
    """Most tokens a generation."""
    rounds: int
    seconds: float
    """Most seconds a part takes; it ends with the round that it is in."""


@dataclass(slots=True)
class Report:
    """What was measured."""

    figures: list[Figure] = field(default_factory=list)
    race: Race | None = None
    """The table of one stream."""
    same_tokens: float | None = None
    """Share of the in-process streams that gave the same tokens as the peer's."""


def measure(model: str, parts: list[str], extent: Extent, track: Track) -> Report:
    """Run the parts; those in this process first, and the servers only once its engine has gone.

    Raises:
        TokenwalkError: when a model cannot be loaded, a server does not start, or contestants did different work.
    """
    report = Report()
    if "waste" in parts:
        # Which block goes to whom does not depend on the weights: with the small model it is a matter of seconds.
        with recording_engine("tiny", EngineConfig(kv_memory=MIXED_KV)) as engine:
            waste = WasteBench(engine, requests=MIXED)
            track("waste", waste.run(extent.rounds, extent.seconds), extent.rounds)
        report.figures += waste.figures()
    if not set(parts) - set(OF_BLOCKS):
        mx.clear_streams()
        return report
    peer = load(model)
    if set(parts) & set(IN_PROCESS):
        _in_process(model, peer, parts, extent, track, report)
    if set(parts) & set(OVER_HTTP):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokenwalk-bench-")))
            weights, tokenizer = peer_folder(peer, folder / "model"), peer.tokenizer
            del peer  # the servers load their own
            mx.clear_cache()
            ports = stack.enter_context(_servers(model, weights, folder))
            _over_http(ports, tokenizer, parts, extent, track, report)
    mx.clear_streams()
    return report


def _in_process(model: str, peer: LoadedModel, parts: list[str], extent: Extent, track: Track, report: Report) -> None:
    with recording_engine(model) as engine:
        if "streams1" in parts:
            report.race = race = Race({"mlx-lm": mlx_lm_contestant(peer)})
            for level in ("off", "light", "follow"):
                race.contestants[f"tokenwalk {level}"] = engine_contestant(engine, level)
            prompt = engine.tokenizer.encode(story(0, 0)).ids[:PROMPT_TOKENS]
            track("streams1", race.run(prompt, extent.tokens, extent.rounds, extent.seconds), extent.rounds)
            report.figures += race.figures()
        if "streams8" in parts:
            streams = StreamsBench(engine, peer, streams=STREAMS, tokens=extent.tokens)
            track("streams8", streams.run(extent.rounds, extent.seconds), extent.rounds)
            report.figures += streams.figures()
            report.same_tokens = streams.agreement
        if "prefix" in parts:
            prefix = PrefixBench(engine, shared=SHARED_PREFIX)
            track("prefix", prefix.run(extent.rounds, extent.seconds), extent.rounds)
            report.figures += prefix.figures()


def _over_http(
    ports: dict[str, int], tokenizer: Tokenizer, parts: list[str], extent: Extent, track: Track, report: Report
) -> None:
    if "http8" in parts:
        http = HttpStreamsBench(ports, streams=STREAMS, tokens=extent.tokens)
        track("http8", http.run(extent.rounds, extent.seconds), extent.rounds)
        report.figures += http.figures()
    if "gap" in parts:
        gap = GapBench(ports, tokenizer, streams=DECODING, prompt_tokens=LONG_PROMPT)
        track("gap", gap.run(extent.rounds, extent.seconds), extent.rounds)
        report.figures += gap.figures()


@contextmanager
def _servers(model: str, weights: Path, folder: Path) -> Iterator[dict[str, int]]:
    with our_server(model, folder) as ours, peer_server(weights, folder) as peer:
        yield {"ours": ours, "peer": peer}
