// A real run, recorded: `tiny` with 16 blocks of 16 positions, 3 slots and a prefill budget of 48, asked five things at
// nearly the same time. Arrays, candidates and sampler stages were left out of the file.

import { readFileSync } from "node:fs";

import { parseFrame } from "../../frontend/js/codec.js";
import { apply, createRun } from "../../frontend/js/model.js";

/** @param {number} [events] how many of them, from the start */
export function recordedRun(events = Infinity) {
  const run = createRun("batch");
  const lines = readFileSync(new URL("recorded/batch.jsonl", import.meta.url), "utf8").trim().split("\n");
  for (const line of lines.slice(0, events)) apply(run, parseFrame(line));
  run.complete = true;
  return run;
}
