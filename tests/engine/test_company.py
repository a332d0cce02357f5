"""Who shares a pass with whom decides how it rounds: so it must be the same whatever is captured and timed."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.events import RequestPreempted, StepFinished, StepStarted
from engine.kv.paged import PagedStore
from engine.models import LoadedModel
from engine.request import SamplingParams
from engine.runner import Runner
from tests.engine import trace_run
from tests.engine.test_batching import SMALL, Bench, play, scenario
from tests.engine.test_trace_verify_serving import failed

PLANS: tuple[Any, ...] = ("light", "follow", "full", {"level": "off", "kernels": 1}, {"level": "follow", "kernels": 2})

SEED = 1


class Company(Bench):
    """Every other request draws its tokens, and answers end early, at any of many tokens."""

    plan: CapturePlan
    draws: bool

    def add(self, prompt: list[int], max_tokens: int, **more: object) -> Any:
        if self.draws and len(prompt) % 2:
            more["sampling"] = SamplingParams(temperature=1.0, seed=len(prompt))
        return super().add(prompt, max_tokens, capture=self.plan, **more)


def told(loaded: LoadedModel, plan: Any, draws: bool, store: str, seen: list[bytes]) -> dict[str, Any]:
    """Each step's rows, every logit that a token was chosen from, and the answers."""
    seen.clear()
    config = EngineConfig(slots=4, prefill_budget=13, block_size=4, kv_memory=18 * 4 * 1024, kv_store=store)  # type: ignore[arg-type]
    bench = Company(loaded, config)
    bench.plan, bench.draws = CapturePlan.parse(plan), draws
    bench.core._eos_ids = frozenset(random.Random(SEED).sample(range(loaded.info.vocab), loaded.info.vocab // 20))
    sequences = play(bench, scenario(SEED, 10, vocab=256, longest=40))
    bench.core.close()
    names = {sequence.id: index for index, sequence in enumerate(sequences)}
    steps = [
        [(names[row["request"]], row["from"], row["to"], row["slot"]) for row in event.rows]
        for event in bench.events
        if isinstance(event, StepStarted)
    ]
    finished = [event for event in bench.events if isinstance(event, StepFinished)]
    return {
        "steps": steps,
        "unused": [event.unused_rows for event in finished],
        "logits": list(seen),
        "answers": [(bench.answer(sequence), sequence.finish_reason) for sequence in sequences],
        "timed": sum(event.timing is not None for event in finished),
        "preempted": sum(isinstance(event, RequestPreempted) for event in bench.events),
    }


@pytest.mark.parametrize("store", ["paged", "prealloc", "concat"])
@pytest.mark.parametrize("draws", [False, True])
def test_who_watches_changes_neither_who_meets_whom_nor_a_bit_of_any_logit(
    tiny: LoadedModel, logits_seen: list[bytes], draws: bool, store: str
) -> None:
    plain = told(tiny, "off", draws, store, logits_seen)
    reasons = [reason for _, reason in plain["answers"]]
    assert "stop" in reasons, "some were meant to end before their length"
    assert plain["timed"] == 0
    if not draws:
        assert sum(plain["unused"]), "some were meant to end when their next pass had been submitted"
    if store == "paged":
        assert plain["preempted"], "the pool was meant to be too small"
    for plan in PLANS:
        watched = told(tiny, plan, draws, store, logits_seen)
        if "kernels" in plan:
            assert watched["timed"], "steps were meant to be timed"
        for what in ("steps", "unused", "answers", "logits"):
            assert watched[what] == plain[what], f"{what} differ with {plan}"


def test_a_run_whose_steps_are_all_timed_and_whose_requests_are_cancelled_verifies(
    tiny: LoadedModel, tmp_path: Path
) -> None:
    config = EngineConfig(slots=4, prefill_budget=13, block_size=4, kv_memory=18 * 4 * 1024, time_every=1)
    bench = Company(tiny, config)
    bench.plan, bench.draws = CapturePlan.parse("follow"), True
    bench.events.insert(0, dataclasses.replace(trace_run.header(), kv=bench.core.kv.facts, model=tiny.info.as_dict()))
    sequences = [bench.add([*range(30 + index)], 12) for index in range(5)]
    step = 0
    while bench.core.has_work:
        bench.step()
        step += 1
        if step in (4, 9, 14):
            bench.core.cancel(bench.core.scheduler.running[-1])
    bench.core.close()
    assert [sequence.finish_reason for sequence in sequences].count("cancelled") == 3
    assert {event.timing for event in bench.events if isinstance(event, StepFinished)} == {"barriers"}
    assert failed(tmp_path, bench.events) == []


def test_a_timed_step_that_is_interrupted_leaves_nothing_undone(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that ended meanwhile has given its blocks back: what it wrote must be wiped before others read it."""
    bench = Company(tiny, EngineConfig(slots=2, kv_memory=SMALL, time_every=4))
    bench.plan, bench.draws = CapturePlan.parse("follow"), False
    sequences = [bench.add([5, 6, 7], 20), bench.add([8, 9], 20)]
    wiped: list[int] = []
    monkeypatch.setattr(Runner, "timed", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    monkeypatch.setattr(PagedStore, "wipe", lambda self, runs: wiped.append(1))
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    bench.core.give_up(sequences)
    assert wiped
    assert not bench.core._left
    assert not bench.core._runner._pending
    bench.core.close()


@pytest.mark.model
def test_who_watches_changes_no_bit_of_the_built_in_models_logits_either(
    smollm2: LoadedModel, logits_seen: list[bytes]
) -> None:
    outcomes = []
    for plan in ("off", "light", "follow", {"level": "full", "kernels": 3}):
        logits_seen.clear()
        bench = Company(smollm2, EngineConfig(slots=4, prefill_budget=40, kv_memory=2**26))
        bench.plan, bench.draws = CapturePlan.parse(plan), True
        sequences = [bench.add([*range(1000, 1000 + length)], 7 + length % 4) for length in (3, 60, 21, 38, 9)]
        bench.run()
        bench.core.close()
        outcomes.append(([bench.answer(sequence) for sequence in sequences], list(logits_seen)))
    assert all(outcome == outcomes[0] for outcome in outcomes[1:])
