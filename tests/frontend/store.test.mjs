import assert from "node:assert/strict";
import test from "node:test";

import { parseFrame } from "../../frontend/js/codec.js";
import { createRun, endRun } from "../../frontend/js/model.js";
import { mostTelling, nearest } from "../../frontend/js/insight.js";
import { Store } from "../../frontend/js/store.js";
import { syntheticRun } from "./synthetic.mjs";

/** A store whose frames are drawn by hand. */
function setup({ live = false, finished = true, lens = true } = {}) {
  /** @type {(() => void)[]} */
  const frames = [];
  const store = new Store((flush) => frames.push(flush));
  const run = createRun("run-1");
  if (live) store.set({ liveRun: run });
  store.show(run);
  const messages = syntheticRun({ finished, lens });
  const draw = () => frames.splice(0).forEach((flush) => flush());
  const feed = (/** @type {number} */ from, /** @type {number} */ to) => {
    for (const message of messages.slice(from, to)) store.apply(run, parseFrame(message));
    draw();
  };
  return { store, run, messages, feed, draw, frames };
}

test("many changes make one call a frame, naming what changed", () => {
  const { store, messages, run, draw, frames } = setup();
  /** @type {Set<string>[]} */
  const calls = [];
  store.subscribe((_, changed) => calls.push(changed));
  draw();
  for (const message of messages) store.apply(run, parseFrame(message));
  assert.equal(frames.length, 1);
  draw();
  assert.equal(calls.length, 2);
  for (const what of ["header", "tokens", "attention", "residual", "steps", "lens", "sent"]) assert.ok(calls[1].has(what), what);
});

test("a listener that left is not called", () => {
  const { store, draw } = setup();
  let calls = 0;
  store.subscribe(() => (calls += 1))();
  draw();
  assert.equal(calls, 0);
});

test("live, the newest token is followed until the person picks one", () => {
  const { store, feed, messages } = setup({ live: true, finished: false });
  feed(0, messages.length - 6);
  const newest = store.state.selection.position;
  assert.equal(store.state.following, true);
  feed(messages.length - 6, messages.length);
  assert.equal(store.state.selection.position, 11);
  assert.ok(Number(newest) < 11);
  assert.equal(store.state.selection.act, "chosen");
  store.select({ position: 9 });
  assert.equal(store.state.following, false);
  feed(0, 0);
  assert.equal(store.state.selection.position, 9);
});

test("with the request's end the following ends, on its last token", () => {
  const { store, feed, messages } = setup({ live: true });
  feed(0, messages.length);
  assert.equal(store.state.following, false);
  assert.equal(store.state.selection.position, 11);
});

test("picking the very token that is followed stops the following too", () => {
  const { store, feed, messages } = setup({ live: true, finished: false });
  feed(0, messages.length);
  assert.equal(store.state.following, true);
  store.select({ position: store.state.selection.position });
  assert.equal(store.state.following, false);
});

test("a replay waits for the whole trace, then opens on the token whose walk tells most", () => {
  const { store, run, feed, messages } = setup();
  feed(0, messages.length);
  assert.equal(store.state.selection.position, null);
  run.complete = true;
  store.mark("run");
  feed(0, 0);
  const record = run.requests.get("req-1");
  assert.ok(record);
  assert.equal(store.state.selection.position, mostTelling(record));
  assert.equal(store.state.selection.act, "chosen");
  assert.deepEqual([store.state.selection.layer, store.state.selection.head], [3, 1]);
});

test("without a lens a replay opens on the answer's first token", () => {
  const { run, feed, messages } = setup({ lens: false });
  feed(0, messages.length);
  const record = run.requests.get("req-1");
  assert.ok(record);
  assert.equal(mostTelling(record), 8);
});

