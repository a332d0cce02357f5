"""Measures the page in headless Chromium and holds each figure to its bar.

Example: python -m tests.bench_ui --minutes 10
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path

import httpx
from playwright.sync_api import Browser, sync_playwright

from tests import chromium
from tests.bench_ui import measure
from tests.bench_ui.devtools import devtools_page
from tests.bench_ui.live import streaming
from tests.bench_ui.measure import Result
from tests.bench_ui.story import HEADS, LAYERS, write_trace
from tests.server import start_server

FOLLOWED = 24
"""Tokens with rows: at 8,000 keys they are 100 MB, as much as a `follow` recording's budget comes to."""

SAMPLE = Path(__file__).resolve().parents[2] / "traces" / "capital-of-france.mcap"
TABS = ("attention", "lens", "logits", "memory", "scheduler", "wire")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def of_recordings(browser: Browser, folder: Path, tokens: int, times: int) -> list[Result]:
    """What is measured on recordings: the sample's first visit, and a long one."""
    with start_server("replay", str(SAMPLE), folder=folder) as server:
        results = measure.first_paint(browser, server.url, "the sample", times)
    trace = folder / "long.mcap"
    say(f"writing a trace of {tokens} tokens × {LAYERS} layers × {HEADS} heads, rows of the last {FOLLOWED} …")
    write_trace(trace, tokens=tokens, followed=FOLLOWED)
    say(f"… {trace.stat().st_size / 2**20:.0f} MiB; measuring")
    with start_server("replay", str(trace), folder=folder) as server:
        run = httpx.get(f"{server.url}/health").json()["run"]
        url = f"{server.url}/#run={run}&request=r-long&position={tokens - 3}&act=chosen&tab=attention"
        results += measure.first_paint(browser, url, f"{tokens} tokens", times)
        page = measure.opened(browser, url)
        measure.loaded(page)
        positions = [tokens - 2 - (7 * i) % (FOLLOWED - 3) for i in range(20)]
        results += [measure.follow(page, tab, positions) for tab in TABS]
        results.append(measure.scrub(page, 6))
        results.append(Result(f"heap with {tokens} tokens open", measure.heap_mib(page), "MiB", 300))
        page.context.close()
    return results


def of_live(path: Path, folder: Path, minutes: float) -> list[Result]:
    """What is measured on a stream."""
    say(f"streaming for {minutes:g} min …")
    with streaming(folder) as (server, engine), devtools_page(path, server.url) as page:
        return measure.live(page, engine, 10, minutes)


def shown(result: Result) -> str:
    bar = "" if result.bar is None else f"  {'≤' if result.at_most else '≥'} {result.bar:g}"
    word = {True: "holds", False: "MISSED", None: ""}[result.holds]
    return f"{result.name:<44} {result.value:>9.1f} {result.unit:<9}{bar:<8} {word:<7} {result.note}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench_ui", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, default=1, help="how long to stream before the heap is measured (1; its bar is for 10)"
    )
    parser.add_argument("--tokens", type=int, default=8000, help="length of the recording (8000)")
    parser.add_argument("--times", type=int, default=5, help="first visits to take the median of (5)")
    parser.add_argument("--only", choices=("recordings", "live"), help="measure only these")
    parser.add_argument("--json", action="store_true", help="print data")
    options = parser.parse_args()
    path = chromium.find()
    if path is None:
        say(f"No Chromium on this machine. {chromium.REMEDY}")
        return 1
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only != "live":
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=path, args=list(chromium.ARGUMENTS))
                results += of_recordings(browser, folder, options.tokens, options.times)
                browser.close()
        if options.only != "recordings":
            results += of_live(path, folder, options.minutes)
    if options.json:
        print(json.dumps([dataclasses.asdict(result) | {"holds": result.holds} for result in results]))
    else:
        print("\n".join(map(shown, results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
