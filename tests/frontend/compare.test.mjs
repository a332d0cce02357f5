import assert from "node:assert/strict";
import test from "node:test";

import { parseFrame } from "../../frontend/js/codec.js";
import { candidates, commonPrefix, comparedRequest, forkBetween, formatCompare, parseCompare, sameToken } from "../../frontend/js/compare.js";
import { apply, createRun, titleOf } from "../../frontend/js/model.js";
import { attentionDistance, firstDifferences, layerPairs, residualDistance } from "../../frontend/js/panels/compare-data.js";
import { missingWords } from "../../frontend/js/panels/compare-words.js";
import { Store } from "../../frontend/js/store.js";
import { syntheticRun, tensorMessage } from "./synthetic.mjs";

/** @param {(string | Uint8Array)[]} messages @param {string} [name] */
function runOf(messages, name = "trace") {
  const run = createRun(name);
  for (const message of messages) apply(run, parseFrame(message));
  run.complete = true;
  return run;
}

/** A run with requests that answer the same question in several ways. @param {string} name @param {Record<string, string[]>} answers */
function severalAnswers(name, answers) {
  const run = createRun(name);
  let last = -1;
  for (const [request, answer] of Object.entries(answers)) {
    const messages = syntheticRun({ request, answer });
    for (const message of run.header ? messages.slice(1) : messages) {
      const frame = parseFrame(message);
      frame.event.seq += last + 1;
      apply(run, frame);
    }
    last = run.lastSeq;
  }
  run.complete = true;
  return run;
}

/** @param {import("../../frontend/js/model.js").Run} run @param {string} id */
function of(run, id) {
  const record = run.requests.get(id);
  assert.ok(record, id);
  return record;
}

test("what lies beside is named by run and request, and names of runs may hold a slash", () => {
  assert.deepEqual(parseCompare(formatCompare("a/b", "r-1")), { run: "a/b", request: "r-1" });
  assert.deepEqual(parseCompare("a/"), { run: "a", request: "" });
  for (const wrong of [null, "", "a", "/r-1"]) assert.equal(parseCompare(wrong), null);
});

test("the common prefix ends at the first token that differs, or where the shorter one ends", () => {
  const run = severalAnswers("trace", { one: ["In", " France", "."], other: ["In", " France", ".", "!"] });
  const [a, b] = [of(run, "one"), of(run, "other")];
  assert.equal(commonPrefix(a, b, true), 11);
  const changed = { ...b, tokens: b.tokens.map((token, i) => (i === 9 ? { ...token, id: 7, bytes: new Uint8Array([1]) } : token)) };
  assert.equal(commonPrefix(a, changed, true), 9);
  assert.equal(commonPrefix(a, changed, false), 9);
});

test("tokens of two vocabularies are the same by their bytes, control tokens by their names", () => {
  const token = of(runOf(syntheticRun()), "req-1").tokens;
  assert.ok(sameToken(token[4], { ...token[4], id: 9999 }, false));
  assert.equal(sameToken(token[4], { ...token[4], id: 9999 }, true), false);
  assert.equal(sameToken(token[0], { ...token[0], label: "<s>" }, false), false);
  assert.equal(sameToken(token[0], undefined, true), false);
});

test("a fork is told from its parent, named by its first word, and offered first", () => {
  const run = severalAnswers("trace", { parent: ["In", " France", "."], stranger: ["In", " France", ".", " Yes"], fork: ["In", " Spain", "."] });
  const [parent, fork, stranger] = [of(run, "parent"), of(run, "fork"), of(run, "stranger")];
  const event = JSON.stringify({ ...fork.arrived, seq: 99_999, forked_from: { request: "parent", position: 9 }, messages: null });
  apply(run, parseFrame(event));
  assert.deepEqual(forkBetween(run, parent, run, fork), { child: "b", position: 9 });
  assert.deepEqual(forkBetween(run, fork, run, parent), { child: "a", position: 9 });
  assert.equal(forkBetween(run, parent, run, stranger), null);
  assert.equal(titleOf(fork), "“Spain” at 9: Where is Paris?");
  assert.deepEqual(candidates(run, run, parent).map(({ record }) => record.id), ["fork", "stranger"]);
  assert.deepEqual(candidates(run, run, stranger).map(({ record }) => record.id), ["fork", "parent"]);
});

test("the same pass differs in nothing; another one first where its arrays do", () => {
  const a = of(runOf(syntheticRun()), "req-1");
  const same = firstDifferences(layerPairs(a, of(runOf(syntheticRun()), "req-1"), 8, 4, true));
  assert.deepEqual(same, { residual: null, attention: null, guess: null, known: true });
  // One number of the residual after layer 2 is another one; a layer is a row of 8.
  const residual = Float32Array.from(a.residual.get(8)?.array ?? []);
  residual[3 * 8 + 1] += 0.5;
  const other = runOf(syntheticRun());
  const b = of(other, "req-1");
  apply(other, parseFrame(tensorMessage({ .../** @type {any} */ (a.residual.get(8)).event, seq: 99_999 }, residual, "f32", [5, 8])));
  const compared = layerPairs(a, b, 8, 4, true);
  assert.equal(firstDifferences(compared).residual, 2);
  assert.ok((compared.layers[2].residual ?? 0) > 0);
  assert.equal(compared.layers[3].residual, 0);
});

