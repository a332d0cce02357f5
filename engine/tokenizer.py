"""From text to tokens and back, to the byte.

Every tokenizer that MLX models come with is a `tokenizers.Tokenizer` underneath. This class adds what looking inside
needs and such tokenizers do not tell: the exact bytes of each token (a token may be half an emoji), the characters of
the prompt that it covers, and whose words they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import tokenizers

from engine.chat import Prompt, Render, render_chat
from engine.errors import ModelUnsupported, RequestError
from engine.token_bound import TokenBound, bound_of

_END_TOKENS = frozenset(
    [
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "<end_of_utterance>",
        "</s>",
        "<|eot|>",
        "<EOT>",
        "<|return|>",
        "<|end_of_turn|>",
    ]
)
"""Control tokens that end an answer whatever model they occur in."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class Encoding:
    """Token ids of a text, and the characters each covers as (start, end).

    Tokens that share a character (pieces of one emoji) all have that character's span. Tokens that the tokenizer added
    by itself (BOS) have an empty span.
    """

    ids: list[int]
    spans: list[tuple[int, int]]


def byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: the printable character that stands for each of the 256 bytes in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_ALPHABET = byte_alphabet()


class Tokenizer:
    """A tokenizer and, where the model has one, its chat template.

    Attributes:
        vocab_size: number of tokens it knows; the model's output may have a few more entries, which are padding.
        eos_ids: every token that ends an answer.
        has_chat_template: whether `render_chat` works.
        kind: ``byte-level BPE``, ``SentencePiece`` or ``other``.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        eos_ids: Iterable[int],
        render: Render | None = None,
        bos: str | None = None,
    ) -> None:
        self._backend = backend
        self._render = render
        self._bos = bos
        self._added = dict(backend.get_added_tokens_decoder())
        self._bytes: dict[int, bytes] = {}
        self._labels: dict[int, str] = {}
        self.kind = _kind(backend)
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.eos_ids = frozenset(eos_ids) | {
            id for id, t in self._added.items() if t.content in _END_TOKENS and t.special
        }
        self.has_chat_template = render is not None

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The `tokenizers` object that does the work, for those who want to write it out. Not to be changed."""
        return self._backend

    # --- text to tokens -----------------------------------------------------------------------------------------------

    def encode(self, text: str, *, add_special: bool = True) -> Encoding:
        """Tokenize. With `add_special` the tokenizer adds what it adds by itself, such as BOS, but never a second BOS.

        The tokens' bytes joined are the text's UTF-8, with these exceptions, which are the tokenizers' own: some
        normalize the text first (Qwen composes accents), SentencePiece writes a space in front, and bytes that a
        vocabulary lacks are dropped (SmolLM2's lacks six control characters, and the first byte of characters from
        U+40000 on, which are unassigned).

        Raises:
            RequestError: when the text holds half of a surrogate pair and so cannot be written as UTF-8.
        """
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise RequestError(f"the text cannot be written as UTF-8: {error.reason} at {error.start}") from error
        doubled = self._bos is not None and text.startswith(self._bos)
        encoding = self._encoded(text, add_special=add_special and not doubled)
        ids = list(encoding.ids)
        inserted = [bool(mask) for mask in encoding.special_tokens_mask]
        spans = self._spans_by_bytes(text, size, ids, inserted)
        return Encoding(ids, spans if spans is not None else _close_gaps(text, encoding.offsets, inserted))

    def _encoded(self, text: str, *, add_special: bool) -> tokenizers.Encoding:
        # Not `encode`: for as long as that takes, which is seconds for megabytes, no other thread of Python runs.
        return self._backend.encode_batch([text], add_special_tokens=add_special)[0]

    def fewest_tokens(self, text: str) -> int:
        """A number of tokens that the text has at least, known at once; 0 where nothing is known."""
        bound = self._bound
        return 0 if bound is None else bound.fewest(text)

    @cached_property
    def _bound(self) -> TokenBound | None:
        return bound_of(self._backend, self.kind, _ALPHABET, self.token_bytes)

    def _spans_by_bytes(
        self, text: str, size: int, ids: list[int], inserted: list[bool]
    ) -> list[tuple[int, int]] | None:
        """Spans from the tokens' own bytes. None where they do not add up to the text, as after normalization."""
        character_of = _characters_of_bytes(text, size)
        encoded = text.encode()
        spans: list[tuple[int, int]] = []
        at = 0
        for token, extra in zip(ids, inserted, strict=True):
            piece = b"" if extra else self._surface(token)
            if not encoded.startswith(piece, at):
                return None
            start = character_of[at] if at < size else len(text)
            end = character_of[at + len(piece) - 1] + 1 if piece else start
            spans.append((start, end))
            at += len(piece)
        return spans if at == size else None

    def _surface(self, id: int) -> bytes:
        """The bytes in the prompt's text that the token stands for: for control tokens, their name."""
        added = self._added.get(id)
        return added.content.encode() if added is not None else self.token_bytes(id)

    # --- tokens to text -----------------------------------------------------------------------------------------------

    def token_bytes(self, id: int) -> bytes:
        """Exactly the bytes that the token stands for; none for control tokens and for ids outside the vocabulary."""
        known = self._bytes.get(id)
        if known is None:
            known = self._bytes[id] = self._bytes_of(id)
        return known

    def _bytes_of(self, id: int) -> bytes:
        added = self._added.get(id)
        if added is not None:
            return b"" if added.special else added.content.encode()
        piece = self._piece(id)
        if piece is None:
            return b""
        if self.kind == "byte-level BPE":
            if all(char in _ALPHABET for char in piece):
                return bytes(_ALPHABET[char] for char in piece)
            return piece.encode()
        if self.kind == "SentencePiece":
            byte = _BYTE_TOKEN.fullmatch(piece)
            return bytes([int(byte[1], 16)]) if byte else piece.replace("\u2581", " ").encode()
        return str(self._backend.decode([id], skip_special_tokens=False)).encode()

    def _piece(self, id: int) -> str | None:
        """The token as the vocabulary writes it; None for ids outside the vocabulary."""
        return self._backend.id_to_token(id) if 0 <= id < 2**32 else None

    def label(self, id: int) -> str:
        """The token for display: its text, bytes that are no whole character as ``<0xE6>``; a control token's name."""
        known = self._labels.get(id)
        if known is None:
            known = self._label_of(id)
            if self._piece(id) is not None:  # of others there is no end
                self._labels[id] = known
        return known

    def _label_of(self, id: int) -> str:
        added = self._added.get(id)
        if added is not None:
            return str(added.content)
        data = self.token_bytes(id)
        if not data:
            return self._piece(id) or f"<{id}>"
        text = data.decode("utf-8", errors="surrogateescape")
        return re.sub("[\udc80-\udcff]", lambda found: f"<0x{ord(found[0]) - 0xDC00:02X}>", text)

    def is_special(self, id: int) -> bool:
        """True for control tokens: they steer the model and are not part of any text."""
        added = self._added.get(id)
        return added is not None and bool(added.special)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the tokens: their bytes joined and read as UTF-8, U+FFFD for what is none. No control tokens."""
        return b"".join(self.token_bytes(id) for id in ids).decode("utf-8", errors="replace")

    # --- chats --------------------------------------------------------------------------------------------------------

    def render_chat(self, messages: list[dict[str, Any]]) -> Prompt:
        """The text that the model's chat template makes of `messages`, ending where the assistant is to begin.

        Raises:
            RequestError: with param ``messages`` when they are malformed or the template refuses them.
        """
        return render_chat(self._render, messages)

    def roles(self, prompt: Prompt, spans: Sequence[tuple[int, int]]) -> list[str]:
        """Whose words each span is: system, user, assistant or template."""
        return prompt.roles_of(spans)

    # --- where they come from -----------------------------------------------------------------------------------------

    @classmethod
    def from_transformers(cls, tokenizer: Any, *, eos_ids: Iterable[int] = (), render: Render | None = None) -> Self:
        """From a fast tokenizer of transformers.

        Raises:
            ModelUnsupported: when it has no `tokenizers` backend.
        """
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, tokenizers.Tokenizer):
            raise ModelUnsupported(
                f"the tokenizer {type(tokenizer).__name__} has no fast form (tokenizer.json), which is needed"
            )
        if backend.truncation is not None or backend.padding is not None:  # an earlier call's, not the model's
            backend = tokenizers.Tokenizer.from_str(backend.to_str())
            backend.no_truncation()
            backend.no_padding()
        if render is None and tokenizer.chat_template is not None:

            def render(messages: list[dict[str, Any]]) -> str:
                return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

        own = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
        return cls(backend, eos_ids=[*eos_ids, *own], render=render, bos=tokenizer.bos_token)

    @classmethod
    def from_mlx_lm(cls, wrapper: Any) -> Self:
        """From what `mlx_lm.load` returns; its end tokens and its own chat renderers are kept."""
        inner = getattr(wrapper, "_tokenizer", wrapper)
        if inner is wrapper:
            return cls.from_transformers(wrapper)

        def render(messages: list[dict[str, Any]]) -> str:
            return str(wrapper.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

        eos_ids = [int(id) for id in wrapper.eos_token_ids]
        return cls.from_transformers(inner, eos_ids=eos_ids, render=render if wrapper.has_chat_template else None)

    @classmethod
    def from_gguf(cls, metadata: dict[str, Any]) -> Self:
        """From the metadata of a GGUF file (`tokenizer.ggml.*` and `tokenizer.chat_template`).

        Raises:
            ModelUnsupported: for a kind of tokenizer or pre-tokenizer that is not supported, by its name.
            ModelError: when the metadata contradicts itself.
        """
        from engine.models.gguf_tokenizer import build

        parts = build(metadata)
        return cls(parts.backend, eos_ids=parts.eos_ids, render=parts.render, bos=parts.bos)

    @classmethod
    def bytes_tokenizer(cls) -> Self:
        """256 bytes (id = byte) and a few control tokens, with a ChatML template: what the model `tiny` speaks."""
        from engine.models.tiny import byte_tokenizer

        backend, eos_ids, render = byte_tokenizer()
        return cls(backend, eos_ids=eos_ids, render=render)


def _kind(backend: tokenizers.Tokenizer) -> str:
    """How the vocabulary writes bytes, from the decoder's own description."""
    if backend.decoder is None:
        return "other"
    described = json.dumps(json.loads(backend.decoder.__getstate__()), ensure_ascii=False)
    if '"ByteLevel"' in described:
        return "byte-level BPE"
    if any(mark in described for mark in ('"ByteFallback"', '"Metaspace"', "\u2581")):
        return "SentencePiece"
    return "other"


