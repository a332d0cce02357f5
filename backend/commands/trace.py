"""`tokenwalk trace …`: a recorded trace without a browser. Nothing here but `bake` needs a model or MLX."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from backend.commands.trace_info import answers, info_lines, size
from engine.codec import Frame
from engine.errors import ModelNotFound, TraceError
from engine.events import KINDS, TENSOR_KINDS
from engine.trace import Trace, open_trace
from engine.trace.checking import Check
from engine.trace.export import json_line, printable, text_line
from engine.trace.rewrite import Reduction, Written, rewrite
from engine.trace.verify import verify

app = typer.Typer(
    name="trace",
    help="Look into a recorded trace, check it, mend it, cut it, bake lens and attribution into it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Smaller(StrEnum):
    """What tensors can be stored as."""

    f16 = "f16"


class Format(StrEnum):
    """What a trace can be exported as."""

    jsonl = "jsonl"


File = Annotated[Path, typer.Argument(metavar="FILE", help="A trace (.mcap).", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Request = Annotated[str | None, typer.Option("--request", metavar="ID", help="Only what belongs to this request.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
Dtype = Annotated[Smaller | None, typer.Option("--dtype", help="Store float32 tensors as this.")]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="KIND", help=f"Leave these out ({', '.join(sorted(TENSOR_KINDS))}); repeatable."),
]
StripPaths = Annotated[
    bool,
    typer.Option("--strip-paths", help="Keep only the names of files that the header mentions, not their folders."),
]


@app.command(epilog="Example: tokenwalk trace info traces/capital-of-france.mcap")
def info(file: File, json: AsJson = False) -> None:
    """Say what a trace is and holds."""
    with open_trace(file) as trace:
        facts = trace.info()
        found = answers(trace)
    for request in facts["requests"]:
        request["answer"] = found.get(request["id"], "")
    if json:
        _print_json(facts)
        return
    for line in info_lines(facts):
        print(printable(line))


@app.command(epilog="Example: tokenwalk trace events t.mcap --kind token --limit 5 --json")
def events(
    file: File,
    kind: Annotated[list[str] | None, typer.Option(metavar="KIND", help="Only this kind; repeatable.")] = None,
    request: Request = None,
    first: Annotated[int, typer.Option("--from", metavar="SEQ", help="From this seq on.", min=0)] = 0,
    last: Annotated[int | None, typer.Option("--to", metavar="SEQ", help="Up to this seq.", min=0)] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="At most so many events.", min=1)] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    data: Annotated[bool, typer.Option("--data", help="With --json: tensors' numbers too.")] = False,
) -> None:
    """List events, one a line."""
    unknown = set(kind or ()) - set(KINDS)
    if unknown:
        raise typer.BadParameter(
            f"no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}", param_hint="--kind"
        )
    if data and not json:
        raise typer.BadParameter("numbers are printed as JSON: add --json", param_hint="--data")
    with open_trace(file) as trace, _pipe_may_close():
        for count, frame in enumerate(trace.frames(first, last, kind or None, _known(trace, request))):
            if limit is not None and count >= limit:
                break
            line = json_line(frame, data=data) if json else printable(text_line(frame)).encode()
            sys.stdout.buffer.write(line + b"\n")


@app.command(name="verify", epilog="Example: tokenwalk trace verify traces/*.mcap")
def verify_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Traces (.mcap).", show_default=False)],
    json: AsJson = False,
) -> None:
    """Recompute what traces say about themselves; one line a check, exit status 1 if one fails."""
    results: dict[str, list[Check]] = {}
    for file in files:
        with open_trace(file) as trace, _progress(f"checking {file.name}", trace.last_seq) as seen:
            results[str(file)] = verify(trace, seen=seen)
    if json:
        checks = {
            file: [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in found] for file, found in results.items()
        }
        _print_json(checks)
    else:
        for name, found in results.items():
            print(name)
            for check in found:
                mark = {True: "ok", False: "FAILED", None: "–"}[check.ok]
                print(printable(f"  {mark:<7}{check.name:<31}{check.detail}"))
    if any(check.ok is False for found in results.values() for check in found):
        raise typer.Exit(1)


@app.command(epilog="Example: tokenwalk trace recover cut-off.mcap -o whole.mcap")
def recover(file: File, output: Output = None, force: Force = False, json: AsJson = False) -> None:
    """Write what can be read of a cut-off or damaged trace as a whole one; what was damaged becomes a gap."""
    target = _target(file, output, "recovered", force)
    with open_trace(file) as trace:
        with _progress("recovering", trace.last_seq) as seen:
            written = rewrite(trace, target, facts={"recovered": "yes"}, seen=seen)
        _report(written, json, lost_bytes=trace.lost_bytes, damage=trace.damage)


@app.command(name="slice", epilog="Example: tokenwalk trace slice run.mcap --request r-1a2b --dtype f16 -o r.mcap")
def slice_command(
    file: File,
    request: Annotated[str, typer.Option("--request", metavar="ID", help="The request.", show_default=False)],
    output: Output = None,
    dtype: Dtype = None,
    drop: Drop = None,
    strip_paths: StripPaths = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Cut out one request, with the steps, slots and blocks that touched it."""
    target = _target(file, output, request, force)
    with open_trace(file) as trace, _progress("slicing", trace.last_seq) as seen:
        facts, reduction = {"slice_of": request}, _reduction(dtype, drop, strip_paths)
        written = rewrite(trace, target, request=request, reduction=reduction, facts=facts, seen=seen)
    _report(written, json)


