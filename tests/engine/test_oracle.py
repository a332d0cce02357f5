"""The engine against PyTorch: `tests/oracle`, made with transformers' eager attention on the same weights."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.device import mx

import numpy as np
import pytest

from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.events import Attention, Attribution, Event, Lens, RequestPreempted, Residual, StepStarted, Token
from engine.models import LoadedModel
from engine.request import GenerationRequest, SamplingParams
from engine.sequence import Sequence
from tests.engine.test_batching import Bench

ORACLE = Path(__file__).parents[1] / "oracle"
CASES: list[dict[str, Any]] = json.loads((ORACLE / "cases.json").read_text())["cases"]

pytestmark = pytest.mark.model


@dataclass
class Run:
    """What the engine said of one case."""

    case: dict[str, Any]
    tokens: list[Token] = field(default_factory=list)
    attention: dict[int, np.ndarray] = field(default_factory=dict)
    residual: dict[int, np.ndarray] = field(default_factory=dict)
    lens: dict[int, Lens] = field(default_factory=dict)
    attribution: dict[int, Attribution] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        if isinstance(event, Token):
            self.tokens.append(event)
        elif isinstance(event, Attention):
            self.attention[event.position] = event.data
        elif isinstance(event, Residual):
            self.residual[event.position] = event.data
        elif isinstance(event, Lens):
            self.lens[event.position] = event
        elif isinstance(event, Attribution):
            self.attribution[event.position] = event


def bench_of(loaded: LoadedModel, **config: Any) -> Bench:
    return Bench(loaded, EngineConfig(**config))


def add_case(bench: Bench, case: dict[str, Any]) -> Sequence:
    chat = case["kind"] == "chat"
    request = GenerationRequest(
        messages=[{"role": "user", "content": case["prompt"]}] if chat else None,
        prompt=None if chat else case["prompt"],
        max_tokens=len(case["greedy_ids"]),
        sampling=SamplingParams(temperature=0),
    )
    sequence = bench.preparation.prepare(request, lambda event: None)
    bench.core.scheduler.add(sequence)
    assert sequence.tokens == case["prompt_ids"]
    return sequence


def outcome(bench: Bench, case: dict[str, Any], sequence: Sequence) -> tuple[Run, Any]:
    """What the engine said of a case, with the lens where the reference has it, and the reference."""
    run, reference = Run(case), np.load(ORACLE / f"{case['name']}.npz")
    for event in bench.events:
        if getattr(event, "request", None) == sequence.id:
            run.add(event)
    for position in reference["positions"]:
        run.add(bench.core.readings.lens(sequence, int(position)))
        run.add(bench.core.readings.attribution(sequence, int(position)))
    return run, reference


def alone(loaded: LoadedModel) -> list[tuple[Run, Any]]:
    """One request after another, each prompt in one pass."""
    bench, outcomes = bench_of(loaded, slots=1, kv_memory=2**26), []
    for case in CASES:
        sequence = add_case(bench, case)
        bench.run()
        outcomes.append(outcome(bench, case, sequence))
    bench.core.close()
    return outcomes


def in_company(loaded: LoadedModel) -> list[tuple[Run, Any]]:
    """Eight rows at once, prompts in chunks of 16."""
    bench = bench_of(loaded, slots=8, prefill_budget=16, kv_memory=2**26)
    for index in range(5):
        bench.add([100 + index] * (10 + index), 30, capture=CapturePlan())
    sequences = [add_case(bench, case) for case in CASES]
    bench.run()
    rows = [event.rows for event in bench.events if isinstance(event, StepStarted)]
    assert max(sum(row["phase"] == "decode" for row in step) for step in rows) == 8
    assert max(row["to"] - row["from"] for step in rows for row in step) <= 16
    outcomes = [outcome(bench, case, sequence) for case, sequence in zip(CASES, sequences, strict=True)]
    bench.core.close()
    return outcomes


def preempted(loaded: LoadedModel) -> list[tuple[Run, Any]]:
    """A pool in which the cases do not fit together, so that one gives way in its prompt, and one in its answer.

    Positions are captured once: those that the references have come after that, over KV that was computed again.
    """
    # 45 KiB a position: 6 blocks of 16 hold 96 of the 182 positions that the cases need
    bench = bench_of(loaded, slots=3, prefill_budget=4, kv_memory=6 * 16 * 46_080)
    sequences = {index: add_case(bench, CASES[index]) for index in (0, 2, 1)}
    bench.run()
    computed: dict[str, int] = {}
    gave_way: dict[str, int] = {}
    for event in bench.events:
        if isinstance(event, StepStarted):
            computed |= {row["request"]: row["to"] for row in event.rows}
        elif isinstance(event, RequestPreempted):
            gave_way.setdefault(event.request, computed[event.request])
    outcomes = [outcome(bench, case, sequences[index]) for index, case in enumerate(CASES)]
    again = {"prompt": 0, "answer": 0}
    for index, (_, reference) in enumerate(outcomes):
        sequence = sequences[index]
        after = [place for place in reference["positions"] if place >= gave_way.get(sequence.id, np.inf)]
        again["prompt"] += sum(place < sequence.prompt_tokens - 1 for place in after)
        again["answer"] += sum(place >= sequence.prompt_tokens for place in after)
    assert min(again.values()) > 0, f"of the references' positions, {again} come after somebody gave way"
    bench.core.close()
    return outcomes


@pytest.fixture(scope="module", params=[alone, in_company, preempted], ids=lambda way: way.__name__)
def runs(request: pytest.FixtureRequest, smollm2: LoadedModel) -> list[tuple[Run, Any]]:
    """All cases with their reference arrays: alone, among eight with prompts in chunks, and after giving way."""
    outcomes: list[tuple[Run, Any]] = request.param(smollm2)
    return outcomes


def test_greedy_tokens_are_those_of_pytorch(runs: list[tuple[Run, Any]]) -> None:
    for run, _ in runs:
        assert [token.id for token in run.tokens] == run.case["greedy_ids"]


def test_attention_rows_are_those_of_pytorch(runs: list[tuple[Run, Any]]) -> None:
    for run, reference in runs:
        for index, position in enumerate(reference["positions"]):
            expected = reference["attention"][:, :, index]  # [layers, heads, keys of the whole text]
            row = run.attention[int(position)]
            assert row.shape == (30, 9, position + 1)
            np.testing.assert_allclose(row, expected[:, :, : position + 1], atol=2e-5, rtol=0)
            assert not expected[:, :, position + 1 :].any()


def test_residuals_are_those_of_pytorch(runs: list[tuple[Run, Any]]) -> None:
    for run, reference in runs:
        for index, position in enumerate(reference["positions"]):
            expected = reference["residual"][:, index]  # [layers, hidden]: the embedding, then after each layer but one
            vectors = run.residual[int(position)]
            assert np.abs(vectors[:-1] - expected).max() <= 1e-4 * np.abs(expected).max()


def test_the_last_residual_normed_is_what_pytorch_gives_to_the_head(
    runs: list[tuple[Run, Any]], smollm2: LoadedModel
) -> None:
    """The reference holds what comes after the last layer in its normed form alone."""
    for run, reference in runs:
        for index, position in enumerate(reference["positions"]):
            normed = np.array(smollm2.model.model.norm(mx.array(run.residual[int(position)][-1])))
            expected = reference["final_normed"][index]
            assert np.abs(normed - expected).max() <= 1e-4 * np.abs(expected).max()


def test_residual_norms_are_those_of_pytorch_at_every_position(runs: list[tuple[Run, Any]]) -> None:
    for run, reference in runs:
        expected = reference["residual_norm"]  # [layers, positions]
        for position, vectors in run.residual.items():
            norms = np.linalg.norm(vectors[:-1], axis=-1)
            np.testing.assert_allclose(norms, expected[:, position], rtol=1e-4)


def test_top_logprobs_are_those_of_pytorch(runs: list[tuple[Run, Any]]) -> None:
    for run, reference in runs:
        first = run.tokens[0].position
        for index, position in enumerate(reference["positions"]):
            if position + 1 < first or position + 1 - first >= len(run.tokens):
                continue  # a prompt position chose no token
            top = run.tokens[position + 1 - first].top
            np.testing.assert_allclose(
                [candidate["logprob"] for candidate in top], reference["top_logprobs"][index], atol=5e-4, rtol=0
            )
            known = dict(zip(reference["top_ids"][index], reference["top_logprobs"][index], strict=True))
            for candidate in top[:10]:
                assert known[candidate["id"]] == pytest.approx(candidate["logprob"], abs=5e-4)


def test_the_lens_is_that_of_pytorch_and_its_last_row_is_the_output(runs: list[tuple[Run, Any]]) -> None:
    for run, reference in runs:
        first = run.tokens[0].position
        for index, position in enumerate(reference["positions"]):
            lens = run.lens[int(position)]
            ids, logprobs = reference["lens_ids"][:, index], reference["lens_logprobs"][:, index]  # [layers, 5]
            for layer, row in enumerate(lens.layers):
                ours = [candidate["logprob"] for candidate in row["top"]]
                np.testing.assert_allclose(ours, logprobs[layer], atol=5e-4, rtol=0)
                assert row["top"][0]["id"] == ids[layer][0] or logprobs[layer][0] - logprobs[layer][1] < 1e-3
            if not 0 <= position + 1 - first < len(run.tokens):
                continue  # a prompt position chose no token
            token = run.tokens[position + 1 - first]
            assert lens.layers[-1]["rank"] == token.rank
            assert lens.layers[-1]["logprob"] == pytest.approx(token.logprob, abs=1e-4)


def test_what_layers_add_to_the_logit_is_what_pytorchs_residuals_say(
    runs: list[tuple[Run, Any]], smollm2: LoadedModel
) -> None:
    """The reference has the stream before each layer, and the last one normed: only that norm's scale is ours."""
    weight = np.array(smollm2.model.model.norm.weight, np.float64)
    head = smollm2.model.model.embed_tokens  # tied
    for run, reference in runs:
        for index, position in enumerate(reference["positions"]):
            event = run.attribution.get(int(position))
            if event is None:  # nothing came after it
                continue
            row = np.array(head(mx.array([event.target]))[0], np.float64)
            last = run.residual[int(position)][-1].astype(np.float64)
            gradient = weight * row / np.sqrt((last**2).mean() + smollm2.model.model.norm.eps)
            stream = reference["residual"][:, index].astype(np.float64) @ gradient  # [layers]: before each
            logit = float(reference["final_normed"][index].astype(np.float64) @ row)
            parts: dict[int | None, float] = {}
            for part in event.components:
                parts[part["layer"]] = parts.get(part["layer"], 0.0) + part["value"]
            assert parts[None] == pytest.approx(stream[0], abs=1e-4)
            for layer, change in enumerate(np.diff([*stream, logit])):
                assert parts[layer] == pytest.approx(change, abs=2e-3), layer
            assert event.logit == pytest.approx(logit, abs=2e-3)
            assert event.error <= 1e-4


def test_a_tokens_logit_is_that_of_its_parts(runs: list[tuple[Run, Any]]) -> None:
    for run, _ in runs:
        for token in run.tokens:
            event = run.attribution.get(token.position - 1)
            if event is not None:
                assert event.sum == pytest.approx(token.top[0]["logit"], abs=1e-3)


def test_every_position_of_the_references_was_compared(runs: list[tuple[Run, Any]]) -> None:
    """Guards the tests above against comparing nothing."""
    for run, reference in runs:
        assert {int(position) for position in reference["positions"]} <= set(run.attention) & set(run.residual)
        assert {int(position) for position in reference["positions"]} == set(run.lens)
        assert len(run.attribution) >= len(run.lens) - 1 > 0
