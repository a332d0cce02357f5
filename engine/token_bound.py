"""How many tokens a text has at least, told without tokenizing it: megabytes take seconds, and most cannot fit anyway.

No token stands for more bytes than the longest one. That says something only where every byte of the text ends up in
some token, so it is worked out for tokenizers of which that is known, and 0 for all others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tokenizers

_KEEPING = frozenset({"ByteLevel", "Digits", "Metaspace", "Punctuation", "Split"})
"""Pre-tokenizers that cut a text and leave nothing of it out; but for those told to remove what they cut at."""


@dataclass(frozen=True, slots=True)
class TokenBound:
    """What a lower bound needs to know of a tokenizer.

    Attributes:
        longest: bytes of the longest token of the vocabulary proper.
        added: tokens that are found as they stand and are longer, such as the names of control tokens.
        dropped: bytes that may leave no trace, because the vocabulary has nothing for them.
        swallowing: added tokens that take in the spaces beside them, any number of them.
        normalizer: composes characters, which makes a text shorter; None: nothing does.
    """

    longest: int
    added: tuple[str, ...] = ()
    dropped: bytes = b""
    swallowing: tuple[str, ...] = ()
    normalizer: Any = None

    def fewest(self, text: str) -> int:
        """A number of tokens that `text` has at least."""
        if any(token in text for token in self.swallowing):
            return 0
        normal = text if self.normalizer is None else self.normalizer.normalize_str(text)
        kept = len(normal.encode(errors="ignore").translate(None, self.dropped))
        for token in self.added:
            kept -= max(text.count(token), normal.count(token)) * len(token.encode())
        return max(0, -(-kept // self.longest))


def bound_of(
    backend: tokenizers.Tokenizer, kind: str, alphabet: dict[str, int], token_bytes: Callable[[int], bytes]
) -> TokenBound | None:
    """The bound for a tokenizer; None where bytes may go missing in it.

    Args:
        backend: the tokenizer.
        kind: how its vocabulary writes bytes (`Tokenizer.kind`).
        alphabet: the characters of a byte-level vocabulary, and the byte that each stands for.
        token_bytes: what a token stands for.
    """
    if not isinstance(backend.model, tokenizers.models.BPE) or not _keeps_all(_state(backend.pre_tokenizer)):
        return None
    normalizers = _flat(_state(backend.normalizer), "normalizers")
    every = backend.get_added_tokens_decoder()
    swallowing = tuple(token.content for token in every.values() if token.lstrip or token.rstrip)
    pieces = {piece: id for piece, id in backend.get_vocab(with_added_tokens=True).items() if id not in every}
    longest = max(1, *(len(token_bytes(id)) for id in pieces.values()))
    if kind == "SentencePiece":
        # The mark that stands for a space, one byte, may also stand in the text itself, where it has three.
        longest = max(longest, *(len(piece.encode()) for piece in pieces))
    added = tuple(token.content for token in every.values() if len(token.content.encode()) > longest)
    if kind == "byte-level BPE" and all(one["type"] == "NFC" for one in normalizers):
        dropped = bytes(byte for char, byte in alphabet.items() if backend.token_to_id(char) is None)
        return TokenBound(longest, added, dropped, swallowing, backend.normalizer)
    byte_tokens = all(backend.token_to_id(f"<0x{byte:02X}>") is not None for byte in range(256))
    if kind == "SentencePiece" and byte_tokens and all(map(_writes_spaces, normalizers)):
        return TokenBound(longest, added, b"", swallowing)
    return None


def _state(part: Any) -> Any:
    """The description of a normalizer or pre-tokenizer; None where there is none."""
    return None if part is None else json.loads(part.__getstate__())


def _flat(state: Any, name: str) -> list[dict[str, Any]]:
    """The parts of a sequence, of sequences in it too."""
    if state is None:
        return []
    if state["type"] == "Sequence":
        return [part for inner in state[name] for part in _flat(inner, name)]
    return [state]


def _keeps_all(state: Any) -> bool:
    parts = _flat(state, "pretokenizers")
    return all(part["type"] in _KEEPING and part.get("behavior") != "Removed" for part in parts)


def _writes_spaces(state: dict[str, Any]) -> bool:
    """Whether a normalizer only marks spaces, as SentencePiece does."""
    replaces: bool = state["type"] == "Replace" and state["pattern"] == {"String": " "}
    return replaces or state["type"] == "Prepend"
