from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.codec import parse
from engine.errors import TraceError
from engine.events import Event, Gap, Lens
from engine.trace import Trace, open_trace
from engine.trace import writer as writer_module
from engine.trace.rewrite import Reduction, rewrite
from engine.trace.verify import verify
from tests.engine import trace_run
from tests.engine.test_trace_recorder import FullDisk

SEQUENCE = trace_run.frames(steps=4)


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    with open_trace(trace_run.record(tmp_path / "t.mcap", SEQUENCE)) as opened:
        yield opened


def test_a_slice_is_a_whole_trace_of_exactly_the_requests_frames(trace: Trace, tmp_path: Path) -> None:
    expected = list(trace.frames(request="r2"))
    written = rewrite(trace, tmp_path / "r2.mcap", request="r2", facts={"slice_of": "r2"})
    with open_trace(tmp_path / "r2.mcap") as sliced:
        assert list(sliced.frames()) == expected
        assert sliced.complete
        assert sliced.metadata["slice_of"] == "r2"
        assert [request["id"] for request in sliced.requests() if request["arrived_seq"]] == ["r2"]
        assert all(check.ok is not False for check in verify(sliced))
    assert written.frames == len(expected)
    assert written.size_bytes == (tmp_path / "r2.mcap").stat().st_size


def test_a_slice_of_a_slice_is_the_same(trace: Trace, tmp_path: Path) -> None:
    rewrite(trace, tmp_path / "a.mcap", request="r1")
    with open_trace(tmp_path / "a.mcap") as once:
        rewrite(once, tmp_path / "b.mcap", request="r1")
        with open_trace(tmp_path / "b.mcap") as twice:
            assert list(once.frames()) == list(twice.frames())


def test_a_request_that_is_not_there_is_named_with_those_that_are(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"has no request r9; it has r1, r2"):
        rewrite(trace, tmp_path / "x.mcap", request="r9")
    assert not (tmp_path / "x.mcap").exists()


def test_recovering_a_cut_file_gives_a_whole_one_with_the_same_frames(tmp_path: Path) -> None:
    path = trace_run.record(tmp_path / "t.mcap", SEQUENCE)
    path.write_bytes(path.read_bytes()[:-4000])
    with open_trace(path) as cut:
        assert not cut.complete
        kept = list(cut.frames())
        rewrite(cut, tmp_path / "whole.mcap")
    with open_trace(tmp_path / "whole.mcap") as whole:
        assert whole.complete
        assert list(whole.frames()) == kept
        assert kept == SEQUENCE[: len(kept)]


