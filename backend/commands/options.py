"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from backend.sizes import parse_size, show_size
from engine.config import EngineConfig, Policy, StoreName

DEFAULTS = EngineConfig()

debugging = bool(os.environ.get("TOKENWALK_DEBUG"))
"""Whether an error shows its traceback."""


def _debug(value: bool) -> None:
    global debugging
    debugging = debugging or value


def _size(value: str | int) -> int:
    """Bytes; a default is a number already."""
    try:
        return value if isinstance(value, int) else parse_size(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Debug = Annotated[
    bool,
    typer.Option("--debug", help="Show the traceback of an error.", callback=_debug, is_eager=True, show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.", show_default=False)]
Model = Annotated[
    str,
    typer.Option(
        help="smollm2 (built in), a .gguf file, an MLX or Hugging Face folder, a Hub id, or tiny (random weights).",
        envvar="TOKENWALK_MODEL",
    ),
]
Host = Annotated[str, typer.Option(help="Address to listen on.", envvar="TOKENWALK_HOST")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 takes any.", min=0, max=65535, envvar="TOKENWALK_PORT")]
OpenBrowser = Annotated[
    bool, typer.Option("--open", help="Open the page in a browser.", envvar="TOKENWALK_OPEN", show_default=False)
]
Traces = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the traces. Default: your data folder.", envvar="TOKENWALK_TRACES", show_default=False
    ),
]
AccessToken = Annotated[
    str | None,
    typer.Option(help="Ask everybody for this token.", envvar="TOKENWALK_ACCESS_TOKEN", show_default=False),
]
AllowHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        help="Also answer to this name in the Host header (name or name:port). May be repeated.",
        envvar="TOKENWALK_ALLOW_HOST",
        show_default=False,
    ),
]
AllowOrigins = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-origin",
        help="Also let pages of this origin in, such as https://example.org. May be repeated.",
        envvar="TOKENWALK_ALLOW_ORIGIN",
        show_default=False,
    ),
]
MaxContext = Annotated[
    int | None,
    typer.Option(
        help="Most tokens of prompt and answer together. Default: the model's context.",
        min=2,
        envvar="TOKENWALK_MAX_CONTEXT",
        show_default=False,
    ),
]
PrefillBudget = Annotated[
    int, typer.Option(help="Most positions that one step computes.", min=1, envvar="TOKENWALK_PREFILL_BUDGET")
]
MaxSlots = Annotated[int, typer.Option(help="Requests that run at once.", min=1, envvar="TOKENWALK_MAX_SLOTS")]
MaxQueue = Annotated[int, typer.Option(help="Most requests that wait.", min=0, envvar="TOKENWALK_MAX_QUEUE")]
KvMemory = Annotated[
    int,
    typer.Option(
        help="Memory for keys and values of all requests: bytes, or a number with a unit (512MiB, 2GB).",
        parser=_size,
        metavar="SIZE",
        show_default=show_size(DEFAULTS.kv_memory).replace(" ", ""),
        envvar="TOKENWALK_KV_MEMORY",
    ),
]
BlockSize = Annotated[int, typer.Option(help="Positions of a KV block.", min=1, envvar="TOKENWALK_BLOCK_SIZE")]
TimeEvery = Annotated[
    int,
    typer.Option(
        help="Time the operations of every that many steps, which are slower then; 0: none, unless asked for.",
        min=0,
        envvar="TOKENWALK_TIME_EVERY",
    ),
]
Kv = Annotated[
    StoreName,
    typer.Option(
        help="Where keys and values live: paged (blocks, shared by prefix); prealloc and concat are for comparison.",
        envvar="TOKENWALK_KV",
    ),
]
BatchPolicy = Annotated[
    Policy,
    typer.Option(
        help="continuous batching, or static: a batch runs until its last request has ended (for comparison).",
        envvar="TOKENWALK_POLICY",
    ),
]
