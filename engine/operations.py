"""What the timed parts of a pass are called, decided by where they ran: before attention, after it, or elsewhere.

No list of modules' names: a projection in the module around the attention kernel is one for queries, keys and values if
it ran before the kernel, and the output's if it ran after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from engine.events import Kernel
from engine.stopwatch import Span
from engine.structure import Structure

Writers = list[tuple[str | None, str | None]]
"""Per layer, the paths of the modules that write what attention, or what takes its place, and the MLP add."""

_ITSELF = {"norm", "rope", "kv_write", "attention", "choice", "capture"}


def writers(structure: Structure) -> Writers:
    """Where the two writers of each layer are in it; None where they were not found."""
    found: Writers = []
    for layer, *pair in zip(structure.layers, structure.attention_writers, structure.mlp_writers, strict=True):
        paths = {id(module): path for path, module in layer.named_modules()}
        attention, mlp = (None if module is None else paths.get(id(module)) for module in pair)
        found.append((attention, mlp))
    return found


def kernels(step: int, spans: list[Span], where: Writers, requests: Sequence[str | None]) -> list[Kernel]:
    """The events of a step's spans, in the order in which they began.

    Args:
        step: number of the step.
        where: of the model's layers.
        requests: per pass, the request that it was for; None where all rows shared it.
    """
    visits: dict[tuple[int, int | None], list[Span]] = defaultdict(list)
    for span in spans:
        visits[span.run, span.layer].append(span)
    events = []
    for (_, layer), together in visits.items():
        parts = None if layer is None else _Parts(together, *where[layer])
        for span in together:
            operation = _outside(span) if parts is None else parts.operation(span)
            events.append(_event(step, span, operation, requests))
    return sorted(events, key=lambda event: event.start_ns)


def _event(step: int, span: Span, operation: str, requests: Sequence[str | None]) -> Kernel:
    return Kernel(
        step=step,
        layer=span.layer,
        operation=operation,
        module=span.path or None,
        request=requests[span.run] if span.run < len(requests) else None,
        start_ns=span.start_ns,
        duration_ns=span.duration_ns,
        timing="barriers",
    )


def _outside(span: Span) -> str:
    if span.kind == "lookup":
        return "embedding"
    if span.kind in _ITSELF:
        return span.kind
    if span.after or span.kind == "tail":
        return "head"
    return "linear" if span.kind == "linear" else "other"


class _Parts:
    """The parts of one visit to a layer.

    Args:
        spans: all that was timed in it.
        attention, mlp: paths of the layer's writers.
    """

    def __init__(self, spans: list[Span], attention: str | None, mlp: str | None) -> None:
        attended = [span for span in spans if span.kind == "attention"]
        cached = [span for span in spans if span.kind == "kv_write"]
        self._fused = bool(attended)
        self._calls = attended or cached
        """Where tokens meet: the kernel, or the cache of a layer that computes attention without it."""
        self._around = self._calls[0].scope if self._calls else attention
        self._mlps = {mlp} - {None}
        children = {_child(span.path) for span in spans if span.kind == "linear"} - {""}
        others = children - {_child(self._around or "")}
        if self._around and len(others) == 1:  # attention, and one other child that multiplies matrices
            self._mlps |= others

    def operation(self, span: Span) -> str:
        """The name of one of the spans."""
        if span.kind in _ITSELF:
            return span.kind
        if any(_in(span.path, mlp) for mlp in self._mlps if mlp is not None):
            return "mlp"
        if self._around is None or not _in(span.path, self._around):
            return "linear" if span.kind in ("linear", "lookup") else "other"
        if span.kind == "linear" and self._calls:
            if span.start_ns < self._calls[0].start_ns:
                return "qkv_projection"
            if span.start_ns > self._calls[-1].start_ns:
                return "output_projection"
        return "other" if self._fused else "mixer"


def _child(path: str) -> str:
    return path.partition(".")[0]


def _in(path: str, module: str) -> bool:
    """Whether a path is a module's, or of something in it. The layer itself, "", holds all."""
    return module == "" or path == module or path.startswith(module + ".")
