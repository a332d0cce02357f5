"""Many requests at once: each gets exactly the greedy tokens that it gets alone, whatever happens around it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from engine.blocks import CacheMirror
from engine.capture import CapturePlan
from engine.codec import encode, parse
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.errors import RequestError
from engine.events import (
    Event,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestScheduled,
    RequestTokenized,
    StepStarted,
    Token,
)
from engine.kv.blocks import BlockMemory
from engine.models import LoadedModel
from engine.prepare import Preparation, monotonic_ns
from engine.request import GenerationRequest, SamplingParams
from engine.sequence import Sequence

SMALL = 2**21
"""Bytes for the KV of `tiny` where a test does not care: the default's zeros would take longer than the test."""


@dataclass
class Bench:
    """An engine core without a thread, driven step by step."""

    loaded: LoadedModel
    config: EngineConfig
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        now_ns = monotonic_ns()
        self.core = EngineCore(self.loaded, self.config, self.emit, now_ns)
        self.preparation = Preparation(
            tokenizer=self.loaded.tokenizer,
            info=self.loaded.info,
            context=self.loaded.info.context,
            kv_tokens=self.core.kv.tokens,
            default_plan=self.config.capture_default,
            visible=self.core.visible,
            emit=self.emit,
            now_ns=now_ns,
        )

    def emit(self, event: Event) -> Event:
        event.seq = len(self.events) + 1
        self.events.append(event)
        return event

    def add(self, prompt: list[int], max_tokens: int, **more: object) -> Sequence:
        more.setdefault("sampling", SamplingParams(temperature=0))
        request = GenerationRequest(prompt=prompt, max_tokens=max_tokens, **more)  # type: ignore[arg-type]
        sequence = self.preparation.prepare(request, lambda event: None)
        self.core.scheduler.add(sequence)
        return sequence

    def step(self) -> None:
        self.core.step()
        memory = self.core.kv.memory
        if isinstance(memory, BlockMemory) and memory.pool.total < 100:  # it looks at every block
            memory.pool.check()

    def run(self) -> None:
        while self.core.has_work:
            self.step()

    def answer(self, sequence: Sequence) -> list[int]:
        return sequence.tokens[sequence.prompt_tokens :]


def alone(loaded: LoadedModel, prompt: list[int], max_tokens: int, **more: object) -> list[int]:
    bench = Bench(loaded, EngineConfig(slots=1, kv_memory=SMALL))
    sequence = bench.add(prompt, max_tokens, **more)
    bench.run()
    bench.core.close()
    return bench.answer(sequence)


