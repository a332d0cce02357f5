import assert from "node:assert/strict";
import { test } from "node:test";

import { lineAt, linesByHead } from "../../frontend/js/walk-strips.js";

test("each head has a line of its own where layers are few enough for it", () => {
  assert.ok(linesByHead(4 * 80, 4, 4));
  assert.ok(linesByHead(12 * 66, 12, 12), "five pixels a head, and the gaps");
  assert.ok(!linesByHead(12 * 65, 12, 12));
  assert.ok(!linesByHead(30 * 20, 30, 9));
  assert.ok(!linesByHead(2 * 100, 2, 1), "one head is its own mean");
});

test("a point lies on a layer, and on a head where heads have lines", () => {
  const [height, layers, heads] = [4 * 86, 4, 4]; // lines of 20, gaps of 3
  assert.deepEqual(lineAt(0, height, layers, heads), { layer: 0, head: 0 });
  assert.deepEqual(lineAt(3 + 39, height, layers, heads), { layer: 0, head: 1 });
  assert.deepEqual(lineAt(86 + 3 + 61, height, layers, heads), { layer: 1, head: 3 });
  assert.deepEqual(lineAt(height, height, layers, heads), { layer: 3, head: 3 });
  assert.deepEqual(lineAt(-5, height, layers, heads), { layer: 0, head: 0 });
  assert.deepEqual(lineAt(25, 30 * 20, 30, 9), { layer: 1, head: null });
});
