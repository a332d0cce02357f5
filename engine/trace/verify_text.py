"""Checks the text of a trace: that it is its tokens' bytes, and that these bytes were sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from engine.codec import Frame
from engine.detokenizer import Detokenizer, Released
from engine.trace.checking import SHOWN, Check, Checker, Continuity, Fields, Tally


@dataclass(slots=True)
class _Answer:
    """What was said of one answer, and its text made again of its bytes."""

    prompt_tokens: int | None = None
    max_tokens: int | None = None
    again: Detokenizer | None = None
    """None where the request's arrival is not here: then its stop texts are not known."""
    positions: list[int] = field(default_factory=list)
    size: int = 0
    last: tuple[Fields, Released] | None = None
    """The last token, and what its bytes released while the answer was going on."""
    inexact: str | None = None
    miscounted: str | None = None
    finished: Fields | None = None


class Answers(Checker):
    """The text is exactly what the tokens' bytes give; positions follow one another; counts are the tokens'."""

    def __init__(self) -> None:
        self._answers: dict[str, _Answer] = {}

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        kinds = ("request.arrived", "request.tokenized", "token", "request.finished")
        if frame.request is None or frame.kind not in kinds:
            return
        answer = self._answers.setdefault(frame.request, _Answer())
        if frame.kind == "request.arrived":
            answer.again = Detokenizer(tuple(fields["sampling"].get("stop") or ()))
            answer.max_tokens = fields["max_tokens"]
        elif frame.kind == "request.tokenized":
            answer.prompt_tokens = len(fields["tokens"])
        elif frame.kind == "request.finished":
            answer.finished = fields
        else:
            _take(answer, fields)

    def results(self) -> Iterator[Check]:
        answers = {name: answer for name, answer in self._answers.items() if answer.prompt_tokens is not None}
        for answer in answers.values():
            _end(answer)
        size = sum(answer.size for answer in answers.values())
        tokens = sum(len(answer.positions) for answer in answers.values())
        broken = {name: "" for name, answer in answers.items() if not _positions_follow(answer)}
        inexact = {name: answer.inexact for name, answer in answers.items() if answer.inexact}
        miscounted = {name: answer.miscounted for name, answer in answers.items() if answer.miscounted}
        yield _check("text is the tokens' bytes", inexact, answers, f"{size} bytes of answers")
        yield _check("positions follow", broken, answers, f"{tokens} generated tokens")
        yield _check("counts are the tokens'", miscounted, answers, f"of {len(answers)} requests")


def _check(name: str, failed: Mapping[str, str | None], answers: dict[str, _Answer], detail: str) -> Check:
    wrong = "; ".join(f"not {request} {why or ''}".rstrip() for request, why in list(failed.items())[:SHOWN])
    return Check(name, not failed if answers else None, wrong or detail)


def _take(answer: _Answer, token: Fields) -> None:
    """Take in the next token: the one before was not the last, so it released no more than its bytes did."""
    _released_alone(answer)
    if answer.prompt_tokens is not None and token["index"] != token["position"] - answer.prompt_tokens:
        answer.miscounted = f"whose position {token['position']} is said to be token {token['index']} of the answer"
    answer.positions.append(token["position"])
    answer.size += len(token["text"].encode())
    if answer.again is not None:
        answer.last = (token, answer.again.add(bytes.fromhex(token["bytes_hex"])))


def _released_alone(answer: _Answer) -> None:
    if answer.last is not None and answer.again is not None:
        token, released = answer.last
        length = answer.again.text_length
        if (token["text"], token["held_back_bytes"]) != (released.text, released.held_back_bytes):
            answer.inexact = answer.inexact or f"at position {token['position']}"
        if token["text_length"] != length:
            answer.miscounted = answer.miscounted or _length(token, length)


def _end(answer: _Answer) -> None:
    """Check how the answer ended: the last token released all that waited, unless it was cut short."""
    ended = answer.finished
    reason = None if ended is None else ended["reason"]
    stopped_by = None if answer.last is None else answer.last[1].stopped_by
    if answer.last is not None and answer.again is not None:
        token, released = answer.last
        cut = reason in ("cancelled", "error") or (ended is None and token["text"] == released.text)
        if cut or stopped_by is not None:
            _released_alone(answer)
        else:
            text = released.text + answer.again.finish().text
            answer.last = (token, Released(text, 0, None))
            _released_alone(answer)
    if ended is not None:
        answer.miscounted = answer.miscounted or _miscounted(answer, ended, stopped_by)


def _miscounted(answer: _Answer, ended: Fields, stopped_by: str | None) -> str | None:
    """What is wrong with what a request's end says of it."""
    generated, most = len(answer.positions), answer.max_tokens
    if ended["prompt_tokens"] != answer.prompt_tokens:
        return f"whose prompt has {answer.prompt_tokens} tokens, and is said to have {ended['prompt_tokens']}"
    if ended["completion_tokens"] != generated:
        return f"whose answer has {generated} tokens, and is said to have {ended['completion_tokens']}"
    if most is not None and (generated > most or (ended["reason"] == "length" and generated < most)):
        return f"which ended by {ended['reason']} with {generated} tokens, of {most}"
    if ended["reason"] == "stop" and answer.last is not None:
        stop = answer.last[0]["label"] if stopped_by is None else stopped_by
        if ended["detail"] != stop:
            return f"which is said to have been stopped by {ended['detail']!r:.60}, and ends with {stop!r:.60}"
    return None


def _length(token: Fields, length: int) -> str:
    said = token["text_length"]
    return f"whose text up to position {token['position']} has {length} characters, and is said to have {said}"


def _positions_follow(answer: _Answer) -> bool:
    start = answer.prompt_tokens or 0
    follows = answer.positions == list(range(start, start + len(answer.positions)))
    ended = answer.finished
    return follows and (ended is None or ended["completion_tokens"] == len(answer.positions))


class Sent(Checker):
    """Chunks follow one another, and carry the text of the tokens up to the one that they name, byte for byte."""

    def __init__(self, continuity: Continuity) -> None:
        self._continuity = continuity
        self._said: dict[str, int] = defaultdict(int)
        self._said_at: dict[tuple[str, int], int] = {}
        self._sent: dict[str, int] = defaultdict(int)
        self._chunks: dict[str, int] = {}
        self._tally = Tally("what was sent is the text")

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        request = frame.request
        if request is None:
            return
        if frame.kind == "token":
            self._said[request] += len(fields["text"].encode())
            self._said_at[request, fields["position"]] = self._said[request]
        elif frame.kind == "stream.sent":
            before = self._chunks.get(request)
            what = f"{request} chunk {fields['chunk']}"
            self._tally.expect(before is None or fields["chunk"] == before + 1, f"{what} comes after chunk {before}")
            self._chunks[request] = fields["chunk"]
            self._sent[request] += fields["text_bytes"]
            expected = self._said_at.get((request, fields["position"]), None)
            if fields["position"] is not None:
                self._tally.expect(
                    self._sent[request] == expected,
                    f"{self._sent[request]} bytes were sent up to {what}, where the tokens have {expected}",
                )

    def results(self) -> Iterator[Check]:
        detail = f"{sum(self._sent.values())} bytes in chunks to {len(self._chunks)} requests"
        yield self._tally.check(detail if self._chunks else "nothing was sent", unknown=self._continuity.own_unknown)
