"""`tokenwalk bench capture`: what looking costs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from backend.commands import options

if TYPE_CHECKING:
    from engine.bench.capture import Cost, Peer, Shape

NAMES = "shortx1, shortx8, 2000x1, 2000x8"


def _shapes(value: str) -> list[str]:
    known = NAMES.split(", ")
    chosen = [name.strip() for name in value.split(",") if name.strip()]
    wrong = [name for name in chosen if name not in known]
    if wrong or not chosen:
        raise typer.BadParameter(f"{', '.join(wrong) or 'nothing'} is no shape; the shapes are {NAMES}")
    return [name for name in known if name in chosen]


def capture(
    model: options.Model = "smollm2",
    only: Annotated[str, typer.Option(help="Which shapes, with commas between.")] = NAMES.replace(" ", ""),
    tokens: Annotated[int, typer.Option(help="Tokens of a whole answer; 79 at most after a long prompt.", min=8)] = 32,
    rounds: Annotated[
        int, typer.Option(help="Rounds; each runs every level once, what has no bar only in one of eight.", min=1)
    ] = 12,
    seconds: Annotated[
        float, typer.Option(help="Most seconds a shape takes: it ends with the round that it is in.", min=0)
    ] = 240,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Measure what each capture level costs, against level off: decode rate, and bytes a token.

    \b
    shortx1, shortx8  1 and 8 streams that begin with 16 tokens
    2000x1, 2000x8    1 and 8 streams with 2,000 tokens before them, computed once and found in the cache by all; KV
                      blocks have 80 positions here, so that no answer fills one: each finds the cache as the last did

    In turn: within one run, some steps of one level come after some of another. That tells half a percent, where two
    runs of the same work differ by ten. Whole: answers of one level after answers of another, which also have their
    prompts' positions to tell and to record while few tokens are generated.

    Bars, for levels in turn: light costs at most 2 %, follow 10 % at 1 stream and 5 % at 8. Level full has none: it
    computes the lens and attribution of every token, and times one step in 16. Beside them, at 1 stream, transformers
    with output_attentions, where PyTorch is installed. What has no bar runs in one round of eight.
    """
    from engine.device import describe

    from engine.bench.eager import missing

    chosen = _shapes(only)
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        costs, peer = _measure(model, chosen, tokens, rounds, seconds, progress)
    facts = {"model": model, "tokens": tokens, "rounds": rounds, "machine": describe()}
    said = missing() or peer
    if json:
        shown = [{**asdict(cost), "holds": cost.holds} for cost in costs]
        typer.echo(orjson.dumps({**facts, "costs": shown, "transformers": said}, option=orjson.OPT_INDENT_2))
    else:
        _print(costs, facts, said)


def _measure(
    model: str, chosen: list[str], tokens: int, rounds: int, seconds: float, progress: Progress
) -> tuple[list[Cost], str | None]:
    """All shapes, and why there is nothing beside them, if there is not."""
    from engine.bench.capture import CONFIG, SHAPES, CaptureBench
    from engine.bench.contestants import recording_engine

    costs: list[Cost] = []
    with _peers(model) as (peers, why), recording_engine(model, CONFIG) as engine:
        for shape in SHAPES:
            if shape.name not in chosen:
                continue
            bench = CaptureBench(engine, shape, tokens, _for(shape, peers))
            task = progress.add_task(f"{shape.name}: computing prompts", total=rounds)
            for number, _ in enumerate(bench.run(rounds, seconds)):
                progress.update(task, completed=number, description=shape.name)
            costs += bench.costs()
    return costs, why


def _for(shape: Shape, peers: dict[str, Peer]) -> dict[str, Peer]:
    return peers if shape.streams == 1 else {}


@contextmanager
def _peers(model: str) -> Iterator[tuple[dict[str, Peer], str | None]]:
    """What can be measured beside, or why nothing can."""
    from engine.bench.eager import NAME, EagerPeer, missing
    from engine.errors import ModelUnsupported
    from engine.models import load

    with tempfile.TemporaryDirectory(prefix="tokenwalk-bench-") as folder:
        if why := missing():
            yield {}, why
            return
        try:
            peer = EagerPeer(load(model), Path(folder))
        except ModelUnsupported as error:
            yield {}, str(error)
            return
        yield {NAME: peer}, None


def _print(costs: list[Cost], facts: dict[str, Any], missing: str | None) -> None:
    from engine.bench.capture import BASE

    console, machine = Console(), facts["machine"]
    console.print(
        f"{facts['model']} on {machine['chip']} ({machine['device']}, BLAS {machine['blas']['name']}): "
        f"{facts['tokens']} tokens greedily, medians of rounds. Bytes of a token's events; rates as parts of level "
        "off's, with levels taking turns step by step in one run (and their range), and of whole answers in turn.",
        soft_wrap=True,
    )
    table = Table(
        "shape", "level", "tokens/s", "bytes", "in turn", "range", "bar", "whole", "rounds",
        box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    for cost in costs:
        low, high = cost.in_turn_spread or cost.whole_spread
        table.add_row(
            cost.shape,
            cost.name,
            f"{cost.rate:.2f}",
            "" if cost.bytes_per_token is None else f"{cost.bytes_per_token:,.0f}",
            "" if cost.in_turn is None else f"{cost.in_turn:.3f}",
            "" if cost.name == BASE else f"{low:.2f}–{high:.2f}",
            "" if cost.bar is None else f"{cost.bar:.2f} {'✓' if cost.holds else '✗'}",
            f"{cost.whole:.3f}",
            f"{cost.rounds}",
        )
    console.print(table)
    if missing is not None:
        console.print(f"Nothing beside them: {missing}.", soft_wrap=True)
