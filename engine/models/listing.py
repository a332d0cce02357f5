"""Which models are on this machine: what `tokenwalk models` prints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.models import builtin


@dataclass(frozen=True)
class ModelListing:
    """A model that `--model` would take.

    Attributes:
        spec: what to give to `--model`.
        what: in words.
        present: False when it would have to be fetched first.
        path: where its file or folder is.
        size_bytes: what it takes on disk; None where nothing is there.
    """

    spec: str
    what: str
    present: bool
    path: str | None
    size_bytes: int | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def list_models() -> list[ModelListing]:
    """The built-in model, `tiny`, and every model in the Hugging Face cache that mlx-lm could be given."""
    path = builtin.find()
    smollm2 = ModelListing(
        spec=builtin.NAME,
        what="SmolLM2-135M-Instruct, built in" + ("" if path else f": not here yet; {builtin.HOW_TO_GET_IT}"),
        present=path is not None,
        path=str(path) if path else None,
        size_bytes=path.stat().st_size if path else None,
    )
    tiny = ModelListing("tiny", "random weights from a fixed seed, byte tokenizer: for tests", True, None, None)
    return [smollm2, tiny, *_hub_cache()]


def hub_cache_folder() -> Path:
    """Where Hugging Face's library keeps what it fetched."""
    if chosen := os.environ.get("HF_HUB_CACHE"):
        return Path(chosen).expanduser()
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"


def _hub_cache() -> Iterator[ModelListing]:
    try:
        folders = sorted(hub_cache_folder().glob("models--*--*"))
    except OSError:
        return
    for folder in folders:
        snapshot = _newest_snapshot(folder)
        if snapshot is None:
            continue
        owner, _, name = folder.name.removeprefix("models--").partition("--")
        size = sum(path.stat().st_size for path in snapshot.glob("model*.safetensors"))
        yield ModelListing(f"{owner}/{name}", _architecture(snapshot), True, str(snapshot), size)


def _newest_snapshot(folder: Path) -> Path | None:
    """The folder's newest snapshot that holds a model's weights."""
    whole = [
        path
        for path in folder.glob("snapshots/*")
        if (path / "config.json").is_file() and any(shard.is_file() for shard in path.glob("model*.safetensors"))
    ]
    return max(whole, key=lambda path: path.stat().st_mtime, default=None)


def _architecture(snapshot: Path) -> str:
    try:
        config = json.loads((snapshot / "config.json").read_text(encoding="utf-8"))
        return f"{config['model_type']}, in the Hugging Face cache"
    except (OSError, ValueError, KeyError, TypeError):
        return "in the Hugging Face cache"
