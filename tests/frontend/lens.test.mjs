import assert from "node:assert/strict";
import { test } from "node:test";

import {
  byLayer,
  columnWindow,
  lensCell,
  lensWanted,
  scrollTo,
  selectionFor,
  shadeOf,
} from "../../frontend/js/panels/lens-grid.js";

test("only visible columns and a margin are kept, at any length", () => {
  assert.deepEqual(columnWindow(0, 400, 80, 8000), { from: 0, to: 7, visibleFrom: 0, visibleTo: 5 });
  assert.deepEqual(columnWindow(100, 400, 80, 8000), { from: 0, to: 9, visibleFrom: 1, visibleTo: 7 });
  assert.deepEqual(columnWindow(0, 400, 80, 3), { from: 0, to: 3, visibleFrom: 0, visibleTo: 3 });
  assert.deepEqual(columnWindow(639_600, 400, 80, 8000), { from: 7993, to: 8000, visibleFrom: 7995, visibleTo: 8000 });
});

test("scrolling brings a column in with what led up to it, and leaves well alone", () => {
  assert.equal(scrollTo(2, 0, 400, 80, 100), 0);
  const left = scrollTo(50, 0, 400, 80, 100);
  assert.ok(left < 50 * 80 - 100 && left + 400 >= 51 * 80, `${left}`);
  assert.equal(scrollTo(99, 0, 400, 80, 100), 100 * 80 - 400);
  assert.equal(scrollTo(0, 900, 400, 80, 100), 0);
});

const ENTRY = {
  layer: 3,
  rank: 6,
  logprob: -3,
  entropy_bits: 2.5,
  top: [
    { id: 1, label: " city", logprob: Math.log(0.25) },
    { id: 2, label: " Paris", logprob: -3 },
  ],
};

test("a cell is the best guess and the rank of what really came", () => {
  const cell = lensCell(ENTRY);
  assert.equal(cell.label, " city");
  assert.ok(Math.abs(cell.probability - 0.25) < 1e-12);
  assert.equal(cell.rank, 6);
  assert.equal(lensCell(undefined), null);
  assert.equal(lensCell({ layer: 0, top: [] }), null);
});

test("rank is shaded by its logarithm, from the whole vocabulary to first", () => {
  const shade = (rank) => shadeOf({ ...lensCell(ENTRY), rank }, "rank", 10_000);
  assert.equal(shade(1), 1);
  assert.ok(Math.abs(shade(100) - 0.5) < 1e-12);
  assert.ok(Math.abs(shade(10_000)) < 1e-12);
  assert.equal(shade(null), null);
  assert.ok(Math.abs(shadeOf(lensCell(ENTRY), "probability", 10_000) - 0.25) < 1e-12);
});

test("the lens is asked for only in view, and only where a residual can be read", () => {
  const record = { lens: new Map([[3, {}]]), residual: new Map([1, 3, 4, 9].map((p) => [p, {}])) };
  assert.deepEqual(lensWanted(record, 1, 6), [1, 4]);
  assert.deepEqual(lensWanted(record, 5, 9), []);
});

test("layers are found by their number, not by their place in the event", () => {
  const layers = byLayer({ kind: "lens", seq: 0, t_ns: 0, layers: [{ layer: 5 }, { layer: 2 }] });
  assert.equal(layers.get(2).layer, 2);
  assert.equal(layers.get(0), undefined);
});

test("a cell's selection keeps the act, except where no token came next", () => {
  assert.deepEqual(selectionFor(4, "chosen", 10), { position: 5, act: "chosen" });
  assert.deepEqual(selectionFor(4, "used", 10), { position: 4, act: "used" });
  assert.deepEqual(selectionFor(9, "chosen", 10), { position: 9, act: "used" });
});
