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
        int,
        typer.Option(
            help="Rounds of turns; whole answers come in one of four, of what has no bar in one of eight.", min=1
        ),
    ] = 16,
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

    Two figures, both tokens a second divided by those of level off. In turn: the levels take turns within one run, some
    tokens each; the mean over the rounds, and its standard error, which is half a percent on a machine whose speed does
    not change. Whole: each level generates whole answers, one level after the other; such runs differ by up to a tenth,
    and contain what it takes to record the prompts.

    The bars are for the built-in model, and for the figure in turn: light costs at most 2 %, follow 10 % at 1 stream
    and 5 % at 8. A bar within two standard errors is shown with a question mark: another run may well say the opposite,
    and more rounds will tell. A machine that does something else meanwhile says nothing. Level full has no bar: it
    computes the lens and attribution of every token, and times one step in 16. It takes part in the first of each eight
    rounds, as does, at 1 stream and where PyTorch is installed, transformers with output_attentions.
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
        shown = [{**asdict(cost), "holds": cost.holds, "certain": cost.certain} for cost in costs]
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
        "In turn: tokens a second ÷ level off's while the levels take turns within one run, the mean over the rounds "
        "with its standard error and the bar (?: within two errors). Whole: likewise of answers of "
        f"{facts['tokens']} tokens, level after level, with their tokens a second and kB of events a token: medians.",
        soft_wrap=True,
    )
    table = Table(
        "shape", "level", "in turn", "±", "bar", "whole", "tokens/s", "kB", "rounds",
        box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False,
    )  # fmt: skip
    for cost in costs:
        table.add_row(
            cost.shape,
            cost.name,
            "" if cost.in_turn is None else f"{cost.in_turn:.3f}",
            "" if cost.in_turn_error is None or cost.name == BASE else f"{cost.in_turn_error:.3f}",
            "" if cost.bar is None else f"{cost.bar:.2f} {'✓' if cost.holds else '✗'}{'' if cost.certain else '?'}",
            f"{cost.whole:.3f}",
            f"{cost.rate:.2f}",
            "" if cost.bytes_per_token is None else f"{cost.bytes_per_token / 1000:,.1f}",
            f"{cost.rounds}",
        )
    console.print(table)
    if missing is not None:
        console.print(f"transformers with output_attentions was not measured beside them: {missing}.", soft_wrap=True)
