"""A loaded model written out as an MLX folder, for peers that read nothing else: the same weights, bit for bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from engine.device import mx  # noqa: F401  (the BLAS has to be there before mlx_lm)

import mlx.nn as nn
from mlx_lm.utils import save_config, save_model
from transformers import PreTrainedTokenizerFast

from engine.errors import ModelUnsupported
from engine.models import LoadedModel


def peer_folder(loaded: LoadedModel, folder: Path) -> Path:
    """The folder that the model was loaded from or, where it was a file, one written to `folder`.

    Raises:
        ModelUnsupported: when the model class does not say how it was configured.
    """
    if loaded.info.path is not None and Path(loaded.info.path).is_dir():
        return Path(loaded.info.path)
    arguments = getattr(loaded.model, "args", None)
    if not dataclasses.is_dataclass(arguments) or isinstance(arguments, type):
        raise ModelUnsupported(f"{loaded.info.name} cannot be written as a folder: its class keeps no arguments")
    config: dict[str, Any] = dataclasses.asdict(arguments) | {"eos_token_id": sorted(loaded.info.eos_ids)}
    if quantised := _quantisation(loaded.model):
        config["quantization"] = quantised
    save_model(folder, loaded.model)
    save_config(config, folder / "config.json")
    end = loaded.tokenizer.label(min(loaded.info.eos_ids)) if loaded.info.eos_ids else None
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=loaded.tokenizer.backend, eos_token=end)  # type: ignore[no-untyped-call]
    tokenizer.save_pretrained(folder)
    return folder


def _quantisation(model: nn.Module) -> dict[str, Any]:
    """What mlx-lm wants to know of each quantised module: it reads it by the module's name."""
    found = {
        path: {"group_size": module.group_size, "bits": module.bits}
        for path, module in model.named_modules()
        if isinstance(module, (nn.QuantizedLinear, nn.QuantizedEmbedding))
    }
    return {**next(iter(found.values())), **found} if found else {}
