"""Tokenwalk's version, as installed."""

from __future__ import annotations

import importlib.metadata

try:
    VERSION = importlib.metadata.version("tokenwalk")
except importlib.metadata.PackageNotFoundError:  # run from a folder that was never installed
    VERSION = "0+unknown"
