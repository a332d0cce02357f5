"""Recording runs to files and reading them back. No MLX, no model, no web."""

from engine.trace.reader import Trace, open_trace
from engine.trace.recorder import Recorder

__all__ = ["Recorder", "Trace", "open_trace"]
