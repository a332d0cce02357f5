"""What becomes of each position under a plan and its budget, and what it costs: settled before the request runs.

The answer's positions come first: up to half the budget is kept for them, for they are what is followed. Each of the
two parts, prompt and answer, is captured whole from its start; what its rows may take of a quarter of the budget is
held back for those that do not fit, whose attention is then summarised, and what does not fit even so is left out.
Since all of it follows from the plan, the model's shape and two numbers of tokens, it can be told to the byte
beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.capture import CapturePlan
from engine.errors import RequestError

if TYPE_CHECKING:
    from engine.structure import Structure

KEPT_WEIGHTS = 8
"""How many weights of a row a summary lists."""

UNWANTED, WHOLE, SUMMARISED, LEFT_OUT = range(4)
"""What becomes of a position: not in the plan; captured; its attention summarised, the rest left out; left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """What can be captured in a model.

    Attributes:
        layers: how many the model has.
        heads: query heads a layer.
        hidden: width of the residual stream.
        attending: layers whose attention can be seen.
        residual: whether there is a residual stream to record.
        attention_out: whether what attention adds to it can be told from what the MLP does.
        dtype: the model's computing dtype, by name.
    """

    layers: int
    heads: int
    hidden: int
    attending: tuple[int, ...]
    residual: bool
    attention_out: bool
    dtype: str

    @classmethod
    def of(cls, structure: Structure, dtype: str) -> Visible:
        return cls(
            layers=len(structure.layers),
            heads=structure.heads,
            hidden=structure.hidden,
            attending=tuple(index for index, attends in enumerate(structure.attending) if attends),
            residual=structure.stream,
            attention_out=structure.stream and None not in structure.attention_writers,
            dtype=dtype,
        )

    def stored(self, plan: CapturePlan) -> np.dtype[Any]:
        """The dtype in which a plan's arrays are stored."""
        single = plan.dtype == "f32" or (plan.dtype == "auto" and self.dtype == "float32")
        return np.dtype(np.float32 if single else np.float16)


