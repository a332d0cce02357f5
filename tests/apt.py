"""Installing Debian's packages for the tests, where that can be done without asking: as root, with apt-get."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


def apt_install(*packages: str) -> bool:
    """Install the packages. False where this is not Debian or Ubuntu, not root, or where apt-get failed."""
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    print(f"tests: installing {', '.join(packages)} with apt-get", file=sys.stderr, flush=True)
    update = attempt(["apt-get", "-q", "update"])
    return attempt(["apt-get", "-qy", "install", "--no-install-recommends", *packages]) and update


def attempt(command: list[str]) -> bool:
    """Run an installing command, its output on stderr. A failure is told, not raised: another way may still work."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        status = subprocess.run(command, env=environment, stdout=sys.stderr, timeout=900, check=False).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"tests: `{' '.join(command)}`: {error}", file=sys.stderr)
        return False
    if status != 0:
        print(f"tests: `{' '.join(command)}` ended with status {status}", file=sys.stderr)
    return status == 0
