"""The scheduler alone: no arrays, no clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.capture import CapturePlan
from engine.detokenizer import Detokenizer
from engine.request import GenerationRequest, SamplingParams
from engine.sampling import Sampler
from engine.scheduler import Scheduler
from engine.sequence import Sequence


def sequence(name: str, prompt: int = 3, max_tokens: int = 4, priority: int = 0) -> Sequence:
    return Sequence(
        id=name,
        request=GenerationRequest(prompt="x", priority=priority),
        text="x",
        tokens=[0] * prompt,
        roles=["user"] * prompt,
        prompt_tokens=prompt,
        max_tokens=max_tokens,
        plan=CapturePlan(),
        sampler=Sampler(SamplingParams(temperature=0), []),
        detokenizer=Detokenizer(),
        deliver=lambda event: None,
        arrived_ns=0,
    )


def run(scheduler: Scheduler) -> list[list[tuple[str, int, int]]]:
    """Drive the scheduler to the end with passes that succeed at once; returns each step's rows."""
    steps = []
    while scheduler.has_work:
        scheduler.admit()
        rows = scheduler.plan().rows
        assert rows, "work without a row would hang for ever"
        assert sum(row.stop - row.start for row in rows) <= scheduler.token_budget
        steps.append([(row.sequence.id, row.start, row.stop) for row in rows])
        for row in rows:
            assert row.start == row.sequence.computed
            row.sequence.computed = row.stop
            if row.chooses:
                row.sequence.tokens.append(0)
                if row.sequence.completion_tokens == row.sequence.max_tokens:
                    row.sequence.finish_reason = "length"
                    scheduler.release(row.sequence)
    return steps


def test_a_prompt_is_cut_into_chunks_of_the_budget_and_the_last_choice_gets_no_pass() -> None:
    scheduler = Scheduler(slots=1, token_budget=4)
    scheduler.add(sequence("a", prompt=9, max_tokens=3))
    assert run(scheduler) == [[("a", 0, 4)], [("a", 4, 8)], [("a", 8, 9)], [("a", 9, 10)], [("a", 10, 11)]]


def test_those_who_decode_come_before_a_prompt_and_share_the_step_with_its_chunk() -> None:
    scheduler = Scheduler(slots=2, token_budget=4)
    scheduler.add(sequence("a", prompt=2, max_tokens=4))
    scheduler.add(sequence("b", prompt=6, max_tokens=1))
    assert run(scheduler) == [
        [("a", 0, 2), ("b", 0, 2)],
        [("a", 2, 3), ("b", 2, 5)],
        [("a", 3, 4), ("b", 5, 6)],
        [("a", 4, 5)],
    ]


def test_priority_then_arrival_decides_who_is_admitted() -> None:
    scheduler = Scheduler(slots=1, token_budget=8)
    for name, priority in (("a", 0), ("b", 1), ("c", 1), ("d", 0)):
        scheduler.add(sequence(name, max_tokens=1, priority=priority))
    assert [step[0][0] for step in run(scheduler)] == ["b", "c", "a", "d"]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12), st.integers(-2, 2)), max_size=12),
    st.integers(1, 4),
    st.integers(1, 16),
)
def test_every_request_gets_every_pass_it_needs_once_and_ends(
    requests: list[tuple[int, int, int]], slots: int, budget: int
) -> None:
    scheduler = Scheduler(slots=slots, token_budget=budget)
    sequences = [sequence(str(i), *request) for i, request in enumerate(requests)]
    for each in sequences:
        scheduler.add(each)
    passes: dict[str, list[int]] = {each.id: [] for each in sequences}
    for step in run(scheduler):
        assert len(step) <= slots
        for name, start, stop in step:
            passes[name] += range(start, stop)
    for each in sequences:
        assert passes[each.id] == list(range(each.prompt_tokens + each.max_tokens - 1))
    assert scheduler.slots == [None] * slots
