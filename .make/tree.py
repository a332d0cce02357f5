"""Checks of the tree as a whole: what no linter looks at.

- No file names a package index or mirror, nor a path of this machine: both would be wrong on another.
- The page's sources load nothing from another host: it must work where there is no network.
- No source file is longer than 400 lines: then it has more than one subject. (Tests may: they mirror the source.)
- Everything needed is in the lock, at the version that the environment holds; everything imported is declared.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 400
# One record a kind of event, and what is generated from them: long, and one subject all the same.
LONG_BY_NATURE = {"engine/events.py", "frontend/js/schema.js"}

INDEX = re.compile(r"https?://[\w.-]*(?:index|registry|packages|mirror|hosted|pypi|npmjs)[\w.-]*", re.IGNORECASE)
# Where this checkout and this person's files are. (A checkout right under /tmp: anybody may write of /tmp.)
HERE = {ROOT.parent, Path.home()} - {Path("/"), Path("/tmp"), Path(tempfile.gettempdir())}
MACHINE = re.compile("|".join(re.escape(f"{path}/") for path in sorted(HERE)) or r"(?!)")
FOREIGN = re.compile(
    r"""(?:src|href|url|import|from|fetch)\s*[=(]?\s*["'(]\s*(?:https?:)?//(?!127\.0\.0\.1|localhost)"""
)

# Needed without being imported: loaded by path, by name, and for the file that the package carries.
UNIMPORTED = {"mkl", "websockets", "plotly"}


def files() -> list[str]:
    """The files of the tree that Git knows or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file())


def faults_of_file(name: str) -> Iterator[str]:
    try:
        text = (ROOT / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return  # a picture or a trace
    lines = text.splitlines()
    in_page = name.startswith("frontend/")
    for number, line in enumerate(lines, start=1):
        if INDEX.search(line):
            yield f"{name}:{number}: names a package index or mirror"
        if MACHINE.search(line):
            yield f"{name}:{number}: a path of this machine"
        if in_page and FOREIGN.search(line):
            yield f"{name}:{number}: the page would load something from another host"
    if (
        Path(name).suffix in {".py", ".js"}
        and not name.startswith("tests/")
        and len(lines) > LONGEST
        and name not in LONG_BY_NATURE
    ):
        yield f"{name}: {len(lines)} lines; more than {LONGEST} have more than one subject"


def faults_of_lock() -> Iterator[str]:
    """What Tokenwalk needs here, directly and indirectly, and the lock does not pin, or pins otherwise."""
    pinned: dict[str, set[str]] = {}
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([\w.-]+)==([\w.+!]+)", line):
            pinned.setdefault(normal(match[1]), set()).add(match[2])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    for name, version in sorted(closure(wanted).items()):
        if version is None:
            yield f"requirements.lock: {name} is needed and not installed; run `make setup` again"
        elif version not in pinned.get(name, set()):
            yield f"requirements.lock: does not pin {name}=={version}, which .venv holds; `make lock`, or set up again"


def closure(requirements: list[str]) -> dict[str, str | None]:
    """All packages that the requirements lead to on this machine: name → installed version, None when missing."""
    found: dict[str, str | None] = {}
    seen: set[tuple[str, str]] = set()
    todo = [(Requirement(text), "") for text in requirements]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = normal(requirement.name)
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
            continue
        found[name] = package.version
        for wanted in {"", *requirement.extras}:
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                todo += [(Requirement(text), wanted) for text in package.requires or []]
    return found


def faults_of_imports() -> Iterator[str]:
    """Imports that work only because some other package happens to bring them; dependencies that nothing imports."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {normal(match[0]) for each in project["dependencies"] if (match := re.match(r"[\w.-]+", each))}
    providers = importlib.metadata.packages_distributions()
    used = set(UNIMPORTED)
    for path in sorted([*(ROOT / "engine").rglob("*.py"), *(ROOT / "backend").rglob("*.py")]):
        for module, line in imported(ast.parse(path.read_bytes())):
            if module in sys.stdlib_module_names or module in {"engine", "backend"}:
                continue
            brought_by = declared & {normal(name) for name in providers.get(module, [])}
            used |= brought_by
            if not brought_by:
                yield f"{path.relative_to(ROOT)}:{line}: imports {module}, which pyproject.toml does not declare"
    yield from (f"pyproject.toml: declares {name}, which nothing imports" for name in sorted(declared - used))


def imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The top-level names of all modules that a file imports, wherever in the file, and the lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.partition(".")[0], node.lineno


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    faults = [fault for name in files() for fault in faults_of_file(name)]
    faults += [*faults_of_lock(), *faults_of_imports()]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
