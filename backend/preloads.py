"""Which modules the page starts with: a browser fetches them side by side, not one generation of imports after another.

Read from the modules themselves whenever one has changed, so that there is no list to keep in step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FIRST = "js/main.js"

_IMPORT = re.compile(r"""^(?:import|export)\b[^;"']*["'](\.[^"']+)["'];""", re.MULTILINE)
_BEFORE = '    <script type="module"'


class Preloads:
    """The modules that `main.js` leads to in a folder, without those that it loads only when they are needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._modified: dict[Path, int] = {}
        self._modules: list[str] = []

    def modules(self) -> list[str]:
        """Paths below the folder, in the order in which a browser would come to them, without the first itself."""
        if not self._modified or any(_modified_ns(path) != then for path, then in self._modified.items()):
            found, at = [FIRST], 0
            while at < len(found):
                found += [module for module in dict.fromkeys(self._imports(found[at])) if module not in found]
                at += 1
            self._modified = {path: _modified_ns(path) for path in (self.folder / module for module in found)}
            self._modules = found[1:]
        return self._modules

    def into(self, page: str) -> str:
        """The page with a link a module, before its script."""
        links = "".join(f'    <link rel="modulepreload" href="static/{module}" />\n' for module in self.modules())
        return page.replace(_BEFORE, links + _BEFORE, 1)

    def _imports(self, module: str) -> Iterator[str]:
        path = self.folder / module
        if not path.is_file():
            return
        for match in _IMPORT.finditer(path.read_text(encoding="utf-8")):
            imported = (path.parent / match[1]).resolve()
            if imported.is_relative_to(self.folder):
                yield imported.relative_to(self.folder).as_posix()


def _modified_ns(path: Path) -> int:
    return path.stat().st_mtime_ns if path.is_file() else 0
