"""Hugging Face transformers with `output_attentions=True`: how attention is usually looked at.

It needs PyTorch, which is no dependency of ours: where it is not installed, nothing is compared with.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import time
import warnings
from pathlib import Path
from typing import Any

from engine.device import mx

import mlx.nn as nn

from engine.errors import ModelUnsupported
from engine.models import LoadedModel

NAME = "transformers eager"


def missing() -> str | None:
    """Why transformers cannot be compared with; None when it can."""
    for module in ("torch", "transformers"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    return None


class EagerPeer:
    """The same weights in transformers, in float32, whose eager attention hands out every layer's probabilities.

    One stream at a time: it pads, and several of other lengths would be other work.

    Args:
        loaded: the model, of a Llama architecture.
        folder: where to write it for transformers.

    Raises:
        ModelUnsupported: for another architecture, or where PyTorch is not there.
    """

    def __init__(self, loaded: LoadedModel, folder: Path) -> None:
        if why := missing():
            raise ModelUnsupported(f"transformers cannot be compared with: {why}")
        self._torch: Any = importlib.import_module("torch")
        logs: Any = importlib.import_module("transformers.utils.logging")
        logs.set_verbosity_error()
        logs.disable_progress_bar()
        llama: Any = importlib.import_module("transformers").LlamaForCausalLM
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(_config(loaded)))
        mx.save_safetensors(str(folder / "model.safetensors"), _weights(loaded), metadata={"format": "pt"})
        self._model: Any = llama.from_pretrained(folder, attn_implementation="eager", dtype=self._torch.float32)
        self._model.eval()

    def ids(self, prompt: list[int], tokens: int) -> list[int]:
        """The greedy continuation."""
        return self._generate(prompt, tokens)[0]

    def __call__(self, prompts: list[list[int]], tokens: int) -> float:
        """Tokens a second after the first, of one prompt. A long one is computed anew each time, and not timed."""
        (prompt,) = prompts
        ids, seconds = self._generate(prompt, tokens)
        return (len(ids) - 1) / seconds

    def _generate(self, prompt: list[int], tokens: int) -> tuple[list[int], float]:
        torch, ids, cache = self._torch, [], None
        given, start = torch.tensor([prompt]), 0.0
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", FutureWarning
            )  # its names change; these are the ones that all versions know
            for index in range(tokens):
                out = self._model(given, past_key_values=cache, use_cache=True, output_attentions=index > 0)
                if index and out.attentions[0].shape[-1] != len(prompt) + index:
                    raise ModelUnsupported("transformers gave no attention of the whole text")
                cache = out.past_key_values
                given = out.logits[:, -1:].argmax(-1)
                ids.append(int(given))
                start = start or time.perf_counter()
        return ids, time.perf_counter() - start


def _config(loaded: LoadedModel) -> dict[str, Any]:
    args = getattr(loaded.model, "args", None)
    if type(loaded.model).__module__ != "mlx_lm.models.llama" or args is None:
        raise ModelUnsupported(f"only Llama models are compared with transformers; this is {loaded.info.architecture}")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": args.hidden_size,
        "intermediate_size": args.intermediate_size,
        "num_hidden_layers": args.num_hidden_layers,
        "num_attention_heads": args.num_attention_heads,
        "num_key_value_heads": args.num_key_value_heads,
        "head_dim": args.head_dim or args.hidden_size // args.num_attention_heads,
        "rms_norm_eps": args.rms_norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": args.rope_theta},
        "vocab_size": args.vocab_size,
        "max_position_embeddings": args.max_position_embeddings or 8192,
        "tie_word_embeddings": args.tie_word_embeddings,
    }


def _weights(loaded: LoadedModel) -> dict[str, mx.array]:
    """The model's weights as float32, with the pairs that rotary embedding turns where transformers has them."""
    args: Any = loaded.model.args
    found = {}
    for path, module in loaded.model.named_modules():
        if isinstance(module, (nn.QuantizedLinear, nn.QuantizedEmbedding)):
            found[f"{path}.weight"] = mx.dequantize(
                module.weight, module.scales, module.get("biases"), module.group_size, module.bits
            )
        elif not module.children():
            found |= {f"{path}.{name}": value for name, value in module.parameters().items()}
    for name in found:
        heads = {"q_proj": args.num_attention_heads, "k_proj": args.num_key_value_heads}.get(name.split(".")[-2])
        if heads is not None and args.rope_traditional:
            found[name] = _halves(found[name], heads)
    return {name: mx.contiguous(value.astype(mx.float32)) for name, value in found.items()}


def _halves(weight: mx.array, heads: int) -> mx.array:
    """Rows of each head from neighbouring pairs to two halves: `[heads · head_dim, hidden]`."""
    rows, hidden = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, hidden)
    return pairs.swapaxes(1, 2).reshape(rows, hidden)