test("a prompt token shows the second act; the person's act stays between generated tokens", () => {
  const { store, run, feed, messages } = setup();
  run.complete = true;
  feed(0, messages.length);
  store.select({ position: 3 });
  assert.equal(store.state.selection.act, "used");
  store.select({ position: 8 });
  assert.equal(store.state.selection.act, "chosen");
  store.select({ act: "used" });
  store.select({ position: 9 });
  assert.equal(store.state.selection.act, "used");
  store.select({ position: 10, act: "chosen" });
  assert.equal(store.state.selection.act, "chosen");
});

test("a selection from an address is kept while its tokens are still to come", () => {
  const { store, run, feed, messages } = setup();
  store.show(run, { request: "req-1", position: 10, act: "used", layer: 1, head: 0, tab: "lens" });
  feed(0, 3);
  feed(3, messages.length);
  const { position, act, layer, head, tab } = store.state.selection;
  assert.deepEqual({ position, act, layer, head, tab }, { position: 10, act: "used", layer: 1, head: 0, tab: "lens" });
});

test("the lens is asked for once a position, only of a live run, and only where it is missing", () => {
  const { store, feed, messages } = setup({ live: true, lens: false });
  feed(0, messages.length);
  /** @type {number[][]} */
  const asked = [];
  store.send = ({ positions }) => asked.push(positions) > 0;
  assert.equal(store.requestLens("req-1", [8, 9]), true);
  assert.equal(store.requestLens("req-1", [9, 10]), true);
  assert.deepEqual(asked, [[8, 9], [10]]);
  assert.equal(store.readingComes("req-1", 9), true);
  assert.equal(store.requestLens("unknown", [1]), false);
  assert.equal(store.requestLens("req-1", [99]), false, "the request has no such token");
  const replay = setup({ lens: false });
  replay.feed(0, messages.length);
  replay.store.send = () => assert.fail("nobody to ask");
  assert.equal(replay.store.requestLens("req-1", [9]), false);
});

test("arrays that were let go of are fetched once while they are on their way", () => {
  const { store, run, feed, messages } = setup();
  run.arrayLimit = 3000;
  feed(0, messages.length);
  /** @type {number[][]} */
  const fetched = [];
  store.fetchAgain = (_run, _record, seqs) => fetched.push(seqs);
  store.requestArrays("req-1", 0);
  store.requestArrays("req-1", 0);
  store.requestArrays("req-1", 10);
  assert.equal(fetched.length, 1);
  assert.equal(fetched[0].length, 2);
});

test("following waits for a token's whole step, whose arrays come after it", () => {
  const { store, feed, messages } = setup({ live: true, finished: false });
  const last = messages.findLastIndex((m) => typeof m === "string" && m.includes('"step.started"'));
  feed(0, last + 1);
  const before = store.state.selection.position;
  const token = messages.findIndex((m, i) => i > last && typeof m === "string" && m.includes('"kind":"token"'));
  store.apply(/** @type {any} */ (store.state.run), parseFrame(messages[token].replace(/"seq":\d+/, `"seq":${9999}`)));
  feed(0, 0);
  assert.equal(store.state.selection.position, before);
});

test("a live run that is not on screen is kept up to date without redrawing the page", () => {
  const { store, run, feed, draw, messages } = setup({ live: true });
  const other = createRun("trace");
  store.show(other);
  draw();
  /** @type {Set<string>[]} */
  const calls = [];
  store.subscribe((_, changed) => calls.push(changed));
  feed(0, messages.length);
  assert.deepEqual([...calls[0]], ["live"]);
  assert.equal(run.requests.size, 1);
});

test("an address that asks how a prompt token was chosen gets its own pass", () => {
  const { store, run, feed, messages, draw } = setup();
  store.show(run, { request: "req-1", position: 3, act: "chosen" });
  feed(0, messages.length);
  assert.equal(store.state.selection.act, "used");
  store.select({ act: "chosen" });
  draw();
  assert.equal(store.state.selection.act, "used");
  store.select({ position: 9, act: "chosen" });
  draw();
  assert.equal(store.state.selection.act, "chosen");
});

