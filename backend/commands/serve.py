"""`tokenwalk serve`: the server and the dashboard."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from backend.commands import options
from backend.commands.site_server import server_of, settings_from, show_until_stopped
from backend.library import SUFFIX, TraceLibrary
from backend.live import LiveRun, MakeEngine
from backend.paths import bundled_traces_dir, default_traces_dir
from backend.server import bind
from backend.site import Site
from engine.bus import EventBus
from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.errors import TraceError
from engine.request import SamplingParams

Capture = Annotated[
    str,
    typer.Option(
        help="What to look at where a request does not say: off, light, follow, full, or a plan in JSON.",
        envvar="TOKENWALK_CAPTURE",
    ),
]
NoRecord = Annotated[
    bool,
    typer.Option(
        "--no-record", help="Do not write the run to a trace.", envvar="TOKENWALK_NO_RECORD", show_default=False
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Seed of requests that give none: the same prompt gets the same answer. Default: drawn for each.",
        envvar="TOKENWALK_SEED",
        show_default=False,
    ),
]


MAX_LABEL = 120
"""Bytes of a model's name in a file's name, of which there may be 255."""


def serve(
    model: options.Model = "smollm2",
    host: options.Host = "127.0.0.1",
    port: options.Port = 8642,
    open_browser: options.OpenBrowser = False,
    traces: options.Traces = None,
    no_record: NoRecord = False,
    capture: Capture = "follow",
    seed: Seed = None,
    max_slots: options.MaxSlots = options.DEFAULTS.slots,
    kv_memory: options.KvMemory = options.DEFAULTS.kv_memory,
    block_size: options.BlockSize = options.DEFAULTS.block_size,
    prefill_budget: options.PrefillBudget = options.DEFAULTS.prefill_budget,
    max_context: options.MaxContext = None,
    max_queue: options.MaxQueue = options.DEFAULTS.max_queue,
    kv: options.Kv = "paged",
    time_every: options.TimeEvery = options.DEFAULTS.time_every,
    policy: options.BatchPolicy = "continuous",
    access_token: options.AccessToken = None,
    allow_host: options.AllowHosts = None,
    allow_origin: options.AllowOrigins = None,
    debug: options.Debug = False,
) -> None:
    """Start the server and the dashboard.

    The page is at the address that is printed; the OpenAI-compatible API is below /v1 at the same address. Prompts and
    answers are recorded to a trace on this machine unless --no-record is given.

    Example: tokenwalk serve --model smollm2 --max-slots 4 --kv-memory 1GiB --open
    """
    plan = CapturePlan.read(capture)
    sampling = SamplingParams(seed=seed)
    config = EngineConfig(
        slots=max_slots,
        prefill_budget=prefill_budget,
        kv_memory=kv_memory,
        block_size=block_size,
        kv_store=kv,
        policy=policy,
        max_context=max_context,
        time_every=time_every,
        max_queue=max_queue,
        capture_default=plan,
    )
    with closing(bind(host, port)) as listener:
        settings = settings_from(listener, host, access_token, allow_host, allow_origin)
        folder = traces or default_traces_dir()
        live = LiveRun(
            spec=model,
            make_engine=_engine_maker(model, config),
            trace=None if no_record else new_trace(folder, model),
            capture_default=plan,
            sampling_default=sampling,
        )
        site = Site(settings=settings, library=TraceLibrary(folder, bundled_traces_dir()), live=live)
        try:
            asyncio.run(show_until_stopped(site, server_of(site, listener), open_browser=open_browser))
        finally:
            live.close()
    if live.loading:
        # The loading thread is deep inside MLX and cannot be asked to stop; ending the interpreter around it may crash.
        sys.stdout.flush()
        os._exit(0)


def _engine_maker(model: str, config: EngineConfig) -> MakeEngine:
    def make(bus: EventBus):  # type: ignore[no-untyped-def]  # Engine cannot be named without importing MLX
        from engine.engine import Engine
        from engine.models import load

        return Engine(lambda: load(model), config, bus)

    return make


def new_trace(folder: Path, model: str) -> Path:
    """An empty file whose name was not taken, made of the time and the model.

    It is made at once: of several servers that start together in one folder, each gets a name of its own.

    Raises:
        TraceError: when the folder cannot be made or read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        label = re.sub(r"[^\w.-]+", "-", Path(model).name.removesuffix(".gguf")).strip("-.") or "model"
        stem = f"{datetime.now().astimezone():%Y-%m-%d_%H-%M-%S}_{label.encode()[:MAX_LABEL].decode(errors='ignore')}"
        for number in itertools.count(1):
            path = folder / f"{stem if number == 1 else f'{stem}_{number}'}{SUFFIX}"
            with suppress(FileExistsError):
                path.open("xb").close()
                break
    except OSError as error:
        raise TraceError(
            f"cannot use the traces' folder {folder}: {error.strerror}; give another with --traces, or --no-record"
        ) from error
    return path
