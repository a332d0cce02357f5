"""Models and a bare core for the engine's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.models import LoadedModel, load
from engine.notebook import Walk
from engine.sampling import Sampler

MakeWalk = Callable[..., Walk]


@pytest.fixture(scope="session")
def tiny() -> LoadedModel:
    return load("tiny")


@pytest.fixture(scope="session")
def smollm2() -> LoadedModel:
    """The built-in model. Tests that ask for it carry the marker `model`."""
    return load("smollm2")


@pytest.fixture
def walk(tiny: LoadedModel) -> Iterator[MakeWalk]:
    """Makes instrumented cores of `tiny`, and takes the taps out again."""
    made = []

    def make(loaded: LoadedModel = tiny, **config: object) -> Walk:
        config.setdefault("kv_memory", 2**22)  # the default's zeros would take longer than the test
        made.append(Walk(loaded, EngineConfig(**config)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in reversed(made):
        each.close()


@pytest.fixture
def logits_seen(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every row of logits that a token was chosen from."""
    seen: list[bytes] = []
    choose = Sampler.choose

    def spy(self: Sampler, logits: np.ndarray, *args: Any, **kwargs: Any) -> Any:
        seen.append(np.array(logits).tobytes())
        return choose(self, logits, *args, **kwargs)

    monkeypatch.setattr(Sampler, "choose", spy)
    return seen
