"""Tokens to the byte: nothing of a text is lost, added or moved."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.tokenizer_utils import load as load_mlx_lm
from tokenizers import decoders, models, pre_tokenizers, processors
from transformers import GPT2Tokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

from engine.errors import ModelError, ModelUnsupported, RequestError
from engine.models import LoadedModel
from engine.tokenizer import Encoding, Tokenizer, byte_alphabet
from tests.engine.gguf_file import byte_level_metadata

PIECES = [  # emoji of one and of several characters, accents in both forms, spaces, words of the small vocabulary
    "🐱",
    "👩‍👩‍👧",
    "é",
    "e\u0301",
    "日本",
    " ",
    "  ",
    "\n",
    "\t",
    "hello",
    " the",
    "123",
    "'s",
    "<|im_end|>",
    "€",
    "'",
]
LACKING = "\x04\x06\x13\x14\x16\x1d"  # single bytes that SmolLM2's vocabulary lacks
TEXTS = st.text(
    st.characters(max_codepoint=0x3FFFF, exclude_categories=["Cs"], exclude_characters=LACKING), max_size=60
) | st.lists(st.sampled_from(PIECES)).map("".join)
ORACLE = Path(__file__).parents[1] / "oracle"


def surface(tokenizer: Tokenizer, id: int) -> bytes:
    """What the token stands for in a prompt's text: its bytes, or a control token's name."""
    return tokenizer.label(id).encode() if tokenizer.is_special(id) else tokenizer.token_bytes(id)


def check_spans(text: str, encoding: Encoding) -> None:
    """Spans run from the text's start to its end in order; neighbours touch, or share one character."""
    assert len(encoding.ids) == len(encoding.spans)
    if not text:
        assert encoding.ids == []
        return
    assert encoding.spans[0][0] == 0
    assert encoding.spans[-1][1] == len(text)
    for (start, end), (next_start, next_end) in pairwise(encoding.spans):
        assert start < end
        assert end - 1 <= next_start <= end
        assert next_end >= end


@pytest.fixture(scope="module")
def smol(smollm2: LoadedModel) -> Tokenizer:
    return smollm2.tokenizer


@pytest.fixture(scope="module")
def smol_by_the_library(smollm2: LoadedModel) -> tokenizers.Tokenizer:
    """SmolLM2's own tokenizer.json cuts with the library's Digits and ByteLevel, which share no pattern with ours."""
    own = tokenizers.Tokenizer.from_str(smollm2.tokenizer._backend.to_str())
    own.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return own


@pytest.fixture(scope="module")
def plain() -> Tokenizer:
    return Tokenizer.from_gguf(byte_level_metadata())


@pytest.mark.model
def test_ids_are_those_of_the_reference(smollm2: LoadedModel) -> None:
    for case in json.loads((ORACLE / "cases.json").read_text())["cases"]:
        if case["kind"] == "chat":
            prompt = smollm2.tokenizer.render_chat([{"role": "user", "content": case["prompt"]}])
            encoding = smollm2.tokenizer.encode(prompt.text, add_special=False)
        else:
            encoding = smollm2.tokenizer.encode(case["prompt"])
        assert encoding.ids == case["prompt_ids"]
        assert smollm2.tokenizer.decode(case["greedy_ids"]) == case["text"].removesuffix("<|im_end|>")


@pytest.mark.model
@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_bytes_of_all_tokens_are_the_text(smol: Tokenizer, text: str) -> None:
    tokenizer = smol
    encoding = tokenizer.encode(text)
    assert b"".join(surface(tokenizer, id) for id in encoding.ids) == text.encode()
    check_spans(text, encoding)


@pytest.mark.model
@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_words_are_cut_as_smollm_was_trained(
    smol: Tokenizer, smol_by_the_library: tokenizers.Tokenizer, text: str
) -> None:
    assert smol.encode(text).ids == smol_by_the_library.encode(text).ids


