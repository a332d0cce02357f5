from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.apart import Apart
from engine.codec import DTYPES, decode, encode, misfit, parse
from engine.errors import TraceError
from engine.events import KINDS, TENSOR_KINDS, Attention, Event, RequestArrived, Residual, StreamSent, Token
from tests.engine.event_strategies import events_of


def same(a: Any, b: Any) -> bool:
    """Equality for which NaN is NaN, and arrays equal in dtype and bits, wherever they lie."""
    if isinstance(a, Apart):
        a = np.asarray(a)
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def assert_same_event(a: Event, b: Event) -> None:
    assert type(a) is type(b)
    for field in dataclasses.fields(a):
        assert same(getattr(a, field.name), getattr(b, field.name)), field.name


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_every_kind_survives_encoding_and_decoding(kind: str, data: st.DataObject) -> None:
    event = data.draw(events_of(kind))
    frame = encode(event)
    assert frame.binary == (kind in TENSOR_KINDS)
    assert (frame.kind, frame.seq, frame.t_ns) == (kind, event.seq, event.t_ns)
    decoded = decode(frame.payload, binary=frame.binary)
    assert_same_event(event, decoded)
    assert encode(decoded).payload == frame.payload


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_keeps_its_bits_and_its_place(name: str) -> None:
    dtype = DTYPES[name]
    array = np.frombuffer(np.random.default_rng(3).bytes(dtype.itemsize * 24), dtype).reshape(2, 3, 4)
    frame = encode(attention(array))
    (length,) = struct.unpack_from("<I", frame.payload)
    header = json.loads(frame.payload[4 : 4 + length])
    assert (header["dtype"], header["shape"], header["byte_length"]) == (name, [2, 3, 4], array.nbytes)
    assert "data" not in header
    start = len(frame.payload) - array.nbytes
    assert start % 8 == 0, "the array must be aligned for a typed-array view"
    assert frame.payload[start:] == array.tobytes()


def test_an_array_that_is_not_contiguous_is_written_in_c_order() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T
    decoded = decode(encode(attention(array)).payload, binary=True)
    assert isinstance(decoded, Attention)
    np.testing.assert_array_equal(decoded.data, array)


def test_the_decoded_array_is_a_view_that_cannot_be_written() -> None:
    _, array = parse(encode(attention(np.ones((1, 1, 4), np.float32))).payload, binary=True)
    assert array is not None
    assert not array.flags.writeable
    assert array.base is not None


def test_a_dtype_that_frames_cannot_carry_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"float64.*f32, f16, u8, i32"):
        encode(attention(np.ones(3)))


def test_minus_infinity_is_json_that_any_parser_reads() -> None:
    event = Token(**token_fields() | {"logprob": -math.inf, "top": [{"id": 1, "logprob": math.nan}]})
    plain = json.loads(encode(event).payload)
    assert plain["logprob"] == {"$float": "-Infinity"}
    assert plain["top"][0]["logprob"] == {"$float": "NaN"}


@pytest.mark.parametrize("logprob", [-1.5, math.nan, -math.inf])
@pytest.mark.parametrize("label", ["x", "null", "nullnull"])
@pytest.mark.parametrize("values", [[None], [None, 0.7, None], [0.7]])
def test_a_null_that_was_none_hides_no_number_that_json_has_not(
    logprob: float, label: str, values: list[float | None]
) -> None:
    stages = [{"name": "raw", "value": value, "probabilities": [0.5, 0.25]} for value in values]
    fields = token_fields() | {"top": [{"id": 1, "logprob": logprob, "label": label}], "stages": stages}
    plain = json.loads(encode(Token(**fields)).payload)
    assert plain["stages"] == stages
    (first,) = plain["top"]
    spelled = {"$float": "NaN" if math.isnan(logprob) else "-Infinity"}
    assert first == {"id": 1, "logprob": logprob if math.isfinite(logprob) else spelled, "label": label}


def test_non_finite_numbers_inside_an_array_field_survive() -> None:
    norms: Any = np.array([1.0, np.nan, np.inf])
    data = np.zeros((1, 1), np.float32)
    event = Residual(
        request="r", step=1, position=0, source_dtype="f32", attention_norms=[], mlp_norms=[], data=data, norms=norms
    )
    decoded, _ = parse(encode(event).payload, binary=True)
    assert same(decoded["norms"], [1.0, math.nan, math.inf])


def test_a_prompt_that_looks_like_our_spelling_of_nan_breaks_nothing() -> None:
    hostile = [{"role": "user", "content": {"$float": "anything"}}, {"$float": ["NaN"]}]
    event = RequestArrived(request="r", source="t", text="NaN", sampling={}, max_tokens=1, capture={}, messages=hostile)
    decoded = decode(encode(event).payload, binary=False)
    assert isinstance(decoded, RequestArrived)
    assert decoded.messages == hostile
    assert decoded.text == "NaN"


