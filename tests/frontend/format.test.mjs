import assert from "node:assert/strict";
import test from "node:test";

import * as format from "../../frontend/js/format.js";

const plain = (/** @type {string} */ text) => text.replaceAll("\u202f", " ");

test("durations choose a unit and keep three digits", () => {
  const cases = { 0: "0 ns", 999: "999 ns", 1000: "1.00 µs", 310_000: "310 µs", 52_140_000: "52.1 ms", 1_611_000_000: "1.61 s", 150e9: "2 min 30 s" };
  for (const [ns, text] of Object.entries(cases)) assert.equal(plain(format.duration(Number(ns))), text);
  assert.equal(format.duration(NaN), "unknown");
});

test("sizes count in powers of 1024", () => {
  for (const [n, text] of [[212, "212 B"], [1024, "1.00 KiB"], [1024 * 1023.9, "1.00 MiB"], [12_345_678, "11.8 MiB"], [5 * 2 ** 30, "5.00 GiB"]]) {
    assert.equal(plain(format.bytes(Number(n))), text);
  }
});

test("a probability never rounds to certainty or to nothing", () => {
  assert.equal(format.percent(0.974), "97.4%");
  assert.equal(format.percent(0.0031), "0.31%");
  assert.equal(format.percent(0), "0%");
  assert.equal(format.percent(1), "100.0%");
  assert.equal(format.percent(0.9994), "99.9%");
  assert.equal(format.percent(0.9997), "99.97%");
  assert.equal(format.percent(0.99985), "99.98%");
  assert.equal(format.percent(1e-9), "<0.01%");
  assert.equal(format.percent(0.999999), ">99.99%");
  assert.equal(format.percent(NaN), "unknown");
});

test("weights and measures", () => {
  assert.deepEqual([0, 0.83, 0.0047, 3e-7, 1].map(format.weight), ["0.00", "0.83", "0.0047", "3e−7", "1.00"]);
  assert.deepEqual([25031.7, 2.1, -0.531, -Infinity, NaN, 0].map(format.measure), ["25,032", "2.10", "−0.53", "−∞", "NaN", "0"]);
});

test("ordinals, teens included", () => {
  assert.deepEqual([1, 2, 3, 4, 11, 12, 13, 21, 112, 1003].map(format.ordinal), ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th", "1,003rd"]);
});

test("whitespace has stand-ins", () => {
  assert.equal(format.visibleText(" the\n\n\tend "), "·the↵↵→end·");
  assert.deepEqual(format.visible(" Paris"), [{ kind: "space", text: "·" }, { kind: "plain", text: "Paris" }]);
});

test("characters that draw nothing, or turn text around, are named by their code point", () => {
  assert.equal(format.visibleText("a\u202eb"), "a⟨202E⟩b");
  assert.equal(format.visibleText("\u0000\u00a0\u200b\ufeff"), "⟨0000⟩⟨00A0⟩⟨200B⟩⟨FEFF⟩");
  assert.equal(format.visibleText("\u200d"), "⟨200D⟩");
});

test("emoji made of several code points, accents and other scripts stay whole", () => {
  for (const text of ["👩‍👩‍👧", "🏳️‍🌈", "é", "e\u0301", "日本語", "हिन्दी", "🏴󠁧󠁢󠁳󠁣󠁴󠁿"]) assert.equal(format.visibleText(text), text);
});

test("markup is text like any other", () => {
  assert.equal(format.visibleText("<img src=x onerror=alert(1)>"), "<img·src=x·onerror=alert(1)>");
});
