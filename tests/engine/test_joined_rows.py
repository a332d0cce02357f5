"""Rows that decode together are told where they lie, together or copied: nobody can tell which by what is told."""

from __future__ import annotations

from typing import Any

from engine.device import mx

import numpy as np
import pytest

from engine import joined as joined_module
from engine.apart import Apart
from engine.capture import CapturePlan
from engine.codec import encode
from engine.config import EngineConfig
from engine.events import Attention, RequestFinished, StepFinished
from engine.joined import Joined
from engine.models.info import LoadedModel
from tests.engine.test_batching import Bench

FOLLOW: dict[str, Any] = {"level": "follow"}
APART = {"APART_BYTES": 1}
TOGETHER = {"APART_BYTES": 2**60}
COPIED = {"APART_BYTES": 1, "HELD_BYTES": 0, "JOINED_BYTES": 0}


def told(
    tiny: LoadedModel,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, int],
    lengths: list[int],
    plans: list[dict[str, Any]],
) -> tuple[list[Attention], list[float | None]]:
    """What eight requests tell of attention after their prompts, and each step's largest error of a row's sum."""
    with monkeypatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(joined_module, name, value)
        bench = Bench(tiny, EngineConfig(kv_memory=2**21))
        for number, (length, plan) in enumerate(zip(lengths, plans, strict=True)):
            bench.add([number + 1, *range(65, 64 + length)], 5, capture=CapturePlan.parse(plan))
        bench.run()
        bench.core.close()
    assert all(event.reason == "length" for event in bench.events if isinstance(event, RequestFinished))
    frames = [event for event in bench.events if isinstance(event, Attention) and event.position >= max(lengths)]
    assert frames
    return frames, [event.row_sum_error for event in bench.events if isinstance(event, StepFinished)]


def contents(frames: list[Attention]) -> list[bytes]:
    """All but what depends on the clock and on the names of requests."""
    names: dict[str, str] = {}
    whole = []
    for frame in frames:
        name = names.setdefault(frame.request, str(len(names)))
        frame.t_ns = 0
        whole.append(encode(frame).payload.replace(frame.request.encode(), name.encode()))
    return whole


@pytest.mark.parametrize("lengths", [[6] * 8, [6, 6, 7, 7, 7, 9, 6, 6], [3, 20, 4, 31, 5, 6, 7, 8]], ids=str)
@pytest.mark.parametrize(
    "plans", [[FOLLOW] * 8, [FOLLOW] * 7 + [{"level": "light"}], [FOLLOW] * 7 + [{"heads": [1]}]], ids=str
)
def test_what_is_told_is_the_same_however_it_is_read(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch, lengths: list[int], plans: list[dict[str, Any]]
) -> None:
    outcomes = [told(tiny, monkeypatch, limits, lengths, plans) for limits in (APART, TOGETHER, COPIED)]
    apart, together, copied = (contents(frames) for frames, _ in outcomes)
    assert apart == together == copied
    errors = [errors for _, errors in outcomes]
    assert errors[0] == errors[1] == errors[2]


def test_equal_rows_that_all_become_frames_are_not_copied(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    frames, _ = told(tiny, monkeypatch, APART, [6] * 8, [FOLLOW] * 8)
    assert all(isinstance(frame.data, Apart) for frame in frames)
    frames, _ = told(tiny, monkeypatch, TOGETHER, [6] * 8, [FOLLOW] * 8)
    arrays = [np.asarray(frame.data) for frame in frames]
    assert len({id(array.base) for array in arrays}) < len(arrays)
    frames, _ = told(tiny, monkeypatch, COPIED, [6] * 8, [FOLLOW] * 8)
    assert not any(isinstance(frame.data, Apart) for frame in frames)


@pytest.mark.parametrize("limits", [APART, TOGETHER], ids=str)
@pytest.mark.parametrize("plan", [{"heads": [1]}, {"level": "light"}, {"max_bytes": 5_000}, {"dtype": "f16"}], ids=str)
def test_a_frame_beside_one_that_is_not_whole_is_a_copy(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], plan: dict[str, Any]
) -> None:
    """Else whoever keeps one frame would keep the attention of all rows of the pass in memory."""
    frames, _ = told(tiny, monkeypatch, limits, [6] * 8, [FOLLOW, *[plan] * 7])
    arrays = [frame.data for frame in frames]
    assert all(isinstance(array, np.ndarray) for array in arrays)
    assert all(array.base is None or array.base.nbytes == array.nbytes for array in map(np.asarray, arrays))


@pytest.mark.parametrize(
    ("keys", "framed"),
    [([41] * 8, True), ([41, *[17] * 7], False), ([41, *[18] * 7], True), ([41] * 7, False)],
    ids=str,
)
def test_no_frame_holds_memory_that_is_mostly_nobodys(keys: list[int], framed: bool) -> None:
    """Of a short row beside a long one the kernel reads as many keys, and hides them. The last case lacks a frame."""
    joined = Joined([mx.zeros((8, 4, 1, 41)) for _ in range(3)])
    for row, count in enumerate(keys):
        joined.keep(row, count)
    assert joined.framed is framed
