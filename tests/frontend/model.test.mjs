import assert from "node:assert/strict";
import test from "node:test";

import { parseFrame } from "../../frontend/js/codec.js";
import { absentText, readingIsOut, standingOf, toCome, whyAbsent, whyNoLayers, whyNoReading } from "../../frontend/js/absent.js";
import { ARRAY_LIMIT_BYTES, arrayRoom, heldBytes } from "../../frontend/js/held.js";
import {
  apply, chunkOf, createRun,
  endRun, phaseOf, queryPosition, restore, rowOf, selectedToken, titleOf,
} from "../../frontend/js/model.js";
import { expertsText } from "../../frontend/js/words.js";
import { syntheticRun, tensorMessage } from "./synthetic.mjs";

/** @param {(string | Uint8Array)[]} messages @param {number} [limit] */
function runOf(messages, limit) {
  const run = createRun("trace", limit);
  for (const message of messages) apply(run, parseFrame(message));
  return run;
}

/** @param {import("../../frontend/js/model.js").Run} run */
const only = (run) => {
  const record = run.requests.get("req-1");
  assert.ok(record);
  return record;
};

test("a whole run is one request with prompt and answer at their positions", () => {
  const run = runOf(syntheticRun());
  const record = only(run);
  assert.equal(run.epoch, "epoch-1");
  assert.equal(record.promptLength, 8);
  assert.deepEqual(record.tokens.map((t) => t.position), [...Array(12).keys()]);
  assert.equal(record.tokens.map((t) => t.label).join(""), "<|im_start|>user\nWhere is Paris?<|im_end|>In France.<|im_end|>");
  assert.equal(record.tokens[9].event?.position, 9);
  assert.equal(phaseOf(record), "finished");
  assert.equal(titleOf(record), "Where is Paris?");
});

test("events that were seen already change nothing", () => {
  const messages = syntheticRun();
  const run = runOf(messages);
  const tokens = only(run).tokens;
  assert.equal(apply(run, parseFrame(messages[2])), null);
  assert.equal(only(run).tokens, tokens);
});

test("a gap is kept and does not hide what comes after it", () => {
  const run = runOf(syntheticRun().slice(0, 5));
  const last = run.lastSeq;
  assert.equal(apply(run, parseFrame(JSON.stringify({ kind: "gap", seq: last + 5, t_ns: 0, from_seq: last + 1, to_seq: last + 5, reason: "paused" }))), "gaps");
  assert.equal(run.gaps.length, 1);
  assert.equal(run.lastSeq, last + 5);
});

test("a kind from a newer version is counted, not an error", () => {
  const run = createRun("t");
  assert.equal(apply(run, parseFrame('{"kind":"hologram","seq":0,"t_ns":0}')), "unknown");
  assert.equal(run.unknown.get("hologram"), 1);
});

test("a character split over tokens joins them, and its pieces keep their bytes", () => {
  const [a, b, c] = [new Uint8Array([0xf0, 0x9f]), new Uint8Array([0x8c]), new Uint8Array([0x8d])];
  const { tokens } = only(runOf(syntheticRun({ answer: ["Hi", a, b, c, "!"] })));
  assert.deepEqual(tokens[9].group, { from: 9, to: 11, text: "🌍" });
  assert.equal(tokens[11].group, tokens[9].group);
  assert.equal(tokens[10].label, "<0x8C>");
  assert.equal(tokens[12].group, null);
  assert.equal(tokens[12].label, "!");
});

test("bytes that never become a character stay bytes", () => {
  const { tokens } = only(runOf(syntheticRun({ answer: [new Uint8Array([0xf0, 0x9f]), "a", new Uint8Array([0xff])] })));
  assert.equal(tokens[8].group, null);
  assert.equal(tokens[8].label, "<0xF0><0x9F>");
  assert.equal(tokens[9].label, "a");
  assert.equal(tokens[10].label, "<0xFF>");
});

test("prompt offsets count code points, not UTF-16 units", () => {
  const { tokens } = only(runOf(syntheticRun({ prompt: ["🌍🌍", "<|x|>", "é"] })));
  assert.deepEqual(tokens.slice(0, 3).map((t) => t.label), ["🌍🌍", "<|x|>", "é"]);
});

test("the pass that chose a token is the one before; the pass that used it is its own", () => {
  const selection = { run: null, request: null, position: 9, layer: null, head: null, tab: "attention" };
  assert.equal(queryPosition({ ...selection, act: "chosen" }), 8);
  assert.equal(queryPosition({ ...selection, act: "used" }), 9);
  assert.equal(queryPosition({ ...selection, act: "chosen", position: 0 }), null);
});

