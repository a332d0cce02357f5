"""The one place for what differs between machines: which BLAS multiplies, which device runs, which dtype it runs in.

Importing this module imports MLX, after making sure that MLX finds a fast BLAS. Everything else in the project that
needs MLX says ``from engine.device import mx`` before it imports anything of MLX (the linter sorts imports that way).

On Linux, MLX's CPU wheel links the reference BLAS, which is 10–25 times slower than a tuned one. A tuned library that
is loaded into the process's global symbol scope *before* MLX is what MLX's calls of ``cblas_sgemm`` bind to. Once MLX
is loaded its calls are bound (Python loads extension modules with ``RTLD_NOW``), so afterwards it is too late.
On macOS MLX uses Accelerate and Metal, and there is nothing to do.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.errors import ModelError, RequestError

_SYSTEM_LIBRARIES = (
    ("MKL", "libmkl_rt.so.3"),
    ("MKL", "libmkl_rt.so.2"),
    ("OpenBLAS", "libopenblas.so.0"),
    ("BLIS", "libblis.so.4"),
    ("BLIS", "libblis.so.3"),
)
_MKL_WAITS_MS = "1"
"""How long MKL's threads keep a core busy while they wait for work, before they sleep. Its own 200 ms are for ever
here: meanwhile other threads submit the next products, and read what was captured. On two cores, decoding took a tenth
longer so, with 1 and with 8 streams; and with no waiting at all it was as slow."""

_M_ARENA_MAX = -8  # of glibc's malloc.h
_FAST_MATMUL_SECONDS = 0.004  # 256³ in float32: about 0.4 ms with MKL, 10 ms with the reference BLAS, on one old core


@dataclass(frozen=True)
class Blas:
    """The matrix multiplication library that MLX's CPU backend calls.

    Attributes:
        name: ``MKL``, ``OpenBLAS``, ``BLIS``, ``Accelerate``, ``reference`` or ``unknown``.
        path: the library's file, where one was loaded for MLX.
        fast: False when it is the reference BLAS.
        remedy: what to do about it, or None when nothing is wrong.
    """

    name: str
    path: str | None
    fast: bool
    remedy: str | None = None


def _remedy() -> str:
    if platform.machine() in ("x86_64", "AMD64"):
        return "install Intel MKL into this environment: pip install mkl"
    return "install OpenBLAS: on Debian and Ubuntu, apt install libopenblas0"


def _candidates() -> Iterator[tuple[str, str]]:
    """Fast BLAS libraries that may be here, best first, as (name, path or soname)."""
    if not os.environ.get("MKL_INTERFACE_LAYER", "").upper().startswith("ILP64"):  # MLX passes 32-bit integers
        try:
            files = importlib.metadata.files("mkl") or []
        except importlib.metadata.PackageNotFoundError:
            files = []
        wheel = [Path(str(file.locate())).resolve() for file in files if file.name.startswith("libmkl_rt.so")]
        environment = sorted(Path(sys.prefix, "lib").glob("libmkl_rt.so*"), reverse=True)
        yield from (("MKL", str(path)) for path in [*wheel, *environment] if path.exists())
        yield from (pair for pair in _SYSTEM_LIBRARIES if pair[0] == "MKL")
    yield from (pair for pair in _SYSTEM_LIBRARIES if pair[0] != "MKL")


def _load_globally(path: str) -> str | None:
    """Load a library into the global symbol scope. Returns its file when it offers CBLAS, else None."""
    try:
        library = ctypes.CDLL(path)
        if not hasattr(library, "cblas_sgemm"):
            return None
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None
    return _file_of(library.cblas_sgemm) or path


def _file_of(function: Any) -> str | None:
    """The shared library that a C function lies in."""

    class DlInfo(ctypes.Structure):
        _fields_ = (
            ("file", ctypes.c_char_p),
            ("base", ctypes.c_void_p),
            ("symbol", ctypes.c_char_p),
            ("address", ctypes.c_void_p),
        )

    info = DlInfo()
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = (ctypes.c_void_p, ctypes.POINTER(DlInfo))
    if not dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(info)) or not info.file:
        return None
    return os.fsdecode(info.file)


def _already_global() -> str | None:
    """A library offering CBLAS that is in the global scope already, as with LD_PRELOAD."""
    function = getattr(ctypes.CDLL(None), "cblas_sgemm", None)
    return None if function is None else _file_of(function)


def _name_of(path: str) -> str:
    file = Path(path).name.lower()
    known = (("mkl", "MKL"), ("openblas", "OpenBLAS"), ("blis", "BLIS"), ("flexiblas", "FlexiBLAS"))
    return next((name for part, name in known if part in file), "unknown")


def _prepare_blas() -> Blas:
    """Choose and load a BLAS. Must run before MLX is imported for the first time.

    ``TOKENWALK_BLAS`` overrides the choice: the path of a library, or ``reference`` for what MLX brings itself.
    """
    if sys.platform != "linux":
        return Blas("Accelerate" if sys.platform == "darwin" else "unknown", None, fast=True)
    os.environ.setdefault("KMP_BLOCKTIME", _MKL_WAITS_MS)  # is read when MKL's OpenMP is loaded
    chosen = os.environ.get("TOKENWALK_BLAS")
    if chosen == "reference":
        return Blas("reference", None, fast=False, remedy="TOKENWALK_BLAS=reference asked for it: unset it")
    preloaded = _already_global()
    if preloaded is not None:
        return Blas(_name_of(preloaded), preloaded, fast=True)
    for name, candidate in [(_name_of(chosen), chosen)] if chosen else _candidates():
        path = _load_globally(candidate)
        if path is not None:
            return Blas(name, path, fast=True)
    if chosen:
        remedy = f"TOKENWALK_BLAS={chosen} cannot be loaded or has no cblas_sgemm: give the path of a BLAS library"
        return Blas("reference", None, fast=False, remedy=remedy)
    return Blas("reference", None, fast=False, remedy=_remedy())


def _share_freed_memory() -> None:
    """Let all threads use the memory that one of them has freed.

    What is captured is made by one thread, encoded by another and kept by a third. glibc keeps freed memory for the
    thread that had it: a followed prompt then took 80 MiB more at its peak. To hand it back to the system each time
    would cost the page faults of all of it. Other allocators share it by themselves.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, 1)


