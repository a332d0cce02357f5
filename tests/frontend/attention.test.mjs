import assert from "node:assert/strict";
import { test } from "node:test";

import { makeScale, ramp, weightTable } from "../../frontend/js/colour.js";
import {
  PooledMatrices,
  RowFold,
  combineRow,
  foldAllHeads,
  largestOffSink,
  rowStatistics,
  spanFor,
} from "../../frontend/js/panels/attention-pool.js";
import {
  paintMatrix,
  paintWall,
  wallCell,
  wallHit,
  wallLayout,
  wallStep,
} from "../../frontend/js/panels/attention-wall.js";

/** A record whose weights are given by a function. */
function record(query, layers, heads, weight, event = {}) {
  const first = event.first_key ?? 0;
  const keys = query + 1 - first;
  const array = new Float32Array(layers * heads * keys);
  for (let l = 0; l < layers; l++)
    for (let h = 0; h < heads; h++)
      for (let k = 0; k < keys; k++) array[(l * heads + h) * keys + k] = weight(l + (event.layer ?? 0), h, first + k);
  return {
    event: { position: query, ...event },
    parts: [{}],
    firstLayer: event.layer ?? 0,
    layers,
    heads,
    keys,
    array,
    passing: () => array,
    has: (layer, head) => layer >= (event.layer ?? 0) && layer < (event.layer ?? 0) + layers && head < heads,
  };
}

/** Distinct weights: each names its layer, head, query and key. */
const named = (query) => (l, h, k) => (l * 1000 + h * 100 + query * 10 + k + 1) / 10000;

test("a matrix with a cell a token holds every weight where it belongs", () => {
  const matrices = new PooledMatrices(6, 4, 100);
  for (let q = 0; q < 4; q++) foldAllHeads(record(q, 2, 3, named(q)), q, matrices);
  for (let l = 0; l < 2; l++)
    for (let h = 0; h < 3; h++)
      for (let q = 0; q < 4; q++)
        for (let k = 0; k < 4; k++) {
          const expected = k <= q ? Math.fround(named(q)(l, h, k)) : 0;
          assert.equal(matrices.values[((l * 3 + h) * 4 + q) * 4 + k], expected, `${l} ${h} ${q} ${k}`);
        }
});

test("a pooled cell holds the largest weight of its queries and keys", () => {
  const matrices = new PooledMatrices(1, 7, 3);
  const rows = [];
  for (let q = 0; q < 7; q++) {
    rows.push(Array.from({ length: q + 1 }, (_, k) => Math.fround(((q * 31 + k * 17) % 23) / 23)));
    foldAllHeads(
      record(q, 1, 1, (_l, _h, k) => rows[q][k]),
      q,
      matrices,
    );
  }
  for (let r = 0; r < 3; r++)
    for (let c = 0; c < 3; c++) {
      let largest = 0;
      const [qFrom, qTo] = matrices.tokensOf(r);
      const [kFrom, kTo] = matrices.tokensOf(c);
      for (let q = qFrom; q < qTo; q++)
        for (let k = kFrom; k < Math.min(kTo, q + 1); k++) largest = Math.max(largest, rows[q][k]);
      assert.equal(matrices.values[r * 3 + c], largest, `cell ${r} ${c}`);
    }
});

test("cells share out the tokens without gap or overlap", () => {
  for (const [span, limit] of [
    [7, 3],
    [81, 17],
    [1, 5],
    [512, 512],
    [513, 512],
  ]) {
    const matrices = new PooledMatrices(1, span, limit);
    let next = 0;
    for (let cell = 0; cell < matrices.size; cell++) {
      const [from, to] = matrices.tokensOf(cell);
      assert.equal(from, next);
      assert.ok(to > from);
      for (let token = from; token < to; token++) assert.equal(matrices.cellOf[token], cell);
      next = to;
    }
    assert.equal(next, span);
  }
});

