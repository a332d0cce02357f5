"""Direct logit attribution: what each part of the model added to one token's logit (Elhage et al. 2021).

The residual stream is a sum: the embedding, and what attention and MLP of each layer wrote. A final RMSNorm (or
LayerNorm) with its scale held fixed is linear, and so is the head; so the logit is a sum too, one term a part. Norm and
head are not known by name: the norm is found by giving it two vectors, a row of the head by asking for its gradient,
and what was found must reproduce what the model says, at every position, or nothing is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from engine.device import mx

import numpy as np

from engine.codec import DTYPE_NAMES
from engine.errors import ModelUnsupported
from engine.events import Absent, Attribution
from engine.residuals import Kept
from engine.structure import FAULTS, TOLERANCE
from engine.taps import Taps

_LARGE = 64.0
"""Of the vectors that a norm is given: its ε must vanish beside their mean square."""

_SATURATED = 1e4
"""Logits this large are beyond every soft cap in use (15 to 50), which then gives its cap."""


@dataclass(frozen=True, slots=True)
class Norm:
    """A final norm in numbers: `scale(x) · weight ⊙ (x − mean(x) if centred) + bias`. Vectors are `[hidden]`."""

    weight: np.ndarray
    bias: np.ndarray
    centred: bool

    def linear(self, x: np.ndarray) -> np.ndarray:
        """The norm without scale and bias, over the last axis."""
        out: np.ndarray = self.weight * (x - x.mean(-1, keepdims=True) if self.centred else x)
        return out


@dataclass(frozen=True, slots=True)
class Head:
    """One token's logit as a function of the normed residual y: `row · y + bias`."""

    row: np.ndarray
    bias: float


