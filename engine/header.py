"""The first event of a run: what runs, on what."""

from __future__ import annotations

import datetime

from engine.device import describe

from engine.core import EngineCore
from engine.events import RunHeader
from engine.models.info import LoadedModel
from engine.version import VERSION


def run_header(loaded: LoadedModel, core: EngineCore, *, epoch: str, age_ns: int) -> RunHeader:
    """The first event of a run with this model on this machine.

    Args:
        epoch: random name of the run.
        age_ns: how long ago the run's clock began, from which events count: before the model was loaded.
    """
    start = datetime.datetime.now().astimezone() - datetime.timedelta(microseconds=age_ns / 1000)
    return RunHeader(
        epoch=epoch,
        engine_version=VERSION,
        model=loaded.info.as_dict(),
        tokenizer={
            "kind": loaded.tokenizer.kind,
            "vocab": loaded.tokenizer.vocab_size,
            "chat_template": loaded.tokenizer.has_chat_template,
        },
        machine=describe(),
        kv=core.kv.facts,
        slots=len(core.scheduler.slots),
        started_at=start.isoformat(timespec="milliseconds"),
    )
