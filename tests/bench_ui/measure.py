"""What is measured, each in a page of its own. Times are the browser's own."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from playwright.sync_api import Browser, Page

from tests.bench_ui.devtools import DevToolsPage
from tests.bench_ui.live import PacedEngine

# Meaningful is the conversation in the ribbon; all is there when the walk has its layers, the lens among them.
FIRST_PAINT = """
const look = () => {
    const now = (name) => setTimeout(() => { globalThis[name] ??= performance.now(); }, 0);
    if (document.querySelectorAll("#ribbon .chip").length > 20) now("firstPaint");
    if (document.querySelector("#walk[data-position] .layer .guess .word")) now("allDrawn");
    else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""

# From the click until walk, ribbon and panel show the other token, and that frame has been laid out and painted.
FOLLOW = """
async ({ position, said }) => {
    const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    const chip = document.querySelector(`[data-position="${position}"].chip`);
    const panel = document.querySelector("[role=tabpanel]:not([hidden])");
    const start = performance.now();
    chip.click();
    const there = () => document.querySelector("#walk").dataset.position === String(position)
        && chip.getAttribute("aria-current") === "true" && (said === "" || panel.textContent.includes(said));
    do await frame(); while (!there() && performance.now() - start < 10_000);
    return performance.now() - start;
}
"""

# The pointer goes over the time line and back, a place further with each frame that the browser gives.
SCRUB = """
async (seconds) => {
    const bar = document.querySelector("#transport .scrubber");
    const box = bar.getBoundingClientRect();
    const pointer = { clientY: box.top + 10, bubbles: true, pointerId: 1, buttons: 1 };
    const at = (name, x) => bar.dispatchEvent(new PointerEvent(name, { ...pointer, clientX: x }));
    const seen = new Set();
    const start = performance.now();
    let frames = 0;
    bar.setPointerCapture = () => {};
    bar.hasPointerCapture = () => true;
    at("pointerdown", box.left + box.width * 0.98);
    while (performance.now() - start < seconds * 1000) {
        await new Promise(requestAnimationFrame);
        frames += 1;
        seen.add(document.querySelector("#walk").dataset.position);
        const swing = Math.abs(((performance.now() - start) / 4000) % 2 - 1);
        at("pointermove", box.left + box.width * (0.9 + 0.1 * swing));
    }
    at("pointerup", box.left + box.width * 0.98);
    return { rate: frames / ((performance.now() - start) / 1000), drawn: seen.size };
}
"""

# Every request is followed as it comes, as a person would: by its entry in the list, the newest first.
FRAMES = """
async (seconds) => {
    const start = performance.now();
    const seen = new Set();
    let frames = 0, longest = 0, last = start;
    while (performance.now() - start < seconds * 1000) {
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        longest = Math.max(longest, now - last);
        last = now;
        frames += 1;
        if (document.querySelector("#transport .follow").hidden) document.querySelector("#requests .entry")?.click();
        const { request } = document.querySelector("#requests .entry[aria-current]")?.dataset ?? {};
        seen.add(`${request} ${document.querySelector("#walk").dataset.position}`);
    }
    return { rate: frames / ((performance.now() - start) / 1000), longest, drawn: seen.size };
}
"""

DROPPED = "document.querySelector('#topbar .figure button:not(.term)').textContent.replace(/,/g, '')"


@dataclass(frozen=True)
class Result:
    """One figure and the bar it is held to; `bar` None: only told."""

    name: str
    value: float
    unit: str
    bar: float | None
    at_most: bool = True
    note: str = ""

    @property
    def holds(self) -> bool | None:
        if self.bar is None:
            return None
        return self.value <= self.bar if self.at_most else self.value >= self.bar


def opened(browser: Browser, url: str) -> Page:
    """A page with a fresh profile, and nothing in its cache."""
    # What is waited for is evaluated as a string, which the page itself forbids.
    page = browser.new_context(viewport={"width": 1440, "height": 900}, bypass_csp=True).new_page()
    page.add_init_script(FIRST_PAINT)
    page.goto(url, wait_until="commit")
    return page


def first_paint(browser: Browser, url: str, name: str, times: int) -> list[Result]:
    """Medians of several first visits: the conversation, and the followed token with all its layers."""
    first, whole = [], []
    for _ in range(times):
        page = opened(browser, url)
        page.wait_for_function("globalThis.allDrawn !== undefined", timeout=120_000)
        first.append(page.evaluate("globalThis.firstPaint"))
        whole.append(page.evaluate("globalThis.allDrawn"))
        page.context.close()
    note = f"median of {times}; the conversation in the ribbon"
    return [
        Result(f"first meaningful paint, {name}", statistics.median(first), "ms", 1000, note=note),
        Result(f"followed token's walk, {name}", statistics.median(whole), "ms", None, note=f"median of {times}"),
    ]


def loaded(page: Page) -> None:
    """Wait until the recording is here and the panel has drawn all rows."""
    page.wait_for_function("document.querySelector('#topbar .state')?.textContent === 'REPLAY'", timeout=120_000)
    page.wait_for_function("!document.querySelector('#panel-attention')?.textContent.includes('Drawing:')")


def follow(page: Page, tab: str, positions: list[int]) -> Result:
    """Median of following other tokens with that tab open."""
    page.locator(f"#tab-{tab}").click()
    values = []
    for position in positions:
        said = f"row {position - 1} sums to" if tab == "attention" else ""
        values.append(page.evaluate(FOLLOW, {"position": position, "said": said}))
    worst = f"median of {len(values)}, worst {max(values):.0f} ms"
    return Result(f"following another token, {tab} open", statistics.median(values), "ms", 100, note=worst)


def scrub(page: Page, seconds: float) -> Result:
    """Frames a second while the pointer moves over the time line."""
    page.locator("#tab-attention").click()
    found = page.evaluate(SCRUB, seconds)
    note = f"over {seconds:.0f} s; {found['drawn']} different tokens were drawn"
    return Result("scrubbing", found["rate"], "frames/s", 30, at_most=False, note=note)


def heap_mib(page: Page) -> float:
    """JavaScript's heap with the arrays that hang on it, after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    return mib_of(session.send("Runtime.getHeapUsage"))


def mib_of(usage: dict[str, float]) -> float:
    """All parts of a heap, from what DevTools says of it."""
    return float(sum(usage.get(part, 0) for part in ("usedSize", "embedderHeapUsedSize", "backingStorageSize"))) / 2**20


def live_heap_mib(page: DevToolsPage) -> float:
    """The same, of a page that is asked over DevTools."""
    page.send("HeapProfiler.collectGarbage")
    return mib_of(page.send("Runtime.getHeapUsage"))


def live(page: DevToolsPage, engine: PacedEngine, seconds: float, minutes: float) -> list[Result]:
    """Frames a second while 100 tokens a second stream in and the newest is followed; then the heap, minutes later."""
    page.wait_until("document.querySelector('#topbar .state')?.textContent === 'LIVE'")
    engine.go()
    start = time.monotonic()
    page.wait_until("document.querySelectorAll('#ribbon .chip').length > 130")
    before, began, busy = engine.sent, time.monotonic(), engine.seconds
    found = page.evaluate(f"({FRAMES})({seconds})")
    took = time.monotonic() - began
    pace, load = (engine.sent - before) / took, (engine.seconds - busy) / took
    note = (
        f"at {pace:.0f} tokens/s with all rows; {found['drawn'] / seconds:.0f} tokens drawn a second; "
        f"longest frame {found['longest']:.0f} ms; the load itself took {100 * load:.0f} % of a core and was at most "
        f"{1000 * engine.late:.0f} ms late"
    )
    results = [Result("live stream with follow", found["rate"], "frames/s", 30, at_most=False, note=note)]
    heaps = []
    while (left := start + 60 * minutes - time.monotonic()) > 0:
        time.sleep(min(left, 15))
        heaps.append(live_heap_mib(page))
    engine.halt()
    results.append(Result("events dropped on the way", int(page.evaluate(DROPPED)), "events", None))
    grown = f"; every 15 s: {', '.join(f'{heap:.0f}' for heap in heaps[-12:])}"
    whole = minutes >= 10
    name = f"heap after {minutes:g} min and {engine.sent} tokens"
    lacking = "" if whole else "; the bar is for ten minutes: --minutes 10"
    note = f"after a collection{grown}{lacking}"
    results.append(Result(name, live_heap_mib(page), "MiB", 300 if whole else None, note=note))
    return results
