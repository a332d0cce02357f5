"""What a loaded model is made of, and what it says about itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mlx.nn as nn

    from engine.tokenizer import Tokenizer

# What configurations call the same thing.
CONFIG_NAMES = {
    "layers": ("num_hidden_layers", "n_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_heads", "n_head", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads"),
    "head_dim": ("head_dim", "qk_head_dim", "v_head_dim"),
    "hidden": ("hidden_size", "d_model", "n_embd", "dim", "model_dim"),
    "vocab": ("vocab_size", "n_vocab", "padded_vocab_size"),
    "context": ("max_position_embeddings", "max_seq_len", "n_positions", "n_ctx", "seq_length", "model_max_length"),
}
_UNKNOWN_CONTEXT = 4096


@dataclass(frozen=True)
class ModelInfo:
    """A model in numbers.

    Attributes:
        name: what people call it.
        architecture: family, such as ``llama``.
        layers, heads, kv_heads, head_dim, hidden, vocab: its dimensions; vocab is the number of logits. 0 where the
            model has no such thing (a model without attention has no heads).
        dtype: dtype of the computation.
        quantisation: how the weights are stored in the file, such as ``Q4_1``; None when they are plain floats.
        context: most positions it was trained for.
        parameters: number of weights.
        weights_bytes: what the weights take in memory, as run.
        eos_ids: tokens that end an answer, ascending.
        path: the file or folder it came from; None for built-in random weights.
    """

    name: str
    architecture: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int
    dtype: str
    quantisation: str | None
    context: int
    parameters: int
    weights_bytes: int
    eos_ids: tuple[int, ...]
    path: str | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON (`RunHeader.model`)."""
        return {**asdict(self), "eos_ids": list(self.eos_ids)}


@dataclass
class LoadedModel:
    """A model ready to run. Its arrays belong to the thread that loaded it."""

    model: nn.Module = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    info: ModelInfo


def describe_model(
    model: nn.Module,
    tokenizer: Tokenizer,
    *,
    config: Mapping[str, Any] | None = None,
    name: str | None = None,
    quantisation: str | None = None,
    path: str | None = None,
) -> ModelInfo:
    """What can be said about a model of mlx-lm's classes.

    Args:
        model: the model, with its weights.
        tokenizer: its tokenizer.
        config: its ``config.json``; None takes the arguments that it was built with.
        name: what to call it; None takes its architecture.
        quantisation: how the weights are stored; None looks at the modules.
        path: where it came from.
    """
    values = dict(vars(getattr(model, "args", object()))) if config is None else dict(config)
    inner = values.get("text_config")
    if isinstance(inner, Mapping):  # models that also see or hear keep the language model's values apart
        values |= inner
    found = {key: _integer(values, names) for key, names in CONFIG_NAMES.items()}
    heads = found["heads"] or 0
    hidden = found["hidden"] or 0
    kinds = quantisation or quantisation_of(model)
    parameters, nbytes = count_parameters(model)
    architecture = str(values.get("model_type") or getattr(model, "model_type", type(model).__name__))
    return ModelInfo(
        name=name or architecture,
        architecture=architecture,
        layers=len(getattr(model, "layers", ())) or found["layers"] or 0,
        heads=heads,
        kv_heads=found["kv_heads"] or heads,
        head_dim=found["head_dim"] or (hidden // heads if heads else 0),
        hidden=hidden,
        vocab=found["vocab"] or tokenizer.vocab_size,
        dtype=_compute_dtype(model),
        quantisation=kinds,
        context=found["context"] or _UNKNOWN_CONTEXT,
        parameters=parameters,
        weights_bytes=nbytes,
        eos_ids=tuple(sorted(tokenizer.eos_ids)),
        path=path,
    )


def _integer(values: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """The first of these entries that is a number; of a list with one entry a layer, the largest."""
    for name in names:
        value = values.get(name)
        if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
            value = max(value)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def quantisation_of(model: nn.Module) -> str | None:
    """The kind of quantisation that most quantised modules have."""
    kinds = Counter(
        (module.bits, module.group_size, getattr(module, "mode", "affine"))
        for _, module in model.named_modules()
        if hasattr(module, "bits") and hasattr(module, "group_size")
    )
    if not kinds:
        return None
    bits, group_size, mode = kinds.most_common(1)[0][0]
    return f"{bits}-bit {mode}, groups of {group_size}"


def _compute_dtype(model: nn.Module) -> str:
    """The floating-point dtype that most parameter arrays have; for quantised ones that is their scales'."""
    from engine.device import mx

    from mlx.utils import tree_flatten

    flat: Any = tree_flatten(model.parameters())
    dtypes = Counter(array.dtype for _, array in flat if mx.issubdtype(array.dtype, mx.floating))
    return str(dtypes.most_common(1)[0][0]).removeprefix("mlx.core.") if dtypes else "unknown"


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """Number of weights, as if unquantised, and the bytes that they take as they are."""
    from mlx.utils import tree_flatten

    flat: Any = tree_flatten(model.parameters())
    bits = {name: int(module.bits) for name, module in model.named_modules() if hasattr(module, "bits")}
    count = 0
    for path, array in flat:
        module, _, name = path.rpartition(".")
        if module in bits and name in ("scales", "biases", "global_scale"):
            continue  # part of how the weights are written, not weights
        count += array.size * 32 // bits[module] if module in bits and name == "weight" else array.size
    return count, sum(array.nbytes for _, array in flat)
