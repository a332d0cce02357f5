// Attention of a timed step comes layer by layer: joined, it is what one frame would have been; in part, it says so.

import assert from "node:assert/strict";
import { test } from "node:test";
import { absentText, layersLost, whyAbsent } from "../../frontend/js/absent.js";
import { parseFrame } from "../../frontend/js/codec.js";
import { giveUp, stretches } from "../../frontend/js/held.js";
import { apply, createRun, endRun, restore } from "../../frontend/js/model.js";
import { RowCensus } from "../../frontend/js/panels/attention-census.js";
import { AttentionData } from "../../frontend/js/panels/attention-data.js";
import { paintMatrix } from "../../frontend/js/panels/attention-wall.js";
import { chipText } from "../../frontend/js/ribbon-chips.js";
import { attentionDistance } from "../../frontend/js/panels/compare-data.js";
import { headTable, wallTable } from "../../frontend/js/save/attention.js";
import { TensorRecord } from "../../frontend/js/tensors.js";
import { meanOf } from "../../frontend/js/tensor-words.js";
import { syntheticRun, tensorMessage } from "./synthetic.mjs";

const LAYERS = 3;
const HEADS = 2;
const STEP = 2;

/** @param {Parameters<typeof syntheticRun>[0]} options */
const frames = (options) => syntheticRun({ layers: LAYERS, heads: HEADS, ...options }).map(parseFrame);

/** @param {ReturnType<typeof frames>} all @param {number} [limit] of arrays, bytes */
function runOf(all, limit) {
  const run = createRun("t", limit);
  for (const frame of all) apply(run, frame);
  return run;
}

/** @param {ReturnType<typeof createRun>} run */
const only = (run) => /** @type {import("../../frontend/js/model.js").RequestRecord} */ ([...run.requests.values()][0]);

/** The position that the timed step computed. @param {ReturnType<typeof frames>} all */
const timedPosition = (all) => all.find(({ event }) => event.kind === "attention" && event.step === STEP)?.event.position;

test("the layers of a timed step are joined to what one frame would have been, wherever it is read", () => {
  const timed = frames({ timedSteps: [0, 1, 2, 3] });
  const [whole, parts] = [only(runOf(frames({}))), only(runOf(timed))];
  assert.ok(timed.filter(({ event }) => event.kind === "attention").every(({ event }) => event.shape[0] === 1));
  assert.deepEqual([...parts.attention.keys()], [...whole.attention.keys()]);
  for (const [query, record] of whole.attention) {
    const joined = /** @type {TensorRecord} */ (parts.attention.get(query));
    assert.deepEqual(joined.layerNumbers, [0, 1, 2]);
    assert.deepEqual([...joined.array], [...record.array]);
    assert.deepEqual([...joined.passing()].slice(0, record.array.length), [...record.array]);
    assert.deepEqual([...joined.headMeans()], [...record.headMeans()]);
    assert.deepEqual([...joined.overallMean()], [...record.overallMean()]);
    assert.ok(Math.abs(joined.meanAt(0) - record.meanAt(0)) < 1e-9);
    assert.equal(joined.byteLength, record.byteLength);
    assert.equal(meanOf(joined, LAYERS, HEADS), "all layers and heads");
    for (let layer = 0; layer < LAYERS; layer += 1) assert.equal(attentionDistance(joined, record, layer), 0);
  }
  assert.deepEqual([...wallTable(parts).rows], [...wallTable(whole).rows]);
  const heads = [{ layer: 0, head: 1 }, { layer: 2, head: 0 }];
  assert.deepEqual([...headTable(parts, heads, "mean").rows], [...headTable(whole, heads, "mean").rows]);
  assert.equal(new RowCensus().words(parts, LAYERS), new RowCensus().words(whole, LAYERS));
  const pooled = [whole, parts].map((record) => {
    const data = new AttentionData();
    data.want(record, { layers: LAYERS, heads: HEADS, wallSide: 8, headSide: 300, chosen: [heads[0]], combine: "one" });
    data.fold(Infinity);
    return [[...data.wall.into.values], [...data.wall.into.rows], [...data.head.into.values], [...data.head.into.rows]];
  });
  assert.deepEqual(pooled[0], pooled[1]);
});

