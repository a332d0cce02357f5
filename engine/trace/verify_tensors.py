"""Checks the arrays of a trace: rows of attention, residual streams, and numbers that are none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.codec import Frame
from engine.trace.checking import SHOWN, Check, Checker, Fields

_ROW_SUM = {"float32": 1e-4, "float16": 2e-3}
"""How far from 1 a stored row of probabilities may sum: float16 rounds each by up to 1/2048."""
_NORM = {"float32": 1e-3, "float16": 2e-3}


class Attention(Checker):
    """Each row is a distribution over the past, whole or summarised; but for one that says that it is no number."""

    def __init__(self) -> None:
        self._rows = 0
        self._worst = 0.0  # of whole rows, |sum − 1|
        self._failed: list[str] = []
        self._future: list[str] = []

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.kind == "attention.summary" and array is not None:
            self._summary(frame, fields, array)
        if frame.kind != "attention" or array is None:
            return
        past = max(0, fields["position"] + 1 - fields["first_key"])
        if fields["omitted"] is None and array.shape[-1] < past:
            raise ValueError(f"{array.shape[-1]} keys, of {past} up to position {fields['position']}")
        weights = array.astype(np.float64) * (fields.get("scale") or 1.0)  # [layers, heads, keys]
        weights = weights[_counts(weights, fields)]  # [rows, keys]
        sums = weights.sum(axis=-1)
        self._rows += sums.size
        slack = _ROW_SUM.get(array.dtype.name, 0.5 * (fields.get("scale") or 1.0) * array.shape[-1])
        # `not <=` rather than `>`: NaN must fail.
        if not (
            (sums <= 1 + slack).all() and (sums >= 1 - slack - fields["omitted_mass"]).all() and (weights >= 0).all()
        ):
            self._failed.append(f"{frame.request} position {frame.position}")
        if fields["omitted"] is None:
            self._worst = max(self._worst, float(np.abs(sums - 1).max(initial=0.0)))
        if weights[..., past:].any():
            self._future.append(f"{frame.request} position {frame.position}")

    def _summary(self, frame: Frame, fields: Fields, array: np.ndarray) -> None:
        kept = fields["kept"]
        if array.shape[-1] != 2 * kept + 2:
            raise ValueError(f"{array.shape[-1]} numbers a row for {kept} weights")
        if fields["keys"] != fields["position"] + 1:
            raise ValueError(f"{fields['keys']} keys up to position {fields['position']}")
        rows = array[_counts(array, fields)]  # [rows, 2 · kept + 2]
        positions, weights, rest = rows[..., :kept], rows[..., kept:-2].astype(np.float64), rows[..., -2]
        sums = weights.sum(axis=-1) + rest
        self._rows += sums.size
        ordered = (np.diff(weights, axis=-1) <= 0).all() and (weights >= 0).all() and (rest >= 0).all()
        twice = (np.diff(np.sort(positions, axis=-1), axis=-1) == 0).any()
        if twice or not (ordered and (np.abs(sums - 1) <= _ROW_SUM["float32"]).all()):
            self._failed.append(f"{frame.request} position {frame.position}")
        if not ((positions >= 0) & (positions <= fields["position"])).all():
            self._future.append(f"{frame.request} position {frame.position}")

    def results(self) -> Iterator[Check]:
        detail = f"{self._rows} rows, worst |sum − 1| {self._worst:.1e}"
        failed = f"; not {', '.join(self._failed[:SHOWN])} ({len(self._failed)} positions)" if self._failed else ""
        yield Check("attention rows sum to 1", not self._failed if self._rows else None, detail + failed)
        future = f"seen from {', '.join(self._future[:SHOWN])}" if self._future else "weight on later keys is exactly 0"
        yield Check("no attention to the future", not self._future if self._rows else None, future)


def _counts(rows: np.ndarray, fields: Fields) -> np.ndarray:
    """Which rows have to be distributions: all, but in a frame that says that one is no number, those that are."""
    finite: np.ndarray = np.isfinite(rows).all(axis=-1)
    return np.ones_like(finite) if np.isfinite(fields["row_sum_error"]) else finite


class Residuals(Checker):
    """The stored vectors have the norms that were measured before they were stored, or both are no numbers."""

    def __init__(self) -> None:
        self._count = 0
        self._worst = 0.0
        self._failed: list[str] = []

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.kind != "residual" or array is None:
            return
        stated = np.asarray(fields["norms"], np.float64)
        found = np.linalg.norm(array.astype(np.float64) * (fields.get("scale") or 1.0), axis=-1)
        if stated.shape != found.shape:
            raise ValueError(f"{stated.size} norms for {found.size} rows")
        finite = np.isfinite(stated) | np.isfinite(found)  # those of which either is a number
        stated, found = stated[finite], found[finite]
        with np.errstate(invalid="ignore"):  # infinity from a number is no number, and fails below
            error = float((np.abs(found - stated) / np.maximum(stated, 1e-9)).max(initial=0.0))
        self._count += 1
        self._worst = max(self._worst, error)
        if not error <= _NORM.get(array.dtype.name, 1.0):
            self._failed.append(f"{frame.request} position {frame.position}")

    def results(self) -> Iterator[Check]:
        detail = f"{self._count} positions, worst relative error {self._worst:.1e}"
        failed = f"; not {', '.join(self._failed[:SHOWN])}" if self._failed else ""
        yield Check("residual norms", not self._failed if self._count else None, detail + failed)


class NotNumbers(Checker):
    """A number that is none is said to be none where it is recorded, and its request chose no token after it.

    That a model computed NaN is a fact about the run, and a trace that says so is right. So it is no failure here.
    """

    def __init__(self) -> None:
        self._arrays = 0
        self._first: dict[str, tuple[int, str]] = {}
        """Of each request that has some: the step, and what was none."""
        self._unsaid: list[str] = []
        self._chose: dict[str, int] = {}
        """The last step in which each request chose a token."""
        self._ended: dict[str, str] = {}

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        request = frame.request
        if request is None:
            return
        if frame.kind == "token":
            self._chose[request] = fields["step"]
        elif frame.kind == "request.finished":
            self._ended[request] = f"{fields['reason']}, {fields['detail']}"
        elif array is not None and array.dtype.kind == "f":
            self._arrays += 1
            none = ~np.isfinite(array)
            if none.any():
                self._note(request, frame, fields, none)

    def _note(self, request: str, frame: Frame, fields: Fields, none: np.ndarray) -> None:
        row = int(np.argwhere(none)[0][0])
        what = f"{frame.kind} of {request} position {frame.position}, row {row} of {none.shape[0]}"
        said = True  # of attention_out nothing is measured
        if frame.kind == "residual":
            said = not np.isfinite(np.asarray(fields["norms"], np.float64)[none.any(axis=-1)]).any()
        elif frame.kind.startswith("attention") and "row_sum_error" in fields:
            said = not np.isfinite(fields["row_sum_error"])
        if not said:
            self._unsaid.append(f"{what} holds NaN or infinity, and what was measured of it is a number")
        self._first.setdefault(request, (fields["step"], what))

    def results(self) -> Iterator[Check]:
        went_on = [
            f"{what} holds NaN or infinity, and step {self._chose[request]} chose a token after it"
            for request, (step, what) in self._first.items()
            if self._chose.get(request, 0) > step
        ]
        failed = self._unsaid + went_on
        found = [
            f"recorded as NaN or infinity: {what} (ended: {self._ended.get(request, 'not said')})"
            for request, (_, what) in self._first.items()
        ]
        detail = "; ".join((failed or found)[:SHOWN]) or f"{self._arrays} arrays hold finite numbers"
        yield Check("no NaN passes unsaid", not failed if self._arrays else None, detail)
