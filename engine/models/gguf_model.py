"""From a GGUF file to one of mlx-lm's model classes: Llama, Qwen2 and Qwen3.

Weights are read by our own reader. On a CPU they are dequantised to float32; on a GPU tensors that MLX can multiply in
their quantised form stay in it, and the others become half precision.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from pathlib import Path

from engine.device import check_memory, compute_dtype, mx, on_gpu

import mlx.nn as nn
import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelError
from engine.models.gguf import GgufHeader, TensorInfo, read_header
from engine.models.gguf_blocks import QUANTISED, dequantise, take_apart
from engine.models.gguf_spec import ROPE_FACTORS, GgufSpec
from engine.models.info import LoadedModel, describe_model
from engine.tokenizer import Tokenizer

_KEPT = frozenset({"Q4_0", "Q4_1", "Q4_K", "Q8_0"})
"""Types that MLX multiplies as they are: groups of 32 codes of 4 or 8 bits."""

_GROUP = 32


def load_gguf(path: Path, *, name: str | None = None, keep_quantised: bool | None = None) -> LoadedModel:
    """Load a model from a GGUF file.

    Args:
        path: the file.
        name: what to call it; None takes the name in the file.
        keep_quantised: keep quantised weights as they are; None: on a GPU only.

    Raises:
        ModelNotFound: when there is no such file.
        ModelUnsupported: when its architecture, a tensor type or its tokenizer is not supported, by its name.
        ModelError: when it is not a GGUF file, or is damaged, or is too large for this machine.
    """
    header = read_header(path)
    spec = GgufSpec(header)
    spec.check_tensors()
    tokenizer = Tokenizer.from_gguf(header.metadata)
    if tokenizer.vocab_size > spec.vocab:
        raise ModelError(f"{path} is damaged: {tokenizer.vocab_size} tokens but embeddings for only {spec.vocab}")
    keep = on_gpu() if keep_quantised is None else keep_quantised
    if not keep:
        check_memory(4 * sum(math.prod(info.shape) for info in header.tensors.values()), str(path))
    model = _build(spec)
    _load_weights(model, header, spec.expected(), keep)
    factors = header.tensors.get(ROPE_FACTORS)
    if factors is not None:
        _scale_rope(model, spec, factors)
    info = describe_model(
        model,
        tokenizer,
        name=name or str(header.metadata.get("general.name") or path.stem),
        quantisation=_main_type(header),
        path=str(path),
    )
    return LoadedModel(model, tokenizer, info)


def _build(spec: GgufSpec) -> nn.Module:
    """The model, its weights yet to be loaded."""
    module = importlib.import_module(f"mlx_lm.models.{spec.architecture}")
    model: nn.Module = module.Model(module.ModelArgs.from_dict(spec.arguments()))
    return model.eval()


def _main_type(header: GgufHeader) -> str | None:
    """The type most weights are stored in; None when that is a plain one."""
    sizes: Counter[str] = Counter()
    for info in header.tensors.values():
        sizes[info.type] += math.prod(info.shape)
    main = sizes.most_common(1)[0][0]
    return main if main in QUANTISED else None


def _floats(data: NDArray[np.uint8], info: TensorInfo) -> NDArray[np.float32]:
    raw = data[info.offset : info.offset + info.nbytes]
    return dequantise(info.type, raw, math.prod(info.shape)).reshape(info.shape)


def _packed(data: NDArray[np.uint8], info: TensorInfo, dtype: mx.Dtype) -> tuple[int, dict[str, mx.array]]:
    """The tensor as MLX's quantised modules have it: bits, and the arrays by name."""
    groups = take_apart(info.type, data[info.offset : info.offset + info.nbytes])
    rows = info.shape[0]
    return groups.bits, {
        "weight": mx.array(groups.pack().reshape(rows, -1)),
        "scales": mx.array(groups.scales.reshape(rows, -1)).astype(dtype),
        "biases": mx.array(groups.biases.reshape(rows, -1)).astype(dtype),
    }


def _half_precision(header: GgufHeader) -> mx.Dtype:
    """The dtype that a GPU runs the file in: that of its matrices, float16 where they are quantised."""
    stored = header.tensors["blk.0.attn_q.weight"].type
    return {"F32": mx.float32, "F64": mx.float32, "BF16": mx.bfloat16}.get(stored, mx.float16)


def _load_weights(
    model: nn.Module, header: GgufHeader, names: dict[str, tuple[str, tuple[int, ...]]], keep: bool
) -> None:
    """Fill the model from the file."""
    data = np.memmap(header.path, dtype=np.uint8, mode="r")
    dtype = _half_precision(header) if keep else compute_dtype(_half_precision(header))
    weights: list[tuple[str, mx.array]] = []
    quantised: dict[str, dict[str, int]] = {}
    for name, (target, shape) in names.items():
        info = header.tensors.get(name)
        module, _, leaf = target.rpartition(".")
        try:
            if info is None:  # only o_proj's bias may be missing, where mlx-lm has one for all four or none
                arrays = {leaf: mx.zeros(shape, dtype)}
            elif keep and info.type in _KEPT and len(shape) == 2:
                bits, arrays = _packed(data, info, dtype)
                quantised[module] = {"group_size": _GROUP, "bits": bits}
            else:
                arrays = {leaf: mx.array(_floats(data, info)).astype(dtype)}
        except ValueError as error:
            raise ModelError(f"{header.path} is damaged: tensor {name}: {error}") from error
        mx.eval(list(arrays.values()))
        weights += [(f"{module}.{part}", array) for part, array in arrays.items()]
    if quantised:
        nn.quantize(model, class_predicate=lambda path, module: quantised.get(path, False))
    try:
        model.load_weights(weights)
    except ValueError as error:
        raise ModelError(f"{header.path} does not fit the model {header.architecture}: {error}") from error
    mx.eval(model.parameters())


class _FactoredRoPE(nn.Module):
    """RoPE whose frequencies are each divided by a factor that the file gives (Llama 3.1's long-context scaling)."""

    def __init__(self, dims: int, base: float, traditional: bool, factors: NDArray[np.float32]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dims = dims
        self.traditional = traditional
        exponents = mx.arange(0, dims, 2, dtype=mx.float32) / dims
        self._freqs = mx.array(factors) * base**exponents  # [head_dim / 2], as mx.fast.rope takes them: inverted
        mx.eval(self._freqs)

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        return mx.fast.rope(
            x, self.dims, traditional=self.traditional, base=None, scale=1.0, offset=offset, freqs=self._freqs
        )


def _scale_rope(model: nn.Module, spec: GgufSpec, info: TensorInfo) -> None:
    data = np.fromfile(spec.header.path, np.uint8, info.nbytes, offset=info.offset)
    factors = data.view("<f4")
    if info.type != "F32" or not np.isfinite(factors).all() or factors.min() <= 0:
        raise ModelError(f"{spec.header.path} is damaged: {ROPE_FACTORS} holds something else than positive numbers")
    for layer in model.layers:
        layer.self_attn.rope = _FactoredRoPE(spec.head_dim, spec.rope_base, spec.family.rope_traditional, factors)
