"""How long each operation of a pass takes: measured with a barrier after each, in the steps where somebody asks.

MLX is lazy: a pass builds a graph, and the device works it off later. So an operation is timed by having everything
that it needs computed first, and waiting for its result. The device then never works on two things at once, and is
asked hundreds of times instead of once: a timed step is slower than a normal one, and says by how much
(`engine.timing`). Its values are the same, bit by bit: the same operations on the same arrays, only waited for.

Where operations are is found in the model as it is: its layers, the modules in them, the calls of the fused attention
kernel and of the caches. What they are called is decided afterwards, when the whole pass has been seen
(`engine.operations`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from engine.device import mx

import mlx.nn as nn

from engine.attention import Kernel, attention_replaced
from engine.keys import leaves
from engine.kv.store import Handle
from engine.swap import Around, Call, ClassSwap
from engine.taps import Taps

SpanKind = Literal["lookup", "norm", "linear", "rope", "rest", "kv_write", "attention", "tail", "choice", "capture"]
"""What was timed. `rest` is what a module does itself, beside the modules in it; `tail` comes after all modules."""

NORMS = (nn.RMSNorm, nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm, nn.BatchNorm)


@dataclass(frozen=True, slots=True)
class Span:
    """One timed operation. `duration_ns` is exclusive: without what was timed inside it.

    Attributes:
        kind: what it is, seen by itself.
        layer: the layer it ran in; None outside.
        path: the module, by the model's names: in the layer or, outside, in the model; "" for the layer or the model.
        scope: the path of the module around it.
        run: which of the step's passes.
        after: outside the layers, whether it came after them.
    """

    kind: SpanKind
    layer: int | None
    path: str
    scope: str
    run: int
    after: bool
    start_ns: int
    duration_ns: int


@dataclass(slots=True)
class _Scope:
    """A timed call that has not returned."""

    layer: int | None
    path: str
    inner_ns: int = 0
    """Time of what was timed inside it."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A module that is timed, and where it is."""

    module: nn.Module
    layer: int | None
    path: str


