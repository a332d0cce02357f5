import assert from "node:assert/strict";
import test from "node:test";

import { createRun } from "../../frontend/js/model.js";
import { Store } from "../../frontend/js/store.js";
import { bindAddress, formatHash, parseHash, shareAddress } from "../../frontend/js/url.js";

/** @type {import("../../frontend/js/model.js").Selection} */
const selection = { run: "capital-of-france", request: "req-1", position: 48, act: "chosen", layer: 24, head: 3, tab: "attention", compare: "emoji/and/cjk/r-2" };

test("the hash holds the whole selection, in the documented order", () => {
  assert.equal(formatHash(selection), "#run=capital-of-france&request=req-1&position=48&act=chosen&layer=24&head=3&tab=attention&compare=emoji%2Fand%2Fcjk%2Fr-2");
  assert.equal(formatHash({ ...selection, compare: null }), "#run=capital-of-france&request=req-1&position=48&act=chosen&layer=24&head=3&tab=attention");
});

test("a hash read back is the selection", () => {
  assert.deepEqual(parseHash(formatHash(selection)), selection);
});

test("names with odd characters survive", () => {
  for (const run of ["a b&c=d#e", "100%", "ünï+cödé", "日本"]) assert.equal(parseHash(formatHash({ ...selection, run })).run, run);
});

test("while the newest token is followed the address names no position", () => {
  assert.deepEqual(parseHash(formatHash(selection, true)), { run: "capital-of-france", request: "req-1", layer: 24, head: 3, tab: "attention", compare: selection.compare });
});

test("what is missing or wrong is left out", () => {
  assert.deepEqual(parseHash(""), {});
  assert.deepEqual(parseHash("#position=-1&layer=x&head=1e3&act=maybe&tab=<b>&run="), {});
  assert.deepEqual(parseHash("#position=99999999999"), {});
  assert.deepEqual(parseHash("#compare=no-request"), {});
  assert.equal(formatHash({ ...selection, run: null }), "");
});

/** A window with an address, and timers that run when told. */
function fakeWindow(hash = "") {
  /** @type {Map<string, () => void>} */
  const listeners = new Map();
  /** @type {(() => void)[]} */
  const timers = [];
  const window = {
    location: { hash, href: `http://127.0.0.1/${hash}` },
    history: { replaceState: (/** @type {any} */ _s, /** @type {string} */ _t, /** @type {string} */ to) => (window.location.hash = to) },
    setTimeout: (/** @type {() => void} */ call) => timers.push(call),
    addEventListener: (/** @type {string} */ name, /** @type {() => void} */ call) => listeners.set(name, call),
  };
  return { window: /** @type {any} */ (window), tick: () => timers.splice(0).forEach((call) => call()), navigate: (/** @type {string} */ to) => {
    window.location.hash = to;
    listeners.get("hashchange")?.();
  }, timers };
}

function storeOn(/** @type {string} */ name) {
  /** @type {(() => void)[]} */
  const frames = [];
  const store = new Store((flush) => frames.push(flush));
  store.show(createRun(name), { request: "req-1", position: 4 });
  return { store, draw: () => frames.splice(0).forEach((flush) => flush()) };
}

test("selecting writes the address, once for many selections", () => {
  const { store, draw } = storeOn("t");
  const { window, tick, timers } = fakeWindow();
  bindAddress(store, window, () => assert.fail("no other run was named"));
  draw();
  store.select({ position: 5 });
  draw();
  store.select({ position: 6, act: "used" });
  draw();
  assert.equal(timers.length, 1);
  tick();
  assert.deepEqual(parseHash(window.location.hash), { run: "t", request: "req-1", position: 6, act: "used", tab: "attention" });
});

test("an address typed in selects; one of another run opens that run", () => {
  const { store, draw } = storeOn("t");
  const { window, navigate } = fakeWindow();
  /** @type {any[]} */
  const opened = [];
  bindAddress(store, window, (...args) => opened.push(args));
  draw();
  navigate("#run=t&request=req-1&position=2&act=used&layer=1&head=0&tab=lens");
  assert.equal(store.state.selection.position, 2);
  assert.equal(store.state.selection.tab, "lens");
  navigate("#run=other&position=3");
  assert.deepEqual(opened, [["other", { run: "other", position: 3 }]]);
});

test("the shared address names the position even while following", () => {
  const { store } = storeOn("t");
  store.set({ following: true });
  assert.match(shareAddress(store, /** @type {any} */ ({ href: "http://127.0.0.1:1/#run=old" })), /^http:\/\/127\.0\.0\.1:1\/#run=t&request=req-1&position=4&act=/);
});
