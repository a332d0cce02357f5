"""The page's modules are all announced, so that the browser fetches them side by side."""

from __future__ import annotations

import os
import re
from pathlib import Path

from backend.paths import frontend_dir
from backend.preloads import Preloads
from tests.backend.conftest import Running


def module(folder: Path, name: str, text: str) -> Path:
    path = folder / "js" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_all_that_main_imports_is_found_and_nothing_that_waits_until_it_is_needed(tmp_path: Path) -> None:
    module(
        tmp_path, "main.js", 'import { a } from "./a.js";\nimport "./side/b.js";\nconst later = import("./later.js");\n'
    )
    module(
        tmp_path,
        "a.js",
        'import {\n  b,\n} from "./side/b.js";\n/** @type {import("./types.js").T} */\nexport { c } from "./c.js";\n',
    )
    module(tmp_path, "side/b.js", 'import { a } from "../a.js";\nexport const text = "import x from \'./no.js\'";\n')
    module(tmp_path, "c.js", 'import out from "../../outside.js";\nimport gone from "./gone.js";\n')
    assert Preloads(tmp_path).modules() == ["js/a.js", "js/side/b.js", "js/c.js", "js/gone.js"]


def test_a_changed_module_is_read_again(tmp_path: Path) -> None:
    main = module(tmp_path, "main.js", 'import "./a.js";\n')
    module(tmp_path, "a.js", "export {};\n")
    module(tmp_path, "b.js", "export {};\n")
    preloads = Preloads(tmp_path)
    assert preloads.modules() == ["js/a.js"]
    main.write_text('import "./b.js";\n')
    os.utime(main, ns=(1, 1))
    assert preloads.modules() == ["js/b.js"]


def test_the_page_announces_modules_that_are_there_and_neither_panels_nor_plotly(server: Running) -> None:
    page = server.http.get("/").text
    announced = re.findall(r'<link rel="modulepreload" href="static/([^"]+)" />', page)
    assert len(announced) == len(set(announced)) > 40
    assert all((frontend_dir() / name).is_file() for name in announced)
    assert {"js/walk.js", "js/ribbon.js", "js/store.js"} <= set(announced)
    assert not [name for name in announced if name.startswith("js/panels/") or "plotly" in name]
    assert page.index(announced[-1]) < page.index('<script type="module" src="static/js/main.js">')


def test_a_file_of_the_page_comes_whole_in_part_and_not_again_while_it_is_the_same(server: Running) -> None:
    content = (frontend_dir() / "js/main.js").read_bytes()
    whole = server.http.get("/static/js/main.js")
    assert (whole.status_code, whole.content) == (200, content)
    assert whole.headers["content-length"] == str(len(content))
    assert whole.headers["content-type"].startswith("text/javascript")
    again = server.http.get("/static/js/main.js", headers={"if-none-match": whole.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    part = server.http.get("/static/js/main.js", headers={"range": "bytes=3-12"})
    assert (part.status_code, part.content) == (206, content[3:13])
    head = server.http.head("/static/js/main.js")
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", whole.headers["etag"])
    assert server.http.get("/static/js/none.js").status_code == 404
