import assert from "node:assert/strict";
import { test } from "node:test";

import {
  contrast,
  fraction,
  inkOn,
  luminance,
  makeScale,
  mix,
  pack,
  parseColour,
  ramp,
  rampPixel,
  scaleTicks,
  softRamp,
  unpack,
  weightTable,
} from "../../frontend/js/colour.js";
import { BLINDNESS } from "./sight.mjs";

const PAGES = /** @type {const} */ ([
  ["dark", [13, 17, 23]],
  ["light", [255, 255, 255]],
  ["light", [255, 254, 249]],
]);

const SEEN = { protanopia: BLINDNESS.protanopia, deuteranopia: BLINDNESS.deuteranopia };

function seenWith(matrix, rgb) {
  const linear = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  const seen = matrix.map((row) =>
    Math.min(
      1,
      Math.max(
        0,
        row.reduce((sum, m, i) => sum + m * linear[i], 0),
      ),
    ),
  );
  return seen.map((c) => 255 * (c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055));
}

test("colours are read in the forms browsers report", () => {
  assert.deepEqual(parseColour(" #0d1117 "), [13, 17, 23]);
  assert.deepEqual(parseColour("#fff"), [255, 255, 255]);
  assert.deepEqual(parseColour("rgb(1, 2, 3)"), [1, 2, 3]);
  assert.deepEqual(parseColour("rgba(1, 2, 3, 0.5)"), [1, 2, 3]);
  assert.throws(() => parseColour("var(--bg)"), /not a colour: "var\(--bg\)"/);
});

test("a packed pixel has its bytes in ImageData's order", () => {
  const pixel = new Uint32Array([pack([1, 2, 3])]);
  assert.deepEqual([...new Uint8Array(pixel.buffer)], [1, 2, 3, 255]);
  assert.deepEqual(unpack(pixel[0]), [1, 2, 3]);
});

for (const [theme, background] of PAGES) {
  test(`the ${theme} ramp starts at the background ${background} and its lightness never turns back`, () => {
    const pixels = ramp(theme, [...background]);
    assert.deepEqual(unpack(pixels[0]), [...background]);
    const light = Array.from(pixels, (p) => luminance(unpack(p)));
    const sign = theme === "dark" ? 1 : -1;
    // One step of rounding to whole bytes is allowed to go the other way, no more.
    for (let i = 1; i < 256; i++)
      assert.ok(sign * (light[i] - light[i - 1]) > -0.002, `step ${i}: ${light[i - 1]} ${light[i]}`);
    for (let i = 16; i < 256; i++) assert.ok(sign * (light[i] - light[i - 16]) > 0, `sixteen steps to ${i}`);
    assert.ok(contrast(unpack(pixels[255]), background) > 9);
  });

  test(`quarters of the ${theme} ramp on ${background} stay apart for colour-blind people`, () => {
    const pixels = ramp(theme, [...background]);
    for (const [name, matrix] of Object.entries(SEEN)) {
      const quarters = [0, 0.25, 0.5, 0.75, 1].map((at) => seenWith(matrix, unpack(rampPixel(pixels, at))));
      for (let i = 1; i < 5; i++) assert.ok(contrast(quarters[i - 1], quarters[i]) > 1.2, `${name}, quarter ${i}`);
    }
  });
}

test("a linear scale puts half the top in the middle", () => {
  const scale = makeScale("linear", 0.5);
  assert.equal(fraction(scale, 0.25), 0.5);
  assert.equal(fraction(scale, 0.9), 1);
  assert.equal(fraction(scale, Number.NaN), 0);
});

test("a root scale lifts the weak and keeps the order", () => {
  assert.equal(fraction(makeScale("root", 1), 0.25), 0.5);
  assert.equal(fraction(makeScale("root", 4), 1), 0.5);
  assert.deepEqual(scaleTicks(makeScale("root", 2)), [
    { weight: 0, at: 0 },
    { weight: 0.5, at: 0.5 },
    { weight: 2, at: 1 },
  ]);
});

test("a log scale gives each of four decades a quarter", () => {
  const scale = makeScale("log", 1);
  for (const [weight, at] of [
    [1, 1],
    [0.1, 0.75],
    [0.01, 0.5],
    [0.001, 0.25],
    [0.0001, 0],
    [0.00001, 0],
    [0, 0],
  ]) {
    assert.ok(Math.abs(fraction(scale, weight) - at) < 1e-9, `${weight}`);
  }
  assert.deepEqual(
    scaleTicks(scale).map((tick) => Number(tick.weight.toPrecision(3))),
    [0.0001, 0.001, 0.01, 0.1, 1],
  );
});

test("the table agrees with the scale to one step of the ramp, over all magnitudes", () => {
  const pixels = ramp("dark", [13, 17, 23]);
  const bits = new Uint32Array(1);
  const value = new Float32Array(bits.buffer);
  for (const scale of [
    makeScale("linear", 1),
    makeScale("log", 1),
    makeScale("log", 9),
    makeScale("linear", 0.03),
    makeScale("root", 1),
  ]) {
    const table = weightTable(pixels, scale);
    for (let weight = 1e-7; weight <= 9; weight *= 1.013) {
      value[0] = weight;
      const step = pixels.indexOf(table[bits[0] >>> 16]);
      assert.ok(Math.abs(step - fraction(scale, weight) * 255) < 2, `${scale.kind} ${weight}: ${step}`);
    }
    assert.equal(table[0], pixels[0]);
  }
});

test("ink on any colour of the ramp can be read", () => {
  for (const [theme, background] of PAGES) {
    for (const pixel of ramp(theme, [...background])) {
      assert.ok(contrast(unpack(pixel), parseColour(inkOn(unpack(pixel)))) >= 4.5);
    }
  }
});

test("the page's text can be read on all of a soft ramp", () => {
  for (const [theme, background, text] of [
    ["dark", "#0d1117", "#e6edf3"],
    ["light", "#f7f6f2", "#1d1d1b"],
  ]) {
    const soft = softRamp(ramp(theme, parseColour(background)), theme);
    assert.deepEqual(unpack(soft[0]), parseColour(background));
    for (const pixel of soft) assert.ok(contrast(unpack(pixel), parseColour(text)) >= 4.5, `${theme} ${unpack(pixel)}`);
    assert.ok(contrast(unpack(soft[0]), unpack(soft[255])) > 2.2);
  }
});

test("mixing goes from one colour to the other", () => {
  assert.deepEqual(mix([0, 0, 0], [100, 200, 50], 0.5), [50, 100, 25]);
});
