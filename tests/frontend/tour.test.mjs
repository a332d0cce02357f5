// The tour: ten steps whose words are true of the trace, whatever it lacks.

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseFrame } from "../../frontend/js/codec.js";
import { apply, createRun } from "../../frontend/js/model.js";
import { requestToTell, tourSteps } from "../../frontend/js/tour/steps.js";
import { STEPS } from "../../frontend/js/tour/tour.js";
import { recordedRun } from "./recorded.mjs";
import { syntheticRun } from "./synthetic.mjs";

/** @param {Parameters<typeof syntheticRun>[0]} [options] @param {(event: any) => boolean} [keep] */
function loaded(options, keep = () => true) {
  const run = createRun("made up");
  for (const message of syntheticRun(options)) {
    const frame = parseFrame(typeof message === "string" ? message : message.buffer);
    if (keep(frame.event)) apply(run, frame);
  }
  return run;
}

const words = (run) => tourSteps(run).map((step) => step.words);

test("there are ten steps, from text to sent bytes, each with something to show", () => {
  const steps = tourSteps(loaded());
  assert.equal(steps.length, STEPS);
  assert.deepEqual(steps.map((step) => step.title), ["It begins as text", "Text becomes tokens", "It waits for a slot", "Keys and values go to memory", "Through the layers", "Looking back", "Where the answer appears", "A number for every token", "One is taken", "Bytes leave"]);
  for (const { words: said, target, selection } of steps) {
    assert.doesNotMatch(said, /undefined|NaN|null|Infinity|a token that is not here/);
    assert.match(target, /^#/);
    assert.equal(selection.request, "req-1");
  }
});

test("the numbers are the run's own", () => {
  const run = loaded();
  const record = requestToTell(run);
  const said = words(run);
  assert.match(said[0], /“Where is Paris\?”.*prompt’s 8 tokens, 2 are the chat template’s marks.*6 the question/s);
  assert.match(said[1], /into 8 tokens in 5\.00.µs.*“user” is 4 bytes, 75 73 65 72, and number 101 of 256/s);
  assert.match(said[2], /was in slot 0, 3\.00.µs after it arrived.*ran 1 step over the prompt.*3 steps for the answer/s);
  assert.match(said[4], /“·France” was chosen by the pass over “In”.*8 numbers of length 1\.00.*after 4 layers with length 5\.00.*Attention added most in layer 3, the MLP in layer 3/s);
  assert.match(said[6], /After layer 2, “·France” ranks 38.*From layer 3 on it leads/s);
  assert.match(said[7], /“·France” got 9\.00, which makes 90\.5%; the best of the others, “·other”, 4\.98%\. Entropy 0\.70.bit: less unsure than a coin/s);
  assert.match(said[8], /greedy/);
  assert.match(said[9], /“·France” is 7 bytes: 20 46 72 61 6e 63 65\. It left in chunk 1, 200.B, .*led to “\.”/s);
  const [, head, share] = /layer \d+, head (\d+): ([\d.]+) of its attention/.exec(said[5]);
  const { selection } = tourSteps(run)[5];
  assert.equal(String(selection.head), head);
  const row = [...record.attention.get(8).row(selection.layer, selection.head)];
  assert.ok(row.slice(1).some((w) => Math.abs(w - Number(share)) < 0.006), `${share} is no weight of that row`);
});

test("what a recording lacks is said, not made up", () => {
  const bare = words(loaded({}, (event) => !["attention", "residual", "lens", "stream.sent"].includes(event.kind)));
  assert.match(bare[3], /did not keep them in blocks/);
  for (const [step, pattern] of [[4, /was not kept/], [5, /does not have it/], [6, /does not have it/], [9, /No chunk/]]) assert.match(bare[step], pattern);
});

test("a real run with blocks is told with its blocks", () => {
  const run = recordedRun();
  const record = requestToTell(run);
  const step = tourSteps(run)[3];
  const place = run.blocks.placeOf(record.id, step.selection.position - 1);
  assert.match(step.words, new RegExp(`went to block ${place.block}, offset ${place.offset}, in all \\d+ layers. A block holds 16 positions`));
});

test("a run without an answer has no tour", () => {
  assert.equal(tourSteps(loaded({}, (event) => event.kind !== "token")), null);
  assert.equal(tourSteps(createRun("empty")), null);
});
