"""`tokenwalk doctor`: what this machine is, and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import typer

from backend.commands import options
from backend.commands.console import out
from engine.version import VERSION

if TYPE_CHECKING:
    from engine.doctor import Diagnosis


def doctor(json_output: options.Json = False, debug: options.Debug = False) -> None:
    """Say what hardware, Python, MLX, BLAS and model this is, and what is wrong with it.

    Ends with status 1 when something cannot work.

    Example: tokenwalk doctor
    """
    from engine.doctor import examine

    diagnosis = examine()
    if json_output:
        print(orjson.dumps({"tokenwalk": VERSION, **diagnosis.as_dict()}, option=orjson.OPT_INDENT_2).decode())
    else:
        _show(diagnosis)
    if not diagnosis.ok:
        raise typer.Exit(1)


def _show(diagnosis: Diagnosis) -> None:
    facts = diagnosis.facts
    out.print(f"Tokenwalk {VERSION}", style="bold", markup=False)
    for label, text in _lines(facts):
        out.print(f"  {label:<8} {text}", markup=False)
    if not diagnosis.problems:
        out.print("Nothing is wrong.", style="green")
    for problem in diagnosis.problems:
        style = "red" if problem.severity == "error" else "yellow"
        out.print(f"{problem.severity}: {problem.what}", style=style, markup=False)
        out.print(f"  {problem.remedy}", markup=False)


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Label and text of each line. Facts that could not be found are left out."""
    memory, speed = facts.get("memory_bytes"), facts.get("matmul_gflops")
    chip = [facts.get("chip"), f"{facts['cores']} cores" if facts.get("cores") else None]
    chip.append(f"{memory / 1e9:.1f} GB of memory" if memory else None)
    blas, model = facts.get("blas") or {}, facts.get("builtin_model") or {}
    multiplies = [blas.get("name"), f"{speed:.0f} GFLOP/s in float32" if speed else None, blas.get("path")]
    runtime = f"mlx {facts.get('mlx')}, mlx-lm {facts.get('mlx_lm')}, on the {facts.get('device')}"
    here = f"{model.get('path')}" + ("" if model.get("verified") else " (not verified)")
    lines = [
        ("machine", _joined(chip)),
        ("system", _joined([facts.get("os"), f"Python {facts.get('python')}"])),
        ("MLX", runtime if facts.get("mlx") else ""),
        ("BLAS", _joined(multiplies)),
        ("model", f"{model.get('name')}: {here if model.get('path') else 'not here'}"),
        ("cache", str(facts.get("cache", ""))),
    ]
    return [(label, text) for label, text in lines if text]


def _joined(parts: list[str | None]) -> str:
    return ", ".join(part for part in parts if part)
