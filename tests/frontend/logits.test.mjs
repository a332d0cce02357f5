import assert from "node:assert/strict";
import { test } from "node:test";

import { drawSegments, drawnPosition, sampling } from "../../frontend/js/panels/logits-stages.js";

/** A vocabulary of 6, top 4 listed, temperature 1, top-k 3, then top-p 0.9; worked out by hand. */
function event(patch = {}) {
  return {
    kind: "token",
    seq: 1,
    t_ns: 0,
    position: 9,
    id: 12,
    label: " b",
    rank: 2,
    logprob: Math.log(0.25),
    entropy_bits: 2,
    top: [
      { id: 11, label: " a", logit: 3, logprob: Math.log(0.5) },
      { id: 12, label: " b", logit: 2, logprob: Math.log(0.25) },
      { id: 13, label: " c", logit: 1, logprob: Math.log(0.125) },
      { id: 14, label: " d", logit: 0, logprob: Math.log(0.0625) },
    ],
    stages: [
      { name: "raw", value: null, kept: 6, mass: 1, probabilities: [0.5, 0.25, 0.125, 0.0625] },
      { name: "temperature", value: 1, kept: 6, mass: 1, probabilities: [0.5, 0.25, 0.125, 0.0625] },
      { name: "top_k", value: 3, kept: 3, mass: 0.875, probabilities: [0.5 / 0.875, 0.25 / 0.875, 0.125 / 0.875, 0] },
      { name: "top_p", value: 0.85, kept: 2, mass: 0.75 / 0.875, probabilities: [2 / 3, 1 / 3, 0, 0] },
    ],
    draw: { method: "inverse_cdf", u: 0.8, seed: 7, low: 2 / 3, high: 1 },
    ...patch,
  };
}

test("candidates say which stage took them out, and stay in the list", () => {
  const view = sampling(event());
  assert.deepEqual(
    view.candidates.map((c) => c.removedBy),
    [null, null, 3, 2],
  );
  assert.deepEqual(
    view.candidates.map((c) => c.chosen),
    [false, true, false, false],
  );
  assert.equal(view.listedKept, 2);
});

test("each stage says how many it kept and what the candidates not listed hold", () => {
  const { stages } = sampling(event());
  assert.deepEqual(
    stages.map((s) => [s.title, s.value, s.kept]),
    [
      ["model", null, 6],
      ["temperature", "1", 6],
      ["top-k", "3", 3],
      ["top-p", "0.85", 2],
    ],
  );
  assert.equal(stages[0].rest, 0.0625);
  assert.equal(stages[0].restKept, 2);
  assert.equal(stages[2].restKept, 0);
  assert.ok(stages[3].rest < 1e-12);
  assert.deepEqual(
    stages.map((s) => s.removes),
    [false, false, true, true],
  );
});

test("a probability too small for a number is not a removal", () => {
  const stages = event().stages.slice(0, 2);
  stages[1] = { ...stages[1], value: 0.001, probabilities: [1, 0, 0, 0] };
  const view = sampling(event({ stages }));
  assert.deepEqual(
    view.candidates.map((c) => c.removedBy),
    [null, null, null, null],
  );
});

test("the draw's line is cut where the sampler cut it", () => {
  const e = event();
  const { segments, exact } = drawSegments(e, sampling(e));
  assert.equal(exact, true);
  assert.deepEqual(
    segments.map((s) => [s.id, s.low, s.high, s.chosen]),
    [
      [11, 0, 2 / 3, false],
      [12, 2 / 3, 1, true],
    ],
  );
});

test("a chosen token that is not listed gets its recorded interval after the listed ones", () => {
  const stages = event().stages.slice(0, 2);
  const e = event({
    id: 99,
    label: " z",
    stages,
    draw: { method: "inverse_cdf", u: 0.95, seed: 1, low: 0.9375, high: 0.96875 },
  });
  const view = sampling(e);
  assert.equal(view.chosenListed, false);
  const { segments, exact } = drawSegments(e, view);
  assert.equal(exact, true);
  assert.deepEqual(segments.at(-1), { id: 99, label: " z", low: 0.9375, high: 0.96875, chosen: true });
});

test("where an unlisted candidate lies in between, only the recorded interval is shown", () => {
  const e = event({ draw: { method: "inverse_cdf", u: 0.9, seed: 1, low: 0.8, high: 1 } });
  const { segments, exact } = drawSegments(e, sampling(e));
  assert.equal(exact, false);
  assert.deepEqual(segments, [{ id: 12, label: " b", low: 0.8, high: 1, chosen: true }]);
});

test("candidates that a penalty put in another order are laid out in that order, up to the chosen one", () => {
  const stages = event().stages.slice(0, 1);
  stages.push({ name: "repetition_penalty", value: 1.3, kept: 6, mass: 1, probabilities: [0.2, 0.4, 0.15, 0.1] });
  stages.push({ name: "temperature", value: 1, kept: 6, mass: 1, probabilities: [0.2, 0.4, 0.15, 0.1] });
  const e = event({
    id: 11,
    label: " a",
    stages,
    draw: { method: "inverse_cdf", u: 0.5, seed: 1, low: 0.4, high: 0.6 },
  });
  const { segments, exact, cut } = drawSegments(e, sampling(e));
  assert.deepEqual([exact, cut], [true, true]);
  assert.deepEqual(
    segments.map((s) => [s.id, s.low, s.high]),
    [
      [12, 0, 0.4],
      [11, 0.4, 0.6],
    ],
  );
});

test("a greedy choice has no line to draw on", () => {
  const e = event({ draw: { method: "greedy" } });
  assert.equal(drawSegments(e, sampling(e)), null);
});

test("a token event without statistics gives empty lists, not an error", () => {
  assert.deepEqual(sampling({ kind: "token", seq: 0, t_ns: 0, id: 1 }), {
    stages: [],
    candidates: [],
    chosenListed: false,
    listedKept: 0,
  });
});

test("the act decides whose draw is shown", () => {
  assert.equal(drawnPosition({ position: 5, act: "chosen" }), 5);
  assert.equal(drawnPosition({ position: 5, act: "used" }), 6);
  assert.equal(drawnPosition({ position: null, act: "used" }), null);
});
