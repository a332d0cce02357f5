// The cost of a capture, in the words that the composer shows before anything is sent.

import assert from "node:assert/strict";
import { test } from "node:test";
import { costWords } from "../../frontend/js/capture-cost.js";

const told = { prompt_tokens: 4000, max_tokens: 64, bytes: 1_234_567, needed_bytes: 1_234_567, budget_bytes: 268_435_456, over_budget: { summarised: [], left_out: [] }, refused: null };

test("what fits is told to the byte", () => {
  assert.match(costWords(/** @type {any} */ (told)), /^1,234,567 bytes \(.*\) of arrays for 4,000 \+ 64 tokens\.$/);
});

test("what does not fit says which positions become what", () => {
  const words = costWords(/** @type {any} */ ({ ...told, needed_bytes: 9e9, over_budget: { summarised: [[700, 3000], [3999, 4000]], left_out: [[3000, 3999]] } }));
  assert.match(words, /of 2,301 positions each head’s 8 largest weights are kept \(700–2,999, 3,999\)/);
  assert.match(words, /999 are left out \(3,000–3,998\)/);
});

test("a refusal is told beforehand", () => {
  assert.match(costWords(/** @type {any} */ ({ ...told, refused: "not even the smallest position fits" })), /would be refused: not even/);
});
