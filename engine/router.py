"""From noted experts to `router` events."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.events import Router
from engine.experts import Experts, Routed


def router_events(
    routed: dict[int, Routed],
    experts: dict[int, Experts],
    place: slice,
    positions: list[int],
    *,
    request: str,
    step: int,
) -> list[Router]:
    """One event for each position, of all layers that have experts.

    Args:
        routed: what a pass noted, by layer, evaluated.
        experts: of the model, by layer.
        place: where these positions are among the pass's noted rows.
    """
    layers: list[list[dict[str, Any]]] = [[] for _ in positions]
    for layer, noted in sorted(routed.items()):
        chosen = np.asarray(noted.experts)[place]
        again = None if noted.again is None else np.asarray(noted.again)[place]
        weights = None if noted.weights is None else np.asarray(noted.weights)[place]
        for index, said in enumerate(layers):
            counts = None if weights is None or again is None else _for(chosen[index], again[index], weights[index])
            said.append({"layer": layer, "experts": chosen[index].tolist(), "weights": counts, "of": experts[layer].of})
    return [
        Router(request=request, step=step, position=position, layers=said)
        for position, said in zip(positions, layers, strict=True)
    ]


def _for(chosen: np.ndarray, again: np.ndarray, weights: np.ndarray) -> list[float] | None:
    """The weights of the chosen experts, in their order; None when they were found for others."""
    order, found = np.argsort(chosen, kind="stable"), np.argsort(again, kind="stable")
    if not np.array_equal(chosen[order], again[found]):
        return None
    counts = np.empty_like(weights)
    counts[order] = weights[found]
    listed: list[float] = counts.tolist()
    return listed
