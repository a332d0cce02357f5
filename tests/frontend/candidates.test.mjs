// Candidates are kept as numbers, and come back as they were, to the last bit.

import assert from "node:assert/strict";
import { test } from "node:test";

import { candidatesOf, packCandidates } from "../../frontend/js/candidates.js";

/** @param {any[]} top */
function packed(top) {
  const event = /** @type {any} */ ({ kind: "token", seq: 0, t_ns: 0, top });
  packCandidates(event);
  return event;
}

test("what was packed comes back exactly, of many tokens and of two models with other names for an id", () => {
  const tops = Array.from({ length: 500 }, (_, t) =>
    Array.from({ length: 1 + (t % 21) }, (_, i) => ({ id: i * 7 + t, label: `${t % 2 ? "a" : "b"} ${i}`, logprob: -Math.random() * 9, logit: [Math.random() * 20, -Infinity, NaN, -0][i % 4] })),
  );
  const copies = structuredClone(tops);
  const events = tops.map(packed);
  assert.ok(events.every(({ top }) => !Array.isArray(top)));
  events.forEach((event, t) => {
    assert.deepEqual(candidatesOf(event), copies[t]);
    assert.equal(candidatesOf(event).length, event.top.length);
  });
});

test("more candidates than an array usually holds are kept as well", () => {
  const top = Array.from({ length: 5000 }, (_, id) => ({ id, label: `#${id}`, logprob: -id, logit: id / 3 }));
  assert.deepEqual(candidatesOf(packed(structuredClone(top))), top);
});

test("candidates that hold anything else stay as they are, and none are none", () => {
  for (const odd of [{ id: 1, label: "a", logprob: null, logit: 2 }, { id: 1, label: "a", logprob: -1 }, { id: 1, label: "a", logprob: -1, logit: 2, more: 3 }]) {
    const top = [{ id: 3, label: "c", logprob: -1, logit: 2 }, odd];
    assert.equal(candidatesOf(packed(top)), top);
  }
  assert.deepEqual(candidatesOf(packed([])), []);
  assert.deepEqual(candidatesOf({}), []);
  assert.deepEqual(candidatesOf({ top: null }), []);
});