test("an attention row has a weight for every key up to the query and sums to one", () => {
  const record = only(runOf(syntheticRun()));
  const row = record.attention.get(9)?.row(3, 2);
  assert.equal(row?.length, 10);
  assert.ok(Math.abs([...(row ?? [])].reduce((a, b) => a + b, 0) - 1) < 1e-6);
  assert.equal(record.attention.get(9)?.row(4, 0), null);
  assert.equal(record.attention.get(9)?.row(0, 3), null);
});

test("a single row equals the same row of the whole array", () => {
  const array = only(runOf(syntheticRun())).attention.get(9);
  assert.ok(array);
  const row = [...(array.row(2, 1) ?? [])];
  assert.deepEqual(row, [...array.array.slice((2 * 3 + 1) * 10, (2 * 3 + 1) * 10 + 10)]);
  assert.deepEqual([...(array.row(2, 1) ?? [])], row);
});

test("the mean over layers and heads is a mean", () => {
  const array = only(runOf(syntheticRun())).attention.get(9);
  const mean = array?.overallMean() ?? [];
  assert.ok(Math.abs([...mean].reduce((a, b) => a + b, 0) - 1) < 1e-5);
  let first = 0;
  for (let l = 0; l < 4; l += 1) for (let h = 0; h < 3; h += 1) first += (array?.row(l, h)?.[0] ?? 0) / 12;
  assert.ok(Math.abs(first - mean[0]) < 1e-6);
});

test("layers that come one frame each are joined in order", () => {
  const run = createRun("t");
  const part = (/** @type {number} */ layer, /** @type {number} */ seq) =>
    parseFrame(tensorMessage({ kind: "attention", seq, t_ns: 0, request: "req-1", position: 1, layer }, new Float32Array([layer, layer + 0.5]), "f32", [1, 1, 2]));
  for (const [seq, layer] of [[0, 1], [1, 0], [2, 2]]) apply(run, part(layer, seq));
  const array = only(run).attention.get(1);
  assert.equal(array?.layers, 3);
  assert.deepEqual([...(array?.row(1, 0) ?? [])], [1, 1.5]);
  assert.deepEqual([...(array?.array ?? [])], [0, 0.5, 1, 1.5, 2, 2.5]);
  assert.deepEqual([...(array?.row(2, 0) ?? [])], [2, 2.5]);
});

