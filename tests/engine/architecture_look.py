"""Looks into one tiny model, in every way the engine does, and compares with what the model does untouched."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from engine.device import mx

import numpy as np
from mlx_lm.models.cache import make_prompt_cache

from engine.attribution import Readout, attribution_event
from engine.captured import Captured
from engine.forward import BatchedForward, SeparateForward
from engine.keys import KeyPositions
from engine.kv.paged import PagedStore
from engine.memory import Memory
from engine.residuals import Kept
from engine.scheduler import Row
from engine.selftest import judge
from engine.sequence import Sequence
from engine.taps import Tape, Taps
from tests.engine.architecture_timed import Rows, timed
from tests.engine.tiny_architectures import build

PASSES = [(0, 7), (7, 12), (12, 13), (13, 14)]
"""Two chunks of a prompt that together exceed the window of sliding attention, and two decode steps."""
TOKENS = [3, 17, 5, 80, 9, 2, 41, 7, 100, 23, 6, 11, 64, 30]


@dataclass
class Finding:
    """What one architecture showed."""

    name: str
    fault: str = ""
    """Empty, or what went wrong: nothing else is known then."""
    caches: str = ""
    layers: int = 0
    identical: bool = False
    """Whether logits are the untapped model's, bit by bit."""
    seen: int = 0
    """Layers whose attention was seen in every pass."""
    partly: int = 0
    """Layers whose attention was seen in some passes."""
    shown: int = 0
    """Layers whose attention the engine shows in some pass: all that have as many heads as the first."""
    kernel_error: float = 0.0
    """Largest |weights × V − kernel output| over all rows seen."""
    future: float = 0.0
    """Largest weight of a position after the query's."""
    residual: bool = False
    norms: bool = False
    lens: bool = False
    lens_error: float = 0.0
    """Largest |lens of the last residual − logits|, relative to the largest logit; 0 without a lens."""
    operations: list[str] = field(default_factory=list)
    """What was timed, by name; timed passes gave the same logits."""
    attribution: bool = False
    attribution_error: float = 0.0
    """Largest |sum of the parts − logit|, and |logit − the model's own|, relative to the largest; 0 without."""
    separate: bool = False
    """Whether attention and MLP are parts of their own."""
    split: int = 0
    """Layers whose attention could be split by head."""
    experts: int = 0
    """Layers whose experts are seen."""
    weighed: int = 0
    """Of these, layers whose experts' weights are known."""
    batched: bool = False
    batching: str = ""
    restored: bool = False

    @property
    def good(self) -> bool:
        """Whether nothing that was shown is wrong."""
        right = self.kernel_error <= 1e-4 and self.future == 0
        right = right and self.lens_error <= 1e-3 and self.attribution_error <= 1e-4
        return not self.fault and self.identical and right and self.restored


class Recorded:
    """Stands in for the kernel, below the taps: keeps what each layer's call of a pass was given and gave."""

    def __init__(self) -> None:
        self.kernel = mx.fast.scaled_dot_product_attention
        self.taps: Taps | None = None
        self.calls: dict[int | None, tuple[mx.array, mx.array]] = {}  # by layer: values in order, output
        self.fetched: list[tuple[Any, mx.array | None]] = []  # what a cache returned, and all it was ever given

    def watch(self, caches: list[Any]) -> None:
        """Note the values that caches are given, in order of position, whatever order they keep them in."""
        for cache in caches:
            if hasattr(cache, "caches"):
                self.watch(cache.caches)
            elif hasattr(cache, "update_and_fetch"):
                cache.update_and_fetch = self._noting(cache.update_and_fetch)

    def _noting(self, original: Any) -> Any:
        given: list[mx.array] = []

        def update_and_fetch(keys: mx.array, values: mx.array, *args: Any) -> Any:
            given.append(values)
            fetched = original(keys, values, *args)
            self.fetched.append((fetched[1], mx.concatenate(given, axis=2)))
            return fetched

        return update_and_fetch

    def __call__(self, q: mx.array, k: mx.array, v: mx.array, **more: Any) -> mx.array:
        out = self.kernel(q, k, v, **more)
        if self.taps is not None:
            in_order = [every for fetched, every in self.fetched if fetched is v]
            self.calls[self.taps._layer] = (in_order[0] if in_order else v, out)
        return out


