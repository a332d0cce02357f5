"""What levels of capture cost while tokens are generated: they take turns within one run, some steps each.

Two runs of the same work differ by more than what is to be measured, steps that follow each other much less.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np

from engine.bench.contestants import TurningEngine, run_streams
from engine.capture import CapturePlan, Level
from engine.capture_schedule import runs
from engine.errors import TokenwalkError

LEVELS: tuple[Level, ...] = ("off", "light", "follow")
"""Those that differ in what is done of each token, and in nothing else."""

BEGINNING = 3
"""Tokens before the first turn, while prompts are looked at."""

TURN = 4
"""Tokens of a turn, where the answer has room for one of each level. The shorter, the less a machine's own speed
changes from one turn to the next: with turns of 8 the error is half as large again."""

SETTLE = 1
"""Tokens at the beginning of a turn that are not counted: a step is looked at, told and recorded while the next one
runs. Two or three gave the same costs, and fewer tokens to tell them by."""

END = 1
"""Tokens at its end that are not counted: one is told when the next one's pass has been built, which takes a watched
one longer, and that is another level's."""


def seconds_in_turn(
    engine: TurningEngine, prompts: list[list[int]], tokens: int, number: int
) -> tuple[dict[str, float], list[list[int]]]:
    """Continue all prompts at once, equally long ones, the levels taking turns.

    Args:
        number: of the run. Their order hangs on it: over all of them each comes as often in each place.

    Returns:
        Mean seconds between two tokens of a stream, by level, and each stream's token ids.

    Raises:
        TokenwalkError: when answers ended too early for a turn of each level.
    """
    turns = turns_of(tokens, number)
    first = len(prompts[0]) - 1  # the pass that chooses the first token
    followed = [first + index for index, (level, _) in enumerate(turns) if level == "follow"]
    plan = CapturePlan(level="follow", positions=tuple((start, stop) for start, stop in runs(np.array(followed))))
    with engine.telling([level != "off" for level, _ in turns]):
        streams, ids = run_streams(engine, prompts, tokens, plan)
    together = min(streams.tokens)  # from then on there are fewer
    gaps = np.diff([arrivals[:together] for arrivals in streams.arrivals], axis=-1, prepend=np.nan).mean(0)
    seconds: dict[str, float] = {}
    for level in LEVELS:
        counted = [gaps[index] for index in range(together) if turns[index] == (level, True)]
        if not counted:
            raise TokenwalkError(f"an answer ended after {together} tokens, before a turn of each level: give others")
        seconds[level] = float(np.mean(counted))
    return seconds, ids


def turns_of(tokens: int, number: int) -> list[tuple[Level, bool]]:
    """By index in the answer: at which level it is, and whether it is counted."""
    each = min(TURN, (tokens - BEGINNING) // len(LEVELS))
    often = -(-(tokens - BEGINNING) // (each * len(LEVELS))) if each else 1
    orders = list(permutations(LEVELS))
    chosen = [orders[(number * often + again) % len(orders)] for again in range(often)]
    turns: list[tuple[Level, bool]] = [(chosen[0][0], False)] * BEGINNING
    for order in chosen:
        for level in order:
            turns += [(level, SETTLE <= index < each - END) for index in range(each)]
    return turns[:tokens]
