// Frames that hold some layers and heads alone, and summaries: every row stands at its own number, and nothing else does.

import assert from "node:assert/strict";
import { test } from "node:test";
import { saidAbsent, whyAbsent } from "../../frontend/js/absent.js";
import { parseFrame } from "../../frontend/js/codec.js";
import { PooledMatrices, combineRow, foldAllHeads } from "../../frontend/js/panels/attention-pool.js";
import { rowFacts } from "../../frontend/js/panels/attention-words.js";
import { TensorRecord } from "../../frontend/js/tensors.js";
import { headsWord, meanOf, summaryWords } from "../../frontend/js/tensor-words.js";
import { tensorMessage } from "./synthetic.mjs";

/** A weight that names its layer, head and key. */
const named = (layer, head, key) => layer / 8 + head / 64 + key / 1024;

/** @param {number[]} layers @param {number[]} heads @param {object} [more] */
function frame(layers, heads, keys = 4, more = {}) {
  const array = new Float32Array(layers.length * heads.length * keys);
  layers.forEach((layer, l) => heads.forEach((head, h) => {
    for (let key = 0; key < keys; key += 1) array[(l * heads.length + h) * keys + key] = named(layer, head, key);
  }));
  const event = { kind: "attention", seq: 1, t_ns: 0, request: "r", step: 1, position: keys - 1, layer: layers[0], layers, heads, first_key: 0, source_dtype: "f32", ...more };
  return parseFrame(tensorMessage(event, array, "f32", [layers.length, heads.length, keys]));
}

/** Two layers (1, 3), two heads (0, 2): kept 2 of 6 keys. */
function summary() {
  const rows = [
    [0, 5, 0.5, 0.25, 0.25, 1.5],
    [3, 1, 0.75, 0.125, 0.125, 1.0],
    [2, 0, 0.5, 0.5, 0, 1.0],
    [4, 5, 0.25, 0.25, 0.5, 2.5],
  ];
  const event = { kind: "attention.summary", seq: 2, t_ns: 0, request: "r", step: 1, position: 5, layers: [1, 3], heads: [0, 2], keys: 6, kept: 2, mass: 0.78125, least_mass: 0.5, source_dtype: "f32", row_sum_error: 0 };
  return parseFrame(tensorMessage(event, Float32Array.from(rows.flat()), "f32", [2, 2, 6]));
}

test("a frame of some layers and heads shows each row under its own number, and no other", () => {
  const record = new TensorRecord(frame([1, 4], [0, 2]));
  for (let layer = 0; layer < 6; layer += 1) {
    for (let head = 0; head < 4; head += 1) {
      const here = [1, 4].includes(layer) && [0, 2].includes(head);
      assert.equal(record.has(layer, head), here);
      const row = record.row(layer, head);
      assert.equal(row !== null, here);
      if (row) assert.deepEqual([...row], [0, 1, 2, 3].map((key) => Math.fround(named(layer, head, key))));
    }
  }
  assert.deepEqual([record.firstLayer, record.layers, record.heads, record.keys], [1, 4, 3, 4]);
  const { array } = record;
  assert.equal(array[(3 * 3 + 2) * 4 + 1], Math.fround(named(4, 2, 1)));
  assert.ok(Number.isNaN(array[(1 * 3 + 0) * 4]), "layer 2 is not here, and not 0");
  assert.ok(Number.isNaN(array[(3 * 3 + 1) * 4]), "head 1 is not here, and not 0");
});

test("means are of what is here alone", () => {
  const record = new TensorRecord(frame([1, 4], [0, 2]));
  const expected = (named(1, 0, 3) + named(1, 2, 3) + named(4, 0, 3) + named(4, 2, 3)) / 4;
  assert.ok(Math.abs(record.overallMean()[3] - expected) < 1e-6);
  assert.ok(Math.abs(record.meanAt(3) - expected) < 1e-6);
  const byLayer = record.headMeans();
  assert.ok(Math.abs(byLayer[3 * 4 + 3] - (named(4, 0, 3) + named(4, 2, 3)) / 2) < 1e-6);
  assert.ok(Number.isNaN(byLayer[1 * 4 + 3]));
  assert.equal(meanOf(record, 6, 4), "the 2 layers and heads 0, 2 captured");
  assert.equal(headsWord(new TensorRecord(frame([0], [0, 1]))), "2 heads");
});

test("layers that come in frames of their own are joined at their numbers", () => {
  const record = new TensorRecord(frame([4], [0, 1]));
  record.add(frame([1], [0, 1]));
  assert.deepEqual(record.layerNumbers, [1, 4]);
  assert.equal(record.array[(3 * 2 + 1) * 4 + 2], Math.fround(named(4, 1, 2)));
  assert.equal(record.row(4, 1)?.[2], Math.fround(named(4, 1, 2)));
});

test("the wall gets every head at its place, and a head that is not here is no head of another layer", () => {
  const matrices = new PooledMatrices(6 * 4, 4, 4);
  foldAllHeads(new TensorRecord(frame([1, 4], [0, 2])), 3, matrices, 4);
  for (let matrix = 0; matrix < 24; matrix += 1) {
    const [layer, head] = [Math.floor(matrix / 4), matrix % 4];
    const weight = matrices.values[(matrix * 4 + 3) * 4 + 3];
    assert.equal(weight, [1, 4].includes(layer) && [0, 2].includes(head) ? Math.fround(named(layer, head, 3)) : 0);
  }
  const rows = new TensorRecord(frame([1, 4], [0, 2]));
  assert.equal(combineRow(rows, [{ layer: 1, head: 1 }], "one"), null);
  assert.equal(combineRow(rows, [{ layer: 1, head: 0 }, { layer: 2, head: 0 }], "mean"), null);
  assert.ok(combineRow(rows, [{ layer: 1, head: 0 }, { layer: 4, head: 2 }], "mean"));
});