def look(name: str) -> Finding:
    """Build one architecture, and look."""
    model = build(name)
    classes = [type(module) for module in model.modules()]
    plain = _untapped(model)
    kinds = sorted({type(cache).__name__ for cache in make_prompt_cache(model)})
    finding = Finding(name, caches=", ".join(kinds))
    recorded = Recorded()
    mx.fast.scaled_dot_product_attention = recorded
    recorded.taps = taps = Taps(model)
    finding.layers = len(taps.structure.layers)
    _tapped(taps, recorded, plain, finding)
    alone = _separately(taps, plain, finding)
    finding.operations = sorted(timed(taps, _asked()))
    verdict = judge(taps, "float32")
    finding.batched, finding.batching = verdict.batched, verdict.reason
    if verdict.batched:
        _batched(taps, plain, alone)
    taps.remove()
    finding.restored = mx.fast.scaled_dot_product_attention is recorded and classes == [
        type(module) for module in model.modules()
    ]
    mx.fast.scaled_dot_product_attention = recorded.kernel
    finding.restored &= all(np.array_equal(a, b, equal_nan=True) for a, b in zip(plain, _untapped(model), strict=True))
    return finding


def _untapped(model: Any) -> list[np.ndarray]:
    """`[L, vocab]` logits of each pass."""
    cache = make_prompt_cache(model)
    return [_host(model(mx.array([TOKENS[start:stop]]), cache=cache)[0]) for start, stop in PASSES]


def _tapped(taps: Taps, recorded: Recorded, plain: list[np.ndarray], finding: Finding) -> None:
    """Every row of every pass: logits to the bit, attention against the kernel, the lens against the logits."""
    cache = make_prompt_cache(taps.model)
    keys = KeyPositions(cache)
    recorded.watch(cache)
    finding.identical = finding.norms = finding.residual = True
    finding.lens = taps.lens_possible
    readout = Readout(taps)
    finding.attribution = readout.unsupported is None
    seen: list[set[int]] = []
    for (start, stop), expected in zip(PASSES, plain, strict=True):
        tape = Tape(rows=list(range(stop - start)), keys=keys)
        keys.begin(start, stop - start)
        recorded.fetched.clear()
        logits = _host(taps.forward(mx.array([TOKENS[start:stop]]), cache, tape))
        keys.end()
        finding.identical &= np.array_equal(logits, expected) and bool(np.isfinite(logits).all())
        seen.append(set(tape.attention))
        for layer, [rows] in tape.attention.items():
            values, out = recorded.calls[layer]
            _against_the_kernel(_host(rows), _host(values), _host(out), start, finding)
        finding.residual &= len(tape.residual) == finding.layers + 1
        finding.norms &= len(tape.attention_out) == len(tape.mlp_out) == finding.layers
        if finding.lens:
            error = np.abs(_host(taps.lens(tape.residual[-1])) - logits).max() / np.abs(logits).max()
            finding.lens_error = max(finding.lens_error, float(error))
        _attributed(readout, tape, logits, finding)
        assert set(tape.experts) == set(taps.experts.layers), "experts were not seen in every pass"
    finding.experts = len(taps.experts.layers)
    finding.weighed = sum(experts.weighed for experts in taps.experts.layers.values())
    keys.release()
    finding.seen = len(set.intersection(*seen))
    finding.partly = len(set.union(*seen)) - finding.seen


def _attributed(readout: Readout, tape: Tape, logits: np.ndarray, finding: Finding) -> None:
    """The last row's best logit, split."""
    if not finding.attribution:
        return
    stream = np.stack([_host(array)[-1] for array in tape.residual])
    written = [_host(tape.attention_out[layer])[-1] for layer in sorted(tape.attention_out)]
    heads = {layer: _host(out)[-1] for layer, out in tape.head_out.items()}
    kept = Kept(stream, np.stack(written) if len(written) == finding.layers else None, heads)
    target = int(logits[-1].argmax())
    event = attribution_event(readout, kept, request="r", position=0, target=target, how="live", heads=True)
    error = max(event.error, abs(float(event.said_logit or 0.0) - float(logits[-1, target])))
    finding.attribution_error = max(finding.attribution_error, error / float(np.abs(logits).max()))
    finding.separate = kept.attention_out is not None
    finding.split = sum("heads" in part for part in event.components)
    for part in event.components:
        if "heads" in part:
            assert abs(sum(part["heads"]) + part["rest"] - part["value"]) <= 1e-4, "heads do not add up to attention"


