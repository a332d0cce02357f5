"""The Makefile's choice of a Python: `.make/find-python`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / ".make" / "find-python"
WORKING = f'exec "{sys.executable}" "$@"'
BROKEN_SHIM = 'echo "pyenv: $0: command not found" >&2\nexit 127'
UNSUITABLE = "exit 1"  # too old: its check of the version fails
INTEL_MAC = "exit 2"
WITHOUT_VENV = f'case "$2" in *ensurepip*) exit 1 ;; esac\n{WORKING}'


@pytest.fixture
def find(tmp_path: Path):
    """Runs the script with a PATH that holds the given Pythons and what a shell needs, and nothing else."""
    for name in ("sh", "uname"):
        program = next(Path(folder, name) for folder in ("/bin", "/usr/bin") if Path(folder, name).exists())
        (tmp_path / name).symlink_to(program)

    def run(*arguments: str, **pythons: str) -> subprocess.CompletedProcess[str]:
        for name, body in pythons.items():
            program = tmp_path / name.replace("_", ".")
            program.write_text(f"#!/bin/sh\n{body}\n")
            program.chmod(0o755)
        environment = {**os.environ, "PATH": str(tmp_path)}
        command = ["/bin/sh", str(SCRIPT), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    return run


def test_the_newest_working_python_is_taken(find, tmp_path: Path) -> None:
    done = find(python3=WORKING, python3_11=WORKING, python3_13=WORKING)
    assert done.stdout.strip() == str(tmp_path / "python3.13")


def test_a_shim_that_stands_for_nothing_is_passed_over(find, tmp_path: Path) -> None:
    done = find(python3_14=BROKEN_SHIM, python3_13=BROKEN_SHIM, python3=WORKING)
    assert (done.stdout.strip(), done.stderr) == (str(tmp_path / "python3"), "")


def test_an_older_python_that_can_make_environments_beats_a_newer_one_that_cannot(find, tmp_path: Path) -> None:
    pythons = {"python3_13": WITHOUT_VENV, "python3_12": WORKING}
    assert find("--with-venv", **pythons).stdout.strip() == str(tmp_path / "python3.12")
    assert find(**pythons).stdout.strip() == str(tmp_path / "python3.13"), "uv needs no ensurepip"


def test_without_any_it_says_which_versions_and_how_to_get_one(find) -> None:
    done = find(python3=UNSUITABLE)
    assert done.returncode == 1
    assert "3.11 to 3.14" in done.stderr
    assert "Install one" in done.stderr


def test_where_only_the_venv_module_is_missing_it_names_the_package(find) -> None:
    done = find("--with-venv", python3=WITHOUT_VENV)
    assert done.returncode == 1
    assert f"python3.{sys.version_info.minor}-venv" in done.stderr


def test_a_python_for_intel_macs_is_named_as_the_cause(find) -> None:
    done = find(python3=INTEL_MAC)
    assert done.returncode == 1
    assert "Apple Silicon" in done.stderr