@pytest.mark.model
def test_characters_that_the_vocabulary_lacks_are_dropped_as_in_the_reference(smol: Tokenizer) -> None:
    tokenizer = smol
    encoding = tokenizer.encode("a\U00040000b")
    assert b"".join(tokenizer.token_bytes(id) for id in encoding.ids) == b"a\x80\x80\x80b"  # U+40000 begins with F1
    check_spans("a\U00040000b", encoding)


@pytest.mark.model
def test_pieces_of_one_emoji_share_its_span(smol: Tokenizer) -> None:
    tokenizer = smol
    encoding = tokenizer.encode("a 🐱!")
    by_span = [(tokenizer.label(id), span) for id, span in zip(encoding.ids, encoding.spans, strict=True)]
    assert by_span == [
        ("a", (0, 1)),
        (" <0xF0><0x9F>", (1, 3)),
        ("<0x90>", (2, 3)),
        ("<0xB1>", (2, 3)),
        ("!", (3, 4)),
    ]
    assert [tokenizer.token_bytes(id) for id in encoding.ids] == [b"a", b" \xf0\x9f", b"\x90", b"\xb1", b"!"]


@pytest.mark.model
def test_control_tokens_have_a_name_and_no_bytes(smol: Tokenizer) -> None:
    tokenizer = smol
    assert tokenizer.encode("<|im_end|>").ids == [2]
    assert (tokenizer.label(2), tokenizer.token_bytes(2), tokenizer.is_special(2)) == ("<|im_end|>", b"", True)
    assert tokenizer.decode([2, *tokenizer.encode("hi").ids, 2]) == "hi"
    assert tokenizer.eos_ids >= {0, 2}
    assert tokenizer.kind == "byte-level BPE"
    assert tokenizer.vocab_size == 49152


def test_ids_outside_the_vocabulary_have_no_bytes(plain: Tokenizer) -> None:
    for id in (-1, plain.vocab_size, 10**9):
        assert plain.token_bytes(id) == b""
        assert plain.label(id) == f"<{id}>"
        assert not plain.is_special(id)
    assert plain.decode([10**9]) == ""


def test_half_a_surrogate_pair_is_refused(plain: Tokenizer) -> None:
    with pytest.raises(RequestError, match="UTF-8"):
        plain.encode("a\ud83d")


def test_every_byte_has_its_token() -> None:
    tokenizer = Tokenizer.bytes_tokenizer()
    assert [tokenizer.token_bytes(id) for id in range(256)] == [bytes([id]) for id in range(256)]
    assert tokenizer.encode("aé").ids == [0x61, 0xC3, 0xA9]
    assert tokenizer.encode("aé").spans == [(0, 1), (1, 2), (1, 2)]
    assert tokenizer.decode([0x61, 0xC3, 0xA9, 0xFF]) == "aé\ufffd"


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_bytes_tokenizer_is_the_texts_utf8(text: str) -> None:
    tokenizer = Tokenizer.bytes_tokenizer()
    encoding = tokenizer.encode(text)
    assert b"".join(surface(tokenizer, id) for id in encoding.ids) == text.encode()
    check_spans(text, encoding)


# --- byte-level BPE, cut in other ways --------------------------------------------------------------------------------


def vocabulary(metadata: dict[str, Any]) -> dict[str, Any]:
    return {
        "vocab": {token: id for id, token in enumerate(metadata["tokenizer.ggml.tokens"])},
        "merges": [tuple(merge.split()) for merge in metadata["tokenizer.ggml.merges"]],
    }


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_qwen2_is_cut_as_transformers_does(text: str) -> None:
    metadata = byte_level_metadata("qwen2")
    reference = Qwen2Tokenizer(**vocabulary(metadata))
    reference.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    assert Tokenizer.from_gguf(metadata).encode(text).ids == reference.encode(text, add_special_tokens=False)


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_gpt2_is_cut_as_transformers_does(text: str) -> None:
    metadata = byte_level_metadata("gpt-2")
    reference = GPT2Tokenizer(**vocabulary(metadata))
    reference.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    assert Tokenizer.from_gguf(metadata).encode(text).ids == reference.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("pre", ["default", "llama-bpe", "tekken", "qwen35", "deepseek-coder", "deepseek-r1-qwen"])
