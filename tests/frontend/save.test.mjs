// Saving: CSV that a spreadsheet cannot be tricked with, SVG that any XML reader takes, names, and figures that count what they leave out.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ramp } from "../../frontend/js/colour.js";
import { parseFrame } from "../../frontend/js/codec.js";
import { createRun, apply } from "../../frontend/js/model.js";
import { PooledMatrices } from "../../frontend/js/panels/attention-pool.js";
import { makeScale } from "../../frontend/js/colour.js";
import { sampling } from "../../frontend/js/panels/logits-stages.js";
import { StepLog } from "../../frontend/js/panels/scheduler-data.js";
import { wireRows } from "../../frontend/js/panels/wire-data.js";
import { colouringOf } from "../../frontend/js/ribbon-colours.js";
import { headFigure, headTable, labelsOf, wallFigure, wallTable } from "../../frontend/js/save/attention.js";
import { compareFigure, compareTable } from "../../frontend/js/save/compare.js";
import { kernelsFigure, kernelsTable } from "../../frontend/js/save/kernels.js";
import { whyFigure, whyTable } from "../../frontend/js/save/why.js";
import { layerPairs } from "../../frontend/js/panels/compare-data.js";
import { split, stepTimes } from "../../frontend/js/panels/kernels-data.js";
import { logitParts } from "../../frontend/js/panels/why-data.js";
import { csvCell, csvParts } from "../../frontend/js/save/csv.js";
import { Drawing, escapeXml, fitted, textWidth, wrapped } from "../../frontend/js/save/drawing.js";
import { drawFigure, subjectOf } from "../../frontend/js/save/figure.js";
import { lensFigure, lensTable } from "../../frontend/js/save/lens.js";
import { REQUEST_COLOURS } from "../../frontend/js/requests.js";
import { logitsFigure, logitsTable } from "../../frontend/js/save/logits.js";
import { ribbonFigure, ribbonTable } from "../../frontend/js/save/ribbon.js";
import { fileName, fineness } from "../../frontend/js/save/save.js";
import { schedulerFigure, schedulerTable } from "../../frontend/js/save/scheduler.js";
import { walkFigure, walkTable } from "../../frontend/js/save/walk.js";
import { wireFigure, wireTable } from "../../frontend/js/save/wire.js";
import { syntheticRun } from "./synthetic.mjs";

const HOSTILE = ["=HYPERLINK(\"http://x\")", "+1", "-2", "@SUM(A1)", "\tcmd", "<script>alert(1)</script>", "a,b", 'say "hi"', "\r\n", "\u0000\u0008", "]]>&amp;"];

const INK = { theme: "dark", background: "#000", raised: "#111", text: "#fff", muted: "#999", faint: "#777", line: "#333", strong: "#555", followed: "#fa0", onFollowed: "#000", attention: "#00f", mlp: "#f80", bar: "#888", warn: "#f00", ramp: ramp("dark", [0, 0, 0]), requests: Array.from({ length: REQUEST_COLOURS }, (_, i) => `#00${i}`) };

/** @param {Parameters<typeof syntheticRun>[0]} [options] */
function loaded(options) {
  const run = createRun("made <up>");
  for (const message of syntheticRun(options)) apply(run, parseFrame(typeof message === "string" ? message : message.buffer));
  const record = [...run.requests.values()][0];
  const state = { run, selection: { run: run.name, request: record.id, position: record.promptLength, act: "chosen", layer: 1, head: 1, tab: "attention" } };
  return { run, record, state };
}

/** A CSV read back: RFC 4180. @param {string} text @returns {string[][]} */
function readCsv(text) {
  const rows = [[""]];
  let quoted = false;
  for (let i = 0; i < text.length; i += 1) {
    const c = text[i];
    const row = rows[rows.length - 1];
    if (quoted && c === '"' && text[i + 1] === '"') row[row.length - 1] += text[(i += 1)];
    else if (c === '"') quoted = !quoted;
    else if (!quoted && c === ",") row.push("");
    else if (!quoted && c === "\r" && text[i + 1] === "\n") rows.push([""]) && (i += 1);
    else row[row.length - 1] += c;
  }
  assert.equal(quoted, false, "a quote is left open");
  assert.deepEqual(rows.pop(), [""], "the last line has its end");
  return rows;
}