@app.command(epilog="Example: tokenwalk trace bake t.mcap --model smollm2 --dtype f16 -o baked.mcap")
def bake(
    file: File,
    output: Output = None,
    model: Annotated[str | None, typer.Option(help="The model that recorded it; by default, the one it names.")] = None,
    request: Request = None,
    dtype: Dtype = None,
    drop: Drop = None,
    strip_paths: StripPaths = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Add logit lens and attribution of every recorded position, so that they show where the model is not."""
    target = _target(file, output, "baked", force)
    reduction = _reduction(dtype, drop, strip_paths)
    with open_trace(file) as trace:
        request = _known(trace, request)
        spec = model or _recorded_model(trace)

        from engine.models import load  # MLX and the model: only here
        from engine.trace.bake import bake as bake_readings

        loaded = load(spec)
        with _bar("reading lens and attribution") as (bar, task):
            written = bake_readings(
                trace,
                target,
                loaded,
                request=request,
                reduction=reduction,
                done=lambda count, total: bar.update(task, completed=count, total=total),
            )
    _report(written, json)


@app.command(epilog="Example: tokenwalk trace export t.mcap --format jsonl -o t.jsonl")
def export(
    file: File,
    format: Annotated[Format, typer.Option(help="The format.")] = Format.jsonl,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="By default, stdout.")] = None,
    request: Request = None,
    data: Annotated[
        bool | None,
        typer.Option(
            "--data/--no-data",
            help="With tensors' numbers, as nested lists. By default with them, but not to a terminal.",
            show_default=False,
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Write all events in another format."""
    if output is not None and output.exists() and not force:
        raise TraceError(f"{output} is there already; give another --output, or --force to replace it")
    if data is None:
        data = output is not None or not sys.stdout.isatty()
    with (
        open_trace(file) as trace,
        _progress("exporting", trace.last_seq, show=output is not None) as seen,
        _pipe_may_close(),
    ):
        try:
            with _sink(output) as sink:
                for frame in trace.frames(request=_known(trace, request)):
                    sink.write(json_line(frame, data=data) + b"\n")
                    seen(frame)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise TraceError(f"cannot write {output or 'to stdout'}: {error.strerror}") from error


@contextmanager
def _sink(output: Path | None) -> Iterator[BinaryIO]:
    """Where an export goes: stdout, or a file that appears under its name only when it is whole."""
    if output is None or (output.exists() and not output.is_file()):  # such as /dev/stdout
        with open(output, "wb") if output is not None else os.fdopen(os.dup(sys.stdout.fileno()), "wb") as sink:
            yield sink
        return
    partial = output.with_name(f".{output.name}.{secrets.token_hex(4)}.part")
    try:
        with partial.open("xb") as sink:
            yield sink
        os.replace(partial, output)
    finally:
        partial.unlink(missing_ok=True)


# --- what the commands share ------------------------------------------------------------------------------------------


def _known(trace: Trace, request: str | None) -> str | None:
    known = [found["id"] for found in trace.requests()]
    if request is not None and request not in known:
        raise TraceError(f"{trace.path} has no request {request}; it has {', '.join(known[:8]) or 'none'}")
    return request


def _target(file: Path, output: Path | None, word: str, force: bool) -> Path:
    target = output or file.with_name(
        f"{file.stem}.{''.join(c if c.isalnum() or c in '-_' else '-' for c in word)}.mcap"
    )
    if target.exists() and not force:
        raise TraceError(f"{target} is there already; give another --output, or --force to replace it")
    return target


def _reduction(dtype: Smaller | None, drop: list[str] | None, strip_paths: bool) -> Reduction:
    smaller: Literal["f16"] | None = "f16" if dtype is Smaller.f16 else None
    return Reduction(dtype=smaller, drop=frozenset(drop or ()), strip_paths=strip_paths)


def _recorded_model(trace: Trace) -> str:
    """What `--model` would take for the model that a trace names."""
    recorded = trace.header.get("model") or {}
    path, name = recorded.get("path"), recorded.get("name")
    if name == "SmolLM2-135M-Instruct":
        return "smollm2"
    if isinstance(path, str) and Path(path).exists():
        return path
    raise ModelNotFound(f"{trace.path} was recorded with {name}, which is not where it was: pass it with --model")


def _report(written: Written, json: bool, **more: Any) -> None:
    facts = {
        "path": str(written.path),
        "frames": written.frames,
        "added": written.added,
        "gaps": written.gaps,
        "size_bytes": written.size_bytes,
        **more,
    }
    if json:
        _print_json(facts)
        return
    added = f", {written.added} of them new" if written.added else ""
    gaps = f", {written.gaps} gaps" if written.gaps else ""
    print(f"{written.path}: {written.frames} events{added}{gaps}, {size(written.size_bytes)}")
    if more.get("lost_bytes"):
        print(f"  {more['lost_bytes']} bytes belonged to no whole record and are lost")


def _print_json(value: Any) -> None:
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


@contextmanager
def _bar(what: str, total: int | None = None, *, show: bool = True) -> Iterator[tuple[Progress, Any]]:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal)) as bar:
        yield bar, bar.add_task(what, total=total)


@contextmanager
def _progress(what: str, last_seq: int, *, show: bool = True) -> Iterator[Any]:
    """A bar on stderr that follows the frames it is called with."""
    with _bar(what, last_seq, show=show) as (bar, task):

        def seen(frame: Frame) -> None:
            if frame.seq % 64 == 0:
                bar.update(task, completed=frame.seq)

        yield seen


@contextmanager
def _pipe_may_close() -> Iterator[None]:
    """`… | head` is no fault of ours."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