test("what is said of a row is what its layer's frame says, and of several the worst", () => {
  const record = /** @type {TensorRecord} */ (only(runOf(frames({ timedSteps: [STEP] }))).attention.get(timedPosition(frames({}))));
  assert.equal(record.about([1]).row_sum_error, 1e-7);
  assert.equal(record.about([0, 2]).row_sum_error, 2e-7);
  assert.equal(record.about().row_sum_error, 2e-7);
  assert.equal(record.about([9]).position, record.event.position, "of a layer that is not here, what is said of the others");
});

test("summaries of single layers are joined: rows, entropies, and what they show of the mass", () => {
  const part = (/** @type {number} */ layer, /** @type {number} */ mass) => {
    const event = { kind: "attention.summary", seq: layer, t_ns: 0, request: "r", step: 1, position: 5, layers: [layer], heads: [0, 2], keys: 6, kept: 1, mass, least_mass: mass / 2, source_dtype: "f32", row_sum_error: 0 };
    return parseFrame(tensorMessage(event, Float32Array.from([layer, 0.5, 0.5, layer + 0.25, 2, 0.75, 0.25, layer + 0.5]), "f32", [1, 2, 4]));
  };
  const record = new TensorRecord(part(1, 0.5));
  for (const [layer, mass] of [[3, 0.75], [0, 1]]) record.add(part(layer, mass));
  assert.deepEqual(record.summary, { kept: 1, keys: 6, mass: 0.75, leastMass: 0.25 });
  assert.deepEqual([0, 1, 3].map((layer) => record.entropyBits(layer, 2)), [0.5, 1.5, 3.5]);
  assert.equal(record.entropyBits(2, 2), null);
  assert.equal(record.entropyBits(1, 1), null);
  assert.deepEqual([...(record.row(3, 0) ?? [])], [0, 0, 0, 0.5, 0, 0]);
});

/** A run that breaks off after the first layer of a timed step. */
function brokenOff() {
  const all = frames({ timedSteps: [STEP] });
  const first = all.findIndex(({ event }) => event.kind === "attention" && event.step === STEP);
  return { all: all.slice(0, first + 1), position: all[first].event.position };
}

test("a position of which only some layers came says so, and the others are hatched and no zeros", () => {
  const { all, position } = brokenOff();
  const run = runOf(all);
  const record = only(run);
  assert.equal(layersLost(record, position, LAYERS), 2);
  assert.match(absentText(whyAbsent(record, "attention", position, { layer: 1, head: 0 })), /^Not yet: its step is timed, and each layer comes when it has finished/);
  endRun(run);
  assert.match(absentText(whyAbsent(record, "attention", position, { layer: 1, head: 0 })), /^Not in this recording: it ends within this pass/);
  const census = new RowCensus();
  assert.match(census.words(record, LAYERS), new RegExp(`In part, 1: of the pass at ${position}, 1 of 3 layers\\. Not in this recording: it ends within`));
  assert.match(census.brief, /1 in part/);
  assert.equal(meanOf(/** @type {any} */ (record.attention.get(position)), LAYERS, HEADS), "the 1 layer and 2 heads captured");
  const data = new AttentionData();
  data.want(record, { layers: LAYERS, heads: HEADS, wallSide: 64, headSide: 300, chosen: [{ layer: 1, head: 0 }], combine: "one" });
  data.fold(Infinity);
  const { into } = data.wall;
  const cell = into.cellOf[position];
  assert.deepEqual(Array.from({ length: LAYERS * HEADS }, (_, matrix) => into.rows[matrix * into.size + cell]), [1, 1, 0, 0, 0, 0]);
  assert.equal(data.head.into.rows[position], 0, "the chosen head's matrix lacks it too");
  const hatched = new Uint32Array([7, 7]);
  const paint = { table: new Uint32Array(65536).fill(1), absent: hatched, future: 0, hideSink: false };
  const pixels = [0, 1].map((layer) => {
    const buffer = new Uint32Array(into.size * into.size);
    paintMatrix(into, layer * HEADS, record.tokens.length, paint, buffer, into.size, 0, into.size);
    return buffer[cell * into.size];
  });
  assert.deepEqual(pixels, [1, 7]);
  const written = [...wallTable(record).rows].filter((row) => row[0] === position);
  assert.deepEqual(new Set(written.map((row) => row[1])), new Set([0]));
});

