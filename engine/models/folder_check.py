"""Looks at a model folder before anything is built of it: whether the files are there, whole, and what they should be.

mlx-lm takes config.json at its word, and names what is wrong by the place in its own code where it fails. What can be
told beforehand is told here, with the file, what is in it, and what to do.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from engine.errors import ModelError, ModelNotFound, shown
from engine.models.info import CONFIG_NAMES

AGAIN = "fetch or convert the model again"
_MOST_LAYERS, _MOST = 2000, 2**31 - 1
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "*.tiktoken", "vocab.json", "vocab.txt", "spiece.model")
"""Any of these makes a tokenizer; what is not the first is converted by the library."""


def check_folder(folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """What config.json says, and the files of weights.

    Raises:
        ModelNotFound: when a part of the model is not there.
        ModelError: when a file is cut off or holds something else.
    """
    config = _config(folder)
    shards = _shards(folder)
    for shard in shards:
        _check_whole(shard)
    if not any(any(folder.glob(name)) for name in _TOKENIZERS):
        raise ModelNotFound(f"{folder} has no tokenizer: expected tokenizer.json beside config.json; {AGAIN}")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        read_json(folder / name)
    return config, shards


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None when there is no such file.

    Raises:
        ModelError: when it holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON, which was expected ({error}); {AGAIN}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds no JSON object, which was expected, but {shown(value)}; {AGAIN}")
    return value


def _config(folder: Path) -> dict[str, Any]:
    config = read_json(folder / "config.json")
    if config is None:
        files = sorted(path.name for path in folder.glob("*.gguf"))
        hint = f"; it holds {files[0]}: give that file's path" if files else ""
        raise ModelNotFound(f"{folder} is not a model folder: it has no config.json{hint}")
    given = config.get("model_type")
    if not isinstance(given, str) or not given:
        said = "names no model_type" if given is None else f"names the model_type {shown(given)}"
        raise ModelError(f"{folder / 'config.json'} {said}; expected an architecture that mlx-lm has, such as 'llama'")
    inner = config.get("text_config")
    for values in (config, inner if isinstance(inner, dict) else {}):
        for what, names in CONFIG_NAMES.items():
            for name in names:
                _check_size(folder / "config.json", what, name, values.get(name))
    return config


def _check_size(path: Path, what: str, name: str, value: object) -> None:
    """Refuse a size that is none. What is null or a list with an entry a layer is left to mlx-lm."""
    least, most = int(what in ("layers", "hidden", "vocab")), _MOST_LAYERS if what == "layers" else _MOST
    number = isinstance(value, int) and not isinstance(value, bool)
    if value is None or isinstance(value, list) or (isinstance(value, int) and number and least <= value <= most):
        return
    raise ModelError(f"{path} says {name} {shown(value)}; expected a number from {least} to {most:,}")


def _shards(folder: Path) -> list[Path]:
    """The files of weights, all of those that the index names."""
    shards = sorted(folder.glob("model*.safetensors"))
    if not shards:
        others = sorted(
            path.name for path in folder.iterdir() if path.suffix in (".bin", ".pth", ".safetensors", ".npz")
        )
        pytorch = any(name.endswith((".bin", ".pth")) for name in others)
        advice = "; `mlx_lm.convert` makes an MLX model of PyTorch's" if pytorch else ""
        hint = f" (there is {', '.join(others[:3])}{advice})" if others else ""
        raise ModelNotFound(f"{folder} has no weights: expected model*.safetensors beside config.json{hint}")
    index = read_json(folder / "model.safetensors.index.json") or {}
    places = index.get("weight_map")
    named = {name for name in places.values() if isinstance(name, str)} if isinstance(places, dict) else set()
    missing = sorted(named - {shard.name for shard in shards})
    if missing:
        raise ModelNotFound(
            f"{folder} lacks {len(missing)} of {len(named)} files of weights that model.safetensors.index.json names, "
            f"such as {missing[0]!r:.100}; fetch the model again"
        )
    return shards


def _check_whole(shard: Path) -> None:
    """Whether a file of weights is one, and as long as its own header says."""
    try:
        size = shard.stat().st_size
        with shard.open("rb") as file:
            beginning = file.read(64)
            length = struct.unpack("<Q", beginning[:8])[0] if len(beginning) >= 8 else 0
            file.seek(8)
            header = file.read(length) if length <= size - 8 else b""
    except OSError as error:
        raise ModelError(f"{shard} cannot be read: {error.strerror}") from error
    if beginning.startswith(b"version https://git-lfs"):
        raise ModelError(f"{shard} is a pointer of git-lfs, not the weights themselves; `git lfs pull` fetches them")
    if not header.startswith(b"{"):
        if size >= 8 and beginning[8:9] == b"{":
            raise ModelError(f"{shard} is cut off within its header of {length:,} bytes: it has {size:,}; {AGAIN}")
        raise ModelError(f"{shard} is no safetensors file, but {size:,} bytes of something else; {AGAIN}")
    try:
        tensors = {name: entry for name, entry in json.loads(header).items() if name != "__metadata__"}
        ends = [int(entry["data_offsets"][1]) for entry in tensors.values()]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise ModelError(f"{shard} is no safetensors file: its header cannot be read; {AGAIN}") from error
    needed = 8 + length + max(ends, default=0)
    if size < needed:
        raise ModelError(f"{shard} is cut off: its header tells of {needed:,} bytes, and it has {size:,}; {AGAIN}")
