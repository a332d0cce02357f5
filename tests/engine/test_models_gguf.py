"""GGUF models against the same weights loaded by mlx-lm from a folder, family by family."""

from __future__ import annotations

import importlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.device import mx

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx.utils import tree_flatten
from mlx_lm.models.base import create_attention_mask  # noqa: F401  (mlx_lm must be importable before the models are)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine.errors import ModelError, ModelUnsupported
from engine.models import LoadedModel, load
from engine.models.gguf import TENSOR_TYPES, read_header
from engine.models.gguf_model import load_gguf
from engine.tokenizer import byte_alphabet
from tests.engine.gguf_file import byte_level_metadata, f32, gguf_bytes, permute_like_llama_cpp, write

LAYERS, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD = 2, 4, 2, 16, 96
HIDDEN = HEADS * HEAD_DIM
IDS = mx.array([[104, 101, 108, 108, 111, 32, 7, 200, 0, 31, 12, 263]])

NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclass
class Twin:
    """One set of random weights, as a folder and as what a GGUF file is made of."""

    folder: Path
    metadata: dict[str, Any]
    tensors: dict[str, tuple[str, tuple[int, ...], bytes]]
    path: Path

    def gguf(self) -> LoadedModel:
        return load(str(write(self.path, gguf_bytes(self.metadata, self.tensors))))


