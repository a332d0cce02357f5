"""The residual stream of a step's captured rows: from an array a layer to one a position, and let go of on the way."""

from __future__ import annotations

from engine.device import mx

import numpy as np
import pytest

from engine import stream as stream_module
from engine.joined import Joined
from engine.stream import PIECE, TOGETHER, Stream

LAYERS, HIDDEN = 5, 12


def written(captured: int, seed: int = 1) -> dict[str, np.ndarray]:
    """By name `[layers, captured, hidden]`."""
    random = np.random.default_rng(seed)
    sizes = {"residual": LAYERS + 1, "attention_out": LAYERS, "mlp_out": LAYERS}
    return {name: random.normal(size=(count, captured, HIDDEN)).astype(np.float32) for name, count in sizes.items()}


def stream_with(arrays: dict[str, np.ndarray]) -> Stream:
    return Stream({name: [mx.array(layer) for layer in of_name] for name, of_name in arrays.items()})


def check(stream: Stream, arrays: dict[str, np.ndarray]) -> None:
    assert not stream.outputs, "what has been read is held"
    for name, expected in arrays.items():
        norms = np.linalg.norm(expected.astype(np.float64), axis=-1).T
        np.testing.assert_allclose(stream.norms[name], norms, rtol=1e-6)
        for index in range(expected.shape[1]):
            vectors = stream.vectors(name, index)
            if name == "mlp_out":
                assert vectors is None
            else:
                np.testing.assert_array_equal(vectors, expected[:, index])


@pytest.mark.parametrize("captured", [1, PIECE, 2 * PIECE + 3])
@pytest.mark.parametrize("large_bytes", [0, 2**24])
def test_each_position_gets_what_every_layer_wrote_for_it(
    captured: int, large_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "LARGE_BYTES", large_bytes)
    arrays = written(captured)
    stream = stream_with(arrays)
    stream.read_all()
    check(stream, arrays)


@pytest.mark.parametrize("captured", [1, 4])
def test_layers_may_differ_in_what_stands_between_position_and_vector(captured: int) -> None:
    arrays = written(captured)
    shapes = [(captured, HIDDEN), (captured, 1, HIDDEN), (captured, 1, 1, HIDDEN), (captured, 3, HIDDEN // 3)]
    layers = {
        name: [mx.array(layer).reshape(shapes[index % len(shapes)]) for index, layer in enumerate(of_name)]
        for name, of_name in arrays.items()
    }
    stream = Stream(layers)
    stream.read_all()
    check(stream, arrays)


@pytest.mark.parametrize("read_until", [0, 2, LAYERS + 1])
def test_what_was_not_read_with_its_layer_is_read_at_the_end(read_until: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "LARGE_BYTES", 0)
    arrays = written(2 * PIECE)
    stream = stream_with(arrays)
    for layer in range(read_until):
        for name, index, array in stream.before(layer):
            stream.read(name, index, np.asarray(array))
        left = {"residual": LAYERS - layer, "attention_out": LAYERS - layer, "mlp_out": LAYERS - layer}
        assert len(stream.outputs) == sum(left.values()), f"layer {layer} reads more or less than is there"
    stream.read_all()
    check(stream, arrays)


def test_a_model_whose_parts_are_not_told_apart_has_the_stream_alone() -> None:
    arrays = {"residual": written(3)["residual"]}
    stream = stream_with(arrays)
    stream.read_all()
    assert stream.norms.keys() == {"residual"}
    assert stream.vectors("attention_out", 0) is None
    check(stream, arrays)


@pytest.mark.parametrize(("large_bytes", "positions"), [(0, PIECE), (2**24, 1)])
def test_one_position_keeps_no_more_than_its_piece(
    large_bytes: int, positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "LARGE_BYTES", large_bytes)
    stream = stream_with(written(4 * PIECE))
    stream.read_all()
    kept = stream.vectors("residual", PIECE + 1)
    assert kept is not None
    assert kept.base is not None
    assert kept.base.size == positions * (LAYERS + 1) * HIDDEN


def test_positions_of_a_small_pass_lie_together_where_all_of_them_are_wanted() -> None:
    arrays = written(TOGETHER)
    for wanted, positions in ((TOGETHER, TOGETHER), (TOGETHER - 1, 1)):
        stream = stream_with(arrays)
        stream.keep(3)
        stream.keep(wanted - 3)
        stream.read_all()
        check(stream, arrays)
        kept = stream.vectors("residual", 1)
        assert kept is not None
        assert kept.base is not None
        assert kept.base.size == positions * (LAYERS + 1) * HIDDEN


@pytest.mark.parametrize("factor", [1e-25, 1e25])
@pytest.mark.parametrize("large_bytes", [0, 2**24])
def test_norms_hold_of_numbers_whose_squares_do_not_fit_in_single_precision(
    factor: float, large_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "LARGE_BYTES", large_bytes)
    arrays = {name: of_name * np.float32(factor) for name, of_name in written(3).items()}
    arrays["mlp_out"][1:] = written(3)["mlp_out"][1:]  # of some layers they do
    stream = stream_with(arrays)
    stream.read_all()
    check(stream, arrays)


@pytest.mark.parametrize("captured", [1, 5, 2 * PIECE])
@pytest.mark.parametrize("large_bytes", [0, 2**24])
def test_half_precision_is_read_in_single(captured: int, large_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "LARGE_BYTES", large_bytes)
    half = {
        name: [mx.array(layer).astype(mx.bfloat16) for layer in of_name] for name, of_name in written(captured).items()
    }
    half["residual"][2] = half["residual"][2][:, None]  # a few models' layers differ in what stands between
    single = {
        name: np.array([layer.astype(mx.float32).reshape(captured, HIDDEN) for layer in of_name])
        for name, of_name in half.items()
    }
    stream = Stream(half)
    stream.keep(captured)
    for layer in range(LAYERS + 1) if stream.large else []:
        for name, index, array in stream.before(layer):
            stream.read(name, index, np.asarray(array))
    stream.read_all()
    check(stream, single)
    vectors = stream.vectors("residual", 0)
    assert vectors is not None
    assert vectors.dtype == np.float32


@pytest.mark.parametrize(
    "shapes", [[(3, 4, 1, 7)] * 2, [(3, 2, 2, 1, 7)] * 3, [(3, 2, 2, 1, 7), (3, 4, 1, 1, 7), (3, 4, 1, 7)]], ids=str
)
def test_rows_that_decode_together_are_joined_however_layers_group_their_heads(shapes: list[tuple[int, ...]]) -> None:
    random = np.random.default_rng(1)
    layers = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    joined = Joined([mx.array(layer) for layer in layers])
    rows = np.stack([joined.row(row, 7) for row in range(3)])
    np.testing.assert_array_equal(rows, np.stack([layer.reshape(3, 4, 1, 7) for layer in layers], axis=1))
