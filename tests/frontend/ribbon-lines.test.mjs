import assert from "node:assert/strict";
import { test } from "node:test";

import { linesWanted } from "../../frontend/js/ribbon-lines.js";

/** @param {string[]} texts @param {Record<string, any>} [more] */
function recordOf(texts, more = {}) {
  const tokens = texts.map((text, position) => /** @type {any} */ ({ position, id: position, text, label: text, group: null }));
  return { tokens, promptLength: tokens.length, finished: /** @type {any} */ ({}), arrived: null, ...more };
}

test("a short request takes one line, a long one as many as matter", () => {
  assert.equal(linesWanted(recordOf(["What", " is", " it", "?"]), 900, 12, 5), 1);
  assert.equal(linesWanted(recordOf(Array(8000).fill(" word")), 900, 12, 5), 5);
  assert.equal(linesWanted(recordOf([]), 900, 12, 5), 1);
  assert.equal(linesWanted(recordOf([" a"]), 0, 12, 5), 5, "no room yet");
});

test("forty words of four letters fill two lines of 900 pixels", () => {
  // " word" is 5 characters of 7.2 pixels and 6 around it: 42; 900 less margin and what is left empty hold 19.
  assert.equal(linesWanted(recordOf(Array(19).fill(" word")), 900, 12, 5), 1);
  assert.equal(linesWanted(recordOf(Array(38).fill(" word")), 900, 12, 5), 2);
  assert.equal(linesWanted(recordOf(Array(40).fill(" word")), 900, 12, 5), 3);
});

test("room is kept for what a running request may still say, so that nothing moves as it comes", () => {
  const prompt = Array(19).fill(" word");
  const running = recordOf(prompt, { finished: null, arrived: { max_tokens: 64 } });
  const whole = linesWanted(running, 900, 12, 5);
  assert.ok(whole >= 4, String(whole));
  const later = recordOf([...prompt, ...Array(64).fill(" abc")], { promptLength: 19, finished: null, arrived: { max_tokens: 64 } });
  assert.ok(linesWanted(later, 900, 12, 5) <= whole);
  assert.equal(linesWanted({ ...running, finished: /** @type {any} */ ({}) }, 900, 12, 5), 1);
});

test("wide characters count double, and a character in pieces once", () => {
  const group = { from: 0, to: 1, text: "你好" };
  assert.ok(linesWanted(recordOf(Array(60).fill("你")), 900, 12, 5) > linesWanted(recordOf(Array(60).fill("n")), 900, 12, 5));
  const pieces = recordOf(["<0xE4>", "<0xBD>"]);
  for (const token of pieces.tokens) token.group = group;
  assert.equal(linesWanted(pieces, 100, 12, 5), 2);
});
