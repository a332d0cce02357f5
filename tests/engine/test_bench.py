"""What the measurements are made of. The figures themselves are no matter of tests: a machine has its moods."""

from __future__ import annotations

import importlib.util
import statistics
from collections import Counter
from pathlib import Path
from typing import cast

from engine.device import mx

import mlx_lm
import pytest

from engine.bench.capture import LEVELS, SHORT, CaptureBench, Shape, most_cost
from engine.bench.capture import Sample as CaptureSample
from engine.bench.contestants import TurningEngine, recording_engine, run_streams
from engine.bench.eager import EagerPeer, missing
from engine.bench.figures import Streams, figure, take_turns
from engine.bench.folder import peer_folder
from engine.bench.in_turn import END, SETTLE, seconds_in_turn, turns_of
from engine.bench.one_stream import Race, Sample
from engine.bench.prompts import passage, story
from engine.capture import CapturePlan
from engine.codec import Frame, parse
from engine.config import EngineConfig
from engine.errors import ModelUnsupported, TokenwalkError
from engine.models import load
from engine.tokenizer import Tokenizer


def test_everybody_has_a_turn_in_every_round_and_the_order_changes() -> None:
    turns: list[str] = []
    contestants = {name: lambda number, name=name: turns.append(name) or number for name in "abc"}
    rounds = list(take_turns(contestants, 12, seconds=60))
    assert rounds == [{"a": number, "b": number, "c": number} for number in range(12)]
    orders = {tuple(turns[start : start + 3]) for start in range(0, 36, 3)}
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert len(orders) > 1


def test_some_have_a_turn_in_one_round_of_eight() -> None:
    rounds = take_turns({name: lambda number: number for name in "ab"}, 17, seconds=60, every={"b": 8})
    assert [sorted(samples) for samples in rounds] == [["a", "b"] if number % 8 == 0 else ["a"] for number in range(17)]


def test_time_ends_the_rounds_but_never_before_the_first() -> None:
    assert len(list(take_turns({"a": lambda number: number}, 5, seconds=0))) == 1


def test_a_ratio_is_the_median_of_the_rounds_not_the_ratio_of_the_medians() -> None:
    # A machine that became ten times slower for one round.
    made = figure("p", "w", "u", [10.0, 1.0, 12.0], [10.0, 0.5, 16.0], base_name="peer", at_least=1.0)
    assert made.ratio == 1.0
    assert made.spread == (0.75, 2.0)
    assert made.holds
    assert not figure("p", "w", "u", [0.9], [1.0], base_name="peer", at_least=1.0).holds
    assert figure("p", "w", "u", [0.4], [1.0], base_name="peer", at_most=0.5).holds
    assert not figure("p", "w", "u", [0.6], [1.0], base_name="peer", at_most=0.5).holds


def test_the_rate_of_streams_is_that_of_all_of_them_until_the_last_has_ended() -> None:
    streams = Streams(start_s=10.0, arrivals=[[11.0, 12.0], [12.0, 13.0, 15.0]], tokens=[2, 3])
    assert streams.rate == 1.0
    assert streams.first_s == 2.0


def test_contestants_that_do_different_work_are_not_compared() -> None:
    race = Race(
        {"one": lambda prompt, tokens: Sample(1, 1, (1, 2, 3)), "two": lambda prompt, tokens: Sample(1, 1, (1, 5, 3))}
    )
    with pytest.raises(TokenwalkError, match="from token 1 on"):
        list(race.run([1], 3, rounds=1, seconds=60))


def test_no_two_prompts_begin_alike() -> None:
    tokenizer = Tokenizer.bytes_tokenizer()
    beginnings = [story(number, stream)[:4] for number in range(20) for stream in range(8)]
    assert len(set(beginnings)) == len(beginnings)
    long = [passage(tokenizer, 800, number) for number in range(-1, 5)]
    assert [len(tokenizer.encode(text).ids) for text in long] == [800] * 6
    assert len({text[:16] for text in long}) == 6
    assert passage(tokenizer, 100, 3) == long[4][:100]


def test_the_peer_gets_the_same_weights_and_the_same_tokens(tmp_path: Path) -> None:
    ours = load("tiny")
    model, tokenizer = mlx_lm.load(str(peer_folder(ours, tmp_path / "model")))  # type: ignore[misc]
    text = "Grüße, 🙂 and a few words."
    ids = ours.tokenizer.encode(text).ids
    assert tokenizer.encode(text) == ids
    assert set(tokenizer.eos_token_ids) == set(ours.info.eos_ids)
    assert mx.array_equal(model(mx.array([ids])), ours.model(mx.array([ids])))


