"""Reading a model from the inside, pass by pass, without changing its code or its output.

Layers, the modules that write to the residual stream, and the final norm are tapped by swapping their instances'
classes (`engine.swap`); attention is seen at the fused kernel (`engine.attention`). A pass is run with a `Tape` that
says which rows are wanted; what it left is lazy and is evaluated with the pass itself.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from engine.device import has_rope_kernel, mx, weights_are_repacked

import mlx.nn as nn
import numpy as np
from mlx_lm.models.cache import make_prompt_cache

from engine.attention import Kernel, attention_replaced, attention_rows, pieces_of
from engine.doubled_rows import DoubledRows
from engine.errors import ModelUnsupported
from engine.experts import ExpertTaps, Routed
from engine.keys import KeyPositions
from engine.kv.store import Handle
from engine.proof import Evidence
from engine.rotations import rotations_shared
from engine.structure import FAULTS, PROBE, TOLERANCE, find_structure
from engine.swap import Around, Call, ClassSwap, given_states, hidden_states
from engine.wide_head import WideHead


@dataclass(frozen=True, slots=True)
class Replay:
    """What layers are given again.

    Attributes:
        residual: `[layers, hidden]`: what each layer was given at one position.
        head_out: per layer `[rows, heads, head_dim]`: what its heads are to have given, one variation a row.
        decoding: whether rows are given as requests that decode, `[rows, 1]`, and not as one prompt, `[1, rows]`: some
            models compute the one otherwise than the other.
    """

    residual: mx.array
    head_out: dict[int, mx.array]
    decoding: bool

    def shape(self, rows: int) -> tuple[int, int]:
        return (rows, 1) if self.decoding else (1, rows)

    def given(self, layer: int) -> mx.array:
        """The same for each row: `[1, rows, hidden]`, or `[rows, 1, hidden]`."""
        shape = (*self.shape(len(self.head_out[layer])), self.residual.shape[-1])
        return mx.broadcast_to(self.residual[layer], shape)

    def kernel(self, layer: int, dtype: mx.Dtype) -> mx.array:
        """What stands for the kernel's output: `[1, heads, rows, head_dim]`, or `[rows, heads, 1, head_dim]`."""
        out = self.head_out[layer].astype(dtype)
        return out[:, :, None] if self.decoding else out.swapaxes(0, 1)[None]


@dataclass(slots=True)
class Tape:
    """What one forward pass is asked for, and what it left. All arrays are lazy until evaluated."""

    rows: list[int] = field(default_factory=list)
    """Rows to capture, as indices into the pass's positions; empty captures nothing."""
    logit_rows: list[int] | None = None
    """Rows to compute logits for; None computes all."""
    flat: bool = False
    """True when the pass runs `[N, 1]` tokens, N rows of one position each, and not `[1, L]`."""
    inject: mx.array | None = None
    """`[1, L, hidden]` to run through final norm and head in the layers' place: the logit lens."""
    normed: mx.array | None = None
    """`[1, L, hidden]` to run through the head in the final norm's place, with `inject` before it."""
    replay: Replay | None = None
    """Runs each layer's attention on what is given here, in the place of a pass."""
    keys: KeyPositions | None = None
    """Watches the caches of the pass, so that attention can be told by position; None leaves keys as the cache has
    them."""
    residual: list[mx.array] = field(default_factory=list)
    """`[rows, hidden]` each, of a flat batch perhaps `[rows, 1, hidden]`: the embedding, then after each layer; empty
    when the model has no residual stream."""
    attention_out: dict[int, mx.array] = field(default_factory=dict)
    """Likewise, per layer: what attention added to the residual stream."""
    mlp_out: dict[int, mx.array] = field(default_factory=dict)
    """Likewise, per layer: what the MLP added."""
    head_out: dict[int, mx.array] = field(default_factory=dict)
    """Per layer `[rows, heads, head_dim]`, of a flat batch `[rows, heads, 1, head_dim]`: what each head gave to the
    output projection."""
    attention: dict[int, list[mx.array]] = field(default_factory=dict)
    """Per layer `[heads, rows, keys]`: attention probabilities, float32, in pieces of the rows; a layer is missing
    where they are not one call of the kernel, or the places of its keys not known. (A flat batch keeps its own, by
    request.)"""
    experts: dict[int, Routed] = field(default_factory=dict)
    """Per layer with experts: which of them its rows went to."""
    tested: int | None = None
    """The layer of which a captured row is to be tested, where its attention is seen."""
    evidence: Evidence | None = None
    """What the kernel read and gave for that row."""
    attended: dict[int, int] = field(default_factory=dict)
    """Per layer: how often it called the kernel."""
    length: int = 0
    """How many positions the pass has."""