test("layers that the plan leaves out are not said to be lost", () => {
  const { all, position } = brokenOff();
  const record = only(runOf(all));
  record.absent.push(/** @type {any} */ ({ what: "attention", reason: "not_captured", positions: null, layers: [1, 2], heads: null, detail: "the plan" }));
  assert.equal(layersLost(record, position, LAYERS), 0);
  assert.doesNotMatch(new RowCensus().words(record, LAYERS), /In part/);
});

test("all layers of a position are let go of together, and come back together", () => {
  const all = frames({ timedSteps: [0, 1, 2, 3] });
  const run = runOf(all, 1500);
  const record = only(run);
  const seqs = record.released.get("attention:0") ?? [];
  assert.equal(seqs.length, LAYERS);
  assert.deepEqual(all.filter(({ event }) => seqs.includes(event.seq)).map(({ event }) => [event.position, event.layer]), [[0, 0], [0, 1], [0, 2]]);
  for (const frame of all.filter(({ event }) => seqs.includes(event.seq))) restore(run, frame);
  assert.deepEqual(record.attention.get(0)?.layerNumbers, [0, 1, 2]);
  assert.equal(record.released.has("attention:0"), false);
  const held = [...record.attention.values(), ...record.residual.values()].reduce((sum, array) => sum + array.byteLength, 0);
  assert.equal(run.arrayBytes, held);
});

test("a layer that comes after the first ones were let go of does not stand for all of them", () => {
  const all = frames({ timedSteps: [0] });
  const own = all.filter(({ event }) => event.kind === "attention" && event.step === 0);
  const others = all.filter((frame) => !own.includes(frame) && frame.event.kind !== "residual");
  // A long prompt's layers: all positions of one, then all of the next; there is room for a few.
  const byLayer = [...own].sort((a, b) => a.event.layer - b.event.layer).map((frame, i) => Object.assign(frame, { event: { ...frame.event, seq: 1000 + i } }));
  const run = runOf([...others, ...byLayer], 200);
  const record = only(run);
  for (const [position, array] of record.attention) assert.deepEqual([position, array.layerNumbers], [position, [0, 1, 2]]);
  assert.equal(record.released.get("attention:0")?.length, LAYERS);
  assert.equal(whyAbsent(record, "attention", 0, { layer: 1 }).reason, "released");
});

test("what cannot be fetched again is given up, and not asked for for ever", () => {
  const run = runOf(frames({ timedSteps: [0] }), 1500);
  const record = only(run);
  const seqs = record.released.get("attention:0") ?? [];
  giveUp(record, seqs.slice(1));
  assert.deepEqual(record.released.get("attention:0"), seqs.slice(0, 1));
  giveUp(record, seqs);
  assert.equal(record.released.has("attention:0"), false);
  assert.equal(whyAbsent(record, "attention", 0).reason, "not_recorded");
});

test("frames that lie near each other are fetched at once, and those of a long prompt's layers one by one", () => {
  assert.deepEqual(stretches([12, 10, 11, 40]), [[10, 40]]);
  assert.deepEqual(stretches([1000, 10, 300]), [[10, 10], [300, 300], [1000, 1000]]);
});

test("each layer that comes makes another record, so that what was drawn before is not taken for all there is", () => {
  const all = frames({ timedSteps: [STEP] });
  const run = createRun("t");
  const seen = new Set();
  const position = timedPosition(all);
  for (const frame of all) {
    apply(run, frame);
    const record = [...run.requests.values()][0]?.attention.get(position ?? -1);
    if (record && frame.event.kind === "attention") seen.add(record);
  }
  assert.ok(seen.size >= LAYERS);
  assert.deepEqual(only(run).attention.get(position ?? -1)?.layerNumbers, [0, 1, 2]);
});

test("the tips of the ribbon name what their means are of", () => {
  const { all, position } = brokenOff();
  const run = runOf(all);
  const record = only(run);
  const state = /** @type {any} */ ({ run, selection: { position, act: "used" } });
  assert.match(chipText(record, 1, state), /mean of the 1 layer and 2 heads captured/);
  assert.match(chipText(record, 1, { ...state, selection: { position: position - 1, act: "used" } }), /mean of all layers and heads/);
});
