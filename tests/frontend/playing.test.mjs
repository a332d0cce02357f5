// Playing follows the clock: what a frame costs is not added to the run's time.

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseFrame } from "../../frontend/js/codec.js";
import { apply, createRun } from "../../frontend/js/model.js";
import { LONGEST_REST_MS, Playing } from "../../frontend/js/playing.js";

/** A request whose tokens were chosen at these times. @param {number[]} times milliseconds */
function told(times) {
  const run = createRun("t");
  let seq = 0;
  const emit = (/** @type {string} */ kind, /** @type {number} */ ms, /** @type {object} */ fields) => apply(run, parseFrame(JSON.stringify({ kind, seq: (seq += 1), t_ns: ms * 1e6, ...fields })));
  emit("request.arrived", 0, { request: "r-1", text: "x" });
  times.forEach((ms, position) => emit("token", ms, { request: "r-1", step: position, position, index: position, id: 7, bytes_hex: "61", special: false, label: "a", text: "a", text_length: 1, held_back_bytes: 0 }));
  const record = run.requests.get("r-1");
  assert.ok(record);
  assert.equal(record.tokens.length, times.length);
  return { run, record };
}

/**
 * Plays to the end on a page that takes so long to draw each token.
 * @param {number[]} times @param {number} frame milliseconds @param {number} [speed]
 */
function play(times, frame, speed = 1) {
  const { run, record } = told(times);
  const playing = new Playing();
  let [now, position] = [5000, 0];
  const shown = [0];
  while (position < times.length - 1) {
    const place = { run, record, position, speed };
    now += playing.rest(place, now);
    position = playing.next(place, now);
    shown.push(position);
    now += frame;
  }
  return { took: now - 5000, shown };
}

const EVERY_20 = Array.from({ length: 41 }, (_, i) => i * 20);

test("on a page that is fast enough every token is shown when it is due", () => {
  const { took, shown } = play(EVERY_20, 5);
  assert.deepEqual(shown, EVERY_20.map((_, i) => i));
  assert.ok(took <= 800 + 5, `${took}`);
});

test("on a busy one tokens are left out, and the time is kept", () => {
  for (const [frame, speed] of [[140, 1], [140, 2], [70, 10], [140, 0.5]]) {
    const { took, shown } = play(EVERY_20, frame, speed);
    assert.ok(took <= 800 / speed + 2 * frame, `${took} ms at ${speed}×, a frame in ${frame}`);
    assert.ok(shown.length <= 2 + 800 / speed / Math.min(frame, 20 / speed));
    assert.equal(shown.at(-1), 40);
  }
  assert.ok(play(EVERY_20, 140).shown.length < 10);
});

test("an idle hour is not waited for, and what comes after it is on time", () => {
  const hour = 3_600_000;
  const { took, shown } = play([0, 20, hour, hour + 20, hour + 40], 1);
  assert.deepEqual(shown, [0, 1, 2, 3, 4]);
  assert.ok(Math.abs(took - (20 + LONGEST_REST_MS + 40)) < 5, `${took}`);
});

test("a token picked by hand, or another speed, is where it goes on from", () => {
  const { run, record } = told(EVERY_20);
  const playing = new Playing();
  assert.equal(playing.rest({ run, record, position: 0, speed: 1 }, 0), 20);
  assert.equal(playing.next({ run, record, position: 0, speed: 1 }, 20), 1);
  assert.equal(playing.rest({ run, record, position: 30, speed: 1 }, 25), 20);
  assert.equal(playing.next({ run, record, position: 30, speed: 1 }, 45), 31);
  assert.equal(playing.rest({ run, record, position: 31, speed: 2 }, 45), 10);
});
