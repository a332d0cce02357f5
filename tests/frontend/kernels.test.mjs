import assert from "node:assert/strict";
import test from "node:test";

import { parseFrame } from "../../frontend/js/codec.js";
import { apply, createRun } from "../../frontend/js/model.js";
import { nearestTimed, operationName, partOf, slowdown, split, stepTimes, timedWords } from "../../frontend/js/panels/kernels-data.js";
import { syntheticRun } from "./synthetic.mjs";

/** @param {number} step @param {number | null} layer @param {string} operation @param {number} ns @param {string | null} [request] */
const kernel = (step, layer, operation, ns, request = null) => /** @type {any} */ ({ kind: "kernel", seq: 0, t_ns: 0, step, layer, operation, module: null, request, start_ns: 0, duration_ns: ns, timing: "barriers" });

const STEP = [
  kernel(1, null, "embedding", 5),
  kernel(1, 0, "mlp", 30), kernel(1, 0, "attention", 20), kernel(1, 0, "mlp", 10), kernel(1, 0, "odd_one", 1),
  kernel(1, 1, "attention", 40), kernel(1, 1, "mlp", 15),
  kernel(1, null, "head", 25),
];

/** Two steps timed, of a run with one request. @param {number[]} steps */
function timedRun(steps) {
  const run = createRun("trace");
  for (const message of syntheticRun()) apply(run, parseFrame(message));
  for (const step of steps) apply(run, parseFrame(JSON.stringify({ ...kernel(step, 0, "mlp", 10), seq: run.lastSeq + 1 })));
  const record = run.requests.get("req-1");
  assert.ok(record);
  return { run, record };
}

test("a step's operations add up by layer, by operation, and to the whole", () => {
  const { operations, cells, totals, largest, inside, sum, others } = stepTimes(STEP, 2, "r-1");
  assert.deepEqual(operations, ["attention", "mlp", "odd_one"]); // the model's order, unknown ones last
  assert.deepEqual(cells, [[20, 40, 1], [40, 15, 0]]);
  assert.equal(largest, 40);
  assert.deepEqual(totals.map(({ operation, ns, calls, inside: within }) => [operation, ns, calls, within]), [
    ["attention", 60, 2, true], ["mlp", 55, 3, true], ["head", 25, 1, false], ["embedding", 5, 1, false], ["odd_one", 1, 1, true],
  ]);
  assert.equal(inside, 116);
  assert.equal(sum, STEP.reduce((total, event) => total + event.duration_ns, 0));
  assert.equal(others, 0);
});

test("of passes that requests had to themselves, only the followed one's is shown", () => {
  const { sum, others } = stepTimes([kernel(1, 0, "mlp", 10, "r-1"), kernel(1, 0, "mlp", 70, "r-2"), kernel(1, null, "choice", 3)], 1, "r-1");
  assert.equal(sum, 13);
  assert.equal(others, 1);
});

test("a timed step says how much slower it was, or that nothing is known", () => {
  const finished = { kind: "step.finished", seq: 0, t_ns: 0, eval_ns: 300, normal_ns: 100, normal_steps: 5 };
  assert.equal(slowdown(finished), 3);
  assert.equal(slowdown({ ...finished, normal_ns: null }), null);
  assert.equal(slowdown(null), null);
});

test("the nearest timed step is one of the request's own, if it has any", () => {
  const { run, record } = timedRun([1, 3]);
  assert.equal(nearestTimed(run, record, 2)?.step, 1);
  assert.equal(nearestTimed(run, record, 3)?.step, 3);
  assert.equal(nearestTimed(run, record, null)?.step, 3);
  assert.equal(nearestTimed(run, record, 0)?.request, "req-1");
  assert.equal(nearestTimed(run, { ...record, rows: [] }, 0)?.step, 1);
  const none = timedRun([]);
  assert.equal(nearestTimed(none.run, none.record, 1), null);
});

test("the model keeps a step's kernels, and its layers' sums for the walk", () => {
  const { run } = timedRun([2, 2]);
  assert.equal(run.kernels.get(2)?.length, 2);
  assert.equal(run.layerTimes.get(2)?.get(0), 20);
});

test("every step shows what it was measured to take", () => {
  const { run } = timedRun([]);
  const finished = run.steps.get(0)?.finished;
  assert.ok(finished);
  assert.deepEqual(split(finished).map(({ ns }) => ns), [90000, 80000, 100, 10, 10]);
});

test("capture on the host and capture on the device are two things, by name", () => {
  const { run } = timedRun([]);
  const host = split(/** @type {any} */ (run.steps.get(0)?.finished)).at(-1);
  assert.equal(host?.name, "capture, on the host");
  assert.equal(operationName("capture"), "capture, on the device");
});

test("an untimed step begins with the timed ones, where there are any", () => {
  assert.equal(timedWords(199, 1), "Step 199 was timed.");
  assert.equal(timedWords(1199, 4), "Step 1,199 was timed, the nearest of 4 that were.");
});

test("operations have the colour of their part of the layer, and names without underscores", () => {
  assert.equal(partOf("qkv_projection"), "attention");
  assert.equal(partOf("mlp"), "mlp");
  assert.equal(partOf("head"), "none");
  assert.equal(operationName("output_projection"), "output projection");
});