class Taps:
    """The taps in one model: one pass at a time, on the thread that made them.

    Raises:
        ModelUnsupported: when the model has no list of layers that a token passes through.

    Attributes:
        lens_possible: whether the last layer's residual, read through the lens, gives the model's own logits. If it
            does not, what the lens says of the other layers is worth nothing.
        experts: the layers that have experts, and how far their choices can be told.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.structure = find_structure(model)
        self._tape: Tape | None = None
        self._layer: int | None = None
        # Before the taps, which are to see what the model's own modules would have been given.
        self._faster = (WideHead(model), DoubledRows(self.structure.mlp_writers)) if weights_are_repacked() else ()
        self._swap = ClassSwap()
        for index, layer in enumerate(self.structure.layers):
            self._swap.tap(layer, self._around_layer(index))
        for index, writer in enumerate(self.structure.attention_writers):
            if writer is not None:
                self._swap.tap(writer, self._around_writer(index, "attention_out"))
        for index, writer in enumerate(self.structure.mlp_writers):
            if writer is not None:
                self._swap.tap(writer, self._around_writer(index, "mlp_out"))
        if self.structure.final_norm is not None:
            self._swap.tap(self.structure.final_norm, self._around_final_norm)
        self.experts = ExpertTaps(model, self.structure.layers)
        self.lens_possible = False
        self._try()

    def remove(self) -> None:
        """Leave the model exactly as it was found."""
        self.experts.remove()
        self._swap.remove()
        for faster in self._faster:
            faster.remove()

    def forward(self, tokens: mx.array, cache: list[Any] | None, tape: Tape) -> mx.array:
        """Run the model with a tape.

        Args:
            tokens: `[1, L]` token ids; `[N, 1]` for a flat batch.
            cache: one cache a layer, as mlx-lm makes them, or a flat batch's views; None for a pass that nothing
                follows.
            tape: what to capture.

        Returns:
            Logits `[rows, vocab]` for the tape's logit rows, lazy.
        """
        self._tape, self._layer = tape, None
        tape.length = tokens.size
        self.experts.begin(tape.rows)
        try:
            with (
                attention_replaced(self._attend) if tape.rows or tape.flat else nullcontext(),
                rotations_shared() if tape.flat and not has_rope_kernel() else nullcontext(),
            ):
                logits: mx.array = self.model(tokens, cache=cache)
        finally:
            self._tape = None
            tape.experts = self.experts.end()
        logits = logits.reshape(-1, logits.shape[-1])
        if tape.logit_rows is not None and self.structure.final_norm is None:
            logits = logits[mx.array(tape.logit_rows)]
        return logits

    def lens(self, residual: mx.array) -> mx.array:
        """Read residual vectors as if the model ended there: its own final norm and head, whatever they do.

        The layers are passed by, so that scaling, soft caps and tied heads are the model's own
        (logit lens, nostalgebraist 2020).

        Args:
            residual: `[rows, hidden]`.

        Returns:
            Logits `[rows, vocab]`, lazy.

        Raises:
            ModelUnsupported: when this model's residual cannot be read so (`lens_possible`).
        """
        if not self.lens_possible:
            raise ModelUnsupported(
                f"{type(self.model).__module__} does more after its last layer than a lens can repeat: it has no lens"
            )
        return self._lens(residual)

    def head(self, normed: mx.array) -> mx.array:
        """What the model makes of its final norm's result.

        Args:
            normed: `[rows, hidden]`; differentiable.

        Returns:
            Logits `[rows, vocab]`, lazy.
        """
        tokens = mx.zeros((1, normed.shape[0]), dtype=mx.int32)
        return self.forward(tokens, None, Tape(inject=normed[None], normed=normed[None]))

    def attention_out(
        self, residual: mx.array, head_out: dict[int, mx.array], *, decoding: bool
    ) -> dict[int, mx.array]:
        """What attention would have added to the residual stream, had its heads given this.

        Each layer is called with what it was given, and its kernel's result replaced; what is computed of it is what
        comes after the kernel: gates, output projection, norms.

        Args:
            residual: `[layers, hidden]`: what each layer was given at one position.
            head_out: by layer `[rows, heads, head_dim]`, as many rows in each.
            decoding: whether they were computed in a pass of one token.

        Returns:
            By layer `[rows, hidden]`, lazy; layers are missing whose attention is not told apart from the MLP.
        """
        rows = len(next(iter(head_out.values())))
        replay = Replay(residual, head_out, decoding)
        tape = Tape(rows=list(range(rows)), replay=replay)
        self.forward(mx.zeros(replay.shape(rows), dtype=mx.int32), make_prompt_cache(self.model), tape)
        return {layer: tape.attention_out[layer] for layer in head_out if layer in tape.attention_out}

    def _lens(self, residual: mx.array) -> mx.array:
        tokens = mx.zeros((1, residual.shape[0]), dtype=mx.int32)
        return self.forward(tokens, None, Tape(inject=residual[None]))

    def _try(self) -> None:
        """Find out what does not go well in this model, and leave it: a head for single rows, the lens."""
        if not self.structure.stream:
            return
        tape = Tape(rows=list(range(len(PROBE))))
        whole = _host(self._probe(tape))
        last = len(PROBE) - 1
        allowed = TOLERANCE * float(np.abs(whole).max())
        try:
            row = _host(self._probe(Tape(logit_rows=[last])))
            cut = row.shape == (1, whole.shape[1]) and bool(np.abs(row[0] - whole[last]).max() <= allowed)
        except FAULTS:
            cut = False
        if not cut:
            self.structure = replace(self.structure, final_norm=None)
        try:
            read = _host(self._lens(tape.residual[-1]))
        except FAULTS:
            return
        self.lens_possible = read.shape == whole.shape and bool(np.abs(read - whole).max() <= allowed)

    def _probe(self, tape: Tape) -> mx.array:
        return self.forward(mx.array([PROBE]), make_prompt_cache(self.model), tape)

    def _around_layer(self, index: int) -> Around:
        tupled = self.structure.tupled[index]

        def around(call: Call, *args: Any, **kwargs: Any) -> Any:
            tape = self._tape
            if tape is None or (not tape.rows and tape.inject is None):
                return call(*args, **kwargs)
            if tape.inject is not None:
                return (tape.inject, *[None] * (tupled - 1)) if tupled else tape.inject
            if tape.replay is not None:
                return self._replay(index, tape.replay, call, args, kwargs)
            self._layer = index
            if tape.keys is not None:
                tape.keys.layer()
            if index == 0 and self.structure.stream:
                tape.residual.append(_rows(given_states(args, kwargs), tape))
            out = call(*args, **kwargs)
            if self.structure.stream:
                tape.residual.append(_rows(hidden_states(out), tape))
            self._layer = None
            return out

        return around

    def _replay(self, index: int, replay: Replay, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a layer with what it was given before; the next gets what this one was called with."""
        instead = given_states(args, kwargs)
        if index in replay.head_out:
            self._layer = index
            given = replay.given(index).astype(instead.dtype)
            if args:
                call(given, *args[1:], **kwargs)
            else:
                call(**{name: given if value is instead else value for name, value in kwargs.items()})
            self._layer = None
        tupled = self.structure.tupled[index]
        return (instead, *[None] * (tupled - 1)) if tupled else instead

    def _around_writer(self, index: int, target: str) -> Around:
        def around(call: Call, *args: Any, **kwargs: Any) -> Any:
            out = call(*args, **kwargs)
            if self._tape is not None and self._tape.rows:
                getattr(self._tape, target)[index] = _rows(hidden_states(out), self._tape)
            return out

        return around

    def _around_final_norm(self, call: Call, x: mx.array, *args: Any, **kwargs: Any) -> Any:
        tape = self._tape
        if self.structure.final_norm is None:  # it was found that single rows do not go well here
            return call(x, *args, **kwargs)
        if tape is not None and tape.normed is not None:
            return tape.normed
        if tape is not None and tape.logit_rows is not None and len(tape.logit_rows) < x.shape[0] * x.shape[1]:
            # The head then computes the wanted rows alone: of a prompt's 256 rows of logits, one is needed.
            rows = mx.array(tape.logit_rows)
            x = x[rows] if tape.flat else x[:, rows]
        return call(x, *args, **kwargs)

    def _attend(
        self,
        kernel: Kernel,
        q: mx.array,
        k: mx.array | Handle,
        v: mx.array | Handle,
        *,
        scale: float,
        mask: mx.array | str | None = None,
        **more: Any,
    ) -> mx.array:
        if isinstance(k, Handle) or isinstance(v, Handle):
            assert isinstance(k, Handle), "a flat batch stands in for keys and values alike"
            out: mx.array = k.batch.attend(kernel, q, k, scale, mask, **more)
            if self._tape is not None and self._tape.rows and self._layer is not None:
                self._tape.head_out[self._layer] = _rows_of_heads(out, self._tape.rows)
            return out
        tape = self._tape
        if tape is not None and tape.replay is not None:
            assert self._layer is not None, "only layers that are given something are run"
            return tape.replay.kernel(self._layer, q.dtype)
        if tape is not None and tape.rows and self._layer is not None and self._only_one(tape, self._layer, q):
            ordered, told = True, []
            for piece in pieces_of(tape.rows, q.shape[1], k.shape[2]):
                seen = attention_rows(q, k, scale, mask, more.get("sinks"), piece)[0]
                rows = seen if tape.keys is None else tape.keys.in_order(k, v, seen)
                ordered &= rows is seen
                if rows is not None:
                    told.append(rows)
            if told:
                tape.attention[self._layer] = told
            out = kernel(q, k, v, scale=scale, mask=mask, **more)
            tape.head_out[self._layer] = _rows_of_heads(out[0].swapaxes(0, 1), tape.rows)
            if self._layer == tape.tested and ordered:  # values in another order would need the same order
                tape.evidence = Evidence.of(self._layer, len(tape.rows) - 1, v[0], out[0, :, tape.rows[-1]])
            return out
        return kernel(q, k, v, scale=scale, mask=mask, **more)

    @staticmethod
    def _only_one(tape: Tape, layer: int, q: mx.array) -> bool:
        """Whether this is the layer's first call of the kernel, and for the pass's own tokens.

        A second call makes both worthless: which of them would be the layer's attention?
        """
        tape.attended[layer] = tape.attended.get(layer, 0) + 1
        if tape.attended[layer] > 1:
            tape.attention.pop(layer, None)
            tape.head_out.pop(layer, None)
            return False
        return q.shape[0] == 1 and q.shape[2] == tape.length


def _rows(x: mx.array, tape: Tape) -> mx.array:
    """`[1, L, hidden]` or `[N, 1, hidden]` → `[rows, hidden]`; all rows of the latter are left as they are."""
    rows = tape.rows
    if tape.flat and len(rows) == x.shape[0]:  # a view would be one more operation in each layer
        return x
    flat = x.reshape(-1, x.shape[-1])
    return flat if len(rows) == flat.shape[0] else flat[mx.array(rows)]


def _rows_of_heads(out: mx.array, rows: list[int]) -> mx.array:
    """`[L, heads, …, head_dim]` → `[rows, heads, …, head_dim]`."""
    return out if len(rows) == out.shape[0] else out[mx.array(rows)]


def _host(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32))
