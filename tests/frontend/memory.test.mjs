import assert from "node:assert/strict";
import test from "node:test";

import { attentionOf, blockBytes, computedTo, massByBlock, memoryMoment, prefixChain, tableOf, waste } from "../../frontend/js/panels/memory-data.js";
import { blockAt, cellCorner, mapLayout, shownBlocks, stepTo } from "../../frontend/js/panels/memory-map.js";
import { describeBlock, eventText } from "../../frontend/js/panels/memory-words.js";
import { recordedRun } from "./recorded.mjs";

const run = recordedRun();
const history = /** @type {import("../../frontend/js/blocks.js").BlockHistory} */ (run.blocks);
const records = [...run.requests.values()];
const selection = (/** @type {number} */ position, /** @type {"chosen" | "used"} */ act) => ({ run: "batch", request: records[0].id, position, act, layer: 0, head: 0, tab: "memory" });

test("the map shows what was in use, by doubling, and never more than there is", () => {
  assert.equal(shownBlocks(728, -1), 64);
  assert.equal(shownBlocks(728, 63), 64);
  assert.equal(shownBlocks(728, 64), 128);
  assert.equal(shownBlocks(728, 700), 728);
  assert.equal(shownBlocks(16, 3), 16);
});

test("the layout fits the width, and shrinks its cells before it grows too high", () => {
  for (const [shown, width, height] of [[64, 450, 270], [728, 450, 270], [6000, 450, 270], [16, 200, 100], [64, 1000, 300]]) {
    const layout = mapLayout(shown, width, height);
    assert.ok(layout.width <= width, `${shown} in ${width}`);
    assert.ok(layout.columns * layout.rows >= shown && layout.columns * (layout.rows - 1) < shown);
    assert.ok(layout.height <= height || layout.cell === 5);
    for (const block of [0, 1, layout.columns, shown - 1]) {
      const { x, y } = cellCorner(layout, block);
      assert.equal(blockAt(layout, x + layout.cell / 2, y + layout.cell / 2), block);
    }
    assert.equal(blockAt(layout, -1, 0), null);
    assert.equal(blockAt(layout, layout.width, 0), null);
  }
});

test("arrow keys stay on the map", () => {
  const layout = mapLayout(64, 450, 270);
  assert.equal(stepTo(layout, 0, "ArrowLeft"), 0);
  assert.equal(stepTo(layout, 0, "ArrowDown"), layout.columns);
  assert.equal(stepTo(layout, 63, "ArrowRight"), 63);
  assert.equal(stepTo(layout, 5, "End"), 63);
  assert.equal(stepTo(layout, 5, "Home"), 0);
  assert.equal(stepTo(layout, 5, "x"), null);
});

test("at the moment a token was chosen, its request holds the blocks of all positions before it", () => {
  const [record] = records;
  for (const position of [record.promptLength, record.promptLength + 10, record.tokens.length - 1]) {
    const span = memoryMoment(run, record, selection(position, "chosen"));
    assert.ok(span && span.from < span.to);
    const table = tableOf(history.after(history.countAt(span.to)).state, record.id);
    // The block of the next position may have been taken already.
    assert.ok(table.length >= Math.ceil(position / history.size), `${table.length} blocks at ${position}`);
    for (let logical = 0; logical < Math.ceil(position / history.size); logical += 1) assert.equal(table[logical].logical, logical);
    assert.ok(computedTo(run, record, span.to) >= position);
  }
});

test("in its second act, a token's moment is the end of its own pass; where it was cached, of the first pass", () => {
  const [record] = records;
  const own = memoryMoment(run, record, selection(60, "used"));
  const row = record.rows.find((r) => r.from === 60);
  assert.ok(own && row);
  assert.equal(own.to, run.steps.get(row.step)?.finished?.t_ns);
  const hit = records.find((r) => r.admissions[0].cached_tokens === 48);
  assert.ok(hit);
  const moment = memoryMoment(run, hit, { ...selection(3, "used"), request: hit.id });
  assert.ok(moment);
  assert.equal(tableOf(history.after(history.countAt(moment.to)).state, hit.id)[0].block, history.placeOf(hit.id, 3)?.block);
  assert.equal(memoryMoment(run, record, { ...selection(0, "used"), position: null }), null);
});

test("attention sums over blocks, wherever the first key lies", () => {
  assert.deepEqual(massByBlock([1, 2, 3, 4, 5], 0, 2), [3, 7, 5]);
  assert.deepEqual(massByBlock([1, 2, 3], 3, 2), [0, 1, 5]);
  assert.equal(attentionOf(records[0], selection(60, "chosen"), "head"), null); // none was recorded
});

test("waste is what no token fills, at any moment", () => {
  let seen = 0;
  for (const event of history.events) {
    const { empty, held } = waste(run, history.after(history.countAt(event.t_ns)).state, history.size, event.t_ns);
    assert.ok(empty >= 0 && empty <= held);
    if (held) seen += 1;
  }
  assert.ok(seen > 50);
  const [record] = records;
  const span = memoryMoment(run, record, selection(70, "chosen")); // alone: 70 written, of 5 blocks of 16
  assert.ok(span);
  assert.deepEqual(waste(run, history.after(history.countAt(span.to)).state, 16, span.to), { empty: 80 - computedTo(run, record, span.to), held: 80 });
});

test("a chain leads from the first block to the one asked for", () => {
  const state = history.newest.state;
  const last = state.filter((b) => b.prefix_hash).sort((a, b) => (b.logical ?? 0) - (a.logical ?? 0))[0];
  const chain = prefixChain(state, last.block);
  assert.deepEqual(chain.map((b) => b.logical), Array.from({ length: (last.logical ?? 0) + 1 }, (_, i) => i));
  const free = state.find((b) => b.state === "free");
  assert.ok(free);
  assert.deepEqual(prefixChain(state, free.block), [free]);
});

test("words name the block, its positions, holders, text and hash", () => {
  const shared = history.events.findIndex((e) => e.kind === "block.reused" && e.refs === 2);
  const block = history.after(shared + 1).state[history.events[shared].block];
  const text = describeBlock(run, block, { mass: 0.5, what: "attention", computed: 16 });
  for (const part of [/held by 2 requests, and computed once/, /positions 0–15/, /The·same/, /hash 174d1dcfc91a/, /attention: 0\.5/]) assert.match(text, part);
  for (const event of history.events) assert.doesNotMatch(eventText(run, event), /undefined|null|block\./);
});

test("a block's bytes follow from the model's shape", () => {
  assert.equal(blockBytes(/** @type {any} */ (run.header)), 16384);
});
