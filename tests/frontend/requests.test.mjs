import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { contrast, parseColour } from "../../frontend/js/colour.js";
import { parseFrame } from "../../frontend/js/codec.js";
import { apply, createRun, titleOf } from "../../frontend/js/model.js";
import { holdersOf } from "../../frontend/js/panels/memory-holders.js";
import { stretches } from "../../frontend/js/panels/scheduler-layout.js";
import { REQUEST_COLOURS, colourOf, quotedTitle, requestHue, requestName, requestNumber } from "../../frontend/js/requests.js";
import { lanesOf } from "../../frontend/js/timeline.js";
import { sees } from "./sight.mjs";

const css = readFileSync(new URL("../../frontend/css/tokens.css", import.meta.url), "utf8");

/** The colours of a theme, as css/tokens.css has them. @param {"dark" | "light"} theme @returns {Map<string, string>} */
function coloursOf(theme) {
  const block = css.slice(css.indexOf(`[data-theme="${theme}"]`));
  return new Map([...block.slice(0, block.indexOf("}")).matchAll(/(--[\w-]+): (#[0-9a-f]{6});/g)].map(([, name, value]) => [name, value]));
}

/** @param {number} count of requests, asked the same but for the first */
function runOf(count) {
  const run = createRun("r");
  for (let i = 0; i < count; i += 1) {
    apply(run, parseFrame(JSON.stringify({ kind: "request.arrived", seq: i + 1, t_ns: i, request: `r-${i}`, text: i ? "the same prompt" : "What is the capital of France, and why?" })));
  }
  return run;
}

for (const theme of /** @type {const} */ (["dark", "light"])) {
  const colours = coloursOf(theme);
  const own = Array.from({ length: REQUEST_COLOURS }, (_, i) => colours.get(`--request-${i}`) ?? "none");

  test(`requests' colours stand out from a ${theme} page`, () => {
    for (const colour of own) {
      for (const ground of ["--bg", "--panel", "--raised"]) {
        const ratio = contrast(parseColour(colour), parseColour(colours.get(ground) ?? ""));
        assert.ok(ratio >= 3, `${colour} on ${ground}: ${ratio.toFixed(2)}`);
      }
    }
  });

  test(`eight requests can be told apart on a ${theme} page, by the colour-blind too`, () => {
    const least = { normal: 0.14, protanopia: 0.085, deuteranopia: 0.085, tritanopia: 0.085 };
    for (const [sight, distance] of Object.entries(least)) {
      own.forEach((a, i) => own.slice(i + 1).forEach((b) => assert.ok(sees(sight, a, b) >= distance, `${sight}: ${a} and ${b} are ${sees(sight, a, b).toFixed(3)} apart`)));
    }
  });

  test(`no request looks like what another colour means on a ${theme} page`, () => {
    for (const name of ["--followed", "--attention", "--mlp"]) {
      for (const colour of own) assert.ok(sees("normal", colour, colours.get(name) ?? "") >= 0.1, `${colour} and ${name}`);
    }
  });
}

test("each hue of the page is one of the colours, and none is left over", () => {
  const hues = [...css.matchAll(/\[data-hue="(\d+)"\] \{ --hue: var\(--request-(\d+)\); \}/g)];
  assert.deepEqual(hues.map(([, hue, colour]) => [hue, colour]), Array.from({ length: REQUEST_COLOURS }, (_, i) => [String(i), String(i)]));
});

test("of 64 requests, colours come again and numbers do not", () => {
  const records = [...runOf(64).requests.values()];
  assert.deepEqual(records.slice(0, 8).map(requestHue), [0, 1, 2, 3, 4, 5, 6, 7]);
  assert.equal(requestHue(records[8]), 0);
  assert.equal(new Set(records.map(requestNumber)).size, 64);
  assert.equal(requestNumber(records[0]), "#1");
});

test("a request is named by its number and what was asked; equal prompts by different numbers", () => {
  const run = runOf(3);
  assert.equal(requestName(run, "r-0"), "#1 “What is the capital of France, an…”");
  assert.equal(requestName(run, "r-1"), "#2 “the same prompt”");
  assert.equal(requestName(run, "r-2"), "#3 “the same prompt”");
  assert.equal(requestName(run, "r-9"), "r-9");
  assert.equal(requestName(run, null), "a request that is not here");
  assert.equal(colourOf(["a", "b", "c"], run, "r-2"), "c");
  assert.equal(colourOf(["a"], run, "r-9"), null);
});

test("a fork's name begins with a quoted token, and is not quoted once more", () => {
  const run = runOf(2);
  apply(run, parseFrame(JSON.stringify({ kind: "request.arrived", seq: 9, t_ns: 9, request: "r-fork", text: "x", forked_from: { request: "r-1", position: 0 } })));
  assert.equal(requestName(run, "r-fork"), "#3 “…” at 0: the same prompt");
  apply(run, parseFrame(JSON.stringify({ kind: "request.arrived", seq: 10, t_ns: 10, request: "r-own", text: "“Paris” is a city" })));
  assert.equal(quotedTitle(/** @type {any} */ (run.requests.get("r-own"))), "““Paris” is a city”", "a prompt's own quotes are part of it");
});

test("a request that was refused is known by why, one of blanks as such, and none by its id", () => {
  const run = runOf(1);
  const tell = (/** @type {Record<string, any>} */ event) => apply(run, parseFrame(JSON.stringify({ seq: run.lastSeq + 1, t_ns: 9, ...event })));
  tell({ kind: "request.rejected", request: "r-no", reason: "the prompt has 9,000 tokens; this model reads at most 8,192 at once" });
  tell({ kind: "request.arrived", request: "r-blank", text: " \n" });
  tell({ kind: "request.arrived", request: "r-late", text: "asked well" });
  tell({ kind: "request.rejected", request: "r-late", reason: "the queue is full" });
  const title = (/** @type {string} */ id) => titleOf(/** @type {any} */ (run.requests.get(id)));
  assert.equal(title("r-no"), "refused: the prompt has 9,000 tokens; this model reads…");
  assert.equal(requestName(run, "r-no"), "#2 “refused: the prompt has 9,000 tok…”");
  assert.equal(title("r-blank"), "a prompt of blanks");
  assert.equal(title("r-late"), "asked well", "its own words where it has some");
});

test("the map's requests are those that hold blocks, and those whose blocks are kept", () => {
  const run = runOf(4);
  const block = (/** @type {Record<string, any>} */ fields) => /** @type {any} */ ({ state: "free", holders: [], writer: null, ...fields });
  const blocks = [
    block({ state: "held", holders: ["r-2", "r-0"], writer: "r-0" }),
    block({ state: "held", holders: ["r-2"], writer: "r-2" }),
    block({ state: "cached", writer: "r-1" }),
    block({ state: "cached", writer: "gone" }),
    block({}),
  ];
  assert.deepEqual(holdersOf(run, blocks).map(({ record, held, cached }) => [record.id, held, cached]), [["r-0", 1, 0], ["r-1", 0, 1], ["r-2", 2, 0]]);
});

test("a slot's number is written once for as long as it works for one request", () => {
  const row = (/** @type {number} */ slot, /** @type {string} */ request, phase = "decode") => ({ slot, request, phase });
  const steps = [
    { rows: [row(0, "a", "prefill"), row(1, "b")] },
    { rows: [row(0, "a", "prefill")] },
    { rows: [row(0, "a"), row(1, "b")] },
    { rows: [row(0, "c", "prefill"), row(1, "b")] },
  ];
  assert.deepEqual(stretches(steps, 0, 4), [
    { slot: 0, request: "a", index: 0, steps: 3, decodes: 2 },
    { slot: 1, request: "b", index: 0, steps: 4, decodes: 0 },
    { slot: 0, request: "c", index: 3, steps: 1, decodes: null },
  ]);
  assert.deepEqual(stretches(steps, 2, 3).map(({ request, index }) => [request, index]), [["a", 2], ["b", 2]]);
});

test("the time line has a lane for each of eight requests, the followed one on top, and counts the others", () => {
  const run = runOf(11);
  const records = [...run.requests.values()];
  apply(run, parseFrame(JSON.stringify({ kind: "step.started", seq: 20, t_ns: 30, step: 1, tokens: 11, token_budget: 256, rows: records.slice(0, 10).map(({ id }, slot) => ({ request: id, slot, phase: "decode", from: 0, to: 1 })) })));
  const { lanes, more } = lanesOf(run, records[4], { from: 0, to: 100 });
  assert.deepEqual(lanes.map(({ id }) => id), ["r-4", "r-0", "r-1", "r-2", "r-3", "r-5", "r-6", "r-7"]);
  assert.equal(more, 2, "r-10 did not run");
  assert.deepEqual(lanesOf(run, records[0], { from: 5e6, to: 6e6 }).more, 0, "nobody ran then");
});
