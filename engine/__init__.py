"""Tokenwalk's engine: run a language model on MLX and see what really happens inside.

What needs no model (`engine.events`, `engine.codec`, `engine.trace`) imports without MLX; the names here are loaded
when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.bus import EventBus as EventBus
    from engine.capture import CapturePlan as CapturePlan
    from engine.config import EngineConfig as EngineConfig
    from engine.engine import Engine as Engine
    from engine.models import LoadedModel as LoadedModel
    from engine.models import load as load
    from engine.notebook import instrument as instrument
    from engine.request import GenerationRequest as GenerationRequest
    from engine.request import SamplingParams as SamplingParams
    from engine.trace import Recorder as Recorder
    from engine.trace import open_trace as open_trace

_HOME = {
    "CapturePlan": "engine.capture",
    "Engine": "engine.engine",
    "EngineConfig": "engine.config",
    "EventBus": "engine.bus",
    "GenerationRequest": "engine.request",
    "LoadedModel": "engine.models",
    "Recorder": "engine.trace",
    "SamplingParams": "engine.request",
    "instrument": "engine.notebook",
    "load": "engine.models",
    "open_trace": "engine.trace",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
