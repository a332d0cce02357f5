from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.codec import Frame, decode, encode
from engine.events import Attribution, Lens
from engine.trace import open_trace
from engine.trace.verify import verify
from tests.engine import trace_run

Change = Callable[[Any], dict[str, Any]]


def failed(tmp_path: Path, sequence: list[Frame]) -> list[str]:
    with open_trace(trace_run.record(tmp_path / "t.mcap", sequence)) as trace:
        return [check.name for check in verify(trace) if check.ok is False]


def with_changed(kind: str, change: Change, number: int = 0) -> list[Frame]:
    """The run with one event of a kind changed."""
    sequence = trace_run.frames()
    place = [i for i, frame in enumerate(sequence) if frame.kind == kind][number]
    event = decode(sequence[place].payload, binary=sequence[place].binary)
    sequence[place] = encode(dataclasses.replace(event, **change(event)))
    return sequence


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_good_trace_passes_every_check(tmp_path: Path, dtype: Any) -> None:
    with open_trace(trace_run.record(tmp_path / "t.mcap", trace_run.frames(keys_dtype=dtype))) as trace:
        checks = verify(trace)
    assert [check.name for check in checks if check.ok is False] == []
    unchecked = [check.name for check in checks if check.ok is None]
    assert unchecked == [
        "what was sent is the text", "last lens row is the logits", "readings are of the next token",
        "parts add up to the logit", "operations add up to steps", "weights × values are output",
        "row sums as measured",
    ]  # fmt: skip
    assert next(check for check in checks if "rows" in check.name).detail.startswith("36 rows")


def scaled(event: Any) -> dict[str, Any]:
    return {"data": event.data * np.float32(1.01)}


def not_a_number(event: Any) -> dict[str, Any]:
    data = event.data.copy()
    data[0, 0, 0] = np.nan
    return {"data": data}


def negative(event: Any) -> dict[str, Any]:
    data = event.data.copy()
    data[0, 0, 0] -= 1.0
    data[0, 0, 1] += 1.0
    return {"data": data}


def one_key_too_many(event: Any) -> dict[str, Any]:
    data = np.concatenate([event.data, np.full((*event.data.shape[:2], 1), 1e-30, np.float32)], axis=-1)
    return {"data": data}


@pytest.mark.parametrize(
    ("kind", "change", "check"),
    [
        ("attention", scaled, "attention rows sum to 1"),
        ("attention", not_a_number, "attention rows sum to 1"),
        ("attention", negative, "attention rows sum to 1"),
        ("attention", one_key_too_many, "no attention to the future"),
        ("residual", scaled, "residual norms"),
        ("token", lambda event: {"text": event.text + "!"}, "text is the tokens' bytes"),
        ("token", lambda event: {"bytes_hex": "ff"}, "text is the tokens' bytes"),
        ("token", lambda event: {"position": event.position + 1}, "positions follow"),
        ("request.finished", lambda event: {"completion_tokens": 2}, "positions follow"),
        ("run.header", lambda event: {"schema_version": 2}, "schema known"),
        ("step.started", lambda event: {"seq": 3}, "seq and time rise"),
        ("step.started", lambda event: {"t_ns": 10}, "seq and time rise"),
        ("residual", lambda event: {"norms": [1.0]}, "events well formed"),
        ("attention", lambda event: {"position": event.position + 1}, "events well formed"),
    ],
)
def test_a_wrong_event_fails_its_check(tmp_path: Path, kind: str, change: Change, check: str) -> None:
    assert check in failed(tmp_path, with_changed(kind, change))


def test_a_row_that_was_summarised_may_lack_what_it_says(tmp_path: Path) -> None:
    def half(event: Any) -> dict[str, Any]:
        return {"data": event.data * np.float32(0.5)}

    said = with_changed("attention", lambda event: half(event) | {"omitted": "all but the top", "omitted_mass": 0.5})
    assert failed(tmp_path, said) == []
    too_little = with_changed(
        "attention", lambda event: half(event) | {"omitted": "all but the top", "omitted_mass": 0.4}
    )
    assert failed(tmp_path, too_little) == ["attention rows sum to 1"]


def test_a_missing_event_is_noticed_and_a_slice_may_lack_others(tmp_path: Path) -> None:
    sequence = trace_run.frames()
    assert failed(tmp_path, sequence[:9] + sequence[10:]) == ["no events missing"]


def test_an_answer_that_was_stopped_by_a_text_may_be_shorter_than_its_bytes(tmp_path: Path) -> None:
    def shorter(event: Any) -> dict[str, Any]:
        return {"text": event.text[:1], "text_length": event.text_length - 1}

    sequence = with_changed("token", shorter, number=-1)
    assert failed(tmp_path, sequence) == ["text is the tokens' bytes", "counts are the tokens'"]
    arrived = [index for index, frame in enumerate(sequence) if frame.kind == "request.arrived"][-1]
    asked = decode(sequence[arrived].payload, binary=False)
    sequence[arrived] = encode(dataclasses.replace(asked, sampling={"stop": ["\U0001f5fc"]}))  # type: ignore[call-arg]
    last = len(sequence) - 1
    event = decode(sequence[last].payload, binary=False)
    sequence[last] = encode(dataclasses.replace(event, reason="stop", detail="\U0001f5fc"))  # type: ignore[call-arg]
    assert failed(tmp_path, sequence) == []
    sequence[last] = encode(dataclasses.replace(event, reason="stop", detail="?"))  # type: ignore[call-arg]
    assert failed(tmp_path, sequence) == ["counts are the tokens'"]