test("the oldest arrays are let go of beyond the limit, and said to be", () => {
  const record = only(runOf(syntheticRun(), 3000));
  assert.equal(record.attention.has(0), false);
  assert.match(absentText(whyAbsent(record, "attention", 0)), /^No longer in this page's memory: this page had 2\.93.KiB for arrays and let older ones go/);
  assert.equal(record.attention.has(10), true);
});

test("as a run grows long its events take the arrays' room, down to a least", () => {
  const run = createRun("t");
  assert.equal(arrayRoom(run), ARRAY_LIMIT_BYTES);
  const rooms = [40, 80, 120, 400].map((mib) => arrayRoom({ ...run, textBytes: mib * 2 ** 20 }) / 2 ** 20);
  assert.deepEqual(rooms.map(Math.round), [160, 160, 128, 32]);
  assert.deepEqual(heldBytes({ textBytes: 1000, arrayBytes: 70 }), { events: 800, arrays: 70 });
  assert.equal(arrayRoom({ ...run, arrayLimit: 3000, textBytes: 2 ** 30 }), 3000);
});

test("every event's JSON is counted, and an array that comes again takes the place of the former", () => {
  const messages = syntheticRun();
  const run = runOf(messages);
  const texts = messages.filter((m) => typeof m === "string");
  assert.equal(run.textBytes, texts.reduce((sum, text) => sum + text.length, 0));
  const { arrayBytes, arrayOrder } = run;
  const held = () => [...only(run).attention.values(), ...only(run).residual.values()].reduce((sum, array) => sum + array.byteLength, 0);
  assert.equal(arrayBytes, held());
  const count = arrayOrder.length;
  for (const frame of messages.map(parseFrame)) restore(run, frame);
  assert.deepEqual([run.arrayBytes, run.arrayOrder.length], [arrayBytes, count]);
  assert.equal(run.arrayBytes, held());
});

test("an array that was let go of can be taken back", () => {
  const messages = syntheticRun();
  const run = runOf(messages, 3000);
  const record = only(run);
  const [seq] = record.released.get("attention:0") ?? [];
  const frame = messages.map(parseFrame).find((f) => f.event.seq === seq);
  assert.ok(frame);
  restore(run, frame);
  assert.equal(record.attention.has(0), true);
  assert.equal(record.released.has("attention:0"), false);
});

test("steps and chunks are found by position", () => {
  const record = only(runOf(syntheticRun()));
  assert.equal(rowOf(record, 3)?.phase, "prefill");
  assert.equal(rowOf(record, 9)?.step, 2);
  assert.equal(rowOf(record, 11), null);
  assert.equal(chunkOf(record, 9)?.chunk, 1);
});

test("what is absent says why", () => {
  const run = runOf(syntheticRun({ lens: false }));
  const record = only(run);
  assert.equal(whyAbsent(record, "attention", 11).reason, "no_pass");
  assert.equal(whyAbsent(record, "attention", null).reason, "no_pass");
  assert.equal(whyAbsent(record, "lens", 9).reason, "not_computed");
  const seq = run.lastSeq;
  apply(run, parseFrame(JSON.stringify({ kind: "absent", seq: seq + 1, t_ns: 0, what: "lens", reason: "over_budget", request: "req-1", positions: [4, 10], layers: null, detail: "needs 3 MB" })));
  assert.deepEqual(whyAbsent(record, "lens", 9), { reason: "over_budget", detail: "needs 3 MB" });
  assert.equal(whyAbsent(record, "lens", 10).reason, "not_computed");
  assert.equal(absentText({ reason: "over_budget", detail: "needs 3 MB" }), "Left out: the capture budget was spent: needs 3 MB");
});

test("while a request runs, its newest token's own pass is still to come", () => {
  const record = only(runOf(syntheticRun({ finished: false })));
  assert.equal(whyAbsent(record, "attention", 11).reason, "pending");
});

test("what a recording that breaks off does not hold is not said to be on its way", () => {
  const open = runOf(syntheticRun({ finished: false }));
  assert.equal(toCome(only(open), "running"), "running");
  endRun(open);
  assert.equal(absentText(whyAbsent(only(open), "attention", 11)), "Not in this recording: it ends before the request does");
  assert.equal(toCome(only(open), "running"), "not in this recording, which ends before");
  const whole = runOf(syntheticRun());
  endRun(whole);
  assert.equal(only(whole).cut, false);
  assert.equal(whyAbsent(only(whole), "attention", 11).reason, "no_pass");
});

test("nothing selected is no token", () => {
  const run = runOf(syntheticRun());
  const selection = { run: "t", request: "req-1", position: null, act: /** @type {"chosen"} */ ("chosen"), layer: null, head: null, tab: "lens" };
  assert.equal(selectedToken({ run, selection }), null);
  assert.equal(selectedToken({ run, selection: { ...selection, position: 9 } })?.label, " France");
  assert.equal(selectedToken({ run, selection: { ...selection, position: 99 } }), null);
});

test("the last token of an answer says that it has no pass, also where one had begun before the end was known", () => {
  const run = runOf(syntheticRun());
  const record = only(run);
  assert.match(absentText(whyAbsent(record, "lens", 11)), /No pass: the answer ended with this token, so no pass of its own was run/);
  record.rows.push({ step: 9, phase: "decode", from: 11, to: 12, slot: 0 });
  record.absent.push({ kind: "absent", seq: 0, t_ns: 0, what: "lens", reason: "not_captured", positions: [11, 12], detail: null });
  for (const what of /** @type {const} */ (["lens", "attention", "residual"])) {
    assert.match(absentText(whyAbsent(record, what, 11)), /No pass: the answer ended with this token; a pass over it had begun/);
  }
  assert.equal(whyAbsent(record, "lens", 7).reason, "not_computed");
  assert.equal(absentText(whyAbsent(record, "attention", 99)), "No pass: the request has no such token");
});

test("why a reading is not here is said in the same words everywhere, and they are true of the state", () => {
  const run = runOf(syntheticRun({ lens: false, finished: false }));
  const record = only(run);
  const selection = { run: "t", request: "req-1", position: 9, act: /** @type {"chosen"} */ ("chosen"), layer: null, head: null, tab: "lens", compare: null };
  const state = /** @type {any} */ ({ run, liveRun: run, following: true, selection, connection: { status: "open" } });
  const said = (/** @type {object} */ patch = {}, /** @type {"lens" | "attribution"} */ what = "lens") => absentText(whyNoReading(record, what, 8, standingOf({ ...state, ...patch })));
  assert.equal(said(), "Not yet: it is computed when you pick a token, or the answer is complete");
  assert.equal(said({ following: false }, "attribution"), "Not yet: the engine has been asked for it");
  assert.equal(said({ connection: { status: "retrying" } }), "Not yet: the engine is asked for it once the connection is back");
  assert.equal(said({ liveRun: null }), "Not computed: the residuals are here; `tokenwalk trace bake FILE` adds to a recording what is read from them");
  apply(run, parseFrame(JSON.stringify({ kind: "request.finished", seq: run.lastSeq + 1, t_ns: 0, request: "req-1", reason: "length" })));
  assert.equal(said(), "Not yet: the engine has been asked for it", "nothing streams any more");
  // Another one is followed, and its answer still comes.
  const other = /** @type {any} */ ({ ...record, id: "req-2", finished: null });
  const followed = { ...state, run: { ...run, requests: new Map([["req-2", other]]) }, selection: { ...selection, request: "req-2" } };
  assert.equal(
    absentText(whyNoReading(record, "lens", 8, { ...standingOf(followed), live: true })),
    "Not yet: it is computed when you pick a token, or the followed answer is complete",
  );
  record.refused.set("lens:8", "this run has no request 'req-1', or knows of it no more");
  assert.equal(said(), "The server refused: this run has no request 'req-1', or knows of it no more");
  assert.ok(readingIsOut(record, "lens", 8), "and is not asked again");
  assert.equal(readingIsOut(record, "attribution", 8), false);
});

test("of a request whose layers were never captured that is said of all at once", () => {
  const run = runOf(syntheticRun({ lens: false }));
  const record = only(run);
  assert.equal(whyNoLayers(record), null);
  record.attention.clear();
  record.residual.clear();
  assert.equal(whyNoLayers(record), null, "nobody said why");
  const said = (/** @type {string} */ what, /** @type {[number, number] | null} */ positions) => record.absent.push({ kind: "absent", seq: 0, t_ns: 0, what, reason: "not_captured", positions, detail: "capture level light" });
  said("attention", null);
  said("residual", [0, 4]);
  assert.equal(whyNoLayers(record), null, "others may still come");
  said("residual", null);
  assert.deepEqual(whyNoLayers(record), { reason: "not_captured", detail: "capture level light" });
  record.released.set("attention:3", [7]);
  assert.equal(whyNoLayers(record), null, "what was let go of was here");
});

test("what was reused says so for attention and lens alike, and is not asked for", () => {
  const record = only(runOf(syntheticRun({ lens: false })));
  const said = (/** @type {string} */ what, /** @type {string} */ reason, /** @type {string | null} */ detail) => record.absent.push({ kind: "absent", seq: 0, t_ns: 0, what, reason, positions: [0, 4], detail });
  said("attention", "prefix_cached", "computed by r-1");
  said("residual", "prefix_cached", "computed by r-1");
  said("lens", "not_captured", "no residual of this position is in memory");
  record.residual.clear();
  for (const what of /** @type {const} */ (["attention", "residual", "lens"])) {
    assert.equal(absentText(whyAbsent(record, what, 3)), "Reused from the prefix cache, so no pass was run for it here");
  }
  assert.ok(readingIsOut(record, "lens", 3));
  assert.equal(readingIsOut(record, "lens", 5), false);
});

test("a reading without a residual says why there is no residual, and is asked for until the server has said so", () => {
  const record = only(runOf(syntheticRun({ lens: false })));
  const said = (/** @type {string} */ what, /** @type {string} */ detail) => record.absent.push({ kind: "absent", seq: 0, t_ns: 0, what, reason: "not_captured", positions: [0, 4], detail });
  said("residual", "capture level light");
  assert.equal(whyAbsent(record, "lens", 3).reason, "not_computed", "the residual is here, whatever was said of others");
  record.residual.delete(3);
  assert.equal(absentText(whyAbsent(record, "lens", 3)), "Not captured: capture level light");
  assert.equal(readingIsOut(record, "lens", 3), false);
  said("lens", "no residual of this position is in memory");
  assert.equal(absentText(whyAbsent(record, "lens", 3)), "Not captured: capture level light");
  assert.ok(readingIsOut(record, "lens", 3));
});

test("experts are kept by position, and named with their weights, the heaviest first", () => {
  const run = runOf(syntheticRun());
  const layers = [{ layer: 1, experts: [5, 2], weights: [0.25, 0.75], of: 8 }, { layer: 2, experts: [7, 3], weights: null, of: 8 }];
  apply(run, parseFrame(JSON.stringify({ kind: "router", seq: run.lastSeq + 1, t_ns: 0, request: "req-1", step: 1, position: 4, layers })));
  assert.deepEqual(only(run).router.get(4)?.layers, layers);
  assert.equal(expertsText(layers[0]), "went to experts 2 (× 0.75), 5 (× 0.25) of 8");
  assert.equal(expertsText(layers[1]), "went to experts 3, 7 of 8; how much each one counts is not known");
  assert.equal(run.unknown.size, 0);
});
