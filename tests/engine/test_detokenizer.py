"""Text leaves whole: never half a character, never the beginning of a stop text, never less than all."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.detokenizer import Detokenizer


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(edges)]


def stream(data: list[bytes], stop: tuple[str, ...] = ()) -> tuple[list[str], str | None]:
    detokenizer = Detokenizer(stop)
    texts = []
    for piece in data:
        released = detokenizer.add(piece)
        texts.append(released.text)
        if released.stopped_by is not None:
            return texts, released.stopped_by
    texts.append(detokenizer.finish().text)
    return texts, None


@given(st.text(), st.lists(st.integers(0, 400)))
def test_any_split_of_the_bytes_streams_the_text_without_replacement_characters(text: str, cuts: list[int]) -> None:
    texts, _ = stream(pieces(text.encode(), cuts))
    assert "".join(texts) == text


@given(st.binary(), st.lists(st.integers(0, 400)))
def test_bytes_that_are_no_utf8_become_what_python_makes_of_them_at_once(data: bytes, cuts: list[int]) -> None:
    texts, _ = stream(pieces(data, cuts))
    assert "".join(texts) == data.decode("utf-8", "replace")


@given(st.text("ab–🐱", max_size=30), st.lists(st.integers(0, 100)), st.lists(st.text("ab–🐱", min_size=1, max_size=4)))
def test_a_stop_text_ends_the_answer_before_it_however_it_is_split(
    text: str, cuts: list[int], stops: list[str]
) -> None:
    texts, stopped_by = stream(pieces(text.encode(), cuts), tuple(stops))
    joined = "".join(texts)
    found = [text.find(stop) for stop in stops if stop in text]
    if found:
        assert stopped_by is not None
        assert not any(stop in joined for stop in stops)
        assert text.startswith(joined + stopped_by)
    else:
        assert joined == text
        assert stopped_by is None


def test_half_a_character_waits_and_is_counted() -> None:
    detokenizer = Detokenizer()
    cat = "🐱".encode()
    assert (detokenizer.add(cat[:3]).text, detokenizer.add(b"").held_back_bytes) == ("", 3)
    assert detokenizer.add(cat[3:]).text == "🐱"


def test_what_waits_as_a_possible_stop_is_released_at_the_end() -> None:
    detokenizer = Detokenizer(("\n\nUser:",))
    released = detokenizer.add(b"Hello\n\nUs")
    assert (released.text, released.held_back_bytes) == ("Hello", 4)
    assert detokenizer.finish().text == "\n\nUs"
