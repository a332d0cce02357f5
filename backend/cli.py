"""The command line: `tokenwalk`, the same as `python -m backend`."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, NoReturn

import typer
from typer.exceptions import Abort, TyperException

from backend.commands import options
from backend.commands.bench import bench_app
from backend.commands.doctor import doctor
from backend.commands.generate import generate
from backend.commands.models import models_app
from backend.commands.replay import replay
from backend.commands.serve import serve
from backend.commands.trace import app as trace_app
from engine.errors import RequestError, TokenwalkError
from engine.version import VERSION

app = typer.Typer(
    name="tokenwalk",
    help="Watch one token travel through a running language model, live in a browser or replayed from a file.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(replay)
app.command()(generate)
app.command()(doctor)
app.add_typer(models_app, name="models")
app.add_typer(bench_app, name="bench")
app.add_typer(trace_app, name="trace")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"tokenwalk {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    debug: options.Debug = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command and end the process: 0 success, 1 the work failed, 2 the call was wrong, 130 after Ctrl-C."""
    # The library of the tokenizers would say in every command that it found no PyTorch, which nothing here needs.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    try:
        status = app(arguments, prog_name="tokenwalk", standalone_mode=False)
    except TyperException as error:
        message = error.format_message().replace("Value error, ", "").rstrip(".")
        _complain(error, f"{message}. See '{_command_of(error)} --help'.")
        status = error.exit_code
    except RequestError as error:
        _complain(error, str(error))
        status = 2
    except TokenwalkError as error:
        _complain(error, str(error))
        status = 1
    except (Abort, KeyboardInterrupt):
        status = 130
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _complain(error, f"{where}{error.strerror or error}")
        status = 1
    except Exception as error:  # noqa: BLE001 - the last resort: the person gets a line, --debug the traceback
        _complain(error, f"a fault in Tokenwalk: {type(error).__name__}: {error}. --debug shows where.")
        status = 1
    sys.exit(status if isinstance(status, int) else 0)


def _complain(error: BaseException, message: str) -> None:
    if options.debugging:
        traceback.print_exception(error)
    print(f"tokenwalk: {' '.join(message.split())}", file=sys.stderr)


def _command_of(error: TyperException) -> str:
    """The command that was called wrongly."""
    context = getattr(error, "ctx", None)
    return "tokenwalk" if context is None else str(context.command_path)
