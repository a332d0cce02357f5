"""Attention for rows of different lengths, each over its own keys: no padding, no mask but the causal one.

Rows go through the kernel one by one; decoding rows whose keys lie evenly apart go together (`engine.kv.even`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.device import mx, views_are_free

from engine.attention import Kernel, Softmax, attention_scores, pieces_of
from engine.composed import attention_and_weights, made_like_the_kernel
from engine.kv.even import EvenRows
from engine.kv.store import Handle, KVStore, LayerView, RowSpan
from engine.proof import Evidence


@dataclass(frozen=True, slots=True)
class Seen:
    """What is captured of one call of the kernel.

    Attributes:
        pieces: scores or weights, `[rows, heads, wanted, keys]` in float32, heads perhaps in two axes: of one span, in
            pieces of its wanted positions, or of a group, whose longest row has more keys.
        softmax: what turns scores into weights; None where they are.
    """

    pieces: list[mx.array]
    softmax: Softmax | None


class RaggedBatch:
    """The spans of one step over a store.

    Attributes:
        tokens: N, how many positions the step computes.
        seen: per layer and call, what is captured of the attention.
        places: by index of the span, which of a layer's calls it is in, and which of the call's rows it is.
        tested: the layer of which a row is to be tested; None for none.
        evidence: by index of the span, what the kernel read and gave for the tested row.
    """

    def __init__(self, store: KVStore, spans: list[RowSpan], tested: int | None = None) -> None:
        self.store = store
        self.tested = tested
        self.evidence: dict[int, Evidence] = {}
        self.spans = spans
        self.tokens = sum(span.length for span in spans)
        self.seen: dict[int, dict[int, Seen]] = {}
        self._offset = mx.array([position for span in spans for position in range(span.start, span.stop)])
        # Grouping must not look at what is captured: the result would then depend on who watches.
        groups = store.even(spans) if views_are_free() else []
        grouped = {index for group in groups for index in group.members}
        self._groups = [_Group(group, spans) for group in groups]
        self._alone = [index for index in range(len(spans)) if index not in grouped]
        calls = [*[group.members for group in groups], *[[index] for index in self._alone]]
        self.places = {index: (call, row) for call, members in enumerate(calls) for row, index in enumerate(members)}
        order = [spans[index].first for group in groups for index in group.members]
        for index in self._alone:
            order += range(spans[index].first, spans[index].first + spans[index].length)
        self._back = None if order == sorted(order) else mx.array(_inverse(order))

    def views(self, layers: int) -> list[LayerView]:
        """The cache that the model is given: one view a layer."""
        return [LayerView(self, layer, self._offset) for layer in range(layers)]

    def attend(self, kernel: Kernel, q: mx.array, handle: Handle, scale: float, mask: Any, **more: Any) -> mx.array:
        """The attention output of all rows, `[N, heads, 1, head_dim]`.

        Args:
            q: `[N, heads, 1, head_dim]`, after RoPE.
            handle: says which layer's keys and values.
        """
        if mask is not None:
            raise NotImplementedError(f"a flat batch cannot carry the mask that layer {handle.layer} was given")
        layer = handle.layer
        outs = [self._attend_group(kernel, q, layer, group, scale, more) for group in self._groups]
        outs += [self._attend_span(kernel, q, layer, index, scale, more) for index in self._alone]
        out = outs[0] if len(outs) == 1 else mx.concatenate(outs)
        return out if self._back is None else out[self._back]

    def _attend_group(
        self, kernel: Kernel, q: mx.array, layer: int, group: _Group, scale: float, more: dict[str, Any]
    ) -> mx.array:
        keys, values = self.store.read_even(layer, group.rows)
        queries = q if group.tokens is None else q[group.tokens]  # [rows, heads, 1, head_dim]
        watched = [index for index in group.rows.members if self.spans[index].wanted]
        if not watched:
            return kernel(queries, keys, values, scale=scale, mask=group.mask, **more)
        out = self._watched(
            kernel, layer, self.places[watched[0]][0], [0], queries, keys, values, scale, group.mask, more
        )
        if layer == self.tested and not self.evidence:
            index = watched[0]
            row = self.places[index][1]
            self.evidence[index] = Evidence.of(layer, 0, values[row, :, : self.spans[index].stop], out[row, :, 0])
        return out

    def _attend_span(
        self, kernel: Kernel, q: mx.array, layer: int, index: int, scale: float, more: dict[str, Any]
    ) -> mx.array:
        span = self.spans[index]
        keys, values = self.store.read(layer, span)
        rows = q[span.first : span.first + span.length]  # [L, heads, 1, head_dim]
        queries = rows if span.length == 1 else rows.swapaxes(0, 2)  # [1, heads, L, head_dim]
        mask = None if span.length == 1 else "causal"
        if span.wanted:
            out = self._watched(
                kernel, layer, self.places[index][0], span.wanted, queries, keys, values, scale, mask, more
            )
        else:
            out = kernel(queries, keys, values, scale=scale, mask=mask, **more)
        if span.wanted and layer == self.tested and not self.evidence:
            last = len(span.wanted) - 1
            self.evidence[index] = Evidence.of(layer, last, values[0], out[0, :, span.wanted[last]])
        return out if span.length == 1 else out.swapaxes(0, 2)

    def _watched(
        self,
        kernel: Kernel,
        layer: int,
        call: int,
        wanted: list[int],
        q: mx.array,
        k: mx.array,
        v: mx.array,
        scale: float,
        mask: mx.array | str | None,
        more: dict[str, Any],
    ) -> mx.array:
        """The attention output of rows that go together, `[rows, heads, L, head_dim]`, and note what is captured of it.

        Args:
            call: which of the layer's calls it is.
            wanted: which of each span's L positions are captured.
        """
        (rows, heads, length, width), kv_heads = q.shape, k.shape[1]
        softmax: Softmax | None = None
        # Weights of a long prompt would all be there at once, layer upon layer: its scores are made in pieces.
        if (
            (length == 1 or len(pieces_of(list(range(length)), rows * heads, k.shape[2])) == 1)
            and all(value is None for value in more.values())
            and made_like_the_kernel(kernel, heads, kv_heads, width, q.dtype)
        ):
            out, weights = attention_and_weights(q, k, v, scale, mask)
            some = weights if len(wanted) == length else mx.take(weights, mx.array(wanted), axis=-2)
            seen = [some.astype(mx.float32)]
        else:
            sinks = more.get("sinks")
            softmax = Softmax(scale, None if sinks is None else sinks.astype(mx.float32))
            seen = [attention_scores(q, k, piece) for piece in pieces_of(wanted, heads, k.shape[2])]
            out = kernel(q, k, v, scale=scale, mask=mask, **more)
        self.seen.setdefault(layer, {})[call] = Seen(seen, softmax)
        return out


class _Group:
    """Even rows, with what all layers need of them.

    Attributes:
        tokens: their places in the flat list of tokens; None when they are all of it, in order.
        mask: `[rows, 1, 1, keys]`, true for a row's own keys; None when all rows have as many.
    """

    def __init__(self, rows: EvenRows, spans: list[RowSpan]) -> None:
        members = [spans[index] for index in rows.members]
        places = [span.first for span in members]
        whole = places == list(range(sum(span.length for span in spans)))
        self.rows = rows
        self.tokens = None if whole else mx.array(places)
        self.mask: mx.array | None = None
        if any(span.stop < rows.keys for span in members):
            stops = mx.array([span.stop for span in members])
            self.mask = (mx.arange(rows.keys) < stops[:, None])[:, None, None]


def _inverse(order: list[int]) -> list[int]:
    """Where each number is in `order`."""
    places = [0] * len(order)
    for place, number in enumerate(order):
        places[number] = place
    return places