/** The elements of an SVG: balanced, all of kinds that drawing programs know. @param {string} svg */
function checkSvg(svg) {
  assert.doesNotMatch(svg, /foreignObject|<script|<style|<image|on[a-z]+=|[\u0000-\u0008\u000b\u000c\u000e-\u001f]/);
  /** @type {string[]} */
  const open = [];
  for (const [, close, name, rest] of svg.matchAll(/<(\/?)([a-z]+)((?:"[^"]*"|[^">])*)>/gi)) {
    assert.ok(["svg", "title", "defs", "pattern", "g", "rect", "path", "line", "polygon", "text"].includes(name), name);
    assert.doesNotMatch(rest, /NaN|undefined|Infinity/, `${name}${rest}`);
    if (close) assert.equal(open.pop(), name);
    else if (!rest.endsWith("/")) open.push(name);
  }
  assert.deepEqual(open, []);
  assert.doesNotMatch(svg.replace(/&(amp|lt|gt|quot);/g, ""), /&/, "a bare ampersand");
}

/** @param {Omit<import("../../frontend/js/save/figure.js").Figure, "of">} figure */
function drawn(figure) {
  const made = drawFigure({ ...figure, of: "of what" }, INK);
  checkSvg(made.svg);
  return made.svg;
}

test("no text becomes a formula, and every text can be read back", () => {
  for (const text of HOSTILE) {
    const [[back, after]] = readCsv(`${csvCell(text)},x\r\n`);
    assert.doesNotMatch(back, /^[=+\-@\t\r\n]/);
    assert.equal(back.replace(/^'/, ""), text);
    assert.equal(after, "x");
  }
  assert.equal(csvCell(-0.5), "-0.5", "a number is no formula");
  assert.deepEqual([Infinity, -Infinity, NaN, null, undefined, true].map(csvCell), ["inf", "-inf", "nan", "", "", "true"]);
});

test("a long table comes in parts that join to the whole", () => {
  const parts = csvParts({ columns: ["n", "square (1)"], rows: (function* rows() { for (let n = 0; n < 10_000; n += 1) yield [n, n * n]; })() });
  assert.ok(parts.length > 2);
  const read = readCsv(parts.join("").replace("\ufeff", ""));
  assert.deepEqual([read.length, read[0], read[10_000]], [10_001, ["n", "square (1)"], ["9999", "99980001"]]);
});

test("token text is text in the drawing, whatever it is", () => {
  const drawing = new Drawing(100, 100, "#000");
  for (const text of [...HOSTILE, "\ud800", "🇫🇷"]) drawing.text(0, 0, text, {});
  checkSvg(drawing.svg('"><x>', "#fff"));
  assert.equal(escapeXml("<&\">\u0001"), "&lt;&amp;&quot;&gt;\ufffd");
});

test("cells of one colour in a row are one rectangle", () => {
  const drawing = new Drawing(10, 10, "#000");
  drawing.cells(0, 0, 4, 2, 1, 1, (column, row) => (row === 0 ? "red" : column < 2 ? "blue" : null));
  assert.equal((drawing.parts[0].match(/M/g) ?? []).length, 2);
  assert.match(drawing.parts[0], /M0 0h4v1h-4z/);
});

test("text is cut where it would not fit, and says so; words are wrapped and none is lost", () => {
  assert.equal(fitted("short", 100, 11), "short");
  const cut = fitted("a rather long text", 40, 11);
  assert.match(cut, /…$/);
  assert.ok(textWidth(cut, 11) <= 40);
  const words = "one two three four five six seven";
  assert.equal(wrapped(words, 60, 11).join(" "), words);
});

test("files are named after what they show, with nothing that a file system minds", () => {
  assert.equal(fileName({ run: "capital", request: "r-1", position: 48 }, "lens", "svg"), "tokenwalk-capital-r-1-48-lens.svg");
  assert.equal(fileName({ run: "../../etc/pass wd", request: null, position: null }, "walk", "csv"), "tokenwalk-etc-pass-wd-none-none-walk.csv");
  assert.equal(fineness(1000, 500), 2);
  assert.equal(fineness(20_000, 100) * 20_000, 16_384);
});

test("figures of a run with hostile tokens are lawful, and tell what they are of", () => {
  const { run, record, state } = loaded({ prompt: ["<|im_start|>", ...HOSTILE], answer: [...HOSTILE, "<|im_end|>"] });
  for (const mode of ["attention", "probability", "entropy", "role", "block", "cached"]) drawn(ribbonFigure(record, state, colouringOf(mode, record, state), INK));
  drawn(lensFigure(record, { query: 4, layer: 1, layers: 4, shade: "rank", vocabulary: 256 }, INK));
  const drawnToken = record.tokens[record.promptLength];
  const { event } = drawnToken;
  drawn(logitsFigure(drawnToken, event, sampling(event), INK));
  drawn(wireFigure(wireRows(record).rows, record.promptLength, 1e6, INK));
  const { steps } = new StepLog().update(run);
  drawn(schedulerFigure({ run, steps, slots: 1, picked: 0, current: 0, mostWaiting: 0 }, INK));
  const matrices = new PooledMatrices(12, record.tokens.length, 8);
  const picture = { matrices, tokens: record.tokens.length, scale: makeScale("log", 1), hideSink: true };
  assert.match(drawn(wallFigure(picture, { layers: 4, heads: 3, layer: 1, head: 1 }, "some rows.", INK)), /shows the largest/);
  drawn(headFigure(picture, { title: "Layer <1>", query: 4, label: labelsOf(record), facts: "" }, INK));
  assert.match(subjectOf(state, record), /made <up>/);
});

test("a figure says how much it leaves out, and the table has all", () => {
  const { run, record } = loaded({ answer: [...Array.from({ length: 260 }, (_, i) => `t${i}`), "<|im_end|>"], layers: 1, heads: 1 });
  assert.match(drawn(lensFigure(record, { query: 100, layer: 0, layers: 1, shade: "probability", vocabulary: 256 }, INK)), /229 more positions not in this figure/);
  assert.match(drawn(wireFigure(wireRows(record).rows, 100, 1e6, INK)), /201 more tokens of the answer not in this figure/);
  const { steps } = new StepLog().update(run);
  assert.match(drawn(schedulerFigure({ run, steps, slots: 1, picked: 100, current: null, mostWaiting: 0 }, INK)), /61 more steps not in this figure/);
  assert.equal([...lensTable(record).rows].length, 261 * 2);
  assert.equal([...wireTable(wireRows(record).rows).rows].length, 261);
  assert.equal([...schedulerTable(run, steps).rows].length, 261);
});

test("tables have a column to each value, and the numbers that were recorded", () => {
  const { run, record, state } = loaded();
  const event = record.tokens[record.promptLength].event;
  const attention = record.attention.get(7);
  const pass = { run, record, act: "chosen", token: record.tokens[8], query: 7, input: record.tokens[7], target: record.tokens[8], attention, residual: record.residual.get(7), lens: record.lens.get(7), row: record.rows[0] };
  const tables = {
    ribbon: ribbonTable(record, state), lens: lensTable(record), logits: logitsTable(event, sampling(event)), wire: wireTable(wireRows(record).rows),
    scheduler: schedulerTable(run, new StepLog().update(run).steps), wall: wallTable(record), head: headTable(record, [{ layer: 1, head: 2 }], "one"), walk: walkTable(pass, [{ name: "text", text: "x" }]),
  };
  /** @type {Record<string, any[]>} */
  const read = {};
  for (const [name, { columns, rows }] of Object.entries(tables)) {
    const all = [...rows];
    read[name] = all;
    assert.ok(all.length > 0, name);
    for (const row of all) assert.equal(row.length, columns.length, `${name}: ${row}`);
  }
  const weights = read.head.filter(([, query]) => query === 7).map((row) => row[5]);
  assert.deepEqual(weights, [...attention.row(1, 2)]);
  const looked = read.walk.filter((row) => row[2] === "attention" && row[1] === 2);
  assert.deepEqual(looked.map((row) => row[5]), [...attention.headMeans().subarray(16, 24)]);
});

test("a table of too many weights is cut at whole rows, and its last line says how much is missing", () => {
  const { record } = loaded();
  const all = [...wallTable(record).rows].length;
  const cut = [...wallTable(record, 200).rows];
  assert.ok(cut.length <= 201);
  assert.match(String(cut.at(-1)?.[0]), new RegExp(`^cut: ${all - (cut.length - 1)} more weights are not in this file`));
});

test("why, kernels and compare are drawn and listed from their numbers", () => {
  const { run, record } = loaded();
  const event = { components: [{ layer: null, component: "embedding", value: 0.5 }, ...[0, 1, 2, 3].flatMap((layer) => [{ layer, component: "attention", value: layer - 1.5, heads: [1, 2, layer - 4.5] }, { layer, component: "mlp", value: 0.25 }])] };
  const why = { record, query: 8, parts: logitParts(event), logit: 9, lens: record.lens.get(8), attention: record.attention.get(8), layers: 4, vocabulary: 256 };
  assert.match(drawn(whyFigure(why, INK)), /one linear scale, to 1\.50 either way/);
  const parts = [...whyTable(why).rows].filter((row) => row[6] === "part of the logit" && row[0] !== "attention head");
  assert.equal(parts.reduce((sum, row) => sum + Number(row[5]), 0), 0.5 + 1);
  const kernels = [0, 1].flatMap((layer) => ["attention", "mlp"].map((operation, i) => ({ layer, operation, duration_ns: 1000 * (layer + 1) * (i + 1) })));
  const finished = run.steps.get(0).finished;
  const step = { step: 0, finished, parts: split(finished), times: stepTimes(kernels, 2, null) };
  drawn(kernelsFigure(step, INK));
  assert.deepEqual([...kernelsTable(step).rows].filter((row) => row[2] === 1).map((row) => row[3]), [2000, 4000]);
  const other = loaded({ answer: ["In", " Spain", ".", "<|im_end|>"] }).record;
  const pair = { a: record, b: other, names: ["one", "other"], common: 9, byId: false, position: 9, query: 8, compared: layerPairs(record, other, 8, 4, false) };
  drawn(compareFigure(pair, INK));
  const rows = [...compareTable(pair).rows];
  assert.deepEqual(rows.filter((row) => row[0] === "token" && row[5] === false).map((row) => row.slice(3, 5)), [[" France", " Spain"]]);
  for (const table of [whyTable(why), kernelsTable(step), compareTable(pair)]) for (const row of table.rows) assert.equal(row.length, table.columns.length);
});

test("a walk of which no layer was captured has no empty rows", () => {
  const { run, record } = loaded({ lens: false });
  const pass = /** @type {any} */ ({ run, record, act: "chosen", token: record.tokens[8], query: 7, input: record.tokens[7], target: record.tokens[8], attention: null, residual: null, lens: null, row: record.rows[0] });
  const words = { verdict: "", before: [{ name: "text", text: "x" }], after: [] };
  const drawn = () => drawFigure({ ...walkFigure(pass, words, 1, /** @type {any} */ (INK)), of: "it" }, /** @type {any} */ (INK));
  const whole = drawn();
  assert.match(whole.svg, /best guess here/);
  record.attention.clear();
  record.residual.clear();
  for (const what of ["attention", "residual"]) record.absent.push({ kind: "absent", seq: 0, t_ns: 0, what, reason: "not_captured", positions: null, detail: "capture level light" });
  const none = drawn();
  assert.doesNotMatch(none.svg, /best guess here|Bars: L2/);
  assert.match(none.svg, /Not in this figure because it is not here: attention, residual, lens/);
  assert.ok(none.height < whole.height - 4 * 14);
});
