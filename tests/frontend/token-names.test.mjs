import assert from "node:assert/strict";
import { test } from "node:test";

import { parseFrame } from "../../frontend/js/codec.js";
import { apply, createRun } from "../../frontend/js/model.js";
import { layerPairs } from "../../frontend/js/panels/compare-data.js";
import { describeCell } from "../../frontend/js/panels/lens-words.js";
import { lensCell } from "../../frontend/js/panels/lens-grid.js";
import { bytesNote, candidateName, nameInSentence, pieceNumber, pieceText, tokenName, tokenText } from "../../frontend/js/token-names.js";
import { syntheticRun } from "./synthetic.mjs";

/** 你 is E4 BD A0: two tokens of it, then a byte that begins nothing. */
function splitRun() {
  const run = createRun("pieces");
  const messages = syntheticRun({ answer: [new Uint8Array([0xe4]), new Uint8Array([0xbd, 0xa0]), " b", new Uint8Array([0xe5])] });
  for (const message of messages) apply(run, parseFrame(typeof message === "string" ? message : message.buffer));
  const record = [...run.requests.values()][0];
  return { record, pieces: record.tokens.slice(record.promptLength) };
}

test("a piece of a character is called by the character and which piece it is", () => {
  const [first, second, word, open] = splitRun().pieces;
  assert.deepEqual([first, second, word, open].map(tokenName), ["你 1/2", "你 2/2", "·b", "<0xE5>"]);
  assert.deepEqual([pieceNumber(second), pieceText(second), tokenText(second)], ["2/2", "piece 2 of 2", "你"]);
  assert.deepEqual([pieceNumber(word), pieceText(word)], ["", ""]);
});

test("a guess or a candidate that came is called as the token that came; another piece by its bytes", () => {
  const [first] = splitRun().pieces;
  assert.equal(candidateName({ id: first.id, label: "<0xE4>" }, first), "你 1/2");
  assert.equal(candidateName({ id: first.id + 1000, label: "<0xE4>" }, first), "<0xE4>");
  assert.equal(candidateName({ id: first.id, label: "<0xE4>" }, null), "<0xE4>");
  assert.equal(candidateName({ id: 7, label: " a\n" }, first), "·a↵");
  assert.equal(candidateName({ id: 7 }, undefined), "#7");
});

test("in a sentence a token that is punctuation stands in quotes, and others do not", () => {
  const named = (/** @type {string} */ text) => nameInSentence(/** @type {any} */ ({ text, label: text, group: null, position: 0 }));
  assert.deepEqual([",", ".", " (", "\n"].map(named), ["“,”", "“.”", "“·(”", "“↵”"]);
  assert.deepEqual(["Paris", " é", "你", "7", "'s"].map(named), ["Paris", "·é", "你", "7", "'s"]);
});

test("bytes in a name are explained, and nothing else is", () => {
  assert.match(bytesNote("<0xE4>"), /^<0xE4>: 1 byte of a character/);
  assert.match(bytesNote(" <0xF0><0x9F>"), /^<0xF0><0x9F>: 2 bytes of a character/);
  for (const label of ["a", "", "<|im_end|>", "0xE4", "<0xE>", "<0x0A>"]) assert.equal(bytesNote(label), "");
});

test("the lens and the comparison call a piece what the ribbon does", () => {
  const { record, pieces } = splitRun();
  const [first] = pieces;
  const query = first.position - 1;
  const top = [{ id: first.id, label: "<0xE4>", logprob: -0.1 }, { id: 3_000_000, label: "<0xE5>", logprob: -3 }];
  const cell = lensCell({ layer: 0, top, rank: 1, logprob: -0.1 });
  const told = describeCell(record, query, 0, /** @type {any} */ (cell)).split("\n");
  assert.ok(told.includes("“你 1/2” 90.5%"), told.join("\n"));
  assert.equal(told.at(-1), bytesNote("<0xE5>"));
  const event = /** @type {any} */ ({ kind: "lens", seq: 0, t_ns: 0, layers: [{ layer: 0, top }] });
  record.lens.set(query, event);
  const { guessA } = layerPairs(record, record, query, 1, true).layers[0];
  assert.equal(guessA && candidateName(guessA, guessA.came), "你 1/2");
});