def _characters_of_bytes(text: str, size: int) -> Sequence[int]:
    """For each byte of the text's UTF-8, the index of its character."""
    if size == len(text):
        return range(size)
    return [index for index, char in enumerate(text) for _ in char.encode()]


def _close_gaps(text: str, offsets: Sequence[tuple[int, int]], inserted: Sequence[bool]) -> list[tuple[int, int]]:
    """The library's own offsets, with what lies between them given to a neighbour.

    Spaces that the library trims off belong to the token after them; what was merged into a character by normalization
    (a combining accent) or left out belongs to the token before it.
    """
    spans: list[tuple[int, int]] = []
    last = 0  # end of the text covered so far
    for (start, end), extra in zip(offsets, inserted, strict=True):
        if extra:
            spans.append((last, last))
            continue
        if start > last:
            if text[last:start].isspace() or not spans:
                start = last
            else:
                _extend(spans, last, start)
        spans.append((start, max(start, end)))
        last = max(last, end)
    _extend(spans, last, len(text))
    return spans


def _extend(spans: list[tuple[int, int]], end: int, new_end: int) -> None:
    """Let the last tokens, all that end at `end`, end at `new_end`."""
    for index in range(len(spans) - 1, -1, -1):
        start, stop = spans[index]
        if stop != end or start == stop:
            return
        spans[index] = (start, new_end)
