"""Where things lie on disk: in a checkout, or in an installed wheel, and in the person's own data folder."""

from __future__ import annotations

import os
import sys
from importlib.resources import files
from pathlib import Path

HERE = Path(__file__).resolve().parent


def frontend_dir() -> Path:
    """The page's folder: `frontend/` of a checkout, or the copy that the wheel carries."""
    return _checkout_or_installed("frontend", "_frontend")


def bundled_traces_dir() -> Path:
    """The folder of the traces that come with Tokenwalk."""
    return _checkout_or_installed("traces", "_traces")


def plotly_js() -> Path:
    """`plotly.min.js` of the installed plotly package. Finding it does not import plotly."""
    return Path(str(files("plotly").joinpath("package_data", "plotly.min.js")))


def default_traces_dir() -> Path:
    """Where runs are recorded unless `--traces` says otherwise: the platform's folder for a person's data."""
    return _data_dir() / "traces"


def _data_dir() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "tokenwalk"
    base = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share") / "tokenwalk"


def _checkout_or_installed(in_checkout: str, in_wheel: str) -> Path:
    installed = HERE / in_wheel
    return installed if installed.is_dir() else HERE.parent / in_checkout
