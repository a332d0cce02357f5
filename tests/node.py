"""The Node that Playwright's wheel brings: it runs the JavaScript tests and drives the browser; nobody needs another.

``python -m tests.node`` prints its path, or says on stderr why it does not start and ends with status 1; ``--install``
first installs what it lacks, where root may use apt-get.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

from tests.apt import apt_install

LIBRARY = "libatomic1"  # the one library that the Node of Playwright's wheel wants and a bare Debian lacks


@functools.cache
def trouble() -> str | None:
    """Why Playwright's Node does not start here, with the remedy; None when it does."""
    try:
        done = subprocess.run([path(), "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"The Node of Playwright's wheel does not start: {error}. Delete .venv and set up again."
    if done.returncode == 0:
        return None
    remedy = f"Install {LIBRARY} (Debian, Ubuntu: apt install {LIBRARY})." if "libatomic" in done.stderr else ""
    return f"The Node of Playwright's wheel does not start: {done.stderr.strip()}. {remedy}".rstrip()


def path() -> Path:
    """Where it lies."""
    import playwright

    return Path(playwright.__file__).parent / "driver" / "node"


def main(arguments: list[str]) -> int:
    if trouble() is not None and "--install" in arguments and apt_install(LIBRARY):
        trouble.cache_clear()
    if (reason := trouble()) is not None:
        print(f"node: {reason}", file=sys.stderr)
        return 1
    print(path())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
