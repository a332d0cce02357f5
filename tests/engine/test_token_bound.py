"""The fewest tokens that a text can have: never more than it has, and for long texts known at once."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from engine.errors import RequestError
from engine.models import LoadedModel
from engine.request import GenerationRequest
from engine.tokenizer import Tokenizer, byte_alphabet
from tests.engine.test_batching import SMALL, Bench, EngineConfig


def byte_level(*, without: str = "", normalizer: Any = None, added: tuple[AddedToken, ...] = ()) -> Tokenizer:
    """A byte-level BPE that has merges, and perhaps nothing for some bytes."""
    letters = [char for char, byte in byte_alphabet().items() if byte not in without.encode()]
    merges = [("a", "b"), ("ab", "ab"), ("abab", "abab"), ("Ã", "©")]  # the last is é
    vocab = {piece: index for index, piece in enumerate([*letters, *("".join(pair) for pair in merges)])}
    backend = tokenizers.Tokenizer(models.BPE(vocab, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.add_tokens(list(added))
    return Tokenizer(backend, eos_ids=[])


def sentencepiece(*, all_bytes: bool = True) -> Tokenizer:
    """With the mark for spaces, alone and eight together, and a token for each byte, or not."""
    pieces = [
        *(f"<0x{byte:02X}>" for byte in range(256 if all_bytes else 200)),
        "▁",
        "a",
        "b",
        "▁a",
        "▁▁",
        "▁▁▁▁",
        "▁" * 8,
    ]
    vocab = {piece: index for index, piece in enumerate(["<unk>", *pieces])}
    merges = [("▁", "a"), ("▁", "▁"), ("▁▁", "▁▁"), ("▁▁▁▁", "▁▁▁▁")]
    backend = tokenizers.Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return Tokenizer(backend, eos_ids=[])


LONG = AddedToken("<|a very long name of a control token|>", special=True, normalized=False)
SPACES = AddedToken("<sep>", lstrip=True, rstrip=True, normalized=False)
KNOWN = {
    "bytes": byte_level(),
    "some bytes missing": byte_level(without="xyz\n"),
    "composed": byte_level(normalizer=normalizers.NFC()),
    "swallowing": byte_level(added=(SPACES,)),
    "sentencepiece": sentencepiece(),
    "long names": byte_level(added=(LONG,)),
}
TEXTS = st.lists(
    st.sampled_from(
        [
            "ab",
            "a",
            "x",
            "\n",
            " ",
            "▁",
            "é",
            "e\u0301",
            "각",
            "\u1100\u1161\u11a8",
            "\U0001f30d",
            "<sep>",
            LONG.content,
        ]
    )
    | st.text(max_size=5)
).map(lambda parts: "".join(part * 9 for part in parts))


@pytest.mark.parametrize("name", KNOWN)
@given(text=TEXTS)
def test_it_is_never_more_than_there_are(name: str, text: str) -> None:
    assert KNOWN[name].fewest_tokens(text) <= len(KNOWN[name].encode(text, add_special=False).ids)


@pytest.mark.parametrize(
    ("name", "text", "fewest"),
    [
        ("bytes", "ab" * 4000, 1000),
        ("bytes", "\U0001f30d" * 4000, 2000),
        ("some bytes missing", "xyz\n" * 4000, 0),
        ("some bytes missing", "xa" * 4000, 500),
        ("composed", "e\u0301" * 4000, 1000),
        ("swallowing", " " * 8000, 1000),
        ("swallowing", "<sep>" + " " * 8000, 0),
        ("sentencepiece", " " * 4800, 200),
        ("long names", "ab" * 4000 + LONG.content * 100, 1000),
    ],
)
def test_it_counts_the_bytes_that_some_token_must_stand_for(name: str, text: str, fewest: int) -> None:
    assert KNOWN[name].fewest_tokens(text) == fewest


@pytest.mark.parametrize(
    "tokenizer",
    [
        sentencepiece(all_bytes=False),
        byte_level(normalizer=normalizers.Strip()),
        byte_level(normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Replace("a", "")])),
    ],
)
def test_nothing_is_said_where_bytes_may_go_missing(tokenizer: Tokenizer) -> None:
    assert tokenizer.fewest_tokens("ab" * 10_000) == 0


def test_nothing_is_said_where_words_are_cut_at_what_is_left_out() -> None:
    backend = byte_level().backend
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), backend.pre_tokenizer])
    assert Tokenizer(backend, eos_ids=[]).fewest_tokens("ab" * 10_000) == 0
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    assert Tokenizer(backend, eos_ids=[]).fewest_tokens("ab" * 10_000) == 0


@pytest.fixture
def refusing(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """An engine whose tokenizer must not be asked."""
    bench = Bench(tiny, EngineConfig(kv_memory=SMALL))

    def asked(*args: Any, **more: Any) -> Any:
        raise AssertionError("the text was tokenized")

    monkeypatch.setattr(Tokenizer, "_encoded", asked)
    return bench


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"prompt": "x" * 4_000_000}, "prompt"),
        ({"messages": [{"role": "user", "content": "é" * 2_000_000}]}, "messages"),
        ({"prompt": [5] * 1_000_000}, "prompt"),
    ],
    ids=["text", "chat", "ids"],
)
def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenized(
    refusing: Bench, request_: dict[str, Any], param: str
) -> None:
    with pytest.raises(
        RequestError, match=r"tokens, and prompt and answer together may have 4096; shorten it"
    ) as caught:
        refusing.preparation.prepare(GenerationRequest(**request_), lambda event: None)
    assert (caught.value.param, caught.value.code) == (param, "context_length_exceeded")
    with pytest.raises(RequestError, match="may have 4096"):
        refusing.preparation.estimate(GenerationRequest(**request_))
    assert refusing.events == []


def test_a_fork_with_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(
    tiny: LoadedModel, refusing: Bench
) -> None:
    parent = refusing.add([1, 2, 3], 4)
    fork = GenerationRequest(prompt="x" * 4_094, source="fork")
    with pytest.raises(RequestError, match=r"has 4,094 characters, which are at least 4,096 tokens") as caught:
        refusing.preparation.prepare_fork(fork, lambda event: None, parent, 2)
    assert caught.value.param == "text"


def test_others_run_while_a_text_is_tokenized() -> None:
    """The library keeps every other thread from running in some of its calls."""
    tokenizer, text = byte_level(), "ab e\u0301 " * 60_000
    tokenizer.encode("ab")
    turns, done = 0, threading.Event()

    def turn() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0)

    other = threading.Thread(target=turn)
    other.start()
    before = turns
    tokenizer._encoded(text, add_special=False)
    taken = turns - before
    done.set()
    other.join()
    assert taken > 50