test("no lens is asked for where the answer ended, nor waited for", () => {
  const { store, feed, messages } = setup({ live: true, lens: false });
  /** @type {number[][]} */
  const asked = [];
  store.send = ({ positions }) => asked.push(positions) > 0;
  feed(0, messages.length - 2);
  const last = 11;
  assert.equal(store.requestLens("req-1", [last]), true); // asked before the end was known
  assert.ok(store.readingComes("req-1", last));
  feed(messages.length - 2, messages.length);
  assert.equal(store.readingComes("req-1", last), false);
  store.asked.clear();
  assert.equal(store.requestLens("req-1", [last]), false);
  assert.deepEqual(asked, [[last]]);
});

test("a layer that was captured is looked at first", () => {
  assert.equal(nearest(undefined, 24), 24);
  assert.equal(nearest([], 24), 24);
  assert.equal(nearest([1], 3), 1);
  assert.equal(nearest([2, [10, 20]], 24), 19);
  assert.equal(nearest([2, [10, 30]], 24), 24);
});

/** Events of requests, applied to a run of a store. @param {ReturnType<typeof setup>} page @param {Record<string, any>[]} events */
function tell({ store, run }, events) {
  for (const event of events) store.apply(run, parseFrame(JSON.stringify({ seq: run.lastSeq + 1, t_ns: run.lastSeq + 1, ...event })));
}

const REFUSED = { kind: "request.rejected", request: "r-no", reason: "the prompt has 9,000 tokens; this model reads at most 8,192 at once" };

test("following ends with whatever ends the request: its end, a refusal, an end before there was a token, the run's", () => {
  const finished = { kind: "request.finished", request: "r-no", reason: "cancelled", prompt_tokens: 0, completion_tokens: 0, timings: {} };
  for (const end of [REFUSED, finished]) {
    const page = setup({ live: true });
    tell(page, [{ kind: "request.arrived", request: "r-no", text: "too long" }]);
    page.store.follow("r-no");
    page.draw();
    assert.equal(page.store.state.following, true, "it may still come");
    tell(page, [end]);
    page.draw();
    assert.equal(page.store.state.following, false, end.kind);
  }
  const cut = setup({ live: true, finished: false });
  cut.feed(0, cut.messages.length);
  assert.equal(cut.store.state.following, true);
  endRun(cut.run);
  cut.store.mark("run");
  cut.draw();
  assert.equal(cut.store.state.following, false, "the server was restarted");
});

test("following a request that was refused is over at the next frame", () => {
  const page = setup({ live: true });
  tell(page, [REFUSED]);
  page.store.follow("r-no");
  page.draw();
  assert.equal(page.store.state.following, false);
});

test("a live run opens on the newest request that has tokens, and on none that was refused", () => {
  const page = setup({ live: true });
  tell(page, [REFUSED]);
  page.draw();
  assert.equal(page.store.state.selection.request, null, "a later one is followed as it comes");
  assert.equal(page.store.state.following, true);
  page.run.lastSeq = -1; // the made-up events count from 0
  page.feed(0, page.messages.length);
  tell(page, [{ ...REFUSED, request: "r-no-2" }, { kind: "request.arrived", request: "r-waits", text: "next" }]);
  page.store.show(page.run);
  page.draw();
  assert.equal(page.store.state.selection.request, "req-1");
  page.store.show(page.run, { request: "r-no" });
  page.draw();
  assert.equal(page.store.state.selection.request, "r-no", "who asks for it by name gets it");
});

test("a recording opens on its first request with tokens; of refusals alone, on the first", () => {
  const page = setup();
  tell(page, [REFUSED]);
  page.draw();
  assert.equal(page.store.state.selection.request, null, "more may come");
  page.run.lastSeq = -1;
  page.feed(0, page.messages.length);
  assert.equal(page.store.state.selection.request, "req-1");
  const refused = setup();
  tell(refused, [REFUSED]);
  refused.run.complete = true;
  refused.draw();
  assert.equal(refused.store.state.selection.request, "r-no");
});