@pytest.mark.parametrize(("logprob", "passes"), [(-0.501, True), (-0.6, False)])
def test_the_last_lens_row_must_be_the_logits(tmp_path: Path, logprob: float, passes: bool) -> None:
    sequence = trace_run.frames()
    layers = [
        {"layer": layer, "top": [{"id": 10, "logprob": said}], "rank": 1, "logprob": said}
        for layer, said in enumerate((-9.0, logprob))
    ]
    seq = sequence[-1].seq + 1
    event = Lens(
        seq=seq, t_ns=seq * 1000, request="r1", position=1, target=10, layers=layers, residual_dtype="f32", how="baked"
    )
    assert (failed(tmp_path, [*sequence, encode(event)]) == []) is passes


PARTS = [{"layer": None, "component": "embedding", "value": 1.5}, {"layer": 0, "component": "layer", "value": -0.25}]


@pytest.mark.parametrize(
    ("stated", "passes"),
    [
        ({}, True),
        ({"logit": 1.3, "error": 0.05}, False),
        ({"sum": 1.3}, False),
        ({"said_logit": 1.25, "soft_cap": 30.0}, True),
        ({"target": 10, "position": 1}, False),  # of which the token's event says another logit
        ({"logit": float("nan")}, False),
    ],
)
def test_the_parts_of_a_logit_must_add_up_to_it(tmp_path: Path, stated: dict[str, Any], passes: bool) -> None:
    sequence = trace_run.frames()
    seq = sequence[-1].seq + 1
    event = Attribution(seq=seq, t_ns=seq * 1000, request="r1", position=0, target=1, logit=1.25, components=PARTS)
    event = dataclasses.replace(event, **({"sum": 1.25} | stated))
    assert failed(tmp_path, [*sequence, encode(event)]) == ([] if passes else ["parts add up to the logit"])


JUNK: list[Any] = [None, "x", -1, 2**63, 1e308, [], {}, [None], [[]], [{"id": "x", "logprob": "y"}], {"stop": 5}, True]


def junk_in(sequence: list[Frame]) -> Iterator[tuple[str, list[Frame]]]:
    """The run with one field of one event of each kind as it must not be."""
    kinds = {frame.kind: index for index, frame in enumerate(sequence)}  # the last of each
    for kind, place in kinds.items():
        event = decode(sequence[place].payload, binary=sequence[place].binary)
        names = [field.name for field in dataclasses.fields(event) if field.name not in ("seq", "t_ns", "data")]
        for name in names if kind != "run.header" else []:
            for value in JUNK:
                wrong = encode(dataclasses.replace(event, **{name: value}))
                yield f"{kind} {name} {value}", [*sequence[:place], wrong, *sequence[place + 1 :]]


def test_no_field_of_an_event_makes_the_check_itself_fail(tmp_path: Path) -> None:
    sequence = trace_run.frames(steps=2)
    seq = sequence[-1].seq
    layers = [{"layer": 0, "top": [{"id": 10, "logprob": -0.5}], "rank": 1, "logprob": -0.5}]
    about: dict[str, Any] = {"request": "r1", "residual_dtype": "f32", "how": "baked"}
    parts: dict[str, Any] = {"target": 1, "logit": 1.25, "components": PARTS, "sum": 1.25}
    lens = Lens(seq=seq + 1, t_ns=(seq + 1) * 1000, position=1, target=10, layers=layers, **about)
    attribution = Attribution(seq=seq + 2, t_ns=(seq + 2) * 1000, position=0, **parts, **about)
    sequence += [encode(lens), encode(attribution)]
    assert failed(tmp_path, sequence) == []
    for what, wrong in junk_in(sequence):
        try:
            failed(tmp_path, wrong)
        except Exception as error:
            raise AssertionError(what) from error


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("run.header", lambda event: {"kv": {**event.kv, "blocks": 2**60}}),
        ("step.started", lambda event: {"rows": [{**event.rows[0], "to": 2**60}]}),
        ("token", lambda event: {"position": 2**60, "draw": {"method": "inverse_cdf", "seed": 10**18, "u": 0.5}}),
    ],
)
def test_a_number_without_measure_costs_no_memory(tmp_path: Path, kind: str, change: Change) -> None:
    assert failed(tmp_path, with_changed(kind, change)) != []


def test_a_cut_off_file_fails_only_for_that(tmp_path: Path) -> None:
    path = trace_run.record(tmp_path / "t.mcap", trace_run.frames())
    path.write_bytes(path.read_bytes()[:-100])
    with open_trace(path) as trace:
        assert [check.name for check in verify(trace) if check.ok is False] == ["file closed properly"]


def test_a_damaged_chunk_is_reported(tmp_path: Path) -> None:
    path = trace_run.record(tmp_path / "t.mcap", trace_run.frames())
    content = bytearray(path.read_bytes())
    chunks = [place.start() for place in re.finditer(b"zstd", content)]
    content[chunks[len(chunks) // 4] + 40] ^= 0xFF  # behind the name of the compression: in the data
    path.write_bytes(content)
    with open_trace(path) as trace:
        names = [check.name for check in verify(trace) if check.ok is False]
    assert names[:2] == ["all chunks readable", "no events missing"]
