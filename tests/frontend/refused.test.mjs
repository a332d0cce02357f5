// What the server would not do is said where it was asked for, by whoever the reading was of.

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseFrame } from "../../frontend/js/codec.js";
import { createRun } from "../../frontend/js/model.js";
import { Runs } from "../../frontend/js/runs.js";
import { Store } from "../../frontend/js/store.js";
import { syntheticRun } from "./synthetic.mjs";

test("a reading that is refused is not waited for, and a refusal of nothing that is here is of the connection", () => {
  const store = new Store(() => {});
  const run = createRun("live");
  store.set({ liveRun: run });
  store.show(run);
  for (const message of syntheticRun({ lens: false })) store.apply(run, parseFrame(message));
  const runs = new Runs(store);
  store.send = () => true;
  assert.equal(store.requestLens("req-1", [8, 9]), true);
  assert.ok(store.readingComes("req-1", 8));
  store.changed.clear();
  assert.equal(runs.liveRefused({ command: "lens", request: "req-1", positions: [8, 9], message: "knows of it no more" }), true);
  assert.ok(store.changed.has("lens"));
  assert.equal(store.readingComes("req-1", 8), false);
  assert.equal(store.readingComes("req-1", 9), false);
  assert.equal(store.readingComes("req-1", 9, "attribution"), true, "another reading is another matter");
  assert.equal(runs.liveRefused({ command: "lens", request: "nobody", positions: [1], message: "x" }), false);
  assert.equal(runs.liveRefused({ command: "subscribe", message: "x" }), false);
  assert.equal(runs.liveRefused({ command: "time", message: "steps is 0" }), true);
  assert.equal(store.state.timingRefused, "steps is 0");
});
