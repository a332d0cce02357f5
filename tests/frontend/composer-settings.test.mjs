// How the composer asks survives a reload, whatever the browser allows and whatever is found there.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { DEFAULTS, areDefault, recallSettings, rememberSettings } from "../../frontend/js/composer-settings.js";
import { recall, remember } from "../../frontend/js/remembered.js";

/** Storage with what is in it. @param {Record<string, string>} [known] */
function storage(known = {}) {
  const kept = new Map(Object.entries(known));
  Object.defineProperty(globalThis, "localStorage", {
    configurable: true,
    value: { getItem: (/** @type {string} */ key) => kept.get(key) ?? null, setItem: (/** @type {string} */ key, /** @type {string} */ value) => kept.set(key, value), removeItem: (/** @type {string} */ key) => kept.delete(key) },
  });
  return kept;
}

afterEach(() => Reflect.deleteProperty(globalThis, "localStorage"));

test("what was chosen is recalled, and defaults are forgotten rather than kept", () => {
  const kept = storage();
  assert.deepEqual(recallSettings(), DEFAULTS);
  const chosen = { preset: "creative", most: 200, capture: "light" };
  rememberSettings(chosen);
  assert.deepEqual(recallSettings(), chosen);
  assert.ok(!areDefault(chosen));
  rememberSettings({ ...DEFAULTS });
  assert.equal(kept.size, 0);
  assert.deepEqual(recallSettings(), DEFAULTS);
});

test("what cannot be had is as by default, each by itself", () => {
  for (const [found, expected] of /** @type {[string, Partial<typeof DEFAULTS>][]} */ ([
    ["not JSON", {}],
    ["null", {}],
    ["7", {}],
    ['{"preset":"toString","most":1e9,"capture":"everything"}', {}],
    ['{"preset":"balanced","most":0.5}', { preset: "balanced" }],
    ['{"most":8192,"capture":["light"]}', { most: 8192 }],
  ])) {
    storage({ "tokenwalk.composer": found });
    assert.deepEqual(recallSettings(), { ...DEFAULTS, ...expected }, found);
  }
});

test("where storage is forbidden a choice lasts as long as the page", () => {
  Object.defineProperty(globalThis, "localStorage", { configurable: true, get: () => { throw new Error("SecurityError"); } });
  assert.equal(recall("theme"), null);
  assert.doesNotThrow(() => remember("theme", "dark"));
  assert.deepEqual(recallSettings(), DEFAULTS);
});
