"""Log-probabilities in the shapes of the two completion APIs.

An entry is released together with the text of its token, so that the entries always describe the text that was sent:
not tokens whose bytes are still held back, and none that a stop text cut off.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backend.json import finite
from engine.events import Token

if TYPE_CHECKING:
    from engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Entry:
    """One token with the place in the answer where its text begins, in characters."""

    token: Token
    offset: int


class Pending:
    """Tokens of one choice whose text has not been released yet."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._characters = 0

    def add(self, token: Token) -> None:
        """Add a generated token. Control tokens are no part of the text and are left out."""
        if token.special:
            return
        self._entries.append(Entry(token, self._characters))
        self._characters += len(self._decoder.decode(bytes.fromhex(token.bytes_hex)))

    def release(self, text_length: int) -> list[Entry]:
        """The entries whose text begins before `text_length`, the characters released so far."""
        count = sum(entry.offset < text_length for entry in self._entries)
        released, self._entries = self._entries[:count], self._entries[count:]
        return released


def chat_logprobs(entries: list[Entry], top: int, tokenizer: Tokenizer) -> dict[str, Any]:
    """`choices[].logprobs` of a chat completion, `top` alternatives a token."""
    return {"content": [_chat_entry(entry.token, top, tokenizer) for entry in entries], "refusal": None}


def _chat_entry(token: Token, top: int, tokenizer: Tokenizer) -> dict[str, Any]:
    alternatives = [_chat_token(item["id"], item["logprob"], tokenizer) for item in token.top[:top]]
    return {**_chat_token(token.id, token.logprob, tokenizer), "top_logprobs": alternatives}


def _chat_token(token: int, logprob: float | None, tokenizer: Tokenizer) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    text = data.decode("utf-8", "replace") if data else tokenizer.label(token)
    return {"token": text, "logprob": finite(logprob), "bytes": list(data) if data else None}


def completion_logprobs(entries: list[Entry], top: int, tokenizer: Tokenizer) -> dict[str, Any]:
    """`choices[].logprobs` of a text completion: the `top` most probable tokens, and always the chosen one."""
    return {
        "tokens": [_key(entry.token.id, tokenizer) for entry in entries],
        "token_logprobs": [finite(entry.token.logprob) for entry in entries],
        "top_logprobs": [_ranking(entry.token, top, tokenizer) for entry in entries] if top else None,
        "text_offset": [entry.offset for entry in entries],
    }


def _ranking(token: Token, top: int, tokenizer: Tokenizer) -> dict[str, float]:
    ranking = {_key(item["id"], tokenizer): finite(item["logprob"]) for item in token.top[:top]}
    return ranking | {_key(token.id, tokenizer): finite(token.logprob)}


def _key(token: int, tokenizer: Tokenizer) -> str:
    """The token as a JSON key. Part of a character is spelled out, as OpenAI does, so that no two keys are equal."""
    data = tokenizer.token_bytes(token)
    try:
        return data.decode() if data else tokenizer.label(token)
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
