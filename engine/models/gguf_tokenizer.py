"""Build a tokenizer from a GGUF file's metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from engine.chat import Render, template_renderer
from engine.errors import ModelError, ModelUnsupported

# How a byte-level BPE cuts text into words before merging, by what `tokenizer.ggml.pre` names: the patterns of the
# models' own tokenizer.json files. A pattern applies to the pieces that the one before it left.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
_QWEN35 = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_PATTERNS: dict[str, list[str]] = {
    "default": [r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
    "gpt-2": [_GPT2],
    "smollm": [r"\p{N}", _GPT2],
    "llama-bpe": [_LLAMA3],
    "qwen2": [_QWEN2],
    "qwen35": [_QWEN35],
    "tekken": [_TEKKEN],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}"],
}
_SAME = {
    "smollm": "starcoder refact command-r codeshell exaone minerva-7b mellum2",
    "gpt-2": "phi-2 mpt olmo jais trillion granite-docling roberta-bpe gigachat jina-es jina-de jina-v2-es jina-v2-de",
    "llama-bpe": "llama3 llama-v3 falcon3 falcon-h1 pixtral-llama midm-2.0 lfm2 dbrx smaug-bpe chatglm-bpe",
    "qwen2": "deepseek-r1-qwen stablelm2 hunyuan megrez grok-2 solar-open",
    "tekken": "pixtral",
}
_PATTERN_OF = {name: name for name in _PATTERNS} | {
    other: name for name, others in _SAME.items() for other in others.split()
}

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)

_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


@dataclass(frozen=True)
class Parts:
    """What a `Tokenizer` is made of."""

    backend: tokenizers.Tokenizer
    eos_ids: list[int]
    render: Render | None
    bos: str | None


def build(metadata: dict[str, Any]) -> Parts:
    """Build the tokenizer that the metadata describes.

    Raises:
        ModelUnsupported: for a kind of tokenizer, or a way of cutting words, that is not known here.
        ModelError: when entries are missing or contradict each other.
    """
    kind = metadata.get("tokenizer.ggml.model")
    tokens = _list(metadata, "tokens", str)
    if len(set(tokens)) != len(tokens):
        raise ModelError("the GGUF file's tokenizer is damaged: tokenizer.ggml.tokens has a token twice")
    types = _list(metadata, "token_type", int, default=[_NORMAL] * len(tokens))
    if len(types) != len(tokens):
        raise ModelError(f"the GGUF file's tokenizer is damaged: {len(tokens)} tokens but {len(types)} token types")
    try:
        if kind == "gpt2":
            backend = _byte_level(metadata, tokens)
        elif kind == "llama":
            backend = _sentencepiece(metadata, tokens, types)
        else:
            raise ModelUnsupported(
                f"the GGUF file's tokenizer is of kind {kind!r}; supported are 'gpt2' (byte-level BPE) and 'llama' "
                "(SentencePiece BPE)"
            )
        _add_tokens(backend, tokens, types)
    except (ModelError, MemoryError):
        raise
    except Exception as error:  # what the tokenizers library raises has no narrower type
        raise ModelError(f"the GGUF file's tokenizer is damaged: {error}") from error
    special = {name: _token(metadata, f"{name}_token_id", tokens) for name in ("bos", "eos", "unknown", "padding")}
    _add_ends(backend, metadata, special, tokens)
    ends = (_id(metadata, key, tokens) for key in _END_KEYS)
    eos_ids = [id for id in ends if id is not None]
    return Parts(backend, eos_ids, _renderer(metadata, special), special["bos"])


def _list(metadata: dict[str, Any], key: str, type: type, default: list[Any] | None = None) -> list[Any]:
    found = metadata.get(f"tokenizer.ggml.{key}", default)
    if not isinstance(found, list) or not all(isinstance(item, type) for item in found):
        raise ModelError(f"the GGUF file has no usable tokenizer: tokenizer.ggml.{key} is missing or of a wrong type")
    return found


def _id(metadata: dict[str, Any], key: str, tokens: list[str]) -> int | None:
    id = metadata.get(f"tokenizer.ggml.{key}")
    return id if isinstance(id, int) and 0 <= id < len(tokens) else None


def _token(metadata: dict[str, Any], key: str, tokens: list[str]) -> str | None:
    id = _id(metadata, key, tokens)
    return None if id is None else tokens[id]


def _byte_level(metadata: dict[str, Any], tokens: list[str]) -> tokenizers.Tokenizer:
    """GPT-2's kind: text is cut into words, their bytes are written in a printable alphabet, and pairs are merged."""
    name = metadata.get("tokenizer.ggml.pre", "default")
    pattern = _PATTERN_OF.get(name)
    if pattern is None:
        known = ", ".join(sorted(_PATTERNS))
        raise ModelUnsupported(f"the GGUF file's pre-tokenizer is {name!r}; supported are {known} and their relatives")
    merges = [tuple(merge.split(" ", 1)) for merge in _list(metadata, "merges", str)]
    if any(len(merge) != 2 for merge in merges):
        raise ModelError("the GGUF file's tokenizer is damaged: an entry of tokenizer.ggml.merges is not a pair")
    vocab = {token: id for id, token in enumerate(tokens)}
    whole_words_first = pattern == "llama-bpe"  # a word that is in the vocabulary is never built from merges
    backend = tokenizers.Tokenizer(models.BPE(vocab, merges, ignore_merges=whole_words_first))
    cuts = [pre_tokenizers.Split(Regex(cut), behavior="isolated") for cut in _PATTERNS[pattern]]
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)]
    )
    if pattern in ("qwen2", "qwen35"):
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece(metadata: dict[str, Any], tokens: list[str], types: list[int]) -> tokenizers.Tokenizer:
    """Llama 2's kind: spaces become ``▁``, pairs merge by the score of what they make, other bytes are ``<0xXX>``."""
    scores = _list(metadata, "scores", float)
    if len(scores) != len(tokens):
        raise ModelError(f"the GGUF file's tokenizer is damaged: {len(tokens)} tokens but {len(scores)} scores")
    vocab = {token: id for id, token in enumerate(tokens)}
    unknown = next((token for token, type in zip(tokens, types, strict=True) if type == _UNKNOWN), None)
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab,
            _merges_by_score(vocab, tokens, types, scores),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaces = normalizers.Replace(" ", "\u2581")
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), spaces]) if prefix else spaces
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return backend


