"""Which BLAS multiplies, told truly in every order of imports."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

from engine.device import blas, check_gpu_trace, check_memory, compute_dtype, describe, gpu_trace, mx, on_gpu

import pytest

import engine
from engine.errors import ModelError, RequestError

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is there a choice of BLAS")
FAST_HERE = pytest.mark.skipif(not blas().fast, reason="no fast BLAS on this machine")

REPORT = """
import json
from engine import device
print(json.dumps([device.blas().name, device.blas().path, device.blas().fast, device.blas().remedy,
                  device._multiplies_fast()]))
"""


def report(before: str = "", **environment: str) -> tuple[str, str | None, bool, str | None, bool]:
    """What a fresh interpreter says of its BLAS, and whether it really multiplies fast."""
    out = subprocess.run(
        [sys.executable, "-c", before + REPORT],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    name, path, fast, remedy, measured = json.loads(out.stdout)
    return name, path, fast, remedy, measured


@LINUX
@FAST_HERE
def test_the_fast_blas_is_really_used() -> None:
    name, path, fast, remedy, measured = report()
    assert (name, fast, remedy, measured) == (blas().name, True, None, True)
    assert path is not None
    assert os.path.exists(path)


@LINUX
@pytest.mark.parametrize(("asked", "waits"), [(None, "1"), ("7", "7")])
def test_how_long_mkl_waits_is_in_the_environment_unless_the_user_has_said_it(
    asked: str | None, waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KMP_BLOCKTIME", raising=False)
    if asked is not None:
        monkeypatch.setenv("KMP_BLOCKTIME", asked)
    code = "import engine.device, os; print(os.environ['KMP_BLOCKTIME'])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.strip() == waits


@LINUX
def test_the_reference_blas_is_told_and_measured() -> None:
    name, path, fast, remedy, measured = report(TOKENWALK_BLAS="reference")
    assert (name, path, fast, measured) == ("reference", None, False, False)
    assert remedy is not None


@LINUX
def test_a_library_that_is_none_is_named() -> None:
    name, _, fast, remedy, _ = report(TOKENWALK_BLAS="/nowhere/libblas.so")
    assert (name, fast) == ("reference", False)
    assert "/nowhere/libblas.so" in (remedy or "")


@LINUX
@FAST_HERE
def test_mlx_imported_first_is_noticed() -> None:
    name, _, fast, remedy, measured = report("import mlx.core")
    assert (name, fast, measured) == ("reference", False, False)
    assert "before" in (remedy or "")


@LINUX
@FAST_HERE
def test_a_library_that_was_preloaded_is_recognised() -> None:
    path = blas().path
    assert path is not None
    for before in ("", "import mlx.core"):
        assert report(before, LD_PRELOAD=path) == (blas().name, path, True, None, True)


@LINUX
def test_a_mkl_with_wide_integers_is_not_used() -> None:
    """MLX passes 32-bit integers; an MKL told to expect 64-bit ones would read past them."""
    assert report(MKL_INTERFACE_LAYER="ILP64")[0] != "MKL"


def test_no_module_of_the_engine_imports_mlx_before_the_blas() -> None:
    """Each by itself, so that it does not matter which is imported first."""
    checked = 0
    for path in Path(engine.__path__[0]).rglob("*.py"):
        imports = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = [getattr(node, "module", None) or node.names[0].name for node in imports]
        mlx = [index for index, name in enumerate(names) if name.split(".")[0] in ("mlx", "mlx_lm")]
        if mlx and path.name != "device.py":
            assert "engine.device" in names[: mlx[0]], f"{path} imports {names[mlx[0]]} without engine.device before it"
            checked += 1
    assert checked > 5


def test_a_cpu_computes_in_float32_and_a_gpu_as_stored() -> None:
    for dtype in (mx.float16, mx.bfloat16, mx.float32):
        assert compute_dtype(dtype) == (dtype if on_gpu() else mx.float32)


def test_the_description_is_plain_data() -> None:
    described = json.loads(json.dumps(describe()))
    assert set(described) == {"chip", "os", "python", "mlx", "mlx_lm", "device", "blas"}
    assert described["device"] in ("cpu", "gpu")
    assert described["blas"]["name"] == blas().name
    assert all(described.values())


def test_more_than_the_machine_has_is_refused() -> None:
    check_memory(1_000_000, "a small model")
    with pytest.raises(ModelError, match="a huge model needs 1000000"):
        check_memory(10**15, "a huge model")


def as_if_on_metal(monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> None:
    monkeypatch.setattr("engine.device.on_gpu", lambda: True)
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr(mx.metal, "start_capture", lambda path: calls.append(f"start {Path(path).name}"))
    monkeypatch.setattr(mx.metal, "stop_capture", lambda: calls.append("stop"))
    monkeypatch.setenv("MTL_CAPTURE_ENABLED", "1")


def test_without_metal_no_gpu_trace_is_made(tmp_path: Path) -> None:
    if not on_gpu():
        with pytest.raises(RequestError, match="runs on the CPU here"):
            check_gpu_trace(tmp_path / "a.gputrace")


def test_a_gpu_trace_ends_with_its_context_whatever_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[str] = []
    as_if_on_metal(monkeypatch, calls)
    with pytest.raises(ValueError, match="inside"), gpu_trace(tmp_path / "a.gputrace"):
        raise ValueError("inside")
    assert calls == ["start a.gputrace", "stop"]


@pytest.mark.parametrize(
    ("name", "enabled", "said"),
    [
        ("a.gputrace", "0", "MTL_CAPTURE_ENABLED=1"),
        ("a.trace", "1", "end in .gputrace"),
        ("there.gputrace", "1", "there already"),
        ("no/folder/a.gputrace", "1", "folder does not exist"),
    ],
)
def test_what_metal_would_refuse_is_refused_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, enabled: str, said: str
) -> None:
    calls: list[str] = []
    as_if_on_metal(monkeypatch, calls)
    monkeypatch.setenv("MTL_CAPTURE_ENABLED", enabled)
    (tmp_path / "there.gputrace").mkdir()
    with pytest.raises(RequestError, match=said), gpu_trace(tmp_path / name):
        pass
    assert calls == []
