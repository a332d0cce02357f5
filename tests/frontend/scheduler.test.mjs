import assert from "node:assert/strict";
import test from "node:test";

import { StepLog, followedStep, selectionOf, slotAt, utilisation, waits } from "../../frontend/js/panels/scheduler-data.js";
import { listedDecisions, stepText } from "../../frontend/js/panels/scheduler-detail.js";
import { chartLayout, hit, scrollTo, stepLeft, visibleSteps } from "../../frontend/js/panels/scheduler-layout.js";
import { recordedRun } from "./recorded.mjs";

const run = recordedRun();
const records = [...run.requests.values()];
const log = new StepLog().update(run);

test("decisions are listed newest first, and those of the followed one are never left out for others'", () => {
  const decision = (/** @type {string} */ id, /** @type {number} */ t_ns, what = "started") => ({ record: { id }, event: { t_ns }, what });
  const all = [decision("a", 1), decision("b", 2), decision("c", 3, "preempted"), decision("d", 4), decision("e", 5)];
  const listed = (/** @type {number} */ most) => listedDecisions(all, "a", most).map(({ record }) => record.id).join("");
  assert.equal(listed(9), "edcba");
  assert.equal(listed(3), "eca");
});

test("every step is there once, in order, with its rows and its end", () => {
  assert.equal(log.steps.length, run.steps.size);
  log.steps.forEach((step, i) => {
    assert.equal(log.index.get(step.step), i);
    assert.ok(step.finished);
    assert.equal(step.started.tokens, step.rows.reduce((sum, row) => sum + row.to - row.from, 0));
    assert.ok(new Set(step.rows.map((row) => row.slot)).size === step.rows.length, "one row a slot");
    const used = utilisation(step);
    assert.ok(used !== null && used > 0 && used <= 1);
  });
});

test("a log that grows with its run is the one that is made at its end", () => {
  const growing = new StepLog();
  for (const events of [60, 61, 200, 350, 351, 500]) growing.update(recordedRun(events)); // each is another run: made anew
  const partly = recordedRun(300);
  growing.update(partly);
  const before = growing.steps.length;
  assert.ok(before > 20 && before < log.steps.length);
  Object.assign(partly, { ...run, steps: run.steps, requests: run.requests, slots: run.slots });
  growing.update(partly);
  assert.deepEqual(growing.steps.slice(before), log.steps.slice(before));
  assert.ok(growing.steps.every((step) => step.finished));
  assert.deepEqual(growing.summary.unused, log.summary.unused);
});

test("the one without a slot waited, and so did those who gave way, until they could start again", () => {
  const all = waits(run);
  assert.equal(all.length, 7); // five arrivals, two preemptions
  assert.ok(all.every(({ from, to }) => from < to && to < Infinity));
  const fourth = records.find((record) => record.arrived?.prompt === undefined && record.promptLength === 38);
  assert.ok(fourth);
  const [first] = all.filter((wait) => wait.request === fourth.id);
  assert.equal(first.to, fourth.admissions[0].t_ns);
  assert.ok(log.steps.some((step) => step.waiting > 0));
  assert.equal(log.steps.at(-1)?.waiting, 0);
});

test("each preemption is marked once, with its slot and its reason", () => {
  const marked = log.steps.flatMap((step) => step.preempted);
  assert.equal(marked.length, 2);
  for (const { request, slot, reason } of marked) {
    assert.match(reason, /needed a block for position/);
    const record = run.requests.get(request);
    assert.ok(record && slot === slotAt(run, request, record.preemptions[0].t_ns));
  }
  const step = log.steps.find((s) => s.preempted.length);
  assert.ok(step);
  assert.match(stepText(run, step, null), /was preempted: #\d+ “.+” needed a block/);
});

test("a picked row leads to the token it chose, and a chunk in the middle of a prompt to its last token", () => {
  const long = records.find((record) => record.promptLength === 91);
  assert.ok(long);
  const [first, second] = long.rows;
  assert.ok(first.phase === "prefill" && first.to < 91 && second.phase === "prefill");
  assert.deepEqual(selectionOf(long, { ...first, request: long.id }), { request: long.id, position: first.to - 1, act: "used" });
  const decode = long.rows.find((row) => row.phase === "decode");
  assert.ok(decode);
  const picked = selectionOf(long, { ...decode, request: long.id });
  assert.deepEqual(picked, { request: long.id, position: decode.to, act: "chosen" });
  assert.equal(followedStep(long, { run: "batch", layer: 0, head: 0, tab: "scheduler", ...picked }), decode.step);
});

test("the summary adds up to what was generated and what was computed", () => {
  const all = log.summary;
  const generated = records.reduce((sum, record) => sum + record.tokens.length - record.promptLength, 0);
  // A request's last token has no pass; each preemption computes again what it had.
  assert.ok(all.decode >= generated - 2 * records.length && all.decode <= generated);
  assert.equal(all.rows, log.steps.reduce((sum, step) => sum + step.rows.length, 0));
  assert.equal(all.steps, log.steps.length);
  assert.equal(all.preempted, 2);
  assert.equal(all.mostWaiting, 2);
  assert.equal(all.unused, log.steps.reduce((sum, step) => sum + step.finished?.unused_rows, 0));
  const busy = all.utilisation(3);
  assert.ok(busy !== null && busy > 1 / 3 && busy <= 1);
  assert.equal(new StepLog().summary.utilisation(3), null);
});

test("the chart finds what it drew, and scrolls only to what is out of sight", () => {
  for (const [slots, pitch] of [[3, 14], [8, 4], [64, 26]]) {
    const layout = chartLayout(slots, pitch);
    for (const index of [0, 7, 499]) {
      const scroll = scrollTo(layout, index, 0, 400);
      const { from, to } = visibleSteps(layout, 500, scroll, 400);
      assert.ok(from <= index && index < to, `${index} in ${from}–${to}`);
      const x = stepLeft(layout, index, scroll) + pitch / 2;
      for (const slot of [0, slots - 1]) assert.deepEqual(hit(layout, 500, scroll, x, layout.slotsTop + (slot + 0.5) * layout.lane), { index, slot });
      assert.deepEqual(hit(layout, 500, scroll, x, layout.waitTop + 4), { index, slot: null });
      assert.equal(scrollTo(layout, index, scroll, 400), scroll);
    }
    assert.equal(hit(layout, 500, 0, 3, 30), null);
    assert.equal(hit(layout, 2, 0, layout.gutter + 3 * pitch, 30), null);
  }
  const none = visibleSteps(chartLayout(3, 14), 0, 0, 400);
  assert.deepEqual(none, { from: 0, to: 0 });
});