test("rows fold once, new ones when they come, and again when a record is replaced", () => {
  let folded = 0;
  const fold = new RowFold(new PooledMatrices(1, 8, 8), (r, q, into) => {
    folded += 1;
    return foldAllHeads(r, q, into);
  });
  const records = new Map([
    [0, record(0, 1, 1, () => 1)],
    [1, record(1, 1, 1, () => 0.5)],
  ]);
  assert.deepEqual(fold.run(records, Infinity), { changed: true, complete: true });
  assert.deepEqual(fold.run(records, Infinity), { changed: false, complete: true });
  records.set(
    2,
    record(2, 1, 1, () => 0.25),
  );
  records.set(
    1,
    record(1, 1, 1, () => 0.75),
  );
  fold.run(records, Infinity);
  assert.equal(folded, 4);
  assert.deepEqual([...fold.into.rows.slice(0, 4)], [1, 1, 1, 0]);
  assert.equal(fold.into.values[8], 0.75);
});

test("a fold out of time stops after a row and goes on later", () => {
  const fold = new RowFold(new PooledMatrices(1, 8, 8), foldAllHeads);
  const records = new Map([0, 1, 2].map((q) => [q, record(q, 1, 1, () => 0.1)]));
  assert.deepEqual(fold.run(records, -Infinity), { changed: true, complete: false });
  assert.equal(fold.counted.size, 1);
  assert.ok(fold.done instanceof WeakSet, "what was folded is not kept from being let go of");
  fold.run(records, -Infinity);
  assert.deepEqual(fold.run(records, -Infinity), { changed: true, complete: true });
});

test("rows of a later first layer and of a window of keys land in their places", () => {
  const matrices = new PooledMatrices(4, 6, 6);
  foldAllHeads(
    record(5, 1, 1, () => 0.5, { layer: 3, first_key: 4 }),
    5,
    matrices,
  );
  const touched = [...matrices.values.entries()].filter(([, w]) => w > 0).map(([i]) => i);
  assert.deepEqual(touched, [3 * 36 + 5 * 6 + 4, 3 * 36 + 5 * 6 + 5]);
});

test("mean and sum are of the captured weights, and not renormalised", () => {
  const r = record(2, 2, 2, (l, h, k) => [0.5, 0.25, 0.125][k] * (l + 1) * (h + 1) * 0.25);
  const heads = [
    { layer: 0, head: 0 },
    { layer: 1, head: 1 },
  ];
  assert.deepEqual([...combineRow(r, [heads[1]], "one")], [0.5, 0.25, 0.125]);
  assert.deepEqual([...combineRow(r, heads, "sum")], [0.625, 0.3125, 0.15625]);
  assert.deepEqual([...combineRow(r, heads, "mean")], [0.3125, 0.15625, 0.078125]);
  assert.equal(combineRow(r, [{ layer: 2, head: 0 }], "one"), null);
  assert.equal(combineRow(r, [], "mean"), null);
});

test("a row's statistics: its own sum, the sink's weight, falling order", () => {
  const stats = rowStatistics([0.5, 0.125, 0.25, 0.125], 0);
  assert.equal(stats.sum, 1);
  assert.equal(stats.sink, 0.5);
  assert.deepEqual(stats.order, [0, 2, 1, 3]);
  assert.equal(stats.entropyBits, 1.75);
  const windowed = rowStatistics([0.25, 0.5], 10);
  assert.equal(windowed.sink, null);
  assert.deepEqual(windowed.order, [11, 10]);
  assert.equal(windowed.sum, 0.75);
});

test("the largest weight off the sink ignores position 0", () => {
  const matrices = new PooledMatrices(1, 3, 3);
  foldAllHeads(
    record(2, 1, 1, (_l, _h, k) => [0.9, 0.04, 0.06][k]),
    2,
    matrices,
  );
  assert.equal(largestOffSink(matrices), Math.fround(0.06));
});

test("a matrix stands still while tokens stream, and fits when they are all there", () => {
  assert.equal(spanFor(81, true), 81);
  assert.equal(spanFor(0, false), 1);
  const spans = Array.from({ length: 400 }, (_, i) => spanFor(i + 1, false));
  spans.forEach((span, i) => assert.ok(span >= i + 1 && (i < 64 || span <= (i + 1) * 1.25)));
  assert.ok(new Set(spans).size < 25);
});

test("a point of the wall names its layer and head; gaps and labels do not pass for cells", () => {
  const layout = wallLayout(30, 9, 190, 560);
  const pitch = layout.cell + layout.gap;
  assert.deepEqual(wallHit(layout, layout.gutter + 3 * pitch + 1, layout.top + 24 * pitch + 1), { layer: 24, head: 3 });
  assert.deepEqual(wallHit(layout, 2, layout.top + 1), { layer: 0, head: null });
  assert.deepEqual(wallHit(layout, layout.gutter + 1, 2), { layer: null, head: 0 });
  assert.equal(wallHit(layout, layout.width + pitch, 100), null);
  assert.equal(wallHit(layout, 50, layout.height + pitch), null);
});

