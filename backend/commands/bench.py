"""`tokenwalk bench`: speed against a peer, measured in one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from backend.commands import options
from backend.commands.bench_capture import capture

if TYPE_CHECKING:
    from backend.bench.parts import Report
    from engine.bench.figures import Figure
    from engine.bench.one_stream import Race

bench_app = typer.Typer(
    help="Measure speed against a peer, and what looking costs: interleaved rounds in one run, medians, ratios.",
    no_args_is_help=True,
)
bench_app.command(epilog="Example: tokenwalk bench capture --only shortx1 --rounds 7")(capture)

NAMES = "streams1, streams8, http8, gap, prefix, waste"


class Peer(StrEnum):
    """What to compare with."""

    mlx_lm = "mlx-lm"


def _parts(value: str) -> list[str]:
    known = NAMES.split(", ")
    parts = [part.strip() for part in value.split(",") if part.strip()]
    wrong = [part for part in parts if part not in known]
    if wrong or not parts:
        raise typer.BadParameter(f"{', '.join(wrong) or 'nothing'} is no part; the parts are {NAMES}")
    return [part for part in known if part in parts]


@bench_app.command(epilog="Example: tokenwalk bench engine --compare mlx-lm --only streams1,streams8 --rounds 7")
def engine(
    model: options.Model = "smollm2",
    compare: Annotated[Peer, typer.Option(help="The peer: runs the same weights with the same BLAS.")] = Peer.mlx_lm,
    only: Annotated[str, typer.Option(help="Which parts, with commas between.")] = NAMES.replace(" ", ""),
    tokens: Annotated[int, typer.Option(help="Tokens a generation.", min=8)] = 64,
    rounds: Annotated[int, typer.Option(help="Rounds; each runs every contestant once.", min=1)] = 5,
    seconds: Annotated[
        float, typer.Option(help="Most seconds a part takes: it ends with the round that it is in.", min=0)
    ] = 300,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Compare the engine with mlx-lm on the same weights and BLAS, and say which figures keep to their bars.

    \b
    streams1  one stream, at each capture level, against mlx-lm's own loop: decoding at least 0.95 of it
    streams8  8 streams in this process, against its BatchGenerator: at least 1.0 of its tokens/s
    http8     8 clients of our server, and of mlx_lm.server: at least 1.15 of its tokens/s
    gap       worst wait of 4 decoding clients while 800 prompt tokens arrive: at most 0.5 of mlx_lm.server's
    prefix    time to the first token with 700 tokens already computed: at most 0.15 of the time without
    waste     KV positions that held blocks have for nothing, over mixed lengths: at most 0.04 (always with `tiny`)

    Servers listen on the loopback address only, and end with the command.
    """
    from engine.device import describe

    from backend.bench.parts import Extent, measure

    del compare  # there is one
    chosen = _parts(only)
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:

        def track(part: str, steps: Iterator[None], total: int) -> None:
            task = progress.add_task(part, total=total)
            for _ in steps:
                progress.advance(task)

        report = measure(model, chosen, Extent(tokens=tokens, rounds=rounds, seconds=seconds), track)
    facts = {"model": model, "tokens": tokens, "rounds": rounds, "machine": describe()}
    if json:
        typer.echo(orjson.dumps(_as_dict(report, facts), option=orjson.OPT_INDENT_2))
    else:
        _print(report, facts)


def _as_dict(report: Report, facts: dict[str, Any]) -> dict[str, Any]:
    return {
        **facts,
        "figures": [{**asdict(figure), "holds": figure.holds} for figure in report.figures],
        "one_stream": None if report.race is None else [asdict(result) for result in report.race.results()],
        "follow_cost": None if report.race is None else _follow_cost(report.race),
        "streams_with_the_peer_s_tokens": report.same_tokens,
    }


def _print(report: Report, facts: dict[str, Any]) -> None:
    console, machine = Console(), facts["machine"]
    console.print(
        f"{facts['model']} on {machine['chip']} ({machine['device']}, BLAS {machine['blas']['name']}): up to "
        f"{facts['tokens']} tokens greedily, medians of interleaved rounds"
    )
    if report.race is not None:
        console.print(_race_table(report.race))
        console.print(
            f"follow capture costs {_follow_cost(report.race):.1%} of the decode rate, against capture off in the "
            "same rounds"
        )
    for figure in report.figures:
        console.print(_said(figure), soft_wrap=True)
    if report.same_tokens is not None:
        console.print(
            f"{report.same_tokens:.0%} of the streams of streams8 gave the very tokens that the peer gave; batches of "
            "another shape round otherwise, and a near tie may then go the other way"
        )


def _said(figure: Figure) -> str:
    low, high = figure.spread
    return (
        f"[bold]{figure.part}[/]: {figure.what}\n"
        f"  ours {figure.ours:.3g} {figure.unit}, {figure.base_name} {figure.base:.3g} {figure.unit}: "
        f"[bold]{figure.ratio:.3f}[/] ({low:.3f}–{high:.3f} in {figure.rounds} rounds); "
        f"bar {'≥' if figure.at_least else '≤'} {figure.bar}: {'holds' if figure.holds else 'does not hold'}"
    )


def _follow_cost(race: Race) -> float:
    return 1 - race.ratio("tokenwalk follow", "tokenwalk off")


def _race_table(race: Race) -> Table:
    table = Table("1 stream", "decode tok/s", "÷ peer", "(smallest–largest)", "with prompt ÷ peer", "first token ms")
    for result in race.results():
        low, high = result.spread
        table.add_row(
            result.name,
            f"{result.decode_rate:.2f}",
            f"{result.decode_ratio:.3f}",
            f"{low:.3f}–{high:.3f}",
            f"{result.total_ratio:.3f}",
            f"{result.first_s * 1000:.0f}",
        )
    return table
