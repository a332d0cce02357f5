"""Texts to continue: new ones for every round, so that no prompt cache answers in a model's place."""

from __future__ import annotations

import random

from engine.tokenizer import Tokenizer

_OPENINGS = (
    "Once upon a time, in a village by the sea, there lived a lighthouse keeper who",
    "The train left the station at midnight, and in its last carriage a young engineer",
    "For three winters nobody had crossed the pass, until one morning a trader and her dog",
    "My grandmother used to tell the story of the clock that ran backwards. It began when",
    "The expedition had been planned for years. On the first day the ship's cook",
    "At the edge of the desert stood a library with no doors. Every evening its keeper",
    "The letter arrived on a Tuesday, with no stamp and no sender. Inside it the teacher",
    "Deep below the mountain the miners heard a song. The oldest of them",
)
_SUBJECTS = (
    "the keeper",
    "an old sailor",
    "the captain",
    "a merchant",
    "the mapmaker",
    "her brother",
    "the astronomer",
)
_VERBS = ("described", "remembered", "repaired", "followed", "measured", "painted", "questioned", "copied")
_OBJECTS = (
    "the northern light",
    "a broken compass",
    "seven islands",
    "the harbour wall",
    "an unknown star",
    "the tide",
)
_ENDS = ("before the storm", "in the spring", "without a word", "for many years", "by candlelight", "on the third day")


def story(number: int, stream: int) -> str:
    """The beginning of a long story: its first words are of this round and stream alone."""
    return f"{number * 31 + stream + 1}. {_OPENINGS[stream % len(_OPENINGS)]}"


def passage(tokenizer: Tokenizer, tokens: int, number: int) -> str:
    """About that many tokens of prose, of this number alone from the first words on."""
    words = random.Random(number)
    text = f"Chronicle {number + 1}."
    while len(tokenizer.encode(text).ids) < tokens:
        text += "".join(
            f" In {words.randint(1700, 1950)} {words.choice(_SUBJECTS)} {words.choice(_VERBS)} "
            f"{words.choice(_OBJECTS)} {words.choice(_ENDS)}."
            for _ in range(8)
        )
    return tokenizer.decode(tokenizer.encode(text).ids[:tokens])
