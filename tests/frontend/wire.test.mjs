import assert from "node:assert/strict";
import test from "node:test";

import { parseFrame } from "../../frontend/js/codec.js";
import { apply, chunkOf, createRun } from "../../frontend/js/model.js";
import { delays, wireRows, wireSummary } from "../../frontend/js/panels/wire-data.js";
import { niceScale } from "../../frontend/js/panels/wire.js";
import { recordedRun } from "./recorded.mjs";
import { syntheticRun } from "./synthetic.mjs";

const records = [...recordedRun().requests.values()];

test("every token has the first chunk that reaches up to it, and chunks share out all tokens", () => {
  for (const record of records) {
    const { rows, closing } = wireRows(record);
    assert.equal(rows.length, record.tokens.length - record.promptLength);
    for (const row of rows) assert.equal(row.chunk, chunkOf(record, row.token.position));
    const shared = new Map();
    for (const row of rows) if (row.chunk) shared.set(row.chunk, (shared.get(row.chunk) ?? 0) + 1);
    for (const row of rows) if (row.chunk) assert.equal(row.shares, shared.get(row.chunk));
    assert.equal(rows.filter((row) => row.chunk && row.first).length, shared.size);
    assert.equal(shared.size + closing.length, record.sent.length);
  }
});

test("a whole answer in one JSON body is one chunk of all tokens", () => {
  const record = records.find((r) => r.sent.some((sent) => sent.to === "json"));
  assert.ok(record);
  const { rows, closing } = wireRows(record);
  assert.equal(closing.length, 0);
  assert.ok(rows.every((row) => row.shares === rows.length));
  assert.equal(rows.filter((row) => row.first).length, 1);
});

test("nothing is sent before it was chosen, and the summary adds up", () => {
  for (const record of records) {
    const { rows } = wireRows(record);
    const all = wireSummary(record, rows);
    assert.equal(all.bytes, record.sent.reduce((sum, sent) => sum + sent.chunk_bytes, 0));
    assert.ok(all.median !== null && all.longest !== null && all.median > 0 && all.longest >= all.median);
    for (const row of rows) {
      const delay = delays(row);
      if (delay) assert.ok(delay.sent >= delay.queued && delay.sent <= all.longest);
    }
    assert.ok(all.mostHeld >= Math.max(...rows.map((row) => row.event.held_back_bytes)));
  }
});

test("tokens whose chunk has not been sent yet say so", () => {
  const run = createRun("t");
  for (const message of syntheticRun()) {
    const frame = parseFrame(message);
    if (frame.event.kind !== "stream.sent" || frame.event.position < 10) apply(run, frame);
  }
  const record = run.requests.get("req-1");
  assert.ok(record);
  const { rows } = wireRows(record);
  assert.deepEqual(rows.map((row) => row.chunk?.chunk ?? null), [0, 1, null, null]);
  assert.equal(wireSummary(record, rows).unsent, 2);
  assert.equal(delays(rows[3]), null);
});

test("bars end at a round number that holds the longest", () => {
  assert.deepEqual([1, 1.5e6, 2e6, 4.9e6, 7e6].map(niceScale), [1, 2e6, 2e6, 5e6, 1e7]);
});
