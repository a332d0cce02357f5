import assert from "node:assert/strict";
import test from "node:test";

import { parseFrame } from "../../frontend/js/codec.js";
import { appearance, decodeSpeed, largest, layersText, leadingLayers, readers } from "../../frontend/js/insight.js";
import { apply, createRun } from "../../frontend/js/model.js";
import { syntheticRun } from "./synthetic.mjs";

function record() {
  const run = createRun("t");
  for (const message of syntheticRun()) apply(run, parseFrame(message));
  const found = run.requests.get("req-1");
  assert.ok(found);
  return found;
}

/** @param {(number | null)[]} ranks */
const lens = (ranks) => ({ kind: "lens", seq: 0, t_ns: 0, layers: ranks.map((rank, layer) => ({ layer, rank })) });

test("the answer appears at the first layer from which it leads to the end", () => {
  assert.deepEqual(appearance(lens([900, 1, 40, 7, 1, 1])), { leads: 4, topTen: 3, layers: 6 });
  assert.deepEqual(appearance(lens([1, 1, 1])), { leads: 0, topTen: 0, layers: 3 });
});

test("an answer that does not lead in the last layer never appeared", () => {
  assert.deepEqual(appearance(lens([1, 1, 2])), { leads: null, topTen: 0, layers: 3 });
  assert.deepEqual(appearance(lens([5, null])), { leads: null, topTen: null, layers: 2 });
});

test("layers in which it led are told even where it does not lead in the end", () => {
  assert.deepEqual(leadingLayers(lens([3, 1, 1, 1, 2, 1, 9])), [[1, 3], [5, 5]]);
  assert.deepEqual(leadingLayers(lens([2, null, 5])), []);
  assert.deepEqual(leadingLayers(lens([1])), [[0, 0]]);
});

test("stretches of layers are told in words, many of them by the first", () => {
  assert.equal(layersText([[7, 7]]), "layer 7");
  assert.equal(layersText([[21, 23]]), "layers 21–23");
  assert.equal(layersText([[21, 23], [25, 25], [28, 28]]), "layers 21–23, 25 and 28");
  assert.equal(layersText([[1, 1], [3, 3], [5, 5], [7, 9], [12, 12]]), "layers 1, 3, 5 and others");
});

test("the largest weights come in order, without the sink and without zeros", () => {
  assert.deepEqual(largest([0.9, 0.01, 0.05, 0, 0.04], 3), [{ position: 2, weight: 0.05 }, { position: 4, weight: 0.04 }, { position: 1, weight: 0.01 }]);
  assert.deepEqual(largest([0.9, 0, 0], 3), []);
});

test("in a window that begins later, the first key is no sink", () => {
  assert.deepEqual(largest([0.9, 0.1], 1, 7), [{ position: 7, weight: 0.9 }]);
});

test("readers are the later passes that looked at a token, by the mean of their layers and heads", () => {
  const rec = record();
  const { shares, captured } = readers(rec, 5, 2);
  assert.equal(captured, 5); // passes at 6 … 10
  assert.ok(shares[0].weight >= shares[1].weight);
  const mean = rec.attention.get(shares[0].position)?.overallMean()[5] ?? 0;
  assert.ok(Math.abs(shares[0].weight - mean) < 1e-6);
});

test("the speed counts the intervals between tokens", () => {
  const rec = record();
  const times = rec.tokens.slice(8).map((t) => t.event?.t_ns);
  assert.equal(decodeSpeed(rec, Infinity), (3 / (times[3] - times[0])) * 1e9);
  rec.tokens.length = 9;
  assert.equal(decodeSpeed(rec), null);
});