class Readout:
    """How one model gets from its residual stream to logits. Use it on the thread of its taps.

    Args:
        taps: in the model.
    """

    def __init__(self, taps: Taps) -> None:
        self.taps = taps

    @cached_property
    def unsupported(self) -> str | None:
        """Why nothing can be attributed in this model; None when it can."""
        if not self.taps.lens_possible:
            return "after its last layer this model does more than can be repeated from the residual alone"
        if self.taps.structure.final_norm is None:
            return "no final norm was found between this model's last layer and its head"
        try:
            norm = self.norm
        except FAULTS as error:
            return f"this model's final norm cannot be asked for its weights ({type(error).__name__})"
        if norm.weight.shape != (self.taps.structure.hidden,) or not np.isfinite(norm.weight).all():
            return "what follows this model's last layer is no RMSNorm or LayerNorm"
        try:
            head = self.head(0)
        except FAULTS as error:
            return f"this model's head has no gradient to take a row of it from ({type(error).__name__})"
        return None if np.isfinite(head.row).all() else "this model's head is not finite at the origin"

    @cached_property
    def norm(self) -> Norm:
        """The final norm's weight and bias, from what it makes of vectors with the same number everywhere, ± ."""
        hidden = self.taps.structure.hidden
        signs = np.where(np.arange(hidden) % 2 == 0, 1.0, -1.0).astype(np.float32)
        given = np.stack([signs, -signs, np.ones(hidden, np.float32)]) * np.float32(_LARGE)
        plus, minus, even = self._normed(given)
        bias = (plus + minus) / 2
        weight = (plus - minus) / 2 * signs
        # A LayerNorm takes the mean away, and of a constant vector nothing is left.
        centred = bool(np.abs(even - bias).max() <= TOLERANCE * np.abs(weight).max())
        return Norm(weight, bias, centred)

    @cached_property
    def soft_cap(self) -> float | None:
        """c where the model says c · tanh(logit / c); None where it says the logit."""
        row = self.head(0)
        length = float(row.row @ row.row)
        if length == 0:
            return None
        y = row.row * (_SATURATED / length)  # logit of token 0: _SATURATED, without a cap
        said = abs(float(self._said(y)[0]))
        return None if said > _SATURATED / 2 else said

    def head(self, token: int) -> Head:
        """The row of the head for one token, as the gradient of its logit where y is 0: there a soft cap is flat."""

        def logit(y: mx.array) -> mx.array:
            return self.taps.head(y[None])[0, token].astype(mx.float32)

        value, row = mx.value_and_grad(logit)(mx.zeros((self.taps.structure.hidden,), dtype=mx.float32))
        return Head(np.array(row).astype(np.float64), float(value))

    def read(self, residual: np.ndarray, token: int) -> tuple[np.ndarray, float, float]:
        """A token's logit at a position as a linear function of what was written to the residual stream.

        Args:
            residual: `[hidden]`, after the last layer.
            token: whose logit.

        Returns:
            The gradient `[hidden]` by which a part counts, the part that norm and head add whatever they are given, and
            the logit that the model says (after its soft cap).

        Raises:
            ModelUnsupported: when the residual holds what is no number, or the model's own norm and head say otherwise
                than the linear function.
        """
        if self.unsupported is not None:
            raise ModelUnsupported(self.unsupported)
        if not np.isfinite(residual).all():
            raise ModelUnsupported(
                "the residual after the last layer holds NaN or infinity here, which no parts add up to"
            )
        x, norm = residual.astype(np.float64), self.norm
        normed = self._normed(residual[None].astype(np.float32))[0]
        direction = norm.linear(x)
        scale = float((normed - norm.bias) @ direction / (direction @ direction or 1.0))
        if not np.abs(scale * direction + norm.bias - normed).max() <= TOLERANCE * np.abs(normed).max():
            raise ModelUnsupported("what follows this model's last layer is no RMSNorm or LayerNorm")
        head = self.head(token)
        gradient = scale * norm.weight * head.row
        if norm.centred:
            gradient -= gradient.mean()
        constant = float(norm.bias @ head.row) + head.bias
        logits = self._said(normed)
        said = float(logits[token])
        if not abs(self.capped(float(gradient @ x) + constant) - said) <= TOLERANCE * float(np.abs(logits).max()):
            raise ModelUnsupported("this model's head is not linear, nor linear with a soft cap (c · tanh(x / c))")
        return gradient, constant, said

    def heads(self, kept: Kept, gradient: np.ndarray) -> tuple[dict[int, tuple[list[float], float]], str | None]:
        """By layer: what each head's share of attention's output counts, and what the projection's bias does.

        A layer is missing where the heads' outputs were not kept, or where what attention adds is no sum over heads
        (such as one that is normed first): that is tried, on this very position. Why, is said in words.
        """
        if kept.attention_out is None:
            return {}, "attention cannot be told from the MLP in this model"
        if not kept.head_out:
            return (
                {},
                "what each head gave was not kept: it is where the capture plan asks for attribution (level full)",
            )
        counted: dict[int, tuple[list[float], float]] = {}
        for decoding in (False, True):  # which of them it was is not kept; at most one gives what was recorded
            left = {layer: out for layer, out in kept.head_out.items() if layer not in counted}
            counted |= self._heads(kept.residual, left, kept.attention_out, gradient, decoding) if left else {}
        missing = sorted(set(range(len(kept.attention_out))) - set(counted))
        listed = ", ".join(map(str, missing))
        return counted, f"in layers {listed} what attention adds is not known as a sum over heads" if missing else None

    def _heads(
        self,
        residual: np.ndarray,
        head_out: dict[int, np.ndarray],
        attention_out: np.ndarray,
        gradient: np.ndarray,
        decoding: bool,
    ) -> dict[int, tuple[list[float], float]]:
        """As `heads`, of the layers where one way of running them gives what was recorded."""
        alone = {layer: mx.array(_one_by_one(out)) for layer, out in head_out.items()}
        try:
            found = self.taps.attention_out(mx.array(residual[:-1].astype(np.float32)), alone, decoding=decoding)
            outs = {layer: np.array(out.astype(mx.float32)).astype(np.float64) for layer, out in found.items()}
        except FAULTS:
            return {}
        counted = {}
        for layer, out in outs.items():  # [heads + 1, hidden]
            parts, nothing = out[:-1] - out[-1], out[-1]
            recorded = attention_out[layer].astype(np.float64)
            if np.abs(parts.sum(0) + nothing - recorded).max() <= TOLERANCE * np.abs(recorded).max():
                counted[layer] = ((parts @ gradient).tolist(), float(nothing @ gradient))
        return counted

    def capped(self, logit: float) -> float:
        """What the model says for a logit."""
        cap = self.soft_cap
        return logit if cap is None else cap * float(np.tanh(logit / cap))

    def uncapped(self, said: float) -> float:
        """The logit for which the model says this."""
        cap = self.soft_cap
        return said if cap is None else cap * float(np.arctanh(np.clip(said / cap, -1, 1)))

    def _normed(self, x: np.ndarray) -> np.ndarray:
        norm = self.taps.structure.final_norm
        assert norm is not None
        out: np.ndarray = np.array(norm(mx.array(x)[None])[0].astype(mx.float32)).astype(np.float64)
        return out

    def _said(self, normed: np.ndarray) -> np.ndarray:
        logits = self.taps.head(mx.array(normed.astype(np.float32))[None])
        return np.array(logits[0].astype(mx.float32)).astype(np.float64)


