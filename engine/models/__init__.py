"""Loading models: one function for everything that `--model` takes."""

from __future__ import annotations

from pathlib import Path

from engine.errors import ModelError, ModelNotFound, shown
from engine.models.info import LoadedModel, ModelInfo
from engine.models.listing import list_models
from engine.models.progress import Progress

__all__ = ["LoadedModel", "ModelError", "ModelInfo", "ModelNotFound", "Progress", "list_models", "load"]

ACCEPTED = (
    "smollm2 (the built-in model), tiny (random weights), the path of a .gguf file, the path of an MLX or Hugging Face "
    "folder, or a model's name on the Hugging Face Hub (owner/name)"
)


def load(spec: str, *, progress: Progress | None = None) -> LoadedModel:
    """Load a model. Call it on the thread that will run it: MLX's arrays belong to their thread.

    Args:
        spec: ``smollm2``, ``tiny``, the path of a ``.gguf`` file or of a model folder, or a Hub id.
        progress: told about downloads; None shows them on stderr.

    Raises:
        ModelNotFound: when nothing is at that path or under that name.
        ModelUnsupported: when it is there but of an architecture, tensor type or tokenizer that is not supported.
        ModelError: when it is damaged, or too large for this machine.
    """
    from engine.models import builtin

    if spec == builtin.NAME:
        from engine.models.gguf_model import load_gguf

        return load_gguf(builtin.get(progress), name="SmolLM2-135M-Instruct")
    if not spec.strip():
        raise ModelNotFound(f"no model is named; expected: {ACCEPTED}")
    if spec == "tiny":
        from engine.models.tiny import load_tiny

        return load_tiny()
    path = Path(spec)
    try:
        path = path.expanduser()
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, ValueError, RuntimeError) as error:  # no name that a file may have, or nobody's home
        raise ModelNotFound(f"no file is called {shown(spec)}, and no model; expected: {ACCEPTED}") from error
    if is_file or path.suffix.lower() == ".gguf":
        from engine.models.gguf_model import load_gguf

        return load_gguf(path)
    from engine.models.folder import load_folder, load_from_hub

    if is_folder:
        return load_folder(path)
    return load_from_hub(spec)
