"""Which experts a mixture-of-experts layer sends a token to, and how much each one counts (Shazeer et al. 2017).

Experts are found by how they are called: with vectors and, for each, the numbers of the chosen experts; they return one
vector for each of those. What a block then multiplies these by is not known by name: it is the derivative of the
block's output by the experts', for which the block is asked once more, without its experts. Found at load, and believed
only where zero plus experts times weights was what the block gave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.device import mx

import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from engine.structure import FAULTS, PROBE, TOLERANCE
from engine.swap import Around, Call, ClassSwap, given_states, hidden_states


@dataclass(slots=True)
class Experts:
    """The experts of one layer.

    Attributes:
        module: is called with vectors and the numbers of the chosen experts.
        block: the module that calls it, and adds up what it returns; None when the layer itself does.
        of: how many experts there are.
        width: length of the vectors that they return.
        dtype: of those vectors.
        weighed: whether the weights found are those that make the block's output.
    """

    module: nn.Module
    block: nn.Module | None
    of: int
    width: int
    dtype: mx.Dtype
    weighed: bool = False


@dataclass(frozen=True, slots=True)
class Routed:
    """What one layer did with the captured rows. Arrays are lazy.

    Attributes:
        experts: `[rows, chosen]`: numbers of the experts.
        again: `[rows, chosen]`: the same as the weights were found for: rows alone may round otherwise, and two nearly
            equal experts change places. None without weights.
        weights: `[rows, chosen]` float32: what each expert's output was multiplied by.
    """

    experts: mx.array
    again: mx.array | None = None
    weights: mx.array | None = None

    @property
    def arrays(self) -> list[mx.array]:
        """What there is, to be evaluated."""
        return [array for array in (self.experts, self.again, self.weights) if array is not None]


@dataclass(slots=True)
class _Call:
    layer: int
    module: nn.Module
    block: nn.Module | None
    indices: mx.array
    out: mx.array


class ExpertTaps:
    """Taps at a model's experts and around the blocks that call them.

    Put them in after a model's other taps, and take them out before: they wrap whatever class a module has.

    Attributes:
        layers: what was found, by layer; empty in a model without experts.
    """

    def __init__(self, model: nn.Module, layers: list[nn.Module]) -> None:
        self.layers: dict[int, Experts] = {}
        self.rows: list[int] | None = None
        """Rows of the pass under way to note, as indices into its positions; None notes nothing."""
        self.routed: dict[int, Routed] = {}
        """What was noted since `begin`, by layer."""
        self._stand_in: mx.array | None = None
        self._indices: mx.array | None = None
        self._swap = ClassSwap()
        if any(_stacked(layer) for layer in layers):
            self._find(model, layers)

    def begin(self, rows: list[int]) -> None:
        """Note these rows of the pass that follows."""
        self.rows, self.routed = (rows or None), {}

    def end(self) -> dict[int, Routed]:
        """What was noted."""
        self.rows = None
        return self.routed

    def remove(self) -> None:
        """Leave the model as it was found."""
        self._swap.remove()

    def _find(self, model: nn.Module, layers: list[nn.Module]) -> None:
        calls, blocks = _probe(model, layers)
        for layer in {call.layer for call in calls}:
            mine = [call for call in calls if call.layer == layer]
            if len(mine) > 1:  # which of them would be the layer's?
                continue
            call, count = mine[0], _stacked(mine[0].module)
            block = call.block if call.block is not layers[layer] else None
            if count:
                self.layers[layer] = Experts(call.module, block, count, call.out.shape[-1], call.out.dtype)
        for layer, found in self.layers.items():
            self._swap.tap(found.module, self._around_experts(layer))
        for layer, found in self.layers.items():
            if found.block is not None:
                found.weighed = self._confirmed(found, next(call for call in calls if call.layer == layer), blocks)
                self._swap.tap(found.block, self._around_block(layer))

    def _confirmed(self, found: Experts, call: _Call, blocks: dict[int, tuple[Any, ...]]) -> bool:
        """Whether nothing, and each expert's vector times its weight, make what the block gave."""
        args, kwargs, out = blocks[id(found.block)]
        x = given_states(args, kwargs)
        if not isinstance(x, mx.array) or not isinstance(out, mx.array) or x.ndim != 3:
            return False

        def block(*args: Any, **kwargs: Any) -> Any:
            return found.block(*args, **kwargs)  # type: ignore[misc]

        try:
            weights, again = self._weigh(block, found, args, kwargs, list(range(len(PROBE))), call.indices.shape[-1])
            nothing = self._without(block, args, kwargs, mx.zeros(call.out.shape, call.out.dtype))
            mx.eval(weights, again, nothing)
        except FAULTS:
            return False
        if again.size != call.indices.size or not np.array_equal(_host(again).ravel(), _host(call.indices).ravel()):
            return False
        each = _host(call.out).reshape(*weights.shape, -1)
        mixed = (each * _host(weights)[..., None]).sum(1).reshape(out.shape)
        return bool(np.abs(_host(nothing) + mixed - _host(out)).max() <= TOLERANCE * np.abs(_host(out)).max())

    def _around_experts(self, layer: int) -> Around:
        def around(call: Call, x: mx.array, indices: mx.array, *args: Any, **kwargs: Any) -> Any:
            if self._stand_in is not None:
                self._indices = indices
                return self._stand_in.reshape(*indices.shape, self._stand_in.shape[-1])
            if self.rows is not None:
                chosen = indices.reshape(-1, indices.shape[-1])
                # A block may be asked for other rows than the pass has; then nothing is known of them.
                if chosen.shape[0] > max(self.rows):
                    self.routed[layer] = Routed(_some(chosen, self.rows))
            return call(x, indices, *args, **kwargs)

        return around

    def _around_block(self, layer: int) -> Around:
        found = self.layers[layer]

        def around(call: Call, *args: Any, **kwargs: Any) -> Any:
            out = call(*args, **kwargs)
            noted = self.routed.get(layer)
            if self.rows is not None and self._stand_in is None and noted is not None and found.weighed:
                chosen = noted.experts.shape[-1]
                weights, again = self._weigh(call, found, args, kwargs, self.rows, chosen)
                self.routed[layer] = Routed(noted.experts, again, weights)
            return out

        return around

    def _weigh(
        self, block: Call, found: Experts, args: tuple[Any, ...], kwargs: dict[str, Any], rows: list[int], chosen: int
    ) -> tuple[mx.array, mx.array]:
        """The weights `[rows, chosen]` and the experts that they are for.

        Of the block's output only the derivative is evaluated: neither its experts run, nor those that every token has.
        """
        shape = given_states(args, kwargs).shape[:2]
        args = tuple(_alone(arg, shape, rows) for arg in args)
        kwargs = {name: _alone(arg, shape, rows) for name, arg in kwargs.items()}
        given = given_states(args, kwargs)

        def output(stand_in: mx.array) -> mx.array:
            return self._without(block, args, kwargs, stand_in)

        first = mx.zeros(given.shape, found.dtype)
        first[..., 0] = 1
        _, derivatives = mx.vjp(output, [mx.zeros((len(rows), chosen, found.width), found.dtype)], [first])
        assert self._indices is not None
        return derivatives[0][..., 0].astype(mx.float32), self._indices.reshape(-1, chosen)

    def _without(self, block: Call, args: Any, kwargs: Any, stand_in: mx.array) -> mx.array:
        """The block's output with something else in the place of its experts'."""
        self._stand_in = stand_in
        try:
            out: mx.array = hidden_states(block(*args, **kwargs))
        finally:
            self._stand_in = None
        return out