def make_twin(folder: Path, architecture: str, **changes: Any) -> Twin:
    """Write a folder that mlx-lm can load, in Hugging Face's layout, and the same as GGUF."""
    tokenizer = byte_level_metadata()
    vocab = len(tokenizer["tokenizer.ggml.tokens"])
    config: dict[str, Any] = {
        "model_type": architecture,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "intermediate_size": FEED_FORWARD,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-6,
        "vocab_size": vocab,
        "max_position_embeddings": 512,
        "rope_theta": 50000.0,
        "tie_word_embeddings": False,
        **({"head_dim": HEAD_DIM} if architecture != "qwen2" else {}),
        **changes,
    }
    module = importlib.import_module(f"mlx_lm.models.{architecture}")
    model = module.Model(module.ModelArgs.from_dict(config))
    rng = np.random.default_rng(5)
    flat: Any = tree_flatten(model.parameters())
    weights = {
        name: (rng.normal(0, 0.15, array.shape) + (1 if "norm" in name else 0)).astype(np.float32)
        for name, array in sorted(flat)
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(folder / "model.safetensors"), {name: mx.array(data) for name, data in weights.items()})
    backend = Tokenizer(models.BPE(byte_alphabet(), []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(folder)
    return Twin(folder, gguf_metadata(config) | tokenizer, gguf_tensors(architecture, weights), folder / "twin.gguf")


def gguf_metadata(config: dict[str, Any]) -> dict[str, Any]:
    architecture = config["model_type"]
    of_architecture = {
        "block_count": config["num_hidden_layers"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "context_length": config["max_position_embeddings"],
        "rope.freq_base": config["rope_theta"],
    }
    if "head_dim" in config:
        of_architecture["attention.key_length"] = of_architecture["attention.value_length"] = config["head_dim"]
    return {"general.architecture": architecture} | {f"{architecture}.{k}": v for k, v in of_architecture.items()}


def gguf_tensors(architecture: str, weights: dict[str, np.ndarray]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    tensors = {}
    for name, data in weights.items():
        module, _, leaf = name.rpartition(".")
        if module in whole:
            target = f"{whole[module]}.{leaf}"
        else:
            _, _, index, rest = module.split(".", 3)
            target = f"blk.{index}.{NAMES[rest]}.{leaf}"
            if architecture == "llama" and rest in ("self_attn.q_proj", "self_attn.k_proj"):
                data = permute_like_llama_cpp(data, HEADS if rest == "self_attn.q_proj" else KV_HEADS)
        tensors[target] = f32(data)
    return tensors


def logits(loaded: LoadedModel) -> np.ndarray:
    return np.array(loaded.model(IDS))


def assert_twins(twin: Twin) -> LoadedModel:
    gguf = twin.gguf()
    np.testing.assert_allclose(logits(gguf), logits(load(str(twin.folder))), atol=2e-5)
    return gguf


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_logits_are_those_of_the_folder(tmp_path: Path, architecture: str) -> None:
    info = assert_twins(make_twin(tmp_path / "m", architecture)).info
    assert (info.architecture, info.layers, info.heads, info.kv_heads) == (architecture, LAYERS, HEADS, KV_HEADS)
    assert (info.head_dim, info.hidden, info.vocab, info.context) == (HEAD_DIM, HIDDEN, 265, 512)
    assert (info.dtype, info.quantisation) == ("float32", None)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_tied_embeddings_are_tied(tmp_path: Path, architecture: str) -> None:
    twin = make_twin(tmp_path / "m", architecture, tie_word_embeddings=True)
    assert "output.weight" not in twin.tensors
    assert_twins(twin)


def test_heads_may_be_wider_than_hidden_by_heads(tmp_path: Path) -> None:
    assert assert_twins(make_twin(tmp_path / "m", "qwen3", head_dim=32)).info.head_dim == 32


def test_llama_with_biases(tmp_path: Path) -> None:
    twin = make_twin(tmp_path / "m", "llama", attention_bias=True)
    assert "blk.0.attn_q.bias" in twin.tensors
    assert_twins(twin)


def test_llama_with_biases_of_q_k_and_v_alone(tmp_path: Path) -> None:
    """mlx-lm's Llama has all four or none; a bias of zeros is none."""
    twin = make_twin(tmp_path / "m", "llama", attention_bias=True)
    for index in range(LAYERS):
        twin.tensors[f"blk.{index}.attn_output.bias"] = f32(np.zeros(HIDDEN))
    with_zeros = logits(twin.gguf())
    for index in range(LAYERS):
        del twin.tensors[f"blk.{index}.attn_output.bias"]
    np.testing.assert_array_equal(logits(twin.gguf()), with_zeros)


@pytest.mark.parametrize(
    ("in_folder", "in_gguf"),
    [
        ({"rope_type": "linear", "factor": 4.0}, {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
        ({"rope_type": "linear", "factor": 4.0}, {"rope.scale_linear": 4.0}),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 128,
            },
        ),
    ],
)
def test_rope_scaling(tmp_path: Path, in_folder: dict[str, Any], in_gguf: dict[str, Any]) -> None:
    twin = make_twin(tmp_path / "m", "qwen2", rope_scaling=in_folder)
    unscaled = logits(twin.gguf())
    twin.metadata |= {f"qwen2.{key}": value for key, value in in_gguf.items()}
    assert np.abs(logits(assert_twins(twin)) - unscaled).max() > 1e-3


def test_llama3_rope_factors(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    twin = make_twin(tmp_path / "m", "llama", rope_scaling=scaling)
    plain = load(str(twin.folder)).model.layers[0].self_attn.rope._freqs
    exponents = np.arange(0, HEAD_DIM, 2) / HEAD_DIM
    twin.tensors["rope_freqs.weight"] = f32(np.array(plain) / 50000.0**exponents)
    assert_twins(twin)


def test_quantised_weights_are_kept_where_asked(tmp_path: Path) -> None:
    """What a GPU does: weights stay in their quantised form; the logits are those of the dequantised ones, nearly."""
    twin = make_twin(tmp_path / "m", "llama")
    rng = np.random.default_rng(1)
    for name, (_, shape, _) in list(twin.tensors.items()):
        if len(shape) == 2:
            blocks = rng.integers(0, 256, (shape[0] * shape[1] // 32, 20), np.uint8)
            blocks[:, 0:4] = np.array([0.02, -0.15], "<f2").view(np.uint8)  # scale and minimum
            twin.tensors[name] = ("Q4_1", shape, blocks.tobytes())
    path = write(twin.path, gguf_bytes(twin.metadata, twin.tensors))
    kept, dequantised = load_gguf(path, keep_quantised=True), load_gguf(path, keep_quantised=False)
    assert hasattr(kept.model.layers[0].mlp.up_proj, "scales")
    assert not hasattr(dequantised.model.layers[0].mlp.up_proj, "scales")
    assert kept.info.quantisation == dequantised.info.quantisation == "Q4_1"
    assert kept.info.parameters == dequantised.info.parameters
    assert kept.info.weights_bytes < dequantised.info.weights_bytes / 4
    assert dequantised.info.dtype == "float32"
    difference = np.abs(np.array(kept.model(IDS).astype(mx.float32)) - logits(dequantised)).max()
    assert 0 < difference < 0.02 * np.abs(logits(dequantised)).max()


def refusal(twin: Twin, error: type[ModelError] = ModelError) -> str:
    with pytest.raises(error) as caught:
        twin.gguf()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def twin(tmp_path: Path) -> Twin:
    return make_twin(tmp_path / "m", "llama")


def test_other_architectures_are_named(twin: Twin) -> None:
    twin.metadata["general.architecture"] = "gemma3"
    assert "'gemma3'" in refusal(twin, ModelUnsupported)


def test_mixtures_of_experts_are_refused(twin: Twin) -> None:
    twin.metadata["llama.expert_count"] = 8
    assert "experts" in refusal(twin, ModelUnsupported)


def test_tensor_types_that_are_not_supported_are_named(twin: Twin) -> None:
    shape = twin.tensors["blk.1.ffn_up.weight"][1]
    twin.tensors["blk.1.ffn_up.weight"] = ("MXFP4", shape, bytes(shape[0] * shape[1] // 32 * 17))
    message = refusal(twin, ModelUnsupported)
    assert "MXFP4" in message
    assert "blk.1.ffn_up.weight" in message


def test_missing_tensors_are_named(twin: Twin) -> None:
    del twin.tensors["blk.1.attn_k.weight"]
    assert "blk.1.attn_k.weight is missing" in refusal(twin)


def test_tensors_that_would_be_left_out_are_refused(twin: Twin) -> None:
    twin.tensors["blk.0.attn_sinks.weight"] = f32(np.zeros(HEADS))
    assert "blk.0.attn_sinks.weight" in refusal(twin, ModelUnsupported)


def test_tensors_of_another_shape_are_refused(twin: Twin) -> None:
    twin.tensors["output_norm.weight"] = f32(np.ones(HIDDEN + 1))
    assert "output_norm.weight has shape [65], expected [64]" in refusal(twin)


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("block_count", 2**31 - 1),
        ("block_count", 0),
        ("block_count", "two"),
        ("embedding_length", 2**30),
        ("attention.head_count", 3),
        ("attention.head_count_kv", 3),
        ("attention.key_length", 2**20),
        ("context_length", -1),
        ("rope.freq_base", float("nan")),
        ("attention.layer_norm_rms_epsilon", "small"),
    ],
)
def test_dimensions_that_cannot_be_are_refused(twin: Twin, key: str, wrong: Any) -> None:
    twin.metadata[f"llama.{key}"] = wrong
    refusal(twin)


def test_rope_scaling_that_is_not_supported_is_named(twin: Twin) -> None:
    twin.metadata["llama.rope.scaling.type"] = "longrope"
    assert "longrope" in refusal(twin, ModelUnsupported)


def test_missing_dimensions_are_named(twin: Twin) -> None:
    del twin.metadata["llama.block_count"]
    assert "llama.block_count" in refusal(twin)


def test_a_vocabulary_larger_than_the_embeddings_is_refused(twin: Twin) -> None:
    twin.metadata["tokenizer.ggml.tokens"] = [*twin.metadata["tokenizer.ggml.tokens"], "extra"]
    twin.metadata["tokenizer.ggml.token_type"] = [*twin.metadata["tokenizer.ggml.token_type"], 1]
    assert "266 tokens" in refusal(twin)


def test_a_model_larger_than_the_machine_is_refused(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.device.memory_bytes", lambda: 100_000)
    assert "memory" in refusal(twin)


@pytest.mark.parametrize("type", ["F32", "Q4_1", "Q8_0"])
def test_weights_that_are_no_numbers_are_named(twin: Twin, type: str) -> None:
    _, shape, _ = twin.tensors["blk.1.ffn_up.weight"]
    _, block, size = next(entry for entry in TENSOR_TYPES.values() if entry[0] == type)
    data = b"\xff" * (shape[0] * shape[1] // block * size)
    twin.tensors["blk.1.ffn_up.weight"] = (type, shape, data)
    assert "blk.1.ffn_up.weight" in refusal(twin)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, int]:
    """Where to write, a whole file, and where its tensors' data begin."""
    twin = make_twin(tmp_path_factory.mktemp("whole") / "m", "llama")
    path = write(twin.path, gguf_bytes(twin.metadata, twin.tensors))
    return path, path.read_bytes(), min(info.offset for info in read_header(path).tensors.values())


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damage_anywhere_is_survived(whole: tuple[Path, bytes, int], data: st.DataObject) -> None:
    """A damaged file loads (the damage may lie in a name) or is refused in one line, quickly; nothing else."""
    path, content, end = whole
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(4, end - 8))
        new = data.draw(st.binary(max_size=8) | st.integers(0, 2**64 - 1).map(lambda n: n.to_bytes(8, "little")))
        damaged[at : at + data.draw(st.integers(0, 8))] = new
    started = time.monotonic()
    try:
        load_gguf(write(path, bytes(damaged)))
    except ModelError as error:
        assert "\n" not in str(error)  # noqa: PT017
    assert time.monotonic() - started < 5
