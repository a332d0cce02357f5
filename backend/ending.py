"""Ctrl-C: the first ends what runs in good order, and says what that waits for; the second ends the process."""

from __future__ import annotations

import os
from typing import NoReturn

SILENT_S = 0.5
"""How long the end may take before it is said what it waits for."""

WAITS = "ends when the step under way is done, which cannot be stopped half way; Ctrl-C once more ends at once"


def end_at_once(status: int) -> NoReturn:
    """End the process as it is, and say so. Works in a signal handler.

    Not by an exception: the interpreter's own end would wait for the engine thread, which may be deep in a computation.
    """
    os.write(
        2, b"\ntokenwalk: ended at once; a trace that was being recorded lacks its end (tokenwalk trace recover)\n"
    )
    os._exit(status)
