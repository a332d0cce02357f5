"""Where commands write: results to stdout, everything else to stderr; colours only on a terminal."""

from __future__ import annotations

from rich.console import Console

out = Console(highlight=False, soft_wrap=True)
err = Console(highlight=False, soft_wrap=True, stderr=True)
