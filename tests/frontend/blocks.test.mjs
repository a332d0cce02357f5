// The block map rebuilt from events, held against what the engine itself said of its blocks at the end of the same run:
// `tiny`, 16 blocks, 3 slots, five requests, so that blocks were shared, evicted, and two requests preempted.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { BlockHistory, CacheMirror } from "../../frontend/js/blocks.js";
import { isCached } from "../../frontend/js/model.js";
import { computedBy } from "../../frontend/js/reuse.js";
import { rowElsewhere } from "../../frontend/js/reuse.js";
import { momentOf, positionAt } from "../../frontend/js/timeline.js";
import { recordedRun } from "./recorded.mjs";

const { map } = JSON.parse(readFileSync(new URL("recorded/batch-cache.json", import.meta.url), "utf8"));

/** A block as the engine shows it, without what the page adds. @param {import("../../frontend/js/blocks.js").Block} block */
function plain({ writer, copiedFrom, ...block }) {
  return block;
}

const recorded = () => {
  const run = recordedRun();
  assert.ok(run.blocks);
  return { run, history: run.blocks };
};

test("after all events the mirror is what the engine says of its own blocks", () => {
  const { history } = recorded();
  assert.equal(history.contradictions, 0);
  assert.deepEqual(history.newest.state.map(plain), map);
  const { free, cached, held } = history.newest.counts();
  assert.deepEqual({ free, cached, held }, {
    free: map.filter((/** @type {any} */ b) => b.state === "free").length,
    cached: map.filter((/** @type {any} */ b) => b.state === "cached").length,
    held: 0,
  });
});

test("any moment is the same whichever way one comes to it", () => {
  const { history } = recorded();
  const small = new BlockHistory(history.blocks, history.size);
  const steps = [small.newest.state.slice()];
  for (const event of history.events) {
    small.apply(event);
    steps.push(small.newest.state.slice());
  }
  const total = history.events.length;
  assert.ok(total > 100);
  for (const count of [0, 40, 39, total, 7, total - 1, 100, 99]) assert.deepEqual(history.after(count).state, steps[count], `after ${count}`);
});

test("going back over a checkpoint finds what was there", () => {
  const history = new BlockHistory(2, 16);
  const event = (/** @type {number} */ i) => ({
    seq: i, t_ns: i, block: 0, request: "a", logical: 0, positions: [0, 16], prefix_hash: null, parent_hash: null,
    kind: i % 2 ? "block.freed" : "block.allocated", refs: i % 2 ? 0 : 1,
  });
  for (let i = 0; i < 1000; i += 1) history.apply(event(i));
  assert.equal(history.contradictions, 0);
  assert.equal(history.checkpoints.length, 4);
  for (const count of [999, 513, 512, 511, 257, 3, 800]) assert.equal(history.after(count).state[0].state, count % 2 ? "held" : "free", String(count));
  assert.equal(history.countAt(500), 501);
  assert.equal(history.countAt(-1), 0);
});

test("an event that does not fit says so, and is believed", () => {
  const mirror = new CacheMirror(2);
  const event = { seq: 1, t_ns: 1, block: 1, request: "b", logical: 3, positions: [48, 64], prefix_hash: "x", parent_hash: null };
  assert.equal(mirror.apply({ ...event, kind: "block.reused", refs: 2 }), false);
  assert.equal(mirror.state[1].state, "held");
  assert.equal(mirror.apply({ ...event, block: 9, kind: "block.freed", refs: 0 }), false);
});

test("a copy remembers who computed what was copied", () => {
  const mirror = new CacheMirror(2);
  const common = { t_ns: 1, logical: 0, positions: [0, 16], prefix_hash: null, parent_hash: null };
  mirror.apply({ ...common, seq: 1, kind: "block.allocated", block: 0, request: "a", refs: 1 });
  mirror.apply({ ...common, seq: 2, kind: "block.ref_changed", block: 0, request: "b", refs: 2 });
  assert.equal(mirror.counts().shared, 1);
  mirror.apply({ ...common, seq: 3, kind: "block.copied", block: 1, source: 0, request: "b", refs: 1 });
  mirror.apply({ ...common, seq: 4, kind: "block.ref_changed", block: 0, request: "b", refs: 1 });
  assert.deepEqual(mirror.state[0].holders, ["a"]);
  assert.deepEqual([mirror.state[1].writer, mirror.state[1].copiedFrom], ["b", "a"]);
});

test("cached positions know who computed them, computed ones that it was their own request", () => {
  const { run, history } = recorded();
  const [first, second] = [...run.requests.values()];
  assert.equal(second.admissions[0].cached_tokens, 0);
  const shared = [...run.requests.values()].find((record) => record.admissions[0].cached_tokens === 48 && record !== first);
  assert.ok(shared);
  for (const position of [0, 20, 47]) {
    assert.ok(isCached(shared, position));
    assert.equal(computedBy(run, shared, position), first.id);
    assert.equal(history.placeOf(shared.id, position)?.block, history.placeOf(first.id, position)?.block);
    assert.equal(rowElsewhere(run, shared, position), first);
  }
  assert.equal(rowElsewhere(run, shared, 48), null, "it has its own row there");
  assert.equal(isCached(shared, 48), false);
  assert.equal(computedBy(run, shared, 48), shared.id);
  assert.deepEqual([history.placeOf(shared.id, 53)?.logical, history.placeOf(shared.id, 53)?.offset], [3, 5]);
  assert.equal(history.placeOf(shared.id, 100_000), null);
});

test("a preempted request is computed again elsewhere, and both places are known at their time", () => {
  const { run, history } = recorded();
  const record = [...run.requests.values()].find((r) => r.preemptions.length > 0);
  assert.ok(record);
  assert.equal(record.admissions.length, 2);
  const before = history.placeOf(record.id, 48, record.preemptions[0].t_ns);
  const after = history.placeOf(record.id, 48);
  assert.ok(before && after && before.t_ns < record.preemptions[0].t_ns && after.t_ns > record.preemptions[0].t_ns);
});

test("what was found in the cache was there when its request could start", () => {
  const { run } = recorded();
  const hit = [...run.requests.values()].find((r) => r.admissions[0].cached_tokens === 48);
  assert.ok(hit);
  const start = hit.admissions[0].t_ns;
  assert.equal(momentOf(run, hit, 0), start);
  assert.equal(momentOf(run, hit, 47), start);
  assert.ok((momentOf(run, hit, 48) ?? 0) > start);
  assert.equal(positionAt(run, hit, start - 1), 0);
  assert.equal(positionAt(run, hit, start), 47);
});

test("a row is found through requests that reused it themselves, as the engine said, and never in a circle", () => {
  const { run } = recorded();
  const [first, second, third] = [...run.requests.values()];
  for (const record of [second, third]) record.rows = [];
  const reused = (/** @type {string} */ by) => [{ kind: "absent", seq: 0, t_ns: 0, what: "attention", reason: "prefix_cached", computed_by: [{ request: by, positions: [0, 16] }] }];
  third.absent = reused(second.id);
  second.absent = reused(first.id);
  assert.equal(rowElsewhere(run, third, 3), first);
  second.absent = reused(third.id);
  assert.equal(rowElsewhere(run, third, 3), null);
  third.absent = reused("gone");
  assert.equal(rowElsewhere(run, third, 3), null);
});