def test_every_way_of_cutting_keeps_all_bytes(pre: str) -> None:
    tokenizer = Tokenizer.from_gguf(byte_level_metadata(pre))
    text = "Hello, 12345 hello\n\n  the wörld's 日本 🐱\t'LL end"
    encoding = tokenizer.encode(text, add_special=False)
    assert b"".join(tokenizer.token_bytes(id) for id in encoding.ids) == text.encode()
    check_spans(text, encoding)


def test_llama3_cuts_digits_in_threes_and_qwen2_singly() -> None:
    llama3, qwen2 = (Tokenizer.from_gguf(byte_level_metadata(pre)) for pre in ("llama-bpe", "qwen2"))
    digits = [llama3.label(id) for id in llama3.encode("1231", add_special=False).ids]
    assert digits == ["123", "1"]
    assert [qwen2.label(id) for id in qwen2.encode("1231").ids] == ["1", "2", "3", "1"]


def test_what_normalization_changes_still_has_its_place() -> None:
    """Qwen2 composes characters first: the bytes are those of the composed text, the spans those of the given one."""
    tokenizer = Tokenizer.from_gguf(byte_level_metadata("qwen2"))
    encoding = tokenizer.encode("xe\u0301y")
    assert tokenizer.decode(encoding.ids) == "xéy"
    assert encoding.spans == [(0, 1), (1, 3), (1, 3), (3, 4)]


def test_bos_is_added_once_and_has_no_place() -> None:
    metadata = byte_level_metadata() | {"tokenizer.ggml.add_bos_token": True}
    tokenizer = Tokenizer.from_gguf(metadata)
    bos = metadata["tokenizer.ggml.bos_token_id"]
    assert tokenizer.encode("hi").ids[0] == bos
    assert tokenizer.encode("hi").spans == [(0, 0), (0, 1), (1, 2)]
    assert tokenizer.encode("<|im_start|>hi").ids.count(bos) == 1
    assert bos not in tokenizer.encode("hi", add_special=False).ids


def test_unknown_ways_of_cutting_are_named() -> None:
    with pytest.raises(ModelUnsupported, match="'klingon'"):
        Tokenizer.from_gguf(byte_level_metadata("klingon"))
    with pytest.raises(ModelUnsupported, match="'bert'"):
        Tokenizer.from_gguf(byte_level_metadata() | {"tokenizer.ggml.model": "bert"})


@pytest.mark.parametrize(
    "damage",
    [
        {"tokenizer.ggml.tokens": ["a", "a"]},
        {"tokenizer.ggml.tokens": "text"},
        {"tokenizer.ggml.token_type": [1, 1]},
        {"tokenizer.ggml.merges": ["nopair"]},
        {"tokenizer.ggml.merges": ["not there"]},
    ],
)
def test_a_damaged_tokenizer_is_one_line(damage: dict[str, Any]) -> None:
    with pytest.raises(ModelError) as caught:
        Tokenizer.from_gguf(byte_level_metadata() | damage)
    assert "\n" not in str(caught.value)


# --- SentencePiece ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sentencepiece_model() -> sentencepiece.SentencePieceProcessor:
    """A small model trained here, by the library that Llama 2's was trained with, with Llama 2's settings."""
    letters = list("etaoinshrdlucmfwypvbgk")
    rng = np.random.default_rng(3)
    words = ["".join(rng.choice(letters, rng.integers(2, 8))) for _ in range(200)]
    lines = [" ".join(rng.choice(words, 12)) + " the cat's 1234 5.6, été" for _ in range(300)]
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=out,
        model_type="bpe",
        vocab_size=400,
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def sentencepiece_metadata(model: sentencepiece.SentencePieceProcessor) -> dict[str, Any]:
    ids = range(model.get_piece_size())

    def kind(id: int) -> int:
        return 2 if model.is_unknown(id) else 3 if model.is_control(id) else 6 if model.is_byte(id) else 1

    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [model.id_to_piece(id) for id in ids],
        "tokenizer.ggml.scores": [float(model.get_score(id)) for id in ids],
        "tokenizer.ggml.token_type": [kind(id) for id in ids],
        "tokenizer.ggml.bos_token_id": model.bos_id(),
        "tokenizer.ggml.eos_token_id": model.eos_id(),
        "tokenizer.ggml.unknown_token_id": model.unk_id(),
    }


