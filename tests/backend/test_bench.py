"""`tokenwalk bench`, at a size that a test can afford."""

import json

from tests.backend.process import run

BARS = {"streams1": 0.95, "streams8": 1.0, "http8": 1.15, "gap": 0.5, "prefix": 0.15, "waste": 0.04}


def test_every_ratio_is_measured_and_held_against_its_bar() -> None:
    result = run("bench", "engine", "--model", "tiny", "--tokens", "8", "--rounds", "1", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert {figure["part"]: figure["bar"] for figure in report["figures"]} == BARS
    for figure in report["figures"]:
        assert figure["ratio"] == figure["ours"] / figure["base"]
        assert figure["ratio"] > 0
        assert figure["holds"] == ((figure["ratio"] >= figure["bar"]) == figure["at_least"])
    # A matter of lengths, not of a machine's speed.
    assert next(figure["holds"] for figure in report["figures"] if figure["part"] == "waste")
    assert [result["name"] for result in report["one_stream"]] == [
        "mlx-lm", "tokenwalk off", "tokenwalk light", "tokenwalk follow",
    ]  # fmt: skip
    assert report["streams_with_the_peer_s_tokens"] >= 0.5  # random weights are full of near ties


def test_parts_can_be_chosen_and_say_what_they_compare() -> None:
    result = run("bench", "engine", "--model", "tiny", "--tokens", "8", "--rounds", "1", "--only", "prefix, streams8")
    assert result.returncode == 0, result.stderr
    assert "streams8: 8 streams" in result.stdout
    assert "mlx-lm BatchGenerator" in result.stdout
    assert "bar ≤ 0.15" in result.stdout
    assert "http8" not in result.stdout


def test_a_part_that_is_none_is_refused() -> None:
    result = run("bench", "engine", "--only", "streams8,warp")
    assert result.returncode == 2
    assert "warp is no part" in result.stderr


def test_what_every_capture_level_costs_is_measured_and_held_against_its_bar() -> None:
    options = ("--model", "tiny", "--tokens", "8", "--rounds", "1", "--only", "shortx1, shortx8", "--json")
    result = run("bench", "capture", *options)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    found = {(cost["streams"], cost["name"]): cost for cost in report["costs"]}
    levels = ["off", "light", "follow", "full"]
    assert list(found) == [(streams, level) for streams in (1, 8) for level in levels]
    bars = {key: cost["bar"] for key, cost in found.items() if cost["bar"] is not None}
    assert bars == {(1, "light"): 0.98, (1, "follow"): 0.9, (8, "light"): 0.98, (8, "follow"): 0.95}
    for cost in found.values():
        assert cost["holds"] == (None if cost["bar"] is None else cost["in_turn"] >= cost["bar"])
        assert cost["whole"] > 0
    for streams in (1, 8):
        sizes = [found[streams, level]["bytes_per_token"] for level in levels]
        assert sizes == sorted(sizes)
    assert report["transformers"] is None or "not installed" in report["transformers"]


def test_a_shape_that_is_none_is_refused() -> None:
    result = run("bench", "capture", "--only", "longx1")
    assert result.returncode == 2
    assert "longx1 is no shape" in result.stderr