_share_freed_memory()
_mlx_came_first = "mlx.core" in sys.modules
_prepared = None if _mlx_came_first else _prepare_blas()

import mlx.core as mx  # noqa: E402  (the BLAS has to be there first)

__all__ = [
    "Blas",
    "blas",
    "check_gpu_trace",
    "check_memory",
    "chip",
    "compute_dtype",
    "describe",
    "gpu_trace",
    "memory_bytes",
    "mx",
    "on_gpu",
]


def _multiplies_fast() -> bool:
    """Measure: which BLAS an MLX imported earlier is bound to cannot be asked."""
    with mx.stream(mx.cpu):
        a = mx.full((256, 256), 0.5)
        mx.eval(a @ a)  # the first call may load code
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            mx.eval(a @ a)
            best = min(best, time.perf_counter() - start)
    return best < _FAST_MATMUL_SECONDS


@functools.cache
def blas() -> Blas:
    """The BLAS in use. Costs nothing, except where MLX was imported before this module: then it measures, once."""
    if _prepared is not None:
        return _prepared
    if sys.platform == "darwin":
        return Blas("Accelerate", None, fast=True)
    if _multiplies_fast():
        path = _already_global() if sys.platform == "linux" else None
        return Blas(_name_of(path) if path else "unknown", path, fast=True)
    remedy = "MLX was imported before engine, too late for a fast BLAS: import engine.device first"
    return Blas("reference", None, fast=False, remedy=remedy)


def on_gpu() -> bool:
    """True when MLX runs on a GPU by default (Metal, or CUDA)."""
    return mx.default_device().type == mx.DeviceType.gpu


