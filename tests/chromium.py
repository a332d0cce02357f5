"""The Chromium that the browser tests drive: found, or installed where that can be done.

``python -m tests.chromium`` prints its path, or says on stderr what was tried and ends with status 1;
``--install`` installs one first where there is none: Debian's package when root may use apt-get, else Playwright's own.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.apt import apt_install, attempt

VARIABLE = "TOKENWALK_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC_APPLICATIONS = ("Chromium.app/Contents/MacOS/Chromium", "Google Chrome.app/Contents/MacOS/Google Chrome")
REMEDY = f"Install Chromium or Chrome, or name one in the environment variable {VARIABLE}."
DEBIAN_PACKAGES = ("chromium", "fonts-noto-cjk", "fonts-noto-color-emoji")

# Headless, without a sandbox (containers and root have none), and without the calls home that Chromium makes by itself.
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def runs(program: str | Path) -> bool:
    """Whether the program starts: Ubuntu's `chromium-browser` may be a stub, Playwright's may lack system libraries."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@functools.cache
def find() -> Path | None:
    """The Chromium to use: the variable's, then PATH's, then macOS's applications', then Playwright's own; or None.

    Raises:
        FileNotFoundError: the variable is set, but what it names does not run.
    """
    if named := os.environ.get(VARIABLE):
        found = shutil.which(named)
        if found is None or not runs(found):
            raise FileNotFoundError(
                f"{VARIABLE} is {named!r}, which does not run. Name a working Chromium, or unset it."
            )
        return Path(found)
    candidates: list[str | Path] = [path for name in NAMES if (path := shutil.which(name))]
    if sys.platform == "darwin":
        folders = (Path("/Applications"), Path.home() / "Applications")
        candidates += [path for folder in folders for name in MAC_APPLICATIONS if (path := folder / name).exists()]
    for candidate in candidates:
        if runs(candidate):
            return Path(candidate)
    own = playwright_chromium()
    return own if own is not None and runs(own) else None


def playwright_chromium() -> Path | None:
    """Playwright's own Chromium, if it is there. Asked in a process of its own: the tests may run an event loop."""
    script = "from playwright.sync_api import sync_playwright as s\nwith s() as p: print(p.chromium.executable_path)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    path = Path(done.stdout.strip())
    return path if done.returncode == 0 and path.is_file() else None


def install() -> None:
    """Try to install a Chromium. Whether it worked is for `find` to say."""
    if apt_install(*DEBIAN_PACKAGES):
        find.cache_clear()
        if find() is not None:
            return
    say("asking Playwright for its own Chromium, about 170 MB")
    attempt([sys.executable, "-m", "playwright", "install", "--no-shell", "chromium"])
    find.cache_clear()


def say(text: str) -> None:
    print(f"chromium: {text}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    try:
        if find() is None and "--install" in arguments:
            install()
        path = find()
    except FileNotFoundError as error:
        say(str(error))
        return 1
    if path is None:
        say(f"none of {', '.join(NAMES)} on PATH, and none of Playwright's. {REMEDY}")
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