def _against_the_kernel(rows: np.ndarray, values: np.ndarray, out: np.ndarray, start: int, finding: Finding) -> None:
    """Weights `[heads, L, positions]` times values must be what the kernel gave, and no weight lie in the future."""
    heads, length, positions = rows.shape
    spread = np.repeat(values[0], heads // values.shape[1], axis=0)  # [heads, positions, head_dim]
    finding.kernel_error = max(finding.kernel_error, float(np.abs(rows @ spread - out[0]).max()))
    future = np.arange(positions) > np.arange(start, start + length)[:, None]
    finding.future = max(finding.future, float(np.abs(rows[:, future]).max(initial=0)))


def _asked() -> list[Rows]:
    """The passes, as one request's rows."""
    sequence = cast(Sequence, _Request())
    return [
        [(Row(sequence, start, stop, "prefill"), mx.array(TOKENS[start:stop]), list(range(stop - start)))]
        for start, stop in PASSES
    ]


def _separately(taps: Taps, plain: list[np.ndarray], finding: Finding) -> dict[tuple[int, int], np.ndarray]:
    """Through the forward for models which are not batched. Returns attention by layer and position."""
    forward = SeparateForward(taps)
    sequence = cast(Sequence, _Request())
    layers: set[int] = set()
    rows_by_layer: dict[tuple[int, int], np.ndarray] = {}
    for (start, stop), expected in zip(PASSES, plain, strict=True):
        row = Row(sequence, start, stop, "prefill")
        [(logits, captured)] = forward.lay_out([(row, mx.array(TOKENS[start:stop]), list(range(stop - start)))])()
        mx.eval(forward.written(sequence))
        assert captured is not None
        finding.residual &= captured.stream is not None or not taps.structure.stream
        layers |= set(captured.layers)
        if logits is not None:
            error = np.abs(_host(logits) - expected[-1]).max()
            assert error <= 1e-3 * np.abs(expected).max(), f"the engine's logits differ by {error:.2g}"
        if captured.layers:
            rows = _attention(captured)
            assert rows.shape[2:] == (stop - start, stop), f"attention has the shape {rows.shape}"
            for index, layer in enumerate(captured.layers):
                rows_by_layer |= {(layer, start + row): rows[index, :, row] for row in range(stop - start)}
    forward.release(sequence)
    finding.shown = len(layers)
    return rows_by_layer


def _batched(taps: Taps, plain: list[np.ndarray], alone: dict[tuple[int, int], np.ndarray]) -> None:
    """A long row beside a short one, in one pass: logits, tokens and attention must be those of the long one alone."""
    tables = {"long": [2, 3, 4, 7], "short": [0, 1]}
    runs = {name: [(block * 4, block * 4 + 4) for block in table] for name, table in tables.items()}
    limits = {"long": 32, "short": 8}  # where the pool ends; where the other's blocks begin
    memory = cast(
        Memory,
        SimpleNamespace(
            runs=lambda name, length: _cut(runs[name], length),
            limit=lambda name, beyond: limits[name],
            unheld=lambda: [(20, 28)],
        ),
    )
    store = PagedStore(layers=len(taps.structure.layers), blocks=8, block_size=4)
    forward = BatchedForward(taps, store, memory)
    long, short = (cast(Sequence, _Request(name)) for name in tables)
    for number, ((start, stop), expected) in enumerate(zip(PASSES, plain, strict=True)):
        asked = [
            (Row(long, start, stop, "prefill"), mx.array(TOKENS[start:stop]), list(range(stop - start))),
            (Row(short, number, number + 1, "prefill"), mx.array([TOKENS[-number]]), []),
        ]
        logits, captured = forward.lay_out(asked)()[0]
        assert captured is not None
        if logits is not None:
            given = _host(logits)
            assert np.abs(given - expected[-1]).max() <= 1e-3 * np.abs(expected).max(), "a batch's logits differ"
            assert given.argmax() == expected[-1].argmax(), "a batch chooses another token"
        rows = _attention(captured)
        for index, layer in enumerate(captured.layers):
            for row in range(stop - start):
                same = np.abs(rows[index, :, row, :stop] - alone[layer, start + row]).max() <= 1e-5
                assert same, f"in a batch, layer {layer} attends otherwise"


def _cut(runs: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    return [
        (start, min(stop, start + length - index * 4)) for index, (start, stop) in enumerate(runs) if index * 4 < length
    ]


@dataclass(eq=False)
class _Request:
    """What the forward looks at in a sequence."""

    id: str = "r1"
    plan: Any = field(default_factory=lambda: SimpleNamespace(arrays=True))
    prefill_until: int = PASSES[1][1]


def _attention(captured: Captured) -> np.ndarray:
    """`[layers, heads, positions, keys]`."""
    return np.concatenate(list(captured.attention()))


def _host(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32))