def scenario(seed: int, requests: int, *, vocab: int, longest: int) -> list[tuple[int, list[int], int, int | None]]:
    """(step of arrival, prompt, max_tokens, step of cancellation) for each request; many share a beginning."""
    chance = random.Random(seed)
    stems = [[chance.randrange(vocab) for _ in range(longest // 2)] for _ in range(3)]
    out = []
    for _ in range(requests):
        stem = chance.choice(stems)[: chance.randrange(longest // 2 + 1)]
        prompt = stem + [chance.randrange(vocab) for _ in range(chance.randrange(1, longest // 2))]
        cancelled = chance.randrange(5, 40) if chance.random() < 0.2 else None
        out.append((chance.randrange(30), prompt, chance.randrange(1, 25), cancelled))
    return out


def play(bench: Bench, plot: list[tuple[int, list[int], int, int | None]]) -> list[Sequence]:
    """Let requests arrive and be cancelled at their steps; run to the end."""
    sequences: dict[int, Sequence] = {}
    step = 0
    while bench.core.has_work or len(sequences) < len(plot):
        for index, (arrival, prompt, max_tokens, cancelled) in enumerate(plot):
            if arrival == step:
                sequences[index] = bench.add(prompt, max_tokens)
            if cancelled == step and index in sequences:
                bench.core.cancel(sequences[index])
        bench.step()
        step += 1
    return [sequences[index] for index in range(len(plot))]


@pytest.mark.parametrize("store", ["paged", "prealloc", "concat"])
@pytest.mark.parametrize("seed", range(3))
def test_any_mix_gives_each_request_what_it_gets_alone(tiny: LoadedModel, seed: int, store: str) -> None:
    plot = scenario(seed, 12, vocab=256, longest=40)
    # 2 · 4 layers · 2 KV heads · 16 · 4 bytes = 1 KiB a position: 22 blocks of 4, where two such requests hardly fit
    config = EngineConfig(slots=4, prefill_budget=13, block_size=4, kv_memory=22 * 4 * 1024, kv_store=store)  # type: ignore[arg-type]
    bench = Bench(tiny, config)
    sequences = play(bench, plot)
    for (_, prompt, max_tokens, cancelled), sequence in zip(plot, sequences, strict=True):
        expected = alone(tiny, prompt, max_tokens)
        got = bench.answer(sequence)
        if cancelled is None:
            assert got == expected
        else:
            assert got == expected[: len(got)]
    if store == "paged":
        preempted = sum(isinstance(event, RequestPreempted) for event in bench.events)
        reused = sum(event.cached_tokens for event in bench.events if isinstance(event, RequestScheduled))
        assert preempted, "the pool was meant to be too small"
        assert reused, "the prompts were meant to share beginnings"
    bench.core.close()


def test_the_block_map_follows_from_the_events_alone(tiny: LoadedModel) -> None:
    config = EngineConfig(slots=4, prefill_budget=13, block_size=4, kv_memory=22 * 4 * 1024)
    bench = Bench(tiny, config)
    memory = bench.core.kv.memory
    assert isinstance(memory, BlockMemory)
    for _, prompt, max_tokens, _ in scenario(5, 10, vocab=256, longest=40):
        bench.add(prompt, max_tokens)
    mirror, seen = CacheMirror(memory.pool.total), 0
    while bench.core.has_work:
        bench.step()
        for event in bench.events[seen:]:
            frame = encode(event)
            mirror.apply(parse(frame.payload, binary=frame.binary)[0])
        seen = len(bench.events)
        assert mirror.state == memory.pool.state()
    bench.core.close()


def test_a_seed_gives_the_same_text_alone_and_in_company(tiny: LoadedModel) -> None:
    sampling = SamplingParams(temperature=1.2, top_p=0.95, seed=11)
    bench = Bench(tiny, EngineConfig(slots=4, kv_memory=SMALL))
    mine = bench.add([1, 2, 3, 4], 20, sampling=sampling)
    for index in range(3):
        bench.add([9 + index] * (5 + index), 20, sampling=SamplingParams(temperature=1.5, seed=index))
    bench.run()
    bench.core.close()
    assert bench.answer(mine) == alone(tiny, [1, 2, 3, 4], 20, sampling=sampling)


def test_decoding_rows_share_the_step_with_a_long_prompts_chunks(tiny: LoadedModel) -> None:
    bench = Bench(tiny, EngineConfig(slots=2, prefill_budget=16, kv_memory=SMALL))
    bench.add([1, 2], 30)
    for _ in range(3):
        bench.step()
    bench.add(list(range(100)), 2)
    bench.run()
    bench.core.close()
    mixed = [
        e
        for e in bench.events
        if isinstance(e, StepStarted) and {row["phase"] for row in e.rows} == {"decode", "prefill"}
    ]
    assert len(mixed) >= 6
    assert all(event.tokens <= 16 for event in mixed)


def test_a_prefix_is_computed_once_and_who_computed_it_is_named(tiny: LoadedModel) -> None:
    bench = Bench(tiny, EngineConfig(slots=2, block_size=4, kv_memory=SMALL))
    prompt = list(range(40))
    first = bench.add(prompt, 2)
    bench.run()
    second = bench.add(prompt, 2)
    bench.run()
    bench.core.close()
    assert bench.answer(second) == bench.answer(first)
    scheduled = [event for event in bench.events if isinstance(event, RequestScheduled)]
    assert [event.cached_tokens for event in scheduled] == [0, 36]
    absent = [event for event in bench.events if event.kind == "absent" and event.request == second.id]  # type: ignore[attr-defined]
    assert {(event.what, event.reason, tuple(event.positions)) for event in absent} == {  # type: ignore[attr-defined]
        ("attention", "prefix_cached", (0, 36)),
        ("residual", "prefix_cached", (0, 36)),
    }
    assert all(first.id in event.detail for event in absent)  # type: ignore[attr-defined]
    assert all(event.computed_by == [{"request": first.id, "positions": [0, 36]}] for event in absent)  # type: ignore[attr-defined]


def test_what_a_request_computed_before_it_gave_way_is_captured_once(tiny: LoadedModel) -> None:
    bench = Bench(tiny, EngineConfig(slots=3, block_size=4, kv_memory=12 * 4 * 1024))
    for index in range(3):
        bench.add([index] * 8, 24)
    bench.run()
    bench.core.close()
    assert any(isinstance(event, RequestPreempted) for event in bench.events)
    rows = [(event.request, event.position) for event in bench.events if event.kind == "attention"]  # type: ignore[attr-defined]
    assert len(rows) == len(set(rows)) == 3 * (8 + 24 - 1)


def test_a_static_batch_lets_nobody_in_until_all_have_ended(tiny: LoadedModel) -> None:
    bench = Bench(tiny, EngineConfig(slots=2, policy="static", kv_memory=SMALL))
    sequences = [bench.add([index + 1], 3 + 5 * index) for index in range(4)]
    bench.run()
    bench.core.close()
    order = [event.request for event in bench.events if isinstance(event, (RequestScheduled, RequestFinished))]
    a, b, c, d = (sequence.id for sequence in sequences)
    assert order == [a, b, a, b, c, d, c, d]
    assert all(
        len([e for e in bench.events if isinstance(e, Token) and e.request == s.id]) == s.max_tokens for s in sequences
    )


def fork(bench: Bench, parent: Sequence, position: int, prompt: list[int], max_tokens: int) -> Sequence:
    request = GenerationRequest(prompt=prompt, max_tokens=max_tokens, sampling=SamplingParams(temperature=0))
    sequence = bench.preparation.prepare_fork(request, lambda event: None, parent, position)
    bench.core.scheduler.add(sequence)
    return sequence


@pytest.mark.parametrize("steps", [4, 40], ids=["of a running request", "of one that has ended"])
def test_a_fork_is_what_its_tokens_give_alone_and_shares_what_it_can(tiny: LoadedModel, steps: int) -> None:
    bench = Bench(tiny, EngineConfig(slots=2, block_size=4, kv_memory=2**18))
    parent = bench.add(list(range(30)), 20)
    for _ in range(steps):
        if bench.core.has_work:
            bench.step()
    position = 31  # the answer's second token is another one
    child = fork(bench, parent, position, [77], 8)
    bench.run()
    bench.core.close()
    assert bench.answer(child) == alone(tiny, [*parent.tokens[:position], 77], 8)
    assert bench.answer(parent) == alone(tiny, list(range(30)), 20)
    scheduled = [e for e in bench.events if isinstance(e, RequestScheduled) and e.request == child.id]
    assert scheduled[0].cached_tokens >= 28
    arrived = [e for e in bench.events if isinstance(e, RequestArrived) and e.request == child.id]
    assert arrived[0].forked_from == {"request": parent.id, "position": position}


def test_a_fork_keeps_whose_word_each_token_is(tiny: LoadedModel) -> None:
    bench = Bench(tiny, EngineConfig(slots=2, block_size=4, kv_memory=2**18))
    messages = [{"role": "system", "content": "Short."}, {"role": "user", "content": "Hello"}]
    parent = bench.preparation.prepare(GenerationRequest(messages=messages, max_tokens=6), lambda event: None)
    bench.core.scheduler.add(parent)
    bench.run()
    prompt = parent.roles
    assert {"system", "user", "template"} <= set(prompt)
    of_the_answer = fork(bench, parent, len(prompt) + 2, [77], 2)
    of_that = fork(bench, of_the_answer, len(of_the_answer.tokens), [78], 2)
    at = prompt.index("user")
    of_the_question = fork(bench, parent, at, [77, 78, 79], 2)
    bench.run()
    bench.core.close()
    assert of_the_answer.roles == [*prompt, *["assistant"] * 3]
    assert of_that.roles == [*prompt, *["assistant"] * 4]
    assert of_the_question.roles == [*prompt[:at], *["user"] * 3]
    told = {e.request: [token["role"] for token in e.tokens] for e in bench.events if isinstance(e, RequestTokenized)}
    assert told == {s.id: s.roles for s in (parent, of_the_answer, of_that, of_the_question)}


def test_equal_prompts_that_come_together_are_computed_once(tiny: LoadedModel) -> None:
    bench = Bench(tiny, EngineConfig(slots=4, block_size=4, prefill_budget=16, kv_memory=2**18))
    prompt = list(range(50))
    sequences = [bench.add(prompt, 5) for _ in range(4)]
    bench.run()
    bench.core.close()
    computed = sum(
        row["to"] - row["from"]
        for event in bench.events
        if isinstance(event, StepStarted)
        for row in event.rows
        if row["phase"] == "prefill"
    )
    assert computed == 50 + 3 * 2  # the others find 48 of 50 positions
    assert len({tuple(bench.answer(sequence)) for sequence in sequences}) == 1


@pytest.mark.parametrize("position", [0, 3])
def test_a_fork_at_a_position_that_is_not_there_is_refused(tiny: LoadedModel, position: int) -> None:
    bench = Bench(tiny, EngineConfig(kv_memory=SMALL))
    parent = bench.add([1, 2], 4)
    with pytest.raises(RequestError, match=f"position is {position}"):
        fork(bench, parent, position, [5], 2)
    bench.core.close()


def test_what_can_never_fit_is_refused_with_the_numbers(tiny: LoadedModel) -> None:
    bench = Bench(tiny, EngineConfig(block_size=4, kv_memory=10 * 4 * 1024))
    assert bench.add([1] * 30, 11).max_tokens == 11
    with pytest.raises(RequestError, match="KV for 41 tokens, and the whole KV memory holds 40") as caught:
        bench.add([1] * 30, 12)
    assert caught.value.param == "max_tokens"
    bench.core.close()


@pytest.mark.model
def test_twenty_four_requests_in_a_pool_too_small_for_them(smollm2: LoadedModel) -> None:
    """The built-in model: arrivals, cancellations, preemptions and prefix hits, against one request at a time."""
    plot = scenario(1, 24, vocab=40_000, longest=60)
    # 2 · 30 layers · 3 KV heads · 64 · 4 bytes = 45 KiB a position: room for about 160 of them
    config = EngineConfig(slots=6, prefill_budget=48, kv_memory=10 * 16 * 46_080, capture_default=CapturePlan())
    bench = Bench(smollm2, config)
    sequences = play(bench, plot)
    bench.core.close()
    assert sum(isinstance(event, RequestPreempted) for event in bench.events)
    assert sum(event.cached_tokens for event in bench.events if isinstance(event, RequestScheduled))
    solo = Bench(smollm2, EngineConfig(slots=1, kv_memory=2**26, capture_default=CapturePlan()))
    for (_, prompt, max_tokens, cancelled), sequence in zip(plot, sequences, strict=True):
        got = bench.answer(sequence)
        expected = solo.add(prompt, max_tokens)
        solo.run()
        assert cancelled is not None or len(got) == len(solo.answer(expected))
        same_until_a_tie(got, solo, expected)
    solo.core.close()


def same_until_a_tie(got: list[int], solo: Bench, expected: Sequence) -> None:
    """Tokens are equal, unless the two best logits lie within 1e-3: then either is right, and what follows differs."""
    for index, (token, other) in enumerate(zip(got, solo.answer(expected), strict=False)):
        if token == other:
            continue
        event = next(e for e in solo.events if isinstance(e, Token) and e.request == expected.id and e.index == index)
        best, second = event.top[0]["logit"], event.top[1]["logit"]
        assert best - second < 1e-3, (
            f"token {index} is {token}, alone it is {other}; the best logits are {best}, {second}"
        )
        return
