"""What a GGUF file's metadata says the model is, checked against the tensors that it has, before anything is built."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from engine.errors import ModelError, ModelUnsupported
from engine.models.gguf import GgufHeader
from engine.models.gguf_blocks import PLAIN, QUANTISED

ROPE_FACTORS = "rope_freqs.weight"
"""The one tensor that is not a weight: what each of RoPE's frequencies is divided by (Llama 3.1 and later)."""


@dataclass(frozen=True)
class _Family:
    """What differs between the supported architectures.

    Attributes:
        rope_traditional: True where the converter permuted q and k, so that RoPE turns neighbouring pairs.
        biases: of q, k and v: required (True), impossible (False), or as the file has it (None).
        head_norms: whether q and k are normalised per head.
    """

    rope_traditional: bool
    biases: bool | None
    head_norms: bool


_FAMILIES = {
    "llama": _Family(rope_traditional=True, biases=None, head_norms=False),
    "qwen2": _Family(rope_traditional=False, biases=True, head_norms=False),
    "qwen3": _Family(rope_traditional=False, biases=False, head_norms=True),
}


class GgufSpec:
    """A model's dimensions, from the metadata, checked."""

    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        self.architecture = header.architecture
        if self.architecture not in _FAMILIES:
            raise ModelUnsupported(
                f"{header.path} is of architecture {self.architecture[:40]!r}; of GGUF files, {', '.join(_FAMILIES)} "
                "are supported. Other models run from an MLX or Hugging Face folder"
            )
        self.family = _FAMILIES[self.architecture]
        if self.integer("expert_count", 0):
            raise ModelUnsupported(f"{header.path} is a mixture of experts, which is not supported from GGUF files")
        self.layers = self.integer("block_count")
        self.hidden = self.integer("embedding_length")
        self.heads = self.integer("attention.head_count")
        self.kv_heads = self.integer("attention.head_count_kv", self.heads)
        self.feed_forward = self.integer("feed_forward_length")
        self.context = self.integer("context_length")
        self.rope_base = self.number("rope.freq_base", 10000.0)
        if min(self.layers, self.hidden, self.heads, self.kv_heads, self.feed_forward, self.context) < 1:
            raise ModelError(f"{header.path} is damaged: one of its dimensions is below 1")
        if self.heads % self.kv_heads:
            raise ModelError(f"{header.path} is damaged: {self.heads} heads cannot share {self.kv_heads} KV heads")
        self.head_dim = self.integer("attention.key_length", self.hidden // self.heads)
        unlike = {
            "attention.value_length": self.integer("attention.value_length", self.head_dim),
            "rope.dimension_count": self.integer("rope.dimension_count", self.head_dim),
        }
        for key, value in unlike.items():
            if value != self.head_dim:
                raise ModelUnsupported(f"{header.path} has {key} {value} beside a head size of {self.head_dim}")
        if self.architecture == "qwen2" and self.head_dim * self.heads != self.hidden:
            raise ModelUnsupported(f"{header.path} is a Qwen2 with heads of {self.head_dim}, not hidden size ÷ heads")
        embedding = header.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise ModelError(f"{header.path} is damaged: it has no token embeddings (token_embd.weight)")
        self.vocab = embedding.shape[0]
        self.tied = "output.weight" not in header.tensors
        self.biased = bool(self.family.biases) or "blk.0.attn_q.bias" in header.tensors

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.header.metadata.get(f"{self.architecture}.{key}", default)
        if isinstance(value, list) and len(set(value)) == 1:  # one entry a layer, all the same
            value = value[0]
        if not isinstance(value, int) or not 0 <= value < 2**31:
            expected = "expected a whole number" if value is not None else "it is missing"
            raise ModelError(f"{self.header.path}: {self.architecture}.{key} is {str(value)[:60]}; {expected}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.header.metadata.get(f"{self.architecture}.{key}", default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ModelError(f"{self.header.path}: {self.architecture}.{key} is {str(value)[:60]}; expected a number")
        return float(value)

    def expected(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Every tensor that the model must have: its name in mlx-lm's model and its shape, by its name in the file."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer: dict[str, tuple[str, tuple[int, ...]]] = {
            "attn_norm.weight": ("input_layernorm.weight", (self.hidden,)),
            "ffn_norm.weight": ("post_attention_layernorm.weight", (self.hidden,)),
            "attn_q.weight": ("self_attn.q_proj.weight", (queries, self.hidden)),
            "attn_k.weight": ("self_attn.k_proj.weight", (keys, self.hidden)),
            "attn_v.weight": ("self_attn.v_proj.weight", (keys, self.hidden)),
            "attn_output.weight": ("self_attn.o_proj.weight", (self.hidden, queries)),
            "ffn_gate.weight": ("mlp.gate_proj.weight", (self.feed_forward, self.hidden)),
            "ffn_up.weight": ("mlp.up_proj.weight", (self.feed_forward, self.hidden)),
            "ffn_down.weight": ("mlp.down_proj.weight", (self.hidden, self.feed_forward)),
        }
        if self.biased:
            layer["attn_q.bias"] = ("self_attn.q_proj.bias", (queries,))
            layer["attn_k.bias"] = ("self_attn.k_proj.bias", (keys,))
            layer["attn_v.bias"] = ("self_attn.v_proj.bias", (keys,))
            if self.family.biases is None:
                layer["attn_output.bias"] = ("self_attn.o_proj.bias", (self.hidden,))
        if self.family.head_norms:
            layer["attn_q_norm.weight"] = ("self_attn.q_norm.weight", (self.head_dim,))
            layer["attn_k_norm.weight"] = ("self_attn.k_norm.weight", (self.head_dim,))
        names = {
            f"blk.{index}.{name}": (f"model.layers.{index}.{target}", shape)
            for index in range(min(self.layers, len(self.header.tensors)))
            for name, (target, shape) in layer.items()
        }
        names["token_embd.weight"] = ("model.embed_tokens.weight", (self.vocab, self.hidden))
        names["output_norm.weight"] = ("model.norm.weight", (self.hidden,))
        if not self.tied:
            names["output.weight"] = ("lm_head.weight", (self.vocab, self.hidden))
        return names

    def check_tensors(self) -> None:
        """Refuse a file that lacks a tensor, has one of another shape or type, or one that would be left out."""
        path, tensors = self.header.path, self.header.tensors
        expected = self.expected()
        for name, (_, shape) in expected.items():
            info = tensors.get(name)
            if info is None and not name.endswith("attn_output.bias"):
                raise ModelError(f"{path} is damaged: tensor {name} is missing ({self.layers} layers are declared)")
            if info is not None and info.shape != shape:
                raise ModelError(
                    f"{path} is damaged: tensor {name} has shape {list(info.shape)}, expected {list(shape)}"
                )
        for name, info in tensors.items():
            if name not in expected and name != ROPE_FACTORS:
                raise ModelUnsupported(
                    f"{path} has the tensor {name[:80]!r}, which no supported {self.architecture} has"
                )
            if info.type not in QUANTISED and info.type not in PLAIN:
                known = ", ".join(sorted(QUANTISED | set(PLAIN)))
                raise ModelUnsupported(f"{path}: tensor {name} is of type {info.type}; supported are {known}")
        factors = tensors.get(ROPE_FACTORS)
        if factors is not None and factors.shape != (self.head_dim // 2,):
            raise ModelError(f"{path} is damaged: {ROPE_FACTORS} has shape {list(factors.shape)}")

    def rope_scaling(self) -> dict[str, Any] | None:
        """mlx-lm's description of how RoPE is stretched beyond the context it was trained for."""
        kind = self.header.metadata.get(f"{self.architecture}.rope.scaling.type", "none")
        factor = self.number("rope.scaling.factor", self.number("rope.scale_linear", 1.0))
        if kind == "none" and factor != 1.0 and f"{self.architecture}.rope.scale_linear" in self.header.metadata:
            kind = "linear"  # how files from before rope.scaling.type say it
        if kind == "none":
            return None
        if factor <= 0:
            raise ModelError(f"{self.header.path} is damaged: the RoPE scaling factor is {factor}")
        if kind == "linear":
            return {"rope_type": "linear", "factor": factor}
        if kind == "yarn":
            original = self.integer("rope.scaling.original_context_length", self.context)
            return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
        raise ModelUnsupported(
            f"{self.header.path} scales RoPE by {str(kind)[:40]!r}; none, linear and yarn are supported"
        )

    def arguments(self) -> dict[str, Any]:
        """The arguments of mlx-lm's model class."""
        return {
            "model_type": self.architecture,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "intermediate_size": self.feed_forward,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "rms_norm_eps": self.number("attention.layer_norm_rms_epsilon", 1e-5),
            "vocab_size": self.vocab,
            "max_position_embeddings": self.context,
            "rope_theta": self.rope_base,
            "rope_traditional": self.family.rope_traditional,
            "rope_scaling": self.rope_scaling(),
            "tie_word_embeddings": self.tied,
            "attention_bias": self.biased,
        }
