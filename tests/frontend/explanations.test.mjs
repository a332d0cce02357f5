// Explanations: each has its four parts, each key that the page uses is there, and none is written for nothing.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

import { EXPLANATIONS, explanation } from "../../frontend/js/explanations/index.js";
import { MODES } from "../../frontend/js/ribbon-colours.js";

const SOURCES = fileURLToPath(new URL("../../frontend/js/", import.meta.url));

/** The page's sources, but for the explanations themselves. */
function sources() {
  const names = readdirSync(SOURCES, { recursive: true }).map(String);
  return names.filter((name) => name.endsWith(".js") && !name.startsWith("explanations")).map((name) => readFileSync(SOURCES + name, "utf8"));
}

const KEY = /"([a-z]+(?:\.[a-z]+)?)"/g;

test("every explanation says what it is, how it was obtained, the formula, and when it misleads", () => {
  for (const [key, parts] of Object.entries(EXPLANATIONS)) {
    assert.deepEqual(Object.keys(parts), ["name", "what", "how", "formula", "careful"], key);
    for (const [part, text] of Object.entries(parts)) {
      assert.ok(text.trim().length > 2, `${key}: ${part} is empty`);
      if (part === "what" || part === "how" || part === "careful") assert.match(text, /[.]$/, `${key}: ${part} is no sentence`);
    }
    const words = Object.values(parts).join(" ").split(/\s+/).length;
    assert.ok(words < 110, `${key}: ${words} words are no explanation at hand`);
  }
});

test("every key that a label or a mark names has an explanation", () => {
  const named = sources().flatMap((text) => [...text.matchAll(/\b(?:term|about)\(\s*"([^"]+)"/g)].map((match) => match[1]));
  assert.ok(named.length > 40, `only ${named.length} labels were found: is this test looking in the right place?`);
  for (const key of named) assert.ok(key in EXPLANATIONS, `“${key}” is used and not explained`);
  assert.throws(() => explanation(/** @type {any} */ ("no.such")), /no explanation "no.such"/);
});

test("every explanation is used", () => {
  const used = new Set(sources().flatMap((text) => [...text.matchAll(KEY)].map((match) => match[1])));
  for (const mode of MODES) used.add(`ribbon.${mode}`);
  const unused = Object.keys(EXPLANATIONS).filter((key) => !used.has(key));
  assert.deepEqual(unused, []);
});
