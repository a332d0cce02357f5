"""What this machine is and what is wrong with it, as data: `tokenwalk doctor` and `/health` show it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import ModelError
from engine.models import builtin
from engine.models.listing import list_models

if TYPE_CHECKING:
    from engine.device import Blas

_OLDEST_PYTHON = (3, 11)
_NEEDED = ("mlx", "mlx-lm", "numpy", "tokenizers", "transformers", "jinja2")
_LITTLE_DISK = 1_000_000_000
_LITTLE_MEMORY = 3_000_000_000


@dataclass(frozen=True)
class Problem:
    """Something that is wrong.

    Attributes:
        severity: ``error`` (it cannot work) or ``warning`` (it works, but badly).
        what: one line.
        remedy: what to do.
    """

    severity: str
    what: str
    remedy: str


@dataclass(frozen=True)
class Diagnosis:
    """Facts, plain enough for JSON, and the problems found in them."""

    facts: dict[str, Any]
    problems: list[Problem]

    @property
    def ok(self) -> bool:
        """False when something cannot work."""
        return not any(problem.severity == "error" for problem in self.problems)

    def as_dict(self) -> dict[str, Any]:
        """Facts and problems as plain data."""
        return {"ok": self.ok, "facts": self.facts, "problems": [asdict(problem) for problem in self.problems]}


def examine(*, measure: bool = True) -> Diagnosis:
    """Look at this machine.

    Args:
        measure: also multiply two matrices, to know the speed that MLX really has here (about a tenth of a second).
    """
    facts, problems = _runtime(measure)
    model_facts, model_problems = _builtin_model()
    facts["packages"] = {name: _version(name) for name in _NEEDED}
    facts["cache"] = str(builtin.cache_folder())
    facts["builtin_model"] = model_facts
    facts["models"] = [model.as_dict() for model in list_models()]
    return Diagnosis(facts, [*_software(), *problems, *_room(facts.get("memory_bytes")), *model_problems])


def _runtime(measure: bool) -> tuple[dict[str, Any], list[Problem]]:
    """What needs MLX to find out. Where MLX cannot be imported, that is the finding."""
    try:
        from engine.device import blas, describe, memory_bytes, mx
    except ImportError as error:
        what = f"MLX cannot be imported: {error}"
        remedy = "MLX runs on Apple Silicon (macOS 14 or newer) and on Linux with glibc; install it: pip install mlx"
        return {"python": platform.python_version(), "os": platform.platform()}, [Problem("error", what, remedy)]
    facts = describe()
    facts["cores"] = os.cpu_count()
    facts["memory_bytes"] = memory_bytes()
    facts["metal"] = mx.metal.is_available()
    if measure:
        facts["matmul_gflops"] = round(matmul_gflops(), 1)
    return facts, blas_problems(blas())


def blas_problems(found: Blas) -> list[Problem]:
    """A warning when the reference BLAS is in use."""
    if found.fast:
        return []
    what = f"MLX multiplies with the {found.name} BLAS, which is 10 to 25 times slower than it need be"
    return [Problem("warning", what, found.remedy or "install a fast BLAS")]


def matmul_gflops(size: int = 512) -> float:
    """Speed of float32 matrix multiplication on the default device, in 10⁹ operations a second: best of three."""
    from engine.device import mx

    a = mx.full((size, size), 0.5)
    mx.eval(a @ a)  # the first one loads code
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        mx.eval(a @ a)
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds) / 1e9


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _software() -> list[Problem]:
    problems = []
    if sys.version_info < _OLDEST_PYTHON:
        wanted = ".".join(map(str, _OLDEST_PYTHON))
        problems.append(
            Problem("error", f"Python {sys.version.split()[0]} is too old", f"install Python {wanted} or newer")
        )
    problems += [
        Problem("error", f"the package {name} is missing", f"pip install {name}")
        for name in _NEEDED
        if _version(name) is None
    ]
    return problems


def _room(memory: int | None) -> list[Problem]:
    problems = []
    if memory is not None and memory < _LITTLE_MEMORY:
        what = f"this machine has {memory / 1e9:.1f} GB of memory; the built-in model wants about 2 GB"
        problems.append(Problem("warning", what, "close other programs, or use --model tiny"))
    folder = builtin.cache_folder()
    existing = next(path for path in [folder, *folder.parents] if path.exists())
    free = shutil.disk_usage(existing).free
    if free < _LITTLE_DISK:
        what = f"the disk of {folder} has {free / 1e9:.1f} GB left"
        problems.append(Problem("warning", what, "make room, or set TOKENWALK_CACHE to a folder elsewhere"))
    if not os.access(existing, os.W_OK):
        what = f"{existing} cannot be written to, so the built-in model cannot be kept there"
        problems.append(Problem("warning", what, "set TOKENWALK_CACHE to a folder that can"))
    return problems


def _builtin_model() -> tuple[dict[str, Any], list[Problem]]:
    path = builtin.find()
    facts: dict[str, Any] = {"name": builtin.NAME, "path": str(path) if path else None, "verified": False}
    if path is None:
        installer = importlib.util.find_spec("pip") is not None or shutil.which("uv") is not None
        what = "the built-in model is not on this machine" + ("" if installer else ", nor is pip or uv, to fetch it")
        return facts, [Problem("warning", what, builtin.HOW_TO_GET_IT)]
    try:
        builtin.verify(Path(path))
    except ModelError as error:
        return facts, [Problem("error", str(error), f"delete {path}; then {builtin.HOW_TO_GET_IT}")]
    facts["verified"] = True
    return facts, []
