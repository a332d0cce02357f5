"""Checks what was read from residuals: the logit lens, and the parts of a logit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from engine.codec import Frame
from engine.trace.checking import Check, Checker, Fields, Tally

_SUM = {"f32": 1e-3, "f16": 1e-2}
"""How far the parts of a logit may be from it: norm and head are linear as far as the model's arithmetic is."""
_LENS = {"f32": 5e-3, "f16": 5e-2}
"""How far a last lens row may be from the logits, in nats: it is computed again, from the residual as stored."""
_ROUNDING = 1e-3
"""How far apart one log-probability may be, said in two places: logits have 24 bits."""


class LastLens(Checker):
    """The last layer's lens is the model's own answer, so its log-probabilities are those of the token's event."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, int], dict[int, float]] = {}
        self._lenses: list[tuple[str, int, Any, Fields, str]] = []

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.kind == "token" and frame.request is not None:
            said = {entry["id"]: entry["logprob"] for entry in fields["top"]}
            if said:
                said[fields["id"]] = fields["logprob"]
            self._said[frame.request, fields["position"] - 1] = said
        elif frame.kind == "lens" and frame.request is not None and fields["layers"]:
            at = (frame.request, fields["position"], fields["target"])
            self._lenses.append((*at, fields["layers"][-1], fields["residual_dtype"]))

    def results(self) -> Iterator[Check]:
        worst, compared, failed = 0.0, 0, []
        for request, position, target, last, dtype in self._lenses:
            said = self._said.get((request, position), {})
            found = {entry["id"]: entry["logprob"] for entry in last["top"]}
            if last["logprob"] is not None:
                found[target] = last["logprob"]
            errors = [abs(said[token] - found[token]) for token in found.keys() & said.keys()]
            if said and not (errors and max(errors) <= _LENS.get(dtype, 0.1)):
                failed.append(f"{request} position {position}")
            compared += bool(said)
            worst = max([worst, *errors])
        detail = f"{compared} positions, worst difference {worst:.1e} nats"
        wrong = f"; not {', '.join(failed[:3])}" if failed else ""
        yield Check("last lens row is the logits", not failed if compared else None, detail + wrong)


class Sums(Checker):
    """The parts of a logit add up to it, and it is the one that the token's event has."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, int], dict[int, float]] = {}
        self._found: list[tuple[str, Fields]] = []

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.kind == "token" and frame.request is not None:
            logits = {entry["id"]: entry["logit"] for entry in fields["top"]}
            self._said[frame.request, fields["position"] - 1] = logits
        elif frame.kind == "attribution" and frame.request is not None:
            self._found.append((frame.request, fields))

    def results(self) -> Iterator[Check]:
        worst, failed = 0.0, []
        for request, fields in self._found:
            slack = _SUM.get(fields["residual_dtype"], 0.1) * max(1.0, abs(fields["logit"]))
            total = sum(part["value"] for part in fields["components"])
            error = max(abs(total - fields["logit"]), abs(total - fields["sum"]))
            said = self._said.get((request, fields["position"]), {}).get(fields["target"])
            stated = fields["logit"] if fields["said_logit"] is None else fields["said_logit"]
            differs = said is not None and not abs(said - stated) <= _LENS.get(fields["residual_dtype"], 0.1)
            worst = max(worst, error)
            if differs or not error <= slack:
                failed.append(f"{request} position {fields['position']}")
        detail = f"{len(self._found)} positions, worst |sum − logit| {worst:.1e}"
        wrong = f"; not {', '.join(failed[:3])}" if failed else ""
        yield Check("parts add up to the logit", not failed if self._found else None, detail + wrong)


class Targets(Checker):
    """What a reading was made for is the token that came next, and the lens has it where its candidates have it."""

    def __init__(self) -> None:
        self._ids: dict[str, list[int]] = {}
        self._tally = Tally("readings are of the next token")

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        request = frame.request
        if request is None:
            return
        if frame.kind == "request.tokenized":
            self._ids[request] = [token["id"] for token in fields["tokens"]]
        elif frame.kind == "token" and request in self._ids:
            self._ids[request].append(fields["id"])
        elif frame.kind in ("lens", "attribution"):
            what = f"{frame.kind} of {request} position {fields['position']}"
            if request in self._ids:
                following = self._ids[request][fields["position"] + 1 :]
                came, target = (following[0] if following else None), fields["target"]
                self._tally.expect(came == target, f"{what} is for token {target}, where {came} came next")
            if frame.kind == "lens":
                for layer in fields["layers"]:
                    wrong = _misplaced(layer, fields["target"])
                    self._tally.expect(wrong is None, f"{what}, layer {layer['layer']} {wrong}")

    def results(self) -> Iterator[Check]:
        yield self._tally.check(
            f"{self._tally.checked} readings and rows" if self._tally.checked else "nothing was read"
        )


def _misplaced(layer: Fields, target: int | None) -> str | None:
    """What is wrong with where a layer's lens has the token that came next."""
    top, rank, logprob = layer["top"], layer["rank"], layer["logprob"]
    if any(not before["logprob"] >= after["logprob"] for before, after in pairwise(top)):
        return "lists its candidates in another order than that of their probabilities"
    if target is None or not top:
        return None if rank is None and logprob is None else "has a rank for no token"
    own = next((entry for entry in top if entry["id"] == target), None)
    if own is None:
        beyond = logprob <= top[-1]["logprob"] + _ROUNDING and rank > sum(e["logprob"] > logprob for e in top)
        return None if beyond else f"has rank {rank} and log-probability {logprob:.4g} for token {target}, no candidate"
    if abs(own["logprob"] - logprob) > _ROUNDING * max(1.0, abs(logprob)):
        return f"has log-probability {logprob:.4g} for token {target}, and {own['logprob']:.4g} among its candidates"
    first = 1 + sum(entry["logprob"] > own["logprob"] for entry in top)
    last = sum(entry["logprob"] >= own["logprob"] for entry in top)  # logits that differ may round to one probability
    return None if first <= rank <= last else f"has rank {rank} for token {target}, which is candidate {first}"
