import assert from "node:assert/strict";
import { test } from "node:test";

import { PromptHistory, askedIn, promptsOf } from "../../frontend/js/prompt-history.js";

/** @param {string[]} prompts */
const requests = (...prompts) => prompts.map((content) => /** @type {any} */ ({ arrived: { messages: [{ role: "system", content: "be kind" }, { role: "user", content }] } }));

test("what was asked is the last thing that the person said", () => {
  const [two] = requests("first");
  two.arrived.messages.push({ role: "assistant", content: "yes" }, { role: "user", content: "second" });
  assert.equal(askedIn(two), "second");
  assert.equal(askedIn(null), null);
  assert.equal(askedIn(/** @type {any} */ ({ arrived: { text: "no chat" } })), null);
  assert.equal(askedIn(requests("  ")[0]), null);
});

test("each prompt is there once, where it was asked last", () => {
  assert.deepEqual(promptsOf(requests("a", "b", "a"), ["c", "b"]), ["a", "c", "b"]);
});

test("one walks back and forth through what was asked, and the draft is not lost", () => {
  const history = new PromptHistory();
  const run = requests("a", "b");
  assert.equal(history.step(-1, "", run), "b");
  assert.ok(history.shows("b"));
  assert.equal(history.step(-1, "b", run), "a");
  assert.equal(history.step(-1, "a", run), null, "the oldest stays");
  assert.equal(history.step(1, "a", run), "b");
  assert.equal(history.step(1, "b", run), "", "back to the draft");
  assert.equal(history.step(1, "", run), null);
});

test("a prompt that was changed is a draft of its own", () => {
  const history = new PromptHistory();
  const run = requests("a", "b");
  history.step(-1, "", run);
  assert.ok(!history.shows("b, but shorter"));
  assert.equal(history.step(-1, "b, but shorter", run), "b");
  assert.equal(history.step(1, "b", run), "b, but shorter");
});

test("what has just been sent is the newest, before its request is in the run", () => {
  const history = new PromptHistory();
  history.step(-1, "", requests("a"));
  history.add("c");
  assert.ok(!history.shows("a"));
  assert.equal(history.step(-1, "", requests("a")), "c");
});
