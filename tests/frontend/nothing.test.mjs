import assert from "node:assert/strict";
import { test } from "node:test";

import { parseFrame } from "../../frontend/js/codec.js";
import { apply, createRun } from "../../frontend/js/model.js";
import { noRequest, noTokens, partRead } from "../../frontend/js/nothing.js";

/** A live run of which a page that has just joined has read some bytes. @param {number} bytes */
function joined(bytes) {
  const run = createRun("now");
  run.header = { kind: "run.header", seq: 0, t_ns: 0 };
  run.readBytes = bytes;
  return { run, liveRun: run, loading: null, health: { steps: 3, last_seq: 90, readable_bytes: 20_000 }, selection: { request: /** @type {string | null} */ ("r-1") } };
}

test("a page that has joined a live run says how much of what went before it has read", () => {
  assert.equal(partRead(joined(0)), 0);
  assert.equal(partRead(joined(5_000)), 0.25, "by bytes: a step may be one token, or a long prompt captured whole");
  assert.equal(partRead(joined(30_000)), 1, "what came since is not more than all");
  assert.equal(partRead({ ...joined(0), health: { steps: 0, last_seq: 1, readable_bytes: 900 } }), null, "nothing has happened yet");
  const state = joined(20_000);
  state.run.caughtUp = true;
  assert.equal(partRead({ ...state, health: { steps: 4, last_seq: 99, readable_bytes: 40_000 } }), null, "later steps are news, not history");
  assert.equal(partRead({ ...state, liveRun: createRun("another") }), null, "a recording is not joined");
});

test("a request that is not on screen is never said not to have been sent while history is being read", () => {
  const state = joined(5_000);
  assert.match(noRequest(state), /so far is being read/);
  state.run.caughtUp = true;
  assert.match(noRequest(state), /^This run has no request r-1\./);
  assert.match(noRequest({ ...state, selection: { request: null } }), /^No request has been sent yet\./);
  assert.match(noRequest({ ...state, liveRun: null, selection: { request: null } }), /^No request is selected\./);
});

test("where every request was refused, that is said", () => {
  const state = { ...joined(5_000), selection: { request: null } };
  state.run.caughtUp = true;
  apply(state.run, parseFrame(JSON.stringify({ kind: "request.rejected", seq: 1, t_ns: 1, request: "r-no", reason: "too long" })));
  assert.match(noRequest(state), /^Every request so far was refused\. Pick one/);
  apply(state.run, parseFrame(JSON.stringify({ kind: "request.arrived", seq: 2, t_ns: 2, request: "r-yes", text: "short" })));
  assert.match(noRequest(state), /^No request is selected\./);
});

test("a request that was refused, or is over, is not said to have no tokens yet", () => {
  const over = /** @type {any} */ ({ kind: "request.rejected", seq: 1, t_ns: 0 });
  assert.equal(noTokens({ rejected: null, finished: null }), "This request has no tokens yet.");
  assert.equal(noTokens({ rejected: over, finished: null }, "The other request"), "The other request was refused: nothing of it was computed.");
  assert.equal(noTokens({ rejected: null, finished: over }), "This request ended before it had tokens.");
});