def views_are_free() -> bool:
    """Whether the attention kernel reads a strided view of keys and values in place.

    On a CPU it does. Metal's copies one whose rows and heads do not lie evenly in memory, and launching a kernel costs
    little there, so that rows had better go one by one.
    """
    return not on_gpu()


def attention_is_composed() -> bool:
    """Whether `mx.fast.scaled_dot_product_attention` is many operations, which can be called one by one instead."""
    return not on_gpu()


def has_rope_kernel() -> bool:
    """Whether `mx.fast.rope` is one operation (`engine.rotations`)."""
    return on_gpu()


def weights_are_repacked() -> bool:
    """Whether a product of few rows copies the weights into an order of its own first (`engine.wide_head`)."""
    return not on_gpu()


def works_while_submitting() -> bool:
    """Whether submitting a graph takes as long as computing it, with Python's lock released meanwhile.

    MLX's CPU backend lets only a few operations be pending, so `async_eval` comes back when nearly all is done. A GPU
    takes the whole graph at once.
    """
    return not on_gpu()


def compute_dtype(stored: mx.Dtype) -> mx.Dtype:
    """The dtype that weights stored as `stored` are run in: as stored on a GPU, float32 on a CPU.

    MLX's CPU backend has a fast path only for float32; half precision and quantised products are several times slower.
    """
    return stored if on_gpu() else mx.float32


def memory_bytes() -> int | None:
    """The machine's main memory, or None where it cannot be found."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def check_memory(needed: int, what: str) -> None:
    """Refuse what cannot fit, before the machine starts to swap.

    Raises:
        ModelError: when `needed` bytes are more than this machine has.
    """
    here = memory_bytes()
    if here is not None and needed > here:
        raise ModelError(
            f"{what} needs {needed / 1e9:.1f} GB of memory for its weights, and this machine has {here / 1e9:.1f} GB; "
            "take a smaller model"
        )


def check_gpu_trace(path: Path) -> None:
    """Say at once why the GPU's work cannot be captured to this file, if it cannot.

    Raises:
        RequestError: where there is no Metal, Metal was not started for captures, or it would not take the file.
    """
    if not (mx.metal.is_available() and on_gpu()):
        why = f"MLX runs on the {'GPU without Metal' if on_gpu() else 'CPU'} here; a .gputrace is made by Metal alone"
    elif os.environ.get("MTL_CAPTURE_ENABLED") != "1":
        why = "Metal must be told when the process starts; run the command again with MTL_CAPTURE_ENABLED=1 before it"
    elif path.suffix != ".gputrace":
        why = "its name must end in .gputrace"
    elif path.exists():
        why = "it is there already, and Metal does not write over it; give another name"
    elif not path.absolute().parent.is_dir():
        why = "its folder does not exist"
    else:
        return
    raise RequestError(f"the GPU's work cannot be captured to {path}: {why}", param="gputrace")


@contextmanager
def gpu_trace(path: Path) -> Iterator[None]:
    """Capture all that the GPU does in this context to a .gputrace, which Xcode opens.

    Raises:
        RequestError: as `check_gpu_trace`, and when Metal refuses for a reason of its own.
    """
    check_gpu_trace(path)
    try:
        mx.metal.start_capture(str(path))
    except RuntimeError as error:
        raise RequestError(f"Metal does not capture to {path}: {error}", param="gputrace") from error
    try:
        yield
    finally:
        mx.metal.stop_capture()


@functools.cache
def chip() -> str:
    """The processor's name as its maker writes it, or the architecture where that cannot be found."""
    try:
        if sys.platform == "darwin":
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except (OSError, subprocess.SubprocessError):
        pass
    return platform.processor() or platform.machine()


def describe() -> dict[str, Any]:
    """What this machine is, as plain data: chip, os, python, mlx, mlx_lm, device and blas (of `RunHeader.machine`)."""
    return {
        "chip": chip(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "mlx": importlib.metadata.version("mlx"),
        "mlx_lm": importlib.metadata.version("mlx-lm"),
        "device": "gpu" if on_gpu() else "cpu",
        "blas": asdict(blas()),
    }