def test_the_cost_of_a_level_is_held_against_its_bar() -> None:
    bench = CaptureBench(cast(TurningEngine, None), Shape(streams=8, context=SHORT), tokens=8)
    rates = {
        "off": [10.0, 20.0, 30.0],
        "light": [9.9, 19.7, 29.0],
        "follow": [9.4, 18.0, 28.0],
        "full": [1.0, 2.0, 3.0],
    }
    bench.rounds = [{name: CaptureSample(each[at], 100.0) for name, each in rates.items()} for at in range(3)]
    bench.turns = [
        {"off": 1.0, "light": 1.01, "follow": 1.10},
        {"off": 1.1, "light": 1.1, "follow": 1.155},
        {"off": 0.9, "light": 1.0, "follow": 0.9},
    ]
    del bench.rounds[1]["full"], bench.rounds[2]["full"]
    costs = {cost.name: cost for cost in bench.costs()}
    assert list(costs) == ["off", "light", "follow", "full"]
    assert costs["light"].in_turn == pytest.approx((1 / 1.01 + 1 + 0.9) / 3)
    assert costs["light"].in_turn_error == pytest.approx(statistics.stdev([1 / 1.01, 1, 0.9]) / 3**0.5)
    assert (costs["light"].bar, costs["light"].holds, costs["light"].certain) == (0.98, False, False)
    assert costs["light"].whole == 0.985
    assert costs["follow"].in_turn == pytest.approx((1 / 1.1 + 1.1 / 1.155 + 1) / 3)
    assert (costs["follow"].bar, costs["follow"].holds, costs["follow"].certain) == (0.95, True, False)
    assert costs["follow"].whole == pytest.approx(28 / 30)
    assert costs["follow"].whole_spread == pytest.approx((0.9, 0.94))
    assert (costs["full"].in_turn, costs["full"].whole, costs["full"].holds) == (None, 0.1, None)
    for turn in bench.turns:
        turn["follow"] = 1.1 * turn["off"]
    found = next(cost for cost in bench.costs() if cost.name == "follow")
    assert (found.holds, found.certain) == (False, True)
    bench.turns = bench.turns[:1]
    found = next(cost for cost in bench.costs() if cost.name == "follow")
    assert (found.in_turn, found.in_turn_error, found.certain) == (pytest.approx(1 / 1.1), None, None)
    assert most_cost("follow", 1) == 0.10


def test_decoding_is_timed_from_when_all_have_begun() -> None:
    streams = Streams(start_s=10.0, arrivals=[[11.0, 12.0, 13.0], [12.0, 13.0, 15.0]], tokens=[3, 3])
    assert streams.decode_s == 3.0
    assert streams.decode_rate == 1.0  # at 13, 13 and 15


@pytest.mark.parametrize("context", [SHORT, 100])
def test_every_level_generates_the_same_and_its_bytes_are_counted(context: int) -> None:
    with recording_engine("tiny", EngineConfig(kv_memory=2**22)) as engine:
        bench = CaptureBench(engine, Shape(streams=2, context=context), tokens=6)
        assert sum(1 for _ in bench.run(2, seconds=60)) == 3
        costs = {cost.name: cost for cost in bench.costs()}
    sizes = [costs[level].bytes_per_token or 0 for level in LEVELS]
    assert sizes == sorted(sizes)
    assert sizes[0] > 0
    follow = 4 * 4 * 4 * (context + 3)  # of attention alone: float32, 4 layers, 4 heads
    assert follow < sizes[2] < sizes[0] + 6 * follow + 20_000
    assert {name: cost.rounds for name, cost in costs.items()} == {"off": 2, "light": 2, "follow": 2, "full": 1}
    assert [set(samples) for samples in bench.rounds] == [set(LEVELS), set()]


@pytest.mark.parametrize("tokens", [15, 27, 99])
def test_levels_take_turns_as_often_as_each_other(tokens: int) -> None:
    orders = set()
    for number in range(20):
        turns = turns_of(tokens, number)
        assert len(turns) == tokens
        counted = Counter(level for level, counts in turns if counts)
        assert set(counted) == {"off", "light", "follow"}
        assert len(set(counted.values())) == 1
        for index, (level, counts) in enumerate(turns):
            # A step whose successors are at another level would have its arrays told while those run.
            before = [of for of, _ in turns[max(0, index - SETTLE) : index]]
            assert not counts or before == [level] * SETTLE
            # It is told when the next one has been built, which takes a watched pass longer.
            after = [of for of, _ in turns[index + 1 : index + 1 + END]]
            assert not counts or after == [level] * END
        orders.add(tuple(dict.fromkeys(level for level, _ in turns)))
    assert len(orders) > 1


def test_what_is_told_of_a_token_changes_with_the_turn() -> None:
    frames: list[Frame] = []
    with recording_engine("tiny", EngineConfig(kv_memory=2**22)) as engine:
        prompts = [[65 + stream] * SHORT for stream in range(2)]
        expected = run_streams(engine, prompts, 27, CapturePlan(level="off"))[1]
        engine.cache_state()
        engine.bus.flush()
        engine.bus.subscribe(frames.append)
        seconds, ids = seconds_in_turn(engine, prompts, 27, 5)
        engine.cache_state()
        engine.bus.flush()
    assert ids == expected
    assert set(seconds) == {"off", "light", "follow"}
    levels = [level for level, _ in turns_of(27, 5)]
    told = [parse(frame.payload, binary=False)[0] for frame in frames if frame.kind == "token"]
    assert len(told) == 2 * 27
    for token in told:
        assert (token["logprob"] is None) == (levels[token["index"]] == "off")
    rows = sorted(frame.position or 0 for frame in frames if frame.kind == "attention")
    followed = [SHORT - 1 + index for index, level in enumerate(levels) if level == "follow"]
    assert rows == sorted(2 * followed)


def test_an_answer_that_ends_before_everybodys_turn_is_no_comparison() -> None:
    with (
        recording_engine("tiny", EngineConfig(kv_memory=2**22)) as engine,
        pytest.raises(TokenwalkError, match="ended after 8 tokens"),
    ):
        seconds_in_turn(engine, [[65] * SHORT], 8, 0)


def test_prompts_that_the_cache_does_not_hold_are_no_comparison() -> None:
    with recording_engine("tiny", EngineConfig(kv_memory=2**17)) as engine:  # 128 positions
        bench = CaptureBench(engine, Shape(streams=2, context=100), tokens=4)
        with pytest.raises(TokenwalkError, match="computed again"):
            list(bench.run(1, seconds=60))


def test_without_pytorch_there_is_a_reason_why_nothing_is_beside() -> None:
    if importlib.util.find_spec("torch") is None:
        assert missing() == "torch is not installed"
        with pytest.raises(ModelUnsupported, match="torch is not installed"):
            EagerPeer(load("tiny"), Path("nowhere"))
