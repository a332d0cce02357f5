"""Checks the tokens of a trace against what else is said of them: their candidates, their draw, their like."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from engine.codec import Frame
from engine.trace.checking import Check, Checker, Fields, Tally

_ROUNDING = 1e-5
"""How far apart one log-probability or probability may be, said in two places."""
_PARTITION = 1e-3
"""How far logit − log-probability may be from one candidate to the next: logits have 24 bits."""


class Candidates(Checker):
    """A chosen token is where its rank says among the candidates, and was chosen as its draw says."""

    def __init__(self) -> None:
        self._seeds: dict[str, Any] = {}
        self._tally = Tally("choices are as described")

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.request is None:
            return
        if frame.kind == "request.arrived":
            self._seeds[frame.request] = fields["sampling"].get("seed")
        elif frame.kind == "token":
            what = f"{frame.request} position {fields['position']}"
            if fields["top"]:
                wrong = _misplaced(fields) or _misordered(fields["top"])
                self._tally.expect(wrong is None, f"{what} {wrong}")
            wrong = _misdrawn(fields, self._seeds.get(frame.request))
            self._tally.expect(wrong is None, f"{what} {wrong}")

    def results(self) -> Iterator[Check]:
        yield self._tally.check("candidates, ranks and draws" if self._tally.checked else "no token was chosen")


def _misplaced(token: Fields) -> str | None:
    """What is wrong with the place that a token says it has among its candidates."""
    top, logprob, rank = token["top"], token["logprob"], token["rank"]
    own = next((entry for entry in top if entry["id"] == token["id"]), None)
    if own is None:
        beyond = logprob <= top[-1]["logprob"] + _ROUNDING and rank > sum(e["logprob"] > logprob for e in top)
        return None if beyond else f"has rank {rank} and log-probability {logprob:.4g}, and is no candidate"
    if not _near(own["logprob"], logprob):
        return f"has log-probability {logprob:.4g}, and {own['logprob']:.4g} among its candidates"
    if own["label"] != token["label"]:
        return f"is {token['label']!r}, and {own['label']!r} among its candidates"
    place = 1 + sum(entry["logit"] > own["logit"] for entry in top)
    return None if rank == place else f"says rank {rank}, and is candidate {place}"


def _misordered(top: list[Fields]) -> str | None:
    """What is wrong with a list of candidates."""
    if len({entry["id"] for entry in top}) < len(top):
        return "has a candidate twice"
    for before, after in pairwise(top):
        if not (before["logit"] >= after["logit"] and before["logprob"] >= after["logprob"]):
            return f"lists candidate {after['id']} after {before['id']}, which is less probable"
    finite = [entry for entry in top if math.isfinite(entry["logprob"])]
    if finite:
        apart = [entry["logit"] - entry["logprob"] for entry in finite]
        slack = _PARTITION * max(1.0, *(abs(entry["logit"]) for entry in finite))
        if not max(apart) - min(apart) <= slack:
            return "has logits and log-probabilities of different distributions"
    return None


def _misdrawn(token: Fields, seed: Any) -> str | None:
    """What is wrong with how a token is said to have been chosen."""
    draw, stages = token["draw"], token["stages"]
    if stages and stages[0]["name"] == "raw":
        said = zip(stages[0]["probabilities"], token["top"], strict=True)
        if not all(abs(p - math.exp(entry["logprob"])) <= _ROUNDING for p, entry in said):
            return "has candidates whose probabilities are not what their logarithms say"
    if draw.get("method") == "greedy":
        untouched = [stage["name"] for stage in stages] == ["raw"]
        return f"was chosen greedily, with rank {token['rank']}" if untouched and token["rank"] != 1 else None
    if draw.get("method") != "inverse_cdf":
        return f"was chosen by {draw.get('method')!r}"
    if seed is not None and draw["seed"] != seed:
        return f"was drawn with seed {draw['seed']}, of a request with seed {seed}"
    # As in engine.sampling, which is no part of this package: a choice depends on its seed and position alone.
    generator = np.random.Generator(np.random.Philox(key=draw["seed"] % 2**64, counter=token["position"]))
    u = float(generator.random())
    if draw["u"] != u:
        return f"was drawn with {draw['u']}, where seed and position give {u}"
    # The sum of all that were left may fall short of 1 by rounding: then the last one is drawn.
    inside = draw["low"] <= u and (u < draw["high"] or draw["high"] >= 1 - 1e-9)
    return None if inside else f"was drawn with {u}, which is not within its {draw['low']} to {draw['high']}"


def _near(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= _ROUNDING * max(1.0, abs(one))


class Vocabulary(Checker):
    """A token id stands for the same bytes wherever it occurs, and a fork begins with its parent's tokens."""

    def __init__(self) -> None:
        self._bytes: dict[int, tuple[str, bool]] = {}
        self._labels: dict[int, str] = {}
        self._ids: dict[str, list[int]] = {}
        self._forks: dict[str, tuple[str, int]] = {}
        self._tally = Tally("tokens are the same everywhere")

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        request = frame.request
        if request is None:
            return
        if frame.kind == "request.arrived" and fields["forked_from"] is not None:
            self._forks[request] = (fields["forked_from"]["request"], fields["forked_from"]["position"])
        elif frame.kind == "request.tokenized":
            self._ids[request] = [token["id"] for token in fields["tokens"]]
            for position, token in enumerate(fields["tokens"]):
                self._token(token, f"{request} position {position}")
        elif frame.kind == "token":
            if request in self._ids:
                self._ids[request].append(fields["id"])
            self._token(fields, f"{request} position {fields['position']}")
            for entry in fields["top"]:
                self._label(entry, f"a candidate of {request} position {fields['position']}")

    def _token(self, token: Fields, what: str) -> None:
        stated = (token["bytes_hex"], token["special"])
        known = self._bytes.setdefault(token["id"], stated)
        self._tally.expect(stated == known, f"{what}: token {token['id']} is {stated[0]!r}, and {known[0]!r} elsewhere")
        self._label(token, what)
        data = bytes.fromhex(token["bytes_hex"])
        label = token.get("label")
        if data and label is not None:
            self._tally.expect(label == _label_of(data), f"{what}: the bytes {data!r:.60} are labelled {label!r:.60}")

    def _label(self, token: Fields, what: str) -> None:
        label = token.get("label")
        if label is not None:
            known = self._labels.setdefault(token["id"], label)
            self._tally.expect(
                label == known, f"{what}: token {token['id']} is {label!r:.60}, and {known!r:.60} elsewhere"
            )

    def results(self) -> Iterator[Check]:
        for request, (parent, position) in self._forks.items():
            if parent in self._ids and request in self._ids:
                same = self._ids[parent][:position] == self._ids[request][:position]
                self._tally.expect(same, f"{request} does not begin with the first {position} tokens of {parent}")
        yield self._tally.check(f"{len(self._bytes)} different tokens" if self._bytes else "there is none")


def _label_of(data: bytes) -> str:
    """How the tokenizer writes bytes for display: what is no whole character by its number."""
    text = data.decode("utf-8", errors="surrogateescape")
    return re.sub("[\udc80-\udcff]", lambda found: f"<0x{ord(found[0]) - 0xDC00:02X}>", text)