def test_sentencepiece_ids_are_those_of_sentencepiece(
    sentencepiece_model: sentencepiece.SentencePieceProcessor,
) -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece_metadata(sentencepiece_model))
    assert tokenizer.kind == "SentencePiece"

    @settings(max_examples=300, deadline=None)
    @given(text=TEXTS | st.lists(st.sampled_from(["the", " cat", "'s", "  ", " 12", "é", "🐱", "x"])).map("".join))
    def same(text: str) -> None:
        if "<" in text or "▁" in text or not text:
            return
        encoding = tokenizer.encode(text, add_special=False)
        assert encoding.ids == sentencepiece_model.encode(text)
        assert b"".join(tokenizer.token_bytes(id) for id in encoding.ids) == b" " + text.encode()

    same()


def test_sentencepiece_spans_and_bytes(sentencepiece_model: sentencepiece.SentencePieceProcessor) -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece_metadata(sentencepiece_model))
    encoding = tokenizer.encode("the cat 🐱!")
    labels = [tokenizer.label(id) for id in encoding.ids]
    assert labels == ["<s>", " the", " cat", " ", "<0xF0>", "<0x9F>", "<0x90>", "<0xB1>", "!"]
    assert encoding.spans == [(0, 0), (0, 3), (3, 7), (7, 8), (8, 9), (8, 9), (8, 9), (8, 9), (9, 10)]
    assert tokenizer.decode(encoding.ids) == " the cat 🐱!"
    assert tokenizer.is_special(encoding.ids[0])


# --- what mlx-lm and transformers load --------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    backend = tokenizers.Tokenizer(models.BPE(byte_alphabet(), []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    backend.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", bos_token="<begin>")
    fast.add_tokens(["<think>"])
    fast.chat_template = (
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    fast.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return tmp_path


def test_a_tokenizer_of_mlx_lm(folder: Path) -> None:
    wrapper = load_mlx_lm(folder, eos_token_ids=[65])
    assert isinstance(wrapper, TokenizerWrapper)
    tokenizer = Tokenizer.from_mlx_lm(wrapper)
    end = wrapper.convert_tokens_to_ids("<end>")
    assert tokenizer.eos_ids == {65, end}
    prompt = tokenizer.render_chat([{"role": "user", "content": " hi <think>"}])
    assert prompt.text == "<begin>[user] hi <think>[assistant]"
    encoding = tokenizer.encode(prompt.text, add_special=False)
    assert encoding.ids == wrapper.encode(prompt.text, add_special_tokens=False)
    check_spans(prompt.text, encoding)
    think = wrapper.convert_tokens_to_ids("<think>")
    assert (tokenizer.token_bytes(think), tokenizer.is_special(think)) == (b"<think>", False)
    assert (tokenizer.token_bytes(end), tokenizer.is_special(end)) == (b"", True)


def test_a_tokenizer_of_transformers_with_settings_of_an_earlier_call(folder: Path) -> None:
    fast = PreTrainedTokenizerFast.from_pretrained(folder)
    fast(["a", "bcdef"], truncation=True, max_length=3)
    assert fast.backend_tokenizer.truncation is not None
    tokenizer = Tokenizer.from_transformers(fast)
    assert len(tokenizer.encode("bcdefgh").ids) == 7


def test_a_tokenizer_without_a_fast_form_is_refused() -> None:
    with pytest.raises(ModelUnsupported, match="object has no fast form"):
        Tokenizer.from_transformers(object())
