import assert from "node:assert/strict";
import test from "node:test";

import { absentText, whyAbsent } from "../../frontend/js/absent.js";
import { parseFrame } from "../../frontend/js/codec.js";
import { apply, createRun } from "../../frontend/js/model.js";
import { largestParts, logitParts, lookedAt, rankPlace } from "../../frontend/js/panels/why-data.js";
import { forkClosed } from "../../frontend/js/fork.js";
import { Store } from "../../frontend/js/store.js";
import { syntheticRun, tensorMessage } from "./synthetic.mjs";

const EVENT = /** @type {any} */ ({
  kind: "attribution", seq: 9_999, t_ns: 0, request: "req-1", position: 8, target: 201, logit: 6.5, sum: 6.5, error: 0, soft_cap: null, said_logit: 6.5, residual_dtype: "f32", how: "live",
  components: [
    { layer: null, component: "embedding", value: 0.5 },
    { layer: 0, component: "attention", value: -1, heads: [-2, 1] },
    { layer: 0, component: "mlp", value: 2 },
    { layer: 1, component: "layer", value: 4 },
    { layer: null, component: "bias", value: 1 },
  ],
});

test("a logit's parts go to their layers, and what stands after each layer adds up to the logit", () => {
  const { layers, embedding, bias, largest, sum } = logitParts(EVENT);
  assert.deepEqual([embedding, bias, largest, sum], [0.5, 1, 4, 6.5]);
  assert.deepEqual(layers[0], { layer: 0, attention: -1, mlp: 2, whole: null, heads: [-2, 1], after: 2.5 });
  assert.deepEqual(layers[1], { layer: 1, attention: null, mlp: null, whole: 4, heads: null, after: 6.5 });
});

test("the largest parts come first, those against the token among them", () => {
  assert.deepEqual(largestParts(logitParts(EVENT).layers, 3), [
    { part: "all", layer: 1, value: 4 },
    { part: "MLP", layer: 0, value: 2 },
    { part: "attention", layer: 0, value: -1 },
  ]);
});

test("tokens that were looked at come with the heads that looked there most; the sink is told apart", () => {
  const run = createRun("x");
  // [2 layers, 2 heads, 3 keys]
  const rows = [0.5, 0.25, 0.25, 0.75, 0, 0.25, 0.25, 0.75, 0, 0.5, 0.5, 0];
  apply(run, parseFrame(tensorMessage({ kind: "attention", seq: 0, t_ns: 0, request: "r", step: 0, position: 2, layer: 0, first_key: 0 }, Float32Array.from(rows), "f32", [2, 2, 3])));
  const attention = run.requests.get("r")?.attention.get(2);
  assert.ok(attention);
  const { tokens, sink } = lookedAt(attention, 6, 2);
  assert.equal(sink, 0.5);
  assert.deepEqual(tokens.map(({ position, mean }) => [position, mean]), [[1, 0.375], [2, 0.125]]);
  assert.deepEqual(tokens[0].heads, [{ layer: 1, head: 0, weight: 0.75 }, { layer: 1, head: 1, weight: 0.5 }]);
  assert.deepEqual(tokens[0].byLayer, [0.125, 0.625]);
});

test("ranks lie on a logarithmic path from the last of the vocabulary to the first", () => {
  assert.equal(rankPlace(1, 100), 1);
  assert.equal(rankPlace(100, 100), 0);
  assert.ok(Math.abs(rankPlace(10, 100) - 0.5) < 1e-12);
});

/** @param {boolean} live */
function store(live) {
  const made = new Store(() => {});
  const run = createRun("run-1");
  if (live) made.set({ liveRun: run });
  made.show(run);
  for (const message of syntheticRun()) made.apply(run, parseFrame(message));
  return { made, run };
}

test("attribution is asked for once a position, kept where it comes, and not asked for again", () => {
  const { made, run } = store(true);
  /** @type {any[]} */
  const sent = [];
  made.send = (command) => sent.push(command) > 0;
  assert.equal(made.requestReading("attribution", "req-1", [8]), true);
  assert.equal(made.requestReading("attribution", "req-1", [8]), true);
  assert.deepEqual(sent, [{ kind: "attribution", request: "req-1", positions: [8] }]);
  assert.ok(made.readingComes("req-1", 8, "attribution"));
  made.apply(run, parseFrame(JSON.stringify(EVENT)));
  assert.equal(run.requests.get("req-1")?.attribution.get(8)?.logit, 6.5);
  assert.equal(made.requestReading("attribution", "req-1", [8]), false);
  assert.equal(made.readingComes("req-1", 8, "attribution"), false);
});

test("a recording without attribution says how to get it", () => {
  const { run } = store(false);
  const record = run.requests.get("req-1");
  assert.ok(record);
  assert.match(absentText(whyAbsent(record, "attribution", 8)), /^Not computed: the residuals are here; `tokenwalk trace bake FILE` adds/);
});

test("only a live request can branch off, and what keeps it from that is said", () => {
  const { made } = store(true);
  const open = { ...made.state.connection, status: /** @type {const} */ ("open") };
  assert.equal(forkClosed({ ...made.state, connection: open, health: { mode: "live", status: "ok" } }), null);
  assert.match(forkClosed({ ...made.state, connection: open, health: { mode: "replay" } }) ?? "", /tokenwalk serve/);
  assert.match(forkClosed({ ...made.state, connection: open, liveRun: null, health: { mode: "live" } }) ?? "", /recording/);
  assert.match(forkClosed({ ...made.state, connection: { ...open, status: "retrying" }, health: { mode: "live" } }) ?? "", /connection/);
});