class Stopwatch:
    """Times the passes that run inside `running`. The model is left as it was.

    Args:
        taps: in the model.
        now_ns: the run's clock.

    Attributes:
        spans: what was timed since `running` was entered, each after those inside it.
        paused_ns: for how long nothing was timed meanwhile, because somebody was told that a layer had finished.
    """

    def __init__(self, taps: Taps, now_ns: Callable[[], int]) -> None:
        self._model, self._layers = taps.model, taps.structure.layers
        self._now_ns = now_ns
        self._swap = ClassSwap()
        self._places: list[_Place] = []
        self._stack: list[_Scope] = []
        self._choosing = True
        self._after = False
        self._last_ns = 0
        self._run = -1
        self._finished: Callable[[int], None] | None = None
        self.spans: list[Span] = []
        self.paused_ns = 0

    @contextmanager
    def running(self, *, choosing: bool, finished: Callable[[int], None] | None = None) -> Iterator[None]:
        """Time the passes in this context.

        Args:
            choosing: whether the step chooses any token. If not, nothing after the layers is computed in a normal step,
                nor is it here. (The last layer is, and it is a little more than a normal step does.)
            finished: called with a layer's number when all of it has been computed and the next has not begun. What it
                takes is no operation's time, but for what it lets be evaluated.
        """
        self.spans, self._run, self._choosing = [], -1, choosing
        self._finished, self.paused_ns = finished, 0
        if not self._places:
            self._places = list(self._find())
        self._swap.tap(self._model, self._around_model)
        for place in self._places:
            self._swap.tap(place.module, self._around(place))
        try:
            yield
        finally:
            self._swap.remove()
            self._stack.clear()

    def evaluate(self, kind: SpanKind, arrays: list[mx.array]) -> None:
        """Wait for arrays that are left after the pass, or a layer; the time goes under this name, once a pass."""
        if arrays:
            start = self._now_ns()
            mx.eval(arrays)
            took = self._now_ns() - start
            for index, span in enumerate(self.spans):
                if (span.kind, span.run) == (kind, self._run) and kind in ("choice", "capture"):
                    self.spans[index] = replace(span, duration_ns=span.duration_ns + took)
                    return
            self.spans.append(Span(kind, None, "", "", self._run, False, start, took))

    def _find(self) -> Iterator[_Place]:
        inside: set[int] = set()
        for index, layer in enumerate(self._layers):
            for path, module in layer.named_modules():
                yield _Place(module, index, path)
                inside.add(id(module))
        for path, module in self._model.named_modules():
            around_layers = any(id(part) in inside for part in module.modules())
            if not around_layers:
                yield _Place(module, None, path)

    def _around(self, place: _Place) -> Around:
        static = _kind_of(place.module)
        is_layer = place.layer is not None and place.path == ""
        last = is_layer and place.layer == len(self._layers) - 1

        def around(call: Call, *args: Any, **kwargs: Any) -> Any:
            if not self._stack or (self._after and not is_layer and not self._choosing):
                return call(*args, **kwargs)
            if is_layer:
                self._after = False
            layer = place.layer if is_layer or self._stack[-1].layer is None else self._stack[-1].layer
            kind = static or ("rope" if _told_positions(args, kwargs) else "rest")
            if kind == "linear" and _all_integers(args):
                kind = "lookup"
            out = self._timed(kind, layer, place.path, call, *args, **kwargs)
            self._after = self._after or last
            if is_layer and place.layer is not None and self._finished is not None:
                self._pause(self._finished, place.layer)
            return out

        return around

    def _around_model(self, call: Call, *args: Any, **kwargs: Any) -> Any:
        """The whole pass. What comes after the last module in it is the tail: a tied head, a soft cap."""
        self._run += 1
        self._after = False
        caches = [cache for cache in leaves(kwargs.get("cache") or []) if hasattr(cache, "update_and_fetch")]
        unwatch = [self._watch(cache) for cache in caches]
        self._settle(args)
        scope, start = _Scope(None, ""), self._now_ns()
        self._stack.append(scope)
        self._last_ns = start
        try:
            with attention_replaced(self._attend):
                out = call(*args, **kwargs)
            if self._choosing:
                self._settle(out)
                tail = self._now_ns() - self._last_ns
                scope.inner_ns += tail
                self.spans.append(Span("tail", None, "", "", self._run, True, self._last_ns, tail))
        finally:
            self._stack.pop()
            for undo in unwatch:
                undo()
        took = self._now_ns() - start - scope.inner_ns
        self.spans.append(Span("rest", None, "", "", self._run, False, start, took))
        return out

    def _pause(self, finished: Callable[[int], None], layer: int) -> None:
        """Say that a layer has finished: whatever that leads to is the time of no scope."""
        start, evaluated = self._now_ns(), self._captured_ns()
        finished(layer)
        self._last_ns = self._now_ns()
        self._stack[-1].inner_ns += self._last_ns - start
        self.paused_ns += self._last_ns - start - (self._captured_ns() - evaluated)

    def _captured_ns(self) -> int:
        return sum(span.duration_ns for span in self.spans if span.kind == "capture")

    def _attend(self, kernel: Kernel, q: mx.array, k: Any, v: Any, **more: Any) -> mx.array:
        out: mx.array = self._timed("attention", None, "", kernel, q, k, v, **more)
        return out

    def _watch(self, cache: Any) -> Callable[[], None]:
        """Time what a cache does with new keys and values. Returns what puts it back."""
        before, original = cache.__dict__.get("update_and_fetch"), cache.update_and_fetch

        def update_and_fetch(*args: Any, **kwargs: Any) -> Any:
            return self._timed("kv_write", None, "", original, *args, **kwargs)

        def undo() -> None:
            if before is None:
                del cache.update_and_fetch
            else:
                cache.update_and_fetch = before

        cache.update_and_fetch = update_and_fetch
        return undo

    def _timed(self, kind: SpanKind, layer: int | None, path: str, call: Call, *args: Any, **kwargs: Any) -> Any:
        around = self._stack[-1]
        own = _Scope(around.layer if layer is None else layer, path or around.path)
        self._settle((args, kwargs))  # what it needs is not its own time, but that of the scope around it
        start = self._now_ns()
        self._stack.append(own)
        try:
            out = call(*args, **kwargs)
            self._settle(out)
        finally:
            self._stack.pop()
        self._last_ns = self._now_ns()
        took = self._last_ns - start
        around.inner_ns += took
        span = Span(kind, own.layer, path, around.path, self._run, self._after, start, took - own.inner_ns)
        self.spans.append(span)
        return out

    @staticmethod
    def _settle(values: Any) -> None:
        """Wait until the arrays in these are computed: `mx.eval` returns when the device is done with them."""
        mx.eval(list(_arrays(values)))


def _arrays(values: Any) -> Iterator[mx.array]:
    if isinstance(values, mx.array):
        yield values
    elif isinstance(values, Handle):
        yield from values.batch.store.arrays(values.layer)
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _arrays(value)
    elif isinstance(values, dict):
        for value in values.values():
            yield from _arrays(value)


def _kind_of(module: nn.Module) -> SpanKind | None:
    """What can be said of a module before it is called; None for one without weights."""
    if module.children() and any(part is not module for part in module.modules()):
        return "rest"
    widths = [weights.ndim for weights in _arrays(module.parameters())]
    if any(width >= 2 for width in widths):
        return "linear"
    return "norm" if widths or isinstance(module, NORMS) else None


def _told_positions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a module without weights is told where its tokens stand, as rotary embedding is."""
    more = [*args[1:], *kwargs.values()]
    return any(_is_integer(value) for value in more)


def _all_integers(args: tuple[Any, ...]) -> bool:
    return bool(args) and isinstance(args[0], mx.array) and mx.issubdtype(args[0].dtype, mx.integer)


def _is_integer(value: Any) -> bool:
    if isinstance(value, mx.array):
        return bool(mx.issubdtype(value.dtype, mx.integer))
    return isinstance(value, int) and not isinstance(value, bool)
