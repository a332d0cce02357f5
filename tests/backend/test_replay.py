"""`tokenwalk replay`: the dashboard on a file, with neither model nor MLX."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from tests.server import start_server


def test_a_trace_is_replayed_without_mlx(trace_file: Path, tmp_path: Path) -> None:
    # A package called mlx that cannot be imported stands before the real one.
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "__init__.py").write_text("raise ImportError('replay must not import MLX')")
    folder = tmp_path / "out"
    folder.mkdir()
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.getcwd()])}
    with start_server("replay", str(trace_file), folder=folder, environment=environment) as server:
        health = httpx.get(f"{server.url}/health").json()
        assert (health["status"], health["mode"], health["run"]) == ("replay", "replay", "walk")
        assert httpx.get(f"{server.url}/v1/traces/walk/info").json()["complete"] is True
        assert httpx.get(f"{server.url}/v1/traces/walk/frames").status_code == 200
        assert httpx.get(f"{server.url}/").status_code == 200
        answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "Hello"})
        assert answer.status_code == 503
        assert "replays" in answer.json()["error"]["message"]
        assert httpx.get(f"{server.url}/metrics").status_code == 404
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=30) == 0


def test_nothing_that_replay_needs_imports_mlx() -> None:
    code = "import sys, backend.cli, backend.app; sys.exit(any(name.split('.')[0] == 'mlx' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