def test_fields_and_kinds_of_a_newer_version_are_kept_by_parse() -> None:
    payload = b'{"kind":"weather","seq":1,"t_ns":2,"sky":"blue"}'
    assert parse(payload, binary=False)[0]["sky"] == "blue"
    with pytest.raises(TraceError, match="unknown kind of event 'weather'"):
        decode(payload, binary=False)


def test_an_unknown_field_is_dropped_by_decode_and_a_missing_one_is_named() -> None:
    event = decode(b'{"kind":"slot.assigned","seq":1,"t_ns":2,"slot":3,"request":"r","colour":"red"}', binary=False)
    assert event.seq == 1
    with pytest.raises(TraceError, match=r"slot\.assigned event lacks a field.*request"):
        decode(b'{"kind":"slot.assigned","seq":1,"t_ns":2,"slot":3}', binary=False)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_an_event_or_a_trace_error(payload: bytes, binary: bool) -> None:
    with contextlib.suppress(TraceError):
        parse(payload, binary=binary)


@settings(max_examples=300, deadline=None)
@given(
    dtype=st.one_of(st.sampled_from([*DTYPES, "f64", "O"]), st.integers()),
    shape=st.lists(st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=2)), max_size=4),
    length=st.integers(-1, 2**70),
    data=st.binary(max_size=32),
)
def test_a_lying_tensor_header_is_a_trace_error(dtype: Any, shape: list[Any], length: int, data: bytes) -> None:
    header = {"kind": "attention", "seq": 1, "t_ns": 1, "dtype": dtype, "shape": shape, "byte_length": length}
    head = json.dumps(header, allow_nan=True).encode()
    payload = struct.pack("<I", len(head)) + head + bytes(-(4 + len(head)) % 8) + data
    try:
        _, array = parse(payload, binary=True)
    except TraceError:
        return
    assert array is not None
    assert array.nbytes == len(data)


def test_a_shape_of_words_does_not_fill_the_memory() -> None:
    head = b'{"kind":"attention","seq":1,"t_ns":1,"dtype":"u8","shape":["a",1099511627776],"byte_length":0}'
    with pytest.raises(TraceError, match="is not the shape of an array"):
        parse(struct.pack("<I", len(head)) + head + bytes(-(4 + len(head)) % 8), binary=True)


def test_deep_nesting_is_a_trace_error_not_a_crash() -> None:
    deep = b'{"kind":"gap","seq":1,"t_ns":1,"x":' + b'{"y":' * 1010 + b'{"$float":"NaN"}' + b"}" * 1011
    with pytest.raises(TraceError):
        parse(deep, binary=False)


def test_a_truncated_tensor_frame_says_how_large_it_is() -> None:
    payload = encode(attention(np.ones((1, 1, 8), np.float32))).payload[:-4]
    with pytest.raises(TraceError, match=rf"a frame of {len(payload)} bytes is not in the format"):
        parse(payload, binary=True)


def test_routing_fields_are_on_the_frame() -> None:
    event = StreamSent(
        request="r",
        chunk=1,
        position=7,
        chunk_bytes=1,
        text_bytes=1,
        held_back_bytes=0,
        queued_ns=1,
        sent_ns=2,
        to="sse",
    )
    frame = encode(event)
    assert (frame.request, frame.step, frame.position) == ("r", None, 7)


def attention(data: np.ndarray) -> Attention:
    return Attention(request="r", step=1, position=0, source_dtype="float32", data=data)


def token_fields() -> dict[str, Any]:
    return {
        "request": "r",
        "step": 1,
        "position": 3,
        "index": 0,
        "id": 5,
        "bytes_hex": "20",
        "special": False,
        "label": " ",
        "text": " ",
        "text_length": 1,
        "held_back_bytes": 0,
        "logprob": -1.0,
        "entropy_bits": 2.0,
        "rank": 1,
        "top": [],
        "stages": [],
        "draw": {},
    }


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"kind": "run.header", "model": "x"}, "model is 'x'; expected dict"),
        ({"kind": "run.header", "slots": True}, "slots is True"),
        ({"kind": "request.arrived", "text": {"a": 1}}, "text is {'a': 1}"),
        ({"kind": "request.arrived", "messages": "hello"}, "messages is 'hello'"),
        ({"kind": "request.finished", "reason": 5}, "reason is 5"),
        ({"kind": "token", "logprob": [1]}, "logprob is [1]"),
    ],
)
def test_a_field_of_another_type_is_a_misfit(fields: dict[str, Any], says: str) -> None:
    assert says in str(misfit(fields))


def test_what_is_missing_null_or_newer_is_no_misfit() -> None:
    assert misfit({"kind": "weather", "sky": 1}) is None
    assert misfit({"kind": "run.header", "model": None, "colour": 1}) is None
    assert misfit({"kind": "token", "logprob": -1, "rank": 3, "entropy_bits": -math.inf}) is None
    assert misfit({"kind": "request.finished", "reason": "asked_to"}) is None


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_what_is_written_fits(kind: str, data: st.DataObject) -> None:
    frame = encode(data.draw(events_of(kind)))
    assert misfit(parse(frame.payload, binary=frame.binary)[0]) is None