@dataclass(frozen=True, kw_only=True)
class CaptureSchedule:
    """One request's plan, position by position.

    Attributes:
        first: positions below it are another request's: found in the prefix cache, they have no pass here.
    """

    plan: CapturePlan
    visible: Visible
    prompt_tokens: int
    max_tokens: int
    first: int = 0

    @classmethod
    def checked(
        cls, plan: CapturePlan, visible: Visible, *, prompt_tokens: int, max_tokens: int, refuse: bool = True
    ) -> CaptureSchedule:
        """Lay out a plan.

        Raises:
            RequestError: when it names layers or heads that the model has not; and, if `refuse`, when the budget is
                too small for anything, or for a plan that would rather be refused than summarised.
        """
        schedule = cls(plan=plan, visible=visible, prompt_tokens=prompt_tokens, max_tokens=max_tokens)
        _ = schedule.layers, schedule.heads
        refusal = schedule.refusal
        if refuse and refusal is not None:
            raise RequestError(refusal, param="tokenwalk.capture.max_bytes", code="capture_budget_exceeded")
        return schedule

    def after(self, first: int) -> CaptureSchedule:
        """The same when positions below `first` have no pass: the budget then reaches further."""
        return replace(self, first=first)

    # --- what is wanted -----------------------------------------------------------------------------------------------

    @cached_property
    def layers(self) -> list[int]:
        """Layers whose attention is captured."""
        chosen = self.plan.layers_of(self.visible.layers)
        return [layer for layer in chosen if layer in self.visible.attending] if "attention" in self.plan.wanted else []

    @cached_property
    def heads(self) -> list[int]:
        """Heads whose attention is captured."""
        return self.plan.heads_of(self.visible.heads)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return self.visible.stored(self.plan)

    @property
    def stop(self) -> int:
        """Positions that have a pass: the last token needs none."""
        return self.prompt_tokens + self.max_tokens - 1

    @cached_property
    def forms(self) -> np.ndarray:
        """What becomes of each position, `[stop]`: UNWANTED, WHOLE, SUMMARISED or LEFT_OUT."""
        forms = np.full(self.stop, UNWANTED, np.uint8)
        wanted = self.plan.positions_wanted(self.prompt_tokens, self.stop)
        wanted[: self.first] = False
        if not self.plan.arrays:
            return forms
        prompt, answer = np.flatnonzero(wanted), np.flatnonzero(wanted)
        prompt, answer = prompt[prompt < self.prompt_tokens - 1], answer[answer >= self.prompt_tokens - 1]
        whole = self._all
        least = np.minimum(self._summary, whole)
        budget = self.plan.budget_bytes
        kept = min(int(whole[answer].sum()), budget // 2)
        forms[prompt], spent = _fill(whole[prompt], least[prompt], budget - kept, budget // 4)
        forms[answer], _ = _fill(whole[answer], least[answer], budget - spent, budget // 4)
        return forms

    @cached_property
    def within_budget(self) -> bool:
        """Whether all that is wanted is captured whole."""
        return not ((self.forms == SUMMARISED) | (self.forms == LEFT_OUT)).any()

    # --- what it costs ------------------------------------------------------------------------------------------------

    @cached_property
    def _whole(self) -> dict[str, np.ndarray]:
        """Bytes of each kind's array at each position, captured whole: `[stop]`."""
        wanted, visible, item = self.plan.wanted, self.visible, self.dtype.itemsize
        keys = np.arange(1, self.stop + 1, dtype=np.int64)
        rows = len(self.layers) * len(self.heads)
        stream = visible.hidden * item if visible.residual else 0
        written = visible.layers if visible.attention_out else 0
        return {
            "attention": keys * (rows * item),
            "residual": np.full(self.stop, ("residual" in wanted) * (visible.layers + 1) * stream, np.int64),
            "attention_out": np.full(self.stop, ("attention_out" in wanted) * written * stream, np.int64),
        }

    @cached_property
    def _all(self) -> np.ndarray:
        """Bytes of each position whole, `[stop]`."""
        whole: np.ndarray = np.sum(list(self._whole.values()), axis=0)
        return whole

    @cached_property
    def _summary(self) -> np.ndarray:
        """Bytes of a summary of attention at each position, `[stop]`; where there is no attention, as much as whole."""
        keys = np.arange(1, self.stop + 1, dtype=np.int64)
        if not self.layers:
            return self._all
        return (2 * np.minimum(keys, KEPT_WEIGHTS) + 2) * (4 * len(self.layers) * len(self.heads))

    def bytes_by_kind(self, first: int = 0, stop: int | None = None) -> dict[str, dict[str, int]]:
        """Positions and bytes of arrays of each kind that will be captured of positions [first, stop)."""
        forms = self.forms[first:stop]
        whole, summarised = forms == WHOLE, forms == SUMMARISED
        out: dict[str, dict[str, int]] = {}
        for kind, sizes in self._whole.items():
            size = int(sizes[first:stop][whole].sum())
            out[kind] = {"positions": int(whole.sum()) if size else 0, "bytes": size}
        out["attention.summary"] = {
            "positions": int(summarised.sum()),
            "bytes": int(self._summary[first:stop][summarised].sum()),
        }
        return out

    @cached_property
    def bytes(self) -> int:
        """Bytes of arrays that will be captured, if the answer becomes as long as it may."""
        return sum(kind["bytes"] for kind in self.bytes_by_kind().values())

    @cached_property
    def needed_bytes(self) -> int:
        """Bytes of everything that the plan asks for, whole."""
        return int(self._all[self.forms != UNWANTED].sum())

    @property
    def refusal(self) -> str | None:
        """Why the plan is refused; None when it is not."""
        budget, needed = self.plan.budget_bytes, self.needed_bytes
        asked = (
            f"the capture plan needs {needed:,} bytes for {self.prompt_tokens:,} prompt and {self.max_tokens:,} "
            f"generated tokens, and max_bytes is {budget:,}"
        )
        if needed > budget and self.plan.over_budget == "refuse":
            return f"{asked}; capture fewer positions, layers, heads or tensors, or let it be summarised"
        if needed and not self.bytes:
            least = int(self._summary[self.forms != UNWANTED].min())
            return f"{asked}: not even the smallest position, of {least:,} bytes, fits; give more, or the level light"
        return None

    def estimate(self) -> dict[str, Any]:
        """What `POST /v1/capture/estimate` answers."""
        parts = {"prompt": (0, self.prompt_tokens - 1), "generated": (self.prompt_tokens - 1, self.stop)}
        by_part = {part: self.bytes_by_kind(*bounds) for part, bounds in parts.items()}
        kinds = by_part["prompt"]
        return {
            "prompt_tokens": self.prompt_tokens,
            "max_tokens": self.max_tokens,
            "capture": self.plan.as_dict(),
            "dtype": "f32" if self.dtype.itemsize == 4 else "f16",
            "budget_bytes": self.plan.budget_bytes,
            "needed_bytes": self.needed_bytes,
            "bytes": self.bytes,
            "tensors": {kind: {part: by_part[part][kind] for part in parts} for kind in kinds},
            "over_budget": {
                "summarised": runs(np.flatnonzero(self.forms == SUMMARISED)),
                "left_out": runs(np.flatnonzero(self.forms == LEFT_OUT)),
            },
            "refused": self.refusal,
        }


def _fill(whole: np.ndarray, least: np.ndarray, budget: int, most_held: int) -> tuple[np.ndarray, int]:
    """Spend a budget on positions in order: whole, then in the cheapest form, then nothing.

    Args:
        whole, least: bytes of each position in either form.
        most_held: the most that is held back for the cheapest form of those that come later.

    Returns:
        Their forms, and what was spent.
    """
    later = np.append(np.cumsum(least[::-1])[::-1], 0)  # bytes of the cheapest form from each position on
    spent = np.append(0, np.cumsum(whole))
    fits = spent + np.minimum(later, most_held) <= budget
    count = int(fits.sum()) - 1 if fits[0] else 0  # rises with each position, so the first that does not fit ends it
    forms = np.full(whole.size, LEFT_OUT, np.uint8)
    forms[:count] = WHOLE
    rest = int(spent[count]) + np.cumsum(least[count:])
    cheap = int(np.searchsorted(rest, budget, side="right"))
    forms[count : count + cheap] = np.where(least[count:] < whole[count:], SUMMARISED, WHOLE)[:cheap]
    return forms, int(rest[cheap - 1]) if cheap else int(spent[count])


def runs(positions: np.ndarray) -> list[list[int]]:
    """Unbroken runs [from, to) of rising numbers."""
    breaks = np.flatnonzero(np.diff(positions) > 1) + 1
    return [[int(run[0]), int(run[-1]) + 1] for run in np.split(positions, breaks) if run.size]
