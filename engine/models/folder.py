"""Models in a folder as MLX and Hugging Face lay them out, and models from the Hub: through mlx-lm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from engine.device import check_memory, mx, on_gpu

import mlx.nn as nn
from mlx.utils import tree_flatten

from engine.errors import ModelError, ModelNotFound, ModelUnsupported, shown
from engine.models.folder_check import AGAIN, check_folder, read_json
from engine.models.info import LoadedModel, describe_model, quantisation_of
from engine.tokenizer import Tokenizer

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_MISFIT = re.compile(r"Expected shape|Missing \d+ parameters|Received \d+ parameters")
_MOST_SAID = 200


def load_folder(folder: Path, *, name: str | None = None) -> LoadedModel:
    """Load a model from a folder with ``config.json``, ``*.safetensors`` and a tokenizer.

    Raises:
        ModelNotFound: when the folder does not hold a model.
        ModelUnsupported: when mlx-lm has no such model, or its tokenizer has no fast form.
        ModelError: when a file is damaged, or the model is too large for this machine.
    """
    config, shards = check_folder(folder)
    end_tokens = _end_tokens(folder, config)
    check_memory(sum(shard.stat().st_size for shard in shards), str(folder))
    model = _load_model(folder, config["model_type"])
    stored = quantisation_of(model)
    if not on_gpu():
        _to_float32(model, folder)
    tokenizer = _load_tokenizer(folder, end_tokens)
    _try(model, folder, config["model_type"])
    info = describe_model(
        model, tokenizer, config=config, name=name or folder.resolve().name, quantisation=stored, path=str(folder)
    )
    return LoadedModel(model, tokenizer, info)


def load_from_hub(spec: str) -> LoadedModel:
    """Load ``owner/name`` from the Hugging Face Hub, or from its cache on this machine, where it is looked for first.

    Raises:
        ModelNotFound: when it is no such name, or is not there, or there is no network.
        ModelUnsupported, ModelError: as for `load_folder`.
    """
    from engine.models import ACCEPTED

    if not _HUB_ID.fullmatch(spec):
        raise ModelNotFound(f"there is no model {shown(spec)}: no such file or folder. Expected: {ACCEPTED}")
    return load_folder(_cached(spec) or _download(spec), name=spec)


def _cached(spec: str) -> Path | None:
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    from mlx_lm.utils import hf_repo_to_path

    try:
        folder = hf_repo_to_path(spec)
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return folder if (folder / "config.json").is_file() and any(folder.glob("model*.safetensors")) else None


def _download(spec: str) -> Path:
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError
    from mlx_lm.utils import _download as download

    try:
        return Path(download(spec))
    except GatedRepoError:
        raise ModelNotFound(f"{spec} is on the Hub but its owner wants you to ask first: see its page there") from None
    except (RepositoryNotFoundError, HFValidationError):
        raise ModelNotFound(f"there is no model {spec} on the Hub (and no such folder here); check the name") from None
    except (HfHubHTTPError, OSError) as error:  # no network, or the cache cannot be written
        reason = str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__
        raise ModelNotFound(f"{spec} is not on this machine and could not be fetched from the Hub: {reason}") from error


def _load_model(folder: Path, model_type: str) -> nn.Module:
    from mlx_lm.utils import load_model

    unknown = f"{folder} is of architecture {shown(model_type)}, which mlx-lm does not have"
    try:
        model, _ = load_model(folder, lazy=True)
    except Exception as error:  # mlx-lm builds what config.json says without checking it: anything may come of it
        message = _in_a_line(error)
        if "not supported" in message or "has no attribute 'Model'" in message:
            raise ModelUnsupported(unknown) from error
        if _MISFIT.match(message):
            raise ModelError(
                f"the weights in {folder} are not those of the {model_type} model that its config.json describes: "
                f"{message}; the two belong to different models, or one was changed"
            ) from error
        raise ModelError(
            f"{folder} cannot be loaded: mlx-lm's {model_type} expects something else than config.json says ({message})"
        ) from error
    loaded: nn.Module = model
    return loaded


def _try(model: nn.Module, folder: Path, model_type: str) -> None:
    """Run one token: what is wrong with the model shows here rather than in somebody's first request."""
    from mlx_lm.models.cache import make_prompt_cache

    try:
        mx.eval(model(mx.array([[0]]), cache=make_prompt_cache(model)))
    except Exception as error:
        raise ModelError(
            f"{folder} is loaded but cannot run: {_in_a_line(error)}. Its weights or its config.json are not what "
            f"mlx-lm's {model_type} expects; {AGAIN}"
        ) from error


def _load_tokenizer(folder: Path, eos_ids: list[int]) -> Tokenizer:
    from mlx_lm.utils import load_tokenizer

    try:
        tokenizer = Tokenizer.from_mlx_lm(load_tokenizer(folder, eos_token_ids=eos_ids or None))
        tokenizer.encode("a word")
    except ModelError:
        raise
    except Exception as error:  # several libraries read it, each with errors of its own
        raise ModelError(
            f"the tokenizer in {folder} cannot be loaded: {_in_a_line(error)}; expected a whole tokenizer.json, and in "
            f"tokenizer_config.json and config.json what belongs to it; {AGAIN}"
        ) from error
    return tokenizer


def _in_a_line(error: Exception) -> str:
    """What a library said, as the part of a line; what it said is the kind of error, where it said nothing."""
    words = " ".join(str(error).split()).rstrip(".")
    plain = isinstance(error, (ValueError, RuntimeError)) and words
    said = words if plain else f"{type(error).__name__}: {words}".removesuffix(": ")
    return said if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]}…"


def _to_float32(model: nn.Module, folder: Path) -> None:
    """Dequantise and widen all weights, exactly: on a CPU only float32 is multiplied fast."""
    from mlx_lm.utils import dequantize_model

    quantised = [module for _, module in model.named_modules() if "scales" in module and hasattr(module, "bits")]
    check_memory(4 * sum(_weights(array) for array in _arrays(model)), str(folder))
    if all(getattr(module, "mode", "affine") == "affine" for module in quantised):
        for module in quantised:
            module.scales = module.scales.astype(mx.float32)  # in half precision the products would be rounded
            module.biases = module.biases.astype(mx.float32)
        dequantize_model(model)
    model.apply(lambda array: array.astype(mx.float32) if mx.issubdtype(array.dtype, mx.floating) else array)
    try:
        mx.eval(model.parameters())
    except RuntimeError as error:  # the files are read only now
        raise ModelError(f"{folder} cannot be loaded: {error}") from error


def _arrays(model: nn.Module) -> list[mx.array]:
    flat: Any = tree_flatten(model.parameters())
    return [array for _, array in flat]


def _weights(array: mx.array) -> int:
    """Weights in an array; packed ones are counted as if of 4 bits."""
    return array.size * 8 if array.dtype == mx.uint32 else array.size


def _end_tokens(folder: Path, config: dict[str, Any]) -> list[int]:
    """All end tokens that the folder's files name; each of them may lack some."""
    text_config = config.get("text_config")
    sources = [config, text_config, read_json(folder / "generation_config.json")]
    found: set[int] = set()
    for source in sources:
        ids = source.get("eos_token_id") if isinstance(source, dict) else None
        found.update(id for id in (ids if isinstance(ids, list) else [ids]) if isinstance(id, int))
    return sorted(found)
