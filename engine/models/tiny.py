"""The model `tiny`: random weights from a fixed seed and a byte tokenizer. It says nothing sensible, at once.

For tests and for work on the page: it has every organ of a real model (grouped-query attention, chat template, control
tokens), loads in milliseconds, and is the same on every machine.
"""

from __future__ import annotations

from engine.device import mx

import numpy as np
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from engine.chat import Render, template_renderer
from engine.models.info import LoadedModel, describe_model
from engine.tokenizer import Tokenizer, byte_alphabet

_SEED = 20_260_101
_LAYERS, _HEADS, _KV_HEADS, _HEAD_DIM, _FEED_FORWARD, _CONTEXT = 4, 4, 2, 16, 160, 4096
_HIDDEN = _HEADS * _HEAD_DIM
_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_VOCAB = 256 + 8  # room for a few control tokens more

_CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_tokenizer() -> tuple[tokenizers.Tokenizer, list[int], Render]:
    """Backend, end tokens and chat template: id = byte below 256, then the control tokens."""
    backend = tokenizers.Tokenizer(models.BPE(byte_alphabet(), []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in _CONTROL])
    eos_ids = [256 + _CONTROL.index(token) for token in ("<|endoftext|>", "<|im_end|>")]
    return backend, eos_ids, template_renderer(_CHATML, {})


def load_tiny() -> LoadedModel:
    """Build the model. Its weights come from NumPy's generator, which gives the same numbers on every platform."""
    from mlx_lm.models.llama import Model, ModelArgs

    args = ModelArgs(
        model_type="llama",
        hidden_size=_HIDDEN,
        num_hidden_layers=_LAYERS,
        intermediate_size=_FEED_FORWARD,
        num_attention_heads=_HEADS,
        num_key_value_heads=_KV_HEADS,
        head_dim=_HEAD_DIM,
        rms_norm_eps=1e-5,
        vocab_size=_VOCAB,
        max_position_embeddings=_CONTEXT,
        tie_word_embeddings=False,
    )
    model = Model(args)
    generator = np.random.Generator(np.random.PCG64(_SEED))
    weights = []
    for name, shape in sorted(_shapes().items()):
        if len(shape) == 1:
            values = np.ones(shape, np.float32)
        else:
            values = generator.standard_normal(shape, dtype=np.float32) * _scale(name, shape)
        if name == "lm_head.weight":
            values[[row for row in range(_VOCAB) if not 32 <= row < 127]] /= 2  # mostly legible, not always
        weights.append((name, mx.array(values)))
    model.load_weights(weights)
    model.eval()
    mx.eval(model.parameters())
    tokenizer = Tokenizer.bytes_tokenizer()
    return LoadedModel(model, tokenizer, describe_model(model, tokenizer, name="tiny"))


def _shapes() -> dict[str, tuple[int, ...]]:
    layer = {
        "input_layernorm": (_HIDDEN,),
        "post_attention_layernorm": (_HIDDEN,),
        "self_attn.q_proj": (_HEADS * _HEAD_DIM, _HIDDEN),
        "self_attn.k_proj": (_KV_HEADS * _HEAD_DIM, _HIDDEN),
        "self_attn.v_proj": (_KV_HEADS * _HEAD_DIM, _HIDDEN),
        "self_attn.o_proj": (_HIDDEN, _HEADS * _HEAD_DIM),
        "mlp.gate_proj": (_FEED_FORWARD, _HIDDEN),
        "mlp.up_proj": (_FEED_FORWARD, _HIDDEN),
        "mlp.down_proj": (_HIDDEN, _FEED_FORWARD),
    }
    shapes: dict[str, tuple[int, ...]] = {
        f"model.layers.{index}.{name}.weight": shape for index in range(_LAYERS) for name, shape in layer.items()
    }
    shapes["model.embed_tokens.weight"] = shapes["lm_head.weight"] = (_VOCAB, _HIDDEN)
    shapes["model.norm.weight"] = (_HIDDEN,)
    return shapes


def _scale(name: str, shape: tuple[int, ...]) -> float:
    """Standard deviation of the weights: attention sharp enough to have a pattern, logits spread enough to differ."""
    if name == "model.embed_tokens.weight":
        return 1.0
    gain = 2.0 if "q_proj" in name or "k_proj" in name or name == "lm_head.weight" else 1.0
    return gain / float(np.sqrt(shape[-1]))
