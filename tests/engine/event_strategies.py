"""Hypothesis strategies for every kind of event, made from the schema's own types: a new kind is covered at once."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from engine.apart import Apart
from engine.codec import DTYPES
from engine.events import KINDS, Event

hostile_text = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["NaN", "null", '"$float"', "<img src=x onerror=alert(1)>", "\x00\x1b[31m", "👩‍👩‍👧", "\u2028", "e\u0301"]
    ),
)
numbers = st.one_of(st.integers(-(2**53), 2**53), st.floats())
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, hostile_text),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(hostile_text, inner, max_size=3)),
    max_leaves=8,
)
arrays = st.sampled_from(list(DTYPES.values())).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
)
arrays_apart = st.tuples(
    st.sampled_from(list(DTYPES.values())).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=2, max_dims=4, min_side=1, max_side=5))
    ),
    st.integers(1, 5),
).map(lambda drawn: Apart([part[..., : drawn[1]] for part in drawn[0]]))
"""Rows of which some are contiguous and some are not, as they are beside others that have more keys."""


def of_type(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of one of the types that the schema's fields have."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(of_type, arguments))
    if origin is list:
        return st.lists(of_type(arguments[0]), max_size=4)
    if origin is dict:
        return st.dictionaries(hostile_text, json_values, max_size=4)
    plain = {
        str: hostile_text,
        int: st.integers(0, 2**53),
        float: st.floats(),
        bool: st.booleans(),
        type(None): st.none(),
        np.ndarray: arrays,
        Apart: arrays_apart,
    }
    return plain[annotation]


def events_of(kind: str) -> st.SearchStrategy[Event]:
    """Events of one kind with all their fields filled in."""
    cls = KINDS[kind]
    hints = get_type_hints(cls)
    return st.builds(cls, **{field.name: of_type(hints[field.name]) for field in dataclasses.fields(cls)})