test("the wall fits its width, and keeps cells legible when it is too tall", () => {
  const wide = wallLayout(48, 32, 560, 600);
  assert.ok(wide.width <= 560 && wide.cell >= 12);
  const small = wallLayout(30, 9, 190, 100);
  assert.ok(small.cell >= 12 && small.height > 100);
});

test("the cell under the pointer is found inside its matrix", () => {
  const layout = wallLayout(2, 2, 100, 100);
  const matrices = new PooledMatrices(4, 5, 5);
  const pitch = layout.cell + layout.gap;
  const x = layout.gutter + pitch + (layout.cell * 1.5) / 5;
  const y = layout.top + (layout.cell * 3.5) / 5;
  assert.deepEqual(wallCell(layout, matrices, x, y), { layer: 0, head: 1, query: 3, key: 1 });
});

test("arrow keys move by one and stop at the edges", () => {
  assert.deepEqual(wallStep({ layer: 0, head: 0 }, "ArrowUp", 30, 9), { layer: 0, head: 0 });
  assert.deepEqual(wallStep({ layer: 3, head: 8 }, "ArrowRight", 30, 9), { layer: 3, head: 8 });
  assert.deepEqual(wallStep({ layer: 3, head: 2 }, "ArrowDown", 30, 9), { layer: 4, head: 2 });
  assert.equal(wallStep({ layer: 3, head: 2 }, "x", 30, 9), null);
});

const TABLE = weightTable(ramp("dark", [0, 0, 0]), makeScale("linear"));
const PAINT = { table: TABLE, absent: Uint32Array.of(0xff000001, 0xff000002), future: 7, hideSink: false };

test("a painted matrix tells captured, absent, future and not yet existing rows apart", () => {
  const matrices = new PooledMatrices(1, 4, 4);
  new RowFold(matrices, foldAllHeads).run(
    [0, 2].map((q) => [q, record(q, 1, 1, () => 1 / (q + 1))]),
    Infinity,
  );
  const pixels = new Uint32Array(16);
  paintMatrix(matrices, 0, 3, PAINT, pixels, 4, 0, 4);
  const weight = (w) => TABLE[new Uint32Array(Float32Array.of(w).buffer)[0] >>> 16];
  const third = weight(1 / 3);
  const [a, b] = PAINT.absent;
  assert.deepEqual([...pixels], [weight(1), 7, 7, 7, a, b, 7, 7, third, third, third, 7, 7, 7, 7, 7]);
});

test("a hidden sink is hatched, not painted as zero", () => {
  const matrices = new PooledMatrices(1, 2, 2);
  new RowFold(matrices, foldAllHeads).run(
    [0, 1].map((q) => [q, record(q, 1, 1, () => 0.5)]),
    Infinity,
  );
  const pixels = new Uint32Array(4);
  paintMatrix(matrices, 0, 2, { ...PAINT, hideSink: true }, pixels, 2, 0, 2);
  assert.ok(PAINT.absent.includes(pixels[0]) && PAINT.absent.includes(pixels[2]));
  assert.equal(pixels[3], TABLE[new Uint32Array(Float32Array.of(0.5).buffer)[0] >>> 16]);
});

test("painting a wall of 30 × 9 matrices over 81 tokens is quick", () => {
  const layout = wallLayout(30, 9, 190, 560);
  const matrices = new PooledMatrices(270, 81, layout.cell);
  const records = new Map(
    Array.from({ length: 81 }, (_, q) => [q, record(q, 30, 9, (l, h, k) => 1 / (1 + l + h + k))]),
  );
  const times = [];
  for (let i = 0; i < 5; i++) {
    const started = performance.now();
    const fold = new RowFold(new PooledMatrices(270, 81, layout.cell), foldAllHeads);
    fold.run(records, Infinity);
    paintWall(layout, fold.into, 81, PAINT, 1);
    times.push(performance.now() - started);
  }
  console.log(`# wall of ${matrices.count}: ${times.map((t) => t.toFixed(1)).join(", ")} ms`);
  assert.ok(Math.min(...times) < 60, `${times}`);
});