test("a summary's rows hold what it lists, and it says how much that is", () => {
  const record = new TensorRecord(summary());
  assert.deepEqual([record.keys, record.layerNumbers, record.headNumbers], [6, [1, 3], [0, 2]]);
  assert.deepEqual([...(record.row(1, 2) ?? [])], [0, 0.125, 0, 0.75, 0, 0]);
  assert.deepEqual([...(record.row(3, 0) ?? [])], [0.5, 0, 0.5, 0, 0, 0]);
  assert.equal(record.row(1, 1), null);
  assert.equal(record.entropyBits(3, 2), 2.5);
  assert.deepEqual([...record.array.slice((2 * 3 + 2) * 6, (2 * 3 + 2) * 6 + 6)], [0, 0, 0, 0, 0.25, 0.25]);
  assert.ok(Math.abs(record.meanAt(5) - (0.25 + 0.25) / 4) < 1e-7);
  assert.ok(Math.abs(record.overallMean()[5] - (0.25 + 0.25) / 4) < 1e-7);
  assert.match(summaryWords(record), /the 2 largest of 6 keys of each head, showing 0\.78/);
  assert.equal(summaryWords(new TensorRecord(frame([0], [0]))), "");
  const facts = rowFacts(record.event, { sum: 0.75, sink: 0.5, entropyBits: NaN }, [{ layer: 1, head: 0 }], "one", summaryWords(record));
  assert.ok(facts.some(([term, , , note]) => term === "left out" && /2 largest of 6/.test(String(note))));
  assert.ok(facts.some(([term, value]) => term === "spread" && value === "not known"));
});

test("numbers that are none are shown as such", () => {
  const array = new Float32Array([NaN, NaN, 1, 0]);
  const event = { kind: "attention", seq: 1, t_ns: 0, request: "r", step: 1, position: 1, layer: 0, first_key: 0, row_sum_error: { $float: "NaN" }, source_dtype: "f32" };
  const record = new TensorRecord(parseFrame(tensorMessage(event, array, "f32", [1, 2, 2])));
  assert.ok(Number.isNaN(record.row(0, 0)?.[0]));
  assert.ok(Number.isNaN(record.overallMean()[0]));
  assert.ok(Number.isNaN(record.event.row_sum_error));
  const matrices = new PooledMatrices(2, 2, 2);
  foldAllHeads(record, 1, matrices);
  assert.ok([...matrices.values].every(Number.isFinite));
  const facts = rowFacts(record.event, { sum: NaN, sink: NaN, entropyBits: NaN }, [{ layer: 0, head: 0 }], "one");
  assert.ok(facts.some(([term, value]) => term.startsWith("row 1 sums") && value === "NaN"));
});

test("a float16 array with a scale is multiplied by it", () => {
  const event = { kind: "residual", seq: 1, t_ns: 0, request: "r", step: 1, position: 0, scale: 4 };
  const message = parseFrame(tensorMessage(event, new Uint16Array([0x3c00, 0x7bff]), "f16", [1, 2]));
  assert.deepEqual([...(message.data ?? [])], [4, 4 * 65504]);
  assert.equal(message.at(1), 4 * 65504);
});

test("what is said of some layers or heads is no reason for the others", () => {
  const absent = [
    { kind: "absent", what: "attention", reason: "over_budget", positions: [3, 9], detail: "left out; 5 bytes" },
    { kind: "absent", what: "attention", reason: "not_captured", layers: [0], detail: "these layers" },
    { kind: "absent", what: "attention", reason: "not_captured", heads: [1], detail: "these heads" },
  ];
  const record = /** @type {any} */ ({ absent, rows: [], tokens: Array(12).fill({}), finished: null, rejected: null, promptLength: 12, refused: new Map(), released: new Map(), residual: new Map() });
  assert.equal(saidAbsent(record, "attention", 4)?.detail, "left out; 5 bytes");
  assert.equal(whyAbsent(record, "attention", 4, { layer: 0, head: 3 }).detail, "these layers");
  assert.equal(whyAbsent(record, "attention", 4, { layer: 2, head: 1 }).detail, "these heads");
  assert.equal(whyAbsent(record, "attention", 4, { layer: 2, head: 3 }).detail, "left out; 5 bytes");
});

test("rows looked at in passing are those of the array, of whichever record is asked, long or short", () => {
  const halves = Uint16Array.of(0x3c00, 0x0001, 0x3800, 0x8000, 0x3555, 0x7c00);
  const event = { kind: "attention", seq: 1, t_ns: 0, request: "r", step: 1, position: 1, layer: 0, first_key: 0, source_dtype: "f32" };
  const records = [
    new TensorRecord(parseFrame(tensorMessage(event, halves, "f16", [1, 3, 2]))),
    new TensorRecord(parseFrame(tensorMessage(event, halves.subarray(2, 4), "f16", [1, 1, 2]))),
    new TensorRecord(frame([1, 4], [0, 2])),
    new TensorRecord(summary()),
  ];
  assert.deepEqual([...records[0].passing().subarray(0, 6)], [1, 2 ** -24, 0.5, -0, Math.fround(1365 / 4096), Infinity]);
  for (const record of records) {
    const passing = [...record.passing()].slice(0, record.layers * record.heads * record.keys);
    assert.deepEqual(passing, [...record.array]);
    assert.deepEqual([...record.passing()], [...record.array], "once it is decoded, that is what is given");
  }
});
