"""`tokenwalk models`: what models are here, and what `--model` takes."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from backend.commands import options
from backend.commands.console import err, out
from engine.errors import RequestError

models_app = typer.Typer(rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="NAME", help="smollm2", show_default=False)]


@models_app.callback(invoke_without_command=True)
def list_here(context: typer.Context, json_output: options.Json = False, debug: options.Debug = False) -> None:
    """What models are here, and what --model takes.

    Example: tokenwalk models
    """
    if context.invoked_subcommand is not None:
        return
    from engine.models import ACCEPTED, list_models

    models = list_models()
    if json_output:
        print(orjson.dumps([model.as_dict() for model in models], option=orjson.OPT_INDENT_2).decode())
        return
    width = max(len(model.spec) for model in models)
    for model in models:
        size = f"{model.size_bytes / 1e6:.0f} MB" if model.size_bytes else ""
        out.print(f"{model.spec:<{width}}  {size:>8}  {model.what}", markup=False)
    err.print(f"--model takes {ACCEPTED}.", markup=False)


@models_app.command()
def fetch(name: Name, debug: options.Debug = False) -> None:
    """Fetch the built-in model into the cache folder.

    Example: tokenwalk models fetch smollm2
    """
    from engine.models import builtin

    if name != builtin.NAME:
        raise RequestError(
            f"{name!r} cannot be fetched this way; expected {builtin.NAME}. A Hub id is fetched by --model"
        )
    path = builtin.find()
    if path is None:
        path = builtin.fetch()
    else:
        builtin.verify(path)
    print(path)