def test_recovering_a_damaged_file_keeps_the_gap_as_a_frame(tmp_path: Path) -> None:
    path = trace_run.record(tmp_path / "t.mcap", SEQUENCE)
    content = bytearray(path.read_bytes())
    content[content.rindex(b"zstd") // 2] ^= 0xFF
    path.write_bytes(content)
    with open_trace(path) as damaged:
        kept = list(damaged.frames())
        written = rewrite(damaged, tmp_path / "whole.mcap")
    assert written.gaps == sum(frame.kind == "gap" for frame in kept) == 1
    with open_trace(tmp_path / "whole.mcap") as whole:
        assert list(whole.frames()) == kept
        assert whole.damage == []
        assert [check.name for check in verify(whole) if check.ok is False][:1] == ["no events missing"]


def test_float32_becomes_float16_within_its_precision(trace: Trace, tmp_path: Path) -> None:
    rewrite(trace, tmp_path / "small.mcap", reduction=Reduction(dtype="f16"))
    with open_trace(tmp_path / "small.mcap") as small:
        pairs = list(zip(trace.frames(), small.frames(), strict=True))
        assert all(check.ok is not False for check in verify(small))
    for before, after in pairs:
        if not before.binary:
            assert after == before
            continue
        fields, wide = parse(before.payload, binary=True)
        same_fields, narrow = parse(after.payload, binary=True)
        assert same_fields == fields
        assert wide is not None
        assert narrow is not None
        assert narrow.dtype == np.float16
        np.testing.assert_allclose(narrow, wide, rtol=2**-11, atol=2**-24)


def test_values_beyond_float16_stay_float32(tmp_path: Path) -> None:
    import dataclasses

    from engine.codec import decode, encode
    from engine.events import Residual

    sequence = list(SEQUENCE)
    place = next(i for i, frame in enumerate(sequence) if frame.kind == "residual")
    event = decode(sequence[place].payload, binary=True)
    assert isinstance(event, Residual)
    large = event.data.copy()
    large[0, 0] = 70_000.0
    large[0, 1] = np.inf  # an infinity that was there is no loss
    sequence[place] = encode(dataclasses.replace(event, data=large))
    with open_trace(trace_run.record(tmp_path / "t.mcap", sequence)) as trace:
        rewrite(trace, tmp_path / "small.mcap", reduction=Reduction(dtype="f16"))
    with open_trace(tmp_path / "small.mcap") as small:
        dtypes = [array.dtype for f in small.frames(kinds={"residual"}) for _, array in [parse(f.payload, binary=True)]]  # type: ignore[union-attr]
    assert dtypes[0] == np.float32
    assert set(dtypes[1:]) == {np.dtype(np.float16)}


def test_what_is_dropped_is_said_to_be_absent(trace: Trace, tmp_path: Path) -> None:
    written = rewrite(trace, tmp_path / "t2.mcap", reduction=Reduction(drop=frozenset({"residual"})))
    assert written.added == 2
    with open_trace(tmp_path / "t2.mcap") as small:
        found = list(small.frames())
        assert small.metadata["dropped"] == "residual"
        assert all(check.ok is not False for check in verify(small))
    assert not [frame for frame in found if frame.kind == "residual"]
    absent = [parse(frame.payload, binary=False)[0] for frame in found if frame.kind == "absent"]
    assert [(event["what"], event["request"], event["reason"]) for event in absent] == [
        ("residual", "r1", "not_captured"),
        ("residual", "r2", "not_captured"),
    ]
    assert [event["seq"] for event in absent] == [SEQUENCE[-1].seq + 1, SEQUENCE[-1].seq + 2]


def test_only_tensors_can_be_dropped() -> None:
    with pytest.raises(TraceError, match=r"cannot drop token; expected any of attention, "):
        Reduction(drop=frozenset({"token"}))


def test_folders_of_this_machine_can_be_left_out(trace: Trace, tmp_path: Path) -> None:
    rewrite(trace, tmp_path / "t2.mcap", reduction=Reduction(strip_paths=True))
    with open_trace(tmp_path / "t2.mcap") as stripped:
        assert stripped.header["model"]["path"] == "b.gguf"
        assert stripped.header["machine"]["blas"]["path"] == "libblas.so"
        assert list(stripped.frames())[1:] == SEQUENCE[1:]
    assert b"/a/b.gguf" not in (tmp_path / "t2.mcap").read_bytes(), "nor in the metadata, which is not compressed"


def test_added_events_come_last_with_seqs_of_their_own(trace: Trace, tmp_path: Path) -> None:
    lens = Lens(request="r1", position=1, target=None, layers=[], residual_dtype="f32", how="baked")
    added: list[Event] = [lens, Gap(from_seq=0, to_seq=0, reason="test")]
    rewrite(trace, tmp_path / "t2.mcap", add=added)
    with open_trace(tmp_path / "t2.mcap") as baked:
        found = list(baked.frames())
    assert found[: len(SEQUENCE)] == SEQUENCE
    last = SEQUENCE[-1]
    assert [(f.kind, f.seq, f.t_ns) for f in found[len(SEQUENCE) :]] == [
        ("lens", last.seq + 1, last.t_ns),
        ("gap", last.seq + 2, last.t_ns),
    ]


def test_a_trace_can_be_rewritten_in_its_place(trace: Trace) -> None:
    rewrite(trace, trace.path, request="r1")
    with open_trace(trace.path) as again:
        assert list(again.frames()) == list(trace.frames(request="r1")), "the open trace still reads the old file"


def test_a_failed_rewrite_leaves_the_output_as_it_was(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.mcap"
    output.write_bytes(b"precious")
    monkeypatch.setattr(writer_module, "open", lambda path, *_, **__: FullDisk(path, 9000, 28), raising=False)
    with pytest.raises(TraceError, match=r"cannot write .*out\.mcap: No space left on device"):
        rewrite(trace, output)
    assert output.read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.mcap", "t.mcap"]