def _merges_by_score(
    vocab: dict[str, int], tokens: list[str], types: list[int], scores: list[float]
) -> list[tuple[str, str]]:
    """SentencePiece keeps no list of merges: every way to make a token of two others is one, best score first."""
    merges: list[tuple[float, int, str, str]] = []
    for id, (token, type, score) in enumerate(zip(tokens, types, scores, strict=True)):
        if type in (_NORMAL, _USER_DEFINED, _UNUSED):
            for cut in range(1, len(token)):
                left, right = token[:cut], token[cut:]
                if left in vocab and right in vocab:
                    merges.append((-score, id, left, right))
    merges.sort(key=lambda merge: (merge[0], merge[1], vocab[merge[2]], vocab[merge[3]]))
    return [(left, right) for _, _, left, right in merges]


def _add_tokens(backend: tokenizers.Tokenizer, tokens: list[str], types: list[int]) -> None:
    """Tokens that are found in the text as they stand, before anything is cut or merged."""
    added = [
        AddedToken(token, special=type != _USER_DEFINED, normalized=False)
        for token, type in zip(tokens, types, strict=True)
        if type in (_CONTROL, _USER_DEFINED, _UNKNOWN) and token
    ]
    special = [token for token in added if token.special]
    backend.add_special_tokens(special)
    backend.add_tokens([token for token in added if not token.special])


def _add_ends(
    backend: tokenizers.Tokenizer, metadata: dict[str, Any], special: dict[str, str | None], tokens: list[str]
) -> None:
    """Have the tokenizer put BOS before and EOS after a text, where the model was trained so."""
    sentencepiece = metadata.get("tokenizer.ggml.model") == "llama"
    llama3 = _PATTERN_OF.get(metadata.get("tokenizer.ggml.pre", "default")) == "llama-bpe"
    wanted = {"bos": metadata.get("tokenizer.ggml.add_bos_token", sentencepiece or llama3)}
    wanted["eos"] = metadata.get("tokenizer.ggml.add_eos_token", False)
    ends = {name: token for name, token in special.items() if token is not None and wanted.get(name)}
    if ends:
        single = " ".join([ends.get("bos", ""), "$A", ends.get("eos", "")]).split()
        ids = [(token, tokens.index(token)) for token in ends.values()]
        backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=ids)


def _renderer(metadata: dict[str, Any], special: dict[str, str | None]) -> Render | None:
    template = metadata.get("tokenizer.chat_template")
    if not isinstance(template, str):
        return None
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    return template_renderer(template, {names[name]: token or "" for name, token in special.items()})