test("what is not here of both is not compared", () => {
  const a = of(runOf(syntheticRun()), "req-1");
  const compared = layerPairs(a, { ...a, attention: new Map(), residual: new Map(), lens: new Map() }, 8, 4, true);
  assert.equal(compared.embedding, null);
  assert.ok(compared.layers.every(({ attention, residual, sameGuess }) => attention === null && residual === null && sameGuess === null));
  assert.equal(firstDifferences(compared).known, false);
});

test("attention's distance is the share that would have to move, whatever the keys", () => {
  const record = (/** @type {number[]} */ weights, first = 0) => {
    const run = createRun("x");
    apply(run, parseFrame(tensorMessage({ kind: "attention", seq: 0, t_ns: 0, request: "r", step: 0, position: weights.length - 1 + first, layer: 0, first_key: first }, Float32Array.from(weights), "f32", [1, 1, weights.length])));
    return run.requests.get("r")?.attention.get(weights.length - 1 + first);
  };
  const near = (/** @type {number | null} */ value, /** @type {number} */ wanted) => assert.ok(Math.abs((value ?? NaN) - wanted) < 1e-6, `${value}`);
  near(attentionDistance(record([0.5, 0.5, 0]), record([0.5, 0, 0.5]), 0), 0.5);
  near(attentionDistance(record([1, 0]), record([0, 1]), 0), 1);
  near(attentionDistance(record([0.25, 0.75]), record([0.75], 1), 0), 0.125);
  assert.equal(attentionDistance(record([1]), record([1]), 1), null);
});

test("attention of other heads is not compared: it would differ for that reason alone", () => {
  const record = (/** @type {number[]} */ heads) => {
    const run = createRun("x");
    apply(run, parseFrame(tensorMessage({ kind: "attention", seq: 0, t_ns: 0, request: "r", step: 0, position: 1, layer: 0, first_key: 0, heads }, Float32Array.from([0.5, 0.5]), "f32", [1, 1, 2])));
    return run.requests.get("r")?.attention.get(1);
  };
  assert.equal(attentionDistance(record([0]), record([0]), 0), 0);
  assert.equal(attentionDistance(record([0]), record([1]), 0), null);
});

test("residuals of different widths cannot be compared; of equal ones, relative to the longer", () => {
  const record = (/** @type {number[]} */ row) => {
    const run = createRun("x");
    apply(run, parseFrame(tensorMessage({ kind: "residual", seq: 0, t_ns: 0, request: "r", step: 0, position: 0 }, Float32Array.from(row), "f32", [1, row.length])));
    return run.requests.get("r")?.residual.get(0);
  };
  assert.equal(residualDistance(record([3, 4]), record([0, 0]), 0), 1);
  assert.equal(residualDistance(record([3, 4]), record([3, 4]), 0), 0);
  assert.equal(residualDistance(record([3, 4]), record([3, 4, 5]), 0), null);
});

/** @param {Store} store */
const settled = (store) => {
  store.flush();
  return store.state;
};

test("a run laid beside without a request gets the one that fits best, once it is here", () => {
  const store = new Store(() => {});
  const here = severalAnswers("here", { one: ["In", " France", "."] });
  const there = severalAnswers("there", { far: ["No"], near: ["In", " France", "!"] });
  store.show(here, { request: "one", compare: "there/" });
  store.set({ compareRun: there });
  there.complete = false;
  assert.equal(settled(store).selection.compare, "there/");
  there.complete = true;
  assert.equal(settled(store).selection.compare, "there/near");
  assert.equal(comparedRequest(store.state)?.id, "near");
});

test("changing sides lays each where the other was, across runs and within one", () => {
  const store = new Store(() => {});
  const here = severalAnswers("here", { one: ["In", " France", "."], two: ["In", " Spain"] });
  const there = severalAnswers("there", { other: ["In"] });
  store.show(here, { request: "one", position: 10, compare: "there/other", tab: "compare" });
  store.set({ compareRun: there });
  store.changeSides();
  const { run, compareRun, selection } = store.state;
  assert.deepEqual([run, compareRun], [there, here]);
  assert.deepEqual([selection.request, selection.position, selection.compare, selection.tab], ["other", 8, "here/one", "compare"]);
  store.show(here, { request: "one", position: 9, compare: "here/two" });
  store.set({ compareRun: here });
  store.select({ request: "two" }); // as in the list of requests
  assert.equal(store.state.selection.compare, "here/one");
});

test("what is missing for one reason is said in one sentence", () => {
  const run = createRun("made-up");
  for (const message of syntheticRun()) apply(run, parseFrame(message));
  const [record] = run.requests.values();
  const recorded = { live: false, connected: true, streaming: false };
  const missing = () => missingWords(record, record, 7, [recorded, { ...recorded, live: true }]);
  assert.equal(missing(), "");
  for (const what of /** @type {const} */ (["attention", "residual", "lens"])) record[what].clear();
  const words = missing();
  assert.equal(words.match(/Here, no/g)?.length, 1);
  assert.match(words, /Here, no attention, residual or lens: not in this recording\. There, no attention or residual: /);
  assert.match(words, /There, no lens: not yet: the engine has been asked for it\./, "of one side a recording, of the other the live run");
});