def attribution_event(
    readout: Readout,
    kept: Kept,
    *,
    request: str,
    position: int,
    target: int,
    how: Literal["live", "baked"],
    heads: bool = False,
) -> Attribution:
    """Split the target's logit at one position into what each part of the model added to it.

    Args:
        readout: of the model that recorded it.
        kept: what the pass left. Where what attention wrote is not known, it counts together with the MLP; where it is,
            the MLP wrote what is left of the layer's change.
        target: the token that came next.
        heads: whether to split attention's parts by head, where that is possible.

    Raises:
        ModelUnsupported: when this model's logits are no sum of parts; says why.
    """
    residual, attention_out = kept.residual, kept.attention_out
    gradient, constant, said = readout.read(residual[-1], target)
    logit = readout.uncapped(said)
    stream = residual.astype(np.float64) @ gradient  # [layers + 1]
    changes = np.diff(stream)
    components = [_component(None, "embedding", stream[0])]
    if attention_out is None:
        components += [_component(layer, "layer", change) for layer, change in enumerate(changes)]
    else:
        for layer, attention in enumerate(attention_out.astype(np.float64) @ gradient):
            components.append(_component(layer, "attention", attention))
            components.append(_component(layer, "mlp", changes[layer] - attention))
    components.append(_component(None, "bias", constant))
    heads_absent = None
    if heads:
        by_head, heads_absent = readout.heads(kept, gradient)
        for component in components:
            if component["component"] == "attention" and component["layer"] in by_head:
                component["heads"], component["rest"] = by_head[component["layer"]]
    total = float(sum(component["value"] for component in components))
    return Attribution(
        request=request,
        position=position,
        target=target,
        logit=logit,
        components=components,
        sum=total,
        error=abs(total - logit),
        heads_absent=heads_absent,
        soft_cap=readout.soft_cap,
        said_logit=said,
        residual_dtype=DTYPE_NAMES.get(residual.dtype, str(residual.dtype)),
        how=how,
    )


def attribution_or_why(
    readout: Readout,
    kept: Kept,
    *,
    request: str,
    position: int,
    target: int,
    how: Literal["live", "baked"],
    heads: bool = False,
) -> Attribution | Absent:
    """As `attribution_event`, with an `absent` event in the place of the error."""
    try:
        return attribution_event(readout, kept, request=request, position=position, target=target, how=how, heads=heads)
    except ModelUnsupported as error:
        at = [position, position + 1]
        return Absent(what="attribution", reason="unsupported", request=request, positions=at, detail=str(error))


def _one_by_one(head_out: np.ndarray) -> np.ndarray:
    """`[heads, head_dim]` → `[heads + 1, heads, head_dim]`: in row h head h alone, and in the last row none."""
    heads = len(head_out)
    return np.concatenate([np.eye(heads, dtype=np.float32)[..., None] * head_out, np.zeros_like(head_out[None])])


def _component(layer: int | None, component: str, value: float) -> dict[str, Any]:
    return {"layer": layer, "component": component, "value": float(value)}