def _probe(model: nn.Module, layers: list[nn.Module]) -> tuple[list[_Call], dict[int, tuple[Any, ...]]]:
    """Calls of experts in a pass of two tokens; by id of the module that made them, what that was given and gave."""
    calls: list[_Call] = []
    blocks: dict[int, tuple[Any, ...]] = {}
    stack: list[nn.Module] = []
    swap = ClassSwap()

    def watch(index: int, module: nn.Module) -> Around:
        def around(call: Call, *args: Any, **kwargs: Any) -> Any:
            stack.append(module)
            try:
                out = call(*args, **kwargs)
            finally:
                stack.pop()
            if _chooses(args, out):
                calls.append(_Call(index, module, stack[-1] if stack else None, args[1], out))
            if any(seen.block is module for seen in calls):
                blocks[id(module)] = (args, kwargs, hidden_states(out))
            return out

        return around

    for index, layer in enumerate(layers):
        for module in layer.modules():
            swap.tap(module, watch(index, module))
    try:
        logits = model(mx.array([PROBE]), cache=make_prompt_cache(model))
        mx.eval(logits)
    finally:
        swap.remove()
    return calls, blocks


def _chooses(args: tuple[Any, ...], out: Any) -> bool:
    """Whether a module was called as experts are: with vectors and whole numbers, giving a vector for each number."""
    if len(args) < 2 or not all(isinstance(array, mx.array) for array in (*args[:2], out)):
        return False
    vectors, numbers = args[:2]
    return mx.issubdtype(numbers.dtype, mx.integer) and vectors.ndim >= 2 and out.shape[:-1] == numbers.shape


def _stacked(module: nn.Module) -> int:
    """How many experts' weights lie in one array of a module; 0 when it has no such array."""
    arrays = dict(tree_flatten(module.parameters())).values()
    return next((weights.shape[0] for weights in arrays if isinstance(weights, mx.array) and weights.ndim == 3), 0)


def _alone(arg: Any, shape: tuple[int, ...], rows: list[int]) -> Any:
    """Of an array with something for each position, those of the rows: `[1, rows, …]`. Anything else as it is."""
    if not isinstance(arg, mx.array) or arg.shape[:2] != shape:
        return arg
    return _some(arg.reshape(-1, *arg.shape[2:]), rows)[None]


def _some(x: mx.array, rows: list[int]) -> mx.array:
    return x if rows == list(range(x.shape[0])) else x[mx.array(rows)]


def _host(x: mx.array) -> np.ndarray:
    return np.array(x if mx.issubdtype(x.dtype, mx.integer) else x.astype(mx.float32))
