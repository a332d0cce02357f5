"""The doctor tells what is wrong, and what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from engine.device import Blas, blas

import pytest

from engine import doctor
from engine.models import builtin


def test_facts_are_plain_data() -> None:
    diagnosis = doctor.examine()
    assert json.loads(json.dumps(diagnosis.as_dict())) == diagnosis.as_dict()
    facts = diagnosis.facts
    assert facts["mlx"] == facts["packages"]["mlx"]
    assert facts["memory_bytes"] > 1e8
    assert {model["spec"] for model in facts["models"]} >= {"smollm2", "tiny"}


def test_the_measured_speed_agrees_with_the_blas() -> None:
    assert (doctor.matmul_gflops() > 8) == blas().fast


def test_the_reference_blas_is_a_warning_with_its_remedy() -> None:
    [problem] = doctor.blas_problems(Blas("reference", None, fast=False, remedy="pip install mkl"))
    assert (problem.severity, problem.remedy) == ("warning", "pip install mkl")
    assert "reference" in problem.what
    assert doctor.blas_problems(Blas("MKL", "/lib", fast=True)) == []


def test_a_missing_model_is_a_warning_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "find", lambda: None)
    diagnosis = doctor.examine(measure=False)
    assert diagnosis.facts["builtin_model"] == {"name": "smollm2", "path": None, "verified": False}
    [problem] = [problem for problem in diagnosis.problems if "built-in model" in problem.what]
    assert problem.severity == "warning"
    assert "tokenwalk models fetch smollm2" in problem.remedy
    assert "matmul_gflops" not in diagnosis.facts


def test_a_damaged_model_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / builtin.FILE
    path.write_bytes(b"GGUF")
    monkeypatch.setenv("TOKENWALK_CACHE", str(tmp_path))
    monkeypatch.setattr(builtin, "find", lambda: path)
    diagnosis = doctor.examine(measure=False)
    assert not diagnosis.ok
    [problem] = [problem for problem in diagnosis.problems if problem.severity == "error"]
    assert str(path) in problem.remedy


def test_little_room_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENWALK_CACHE", str(tmp_path / "deep" / "down"))
    monkeypatch.setattr("engine.device.memory_bytes", lambda: 2_000_000_000)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 5_000_000})())
    what = " ".join(problem.what for problem in doctor.examine(measure=False).problems)
    assert "2.0 GB of memory" in what
    assert "0.0 GB left" in what


def test_a_missing_package_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_NEEDED", ("numpy", "no-such-package"))
    problems = doctor.examine(measure=False).problems
    assert [problem.what for problem in problems if problem.severity == "error"] == [
        "the package no-such-package is missing"
    ]


def test_an_mlx_that_cannot_be_imported_is_a_finding_not_a_crash() -> None:
    code = (
        "import sys; sys.modules['mlx.core'] = None; from engine.doctor import examine; d = examine();"
        "print(d.ok, [p.what for p in d.problems if p.severity == 'error'])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout.startswith("False ['MLX cannot be imported")
