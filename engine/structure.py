"""Where things are in a model: found by running two tokens through it and looking, not from a list of names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.device import mx

import mlx.nn as nn
import numpy as np
from mlx_lm.models.cache import make_prompt_cache

from engine.attention import Kernel, attention_replaced
from engine.errors import ModelUnsupported
from engine.swap import Around, ClassSwap, given_states, hidden_states

PROBE = [1, 2]
"""Tokens to look at a model with."""

TOLERANCE = 1e-2
"""How closely input + attention + MLP must meet a layer's output, relative to the largest change: rounding of 16-bit
models passes, a missing term does not."""

FAULTS = (TypeError, ValueError, AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError)
"""What a model's code raises when it is run in a way that it does not know."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The places in a model that taps go to.

    Attributes:
        layers: the decoder layers, in order.
        final_norm: what the residual stream passes after the last layer, before the head; None when it was not found.
        attention_writers: per layer, the module whose output attention (or what mixes tokens in its place, in a
            recurrent layer) adds to the residual; None where not separable.
        mlp_writers: likewise for the MLP, or the experts.
        attending: per layer, whether its attention is one call of the fused kernel, where it can be seen.
        tupled: per layer, how many things it returns in a tuple; 0 when it returns an array.
        stream: whether every layer takes and gives one vector a token: whether there is a residual stream to record.
        heads, kv_heads, head_dim: of the first attending layer; 0 when there is none.
        hidden: width of the residual stream.
    """

    layers: list[nn.Module]
    final_norm: nn.Module | None
    attention_writers: list[nn.Module | None]
    mlp_writers: list[nn.Module | None]
    attending: list[bool]
    tupled: list[int]
    stream: bool
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int


@dataclass(slots=True)
class _Seen:
    """One call of a module."""

    module: nn.Module
    given: Any
    out: Any
    attended: int
    """How often the kernel was called in it."""
    tupled: int


def find_structure(model: nn.Module) -> Structure:
    """Run two tokens through the model and find the places that taps go to. The model is left as it was.

    Raises:
        ModelUnsupported: when the model has no list of layers that a token passes through.
    """
    layers = getattr(model, "layers", None)
    if not isinstance(layers, list) or not layers or not all(isinstance(layer, nn.Module) for layer in layers):
        raise ModelUnsupported(f"{type(model).__name__} has no list of layers to look into; capture needs one")
    return _Probe(model, layers).run()


class _Probe:
    def __init__(self, model: nn.Module, layers: list[nn.Module]) -> None:
        self._model, self._layers = model, layers
        self._calls: list[_Seen] = []
        self._attended = 0
        self._shapes: tuple[int, int, int] | None = None  # heads, kv_heads, head_dim

    def run(self) -> Structure:
        swap = ClassSwap()
        inside = {id(module) for layer in self._layers for module in layer.modules()}
        for layer in self._layers:
            swap.tap(layer, self._watch(layer))
            for child in layer.children().values():
                if isinstance(child, nn.Module):
                    swap.tap(child, self._watch(child))
        for module in self._model.modules():
            if id(module) not in inside and module is not self._model:
                swap.tap(module, self._watch(module))
        try:
            with attention_replaced(self._attend):
                logits = self._model(mx.array([PROBE]), cache=make_prompt_cache(self._model))
            mx.eval(logits, [seen.out for seen in self._calls if isinstance(seen.out, mx.array)])
        finally:
            swap.remove()
        return self._conclude()

    def _watch(self, module: nn.Module) -> Around:
        def around(call: Any, *args: Any, **kwargs: Any) -> Any:
            before = self._attended
            out = call(*args, **kwargs)
            given = given_states(args, kwargs)
            tupled = len(out) if isinstance(out, (tuple, list)) else 0
            self._calls.append(_Seen(module, given, hidden_states(out), self._attended - before, tupled))
            return out

        return around

    def _attend(self, kernel: Kernel, q: mx.array, k: mx.array, v: mx.array, **more: Any) -> mx.array:
        self._attended += 1
        if self._shapes is None:
            self._shapes = (q.shape[1], k.shape[1], q.shape[3])
        return kernel(q, k, v, **more)

    def _conclude(self) -> Structure:
        by_module = {id(seen.module): seen for seen in self._calls}
        # A model may run a layer's parts itself, and never the layer: nothing can be told of it then.
        seen_layers = [by_module.get(id(layer), _Seen(layer, None, None, 0, 0)) for layer in self._layers]
        ran = [seen for seen in self._calls if any(seen.module is layer for layer in self._layers)]
        last = seen_layers[-1].out
        stream = len(ran) == len(self._layers) and all(
            _a_vector_each(seen.given) and _like(seen.out, seen.given) and _like(seen.out, last) for seen in seen_layers
        )
        after = [seen for seen in self._calls if seen.given is last and seen.module not in self._layers]
        pairs = [self._writers(seen) if stream else (None, None) for seen in seen_layers]
        heads, kv_heads, head_dim = self._shapes or (0, 0, 0)
        return Structure(
            layers=self._layers,
            final_norm=after[0].module if after and stream else None,
            attention_writers=[attention for attention, _ in pairs],
            mlp_writers=[mlp for _, mlp in pairs],
            attending=[seen.attended == 1 and len(ran) == len(self._layers) for seen in seen_layers],
            tupled=[seen.tupled for seen in seen_layers],
            stream=stream,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            hidden=last.shape[-1] if isinstance(last, mx.array) else 0,
        )

    def _writers(self, layer: _Seen) -> tuple[nn.Module | None, nn.Module | None]:
        """The two children whose outputs, added to what the layer was given, make what it returned."""
        children = {id(child) for child in layer.module.children().values() if isinstance(child, nn.Module)}
        calls = [seen for seen in self._calls if id(seen.module) in children and _like(seen.out, layer.out)]
        start, end = _numpy(layer.given), _numpy(layer.out)
        tolerance = TOLERANCE * float(np.abs(end - start).max())
        outs = [_numpy(seen.out) for seen in calls]
        for first, attention in enumerate(calls):
            for second in range(first + 1, len(calls)):
                if np.abs(start + outs[first] + outs[second] - end).max() <= tolerance:
                    mlp = calls[second]
                    if mlp.attended and not attention.attended:  # side by side, and the MLP was run first
                        attention, mlp = mlp, attention
                    return attention.module, mlp.module
        return None, None


def _like(a: Any, b: Any) -> bool:
    return isinstance(a, mx.array) and isinstance(b, mx.array) and a.shape == b.shape


def _a_vector_each(x: Any) -> bool:
    return isinstance(x, mx.array) and x.ndim == 3 and x.shape[:2] == (1, len(PROBE))


def _numpy(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32))
