// The stations before and after the layers, in words and numbers.

import { h } from "./dom.js";
import { term } from "./explain.js";
import { bytes, count, duration, entropy, hex, measure, ordinal, percent, plural } from "./format.js";
import { readers } from "./insight.js";
import { absentText, endedWith, toCome, whyAbsent } from "./absent.js";
import { candidatesOf } from "./candidates.js";
import { whatIf } from "./fork.js";
import { chunkOf, isCached } from "./model.js";
import { quotedTitle, requestNumber } from "./requests.js";
import { rowElsewhere } from "./reuse.js";
import { tokenName, tokenText } from "./token-names.js";
import { candidateWord, quoted, shareWords, tokenWord, word, wordNodes } from "./words.js";

/** @typedef {import("./walk.js").Pass} Pass */

const DOT = h("span", { class: "dot" }, " · ");

/** What each station is called, and by which key it is explained. */
const KEYS = /** @type {const} */ ({
  text: "walk.text",
  tokenizer: "walk.tokenizer",
  "queue → slot": "walk.queue",
  embedding: "walk.embedding",
  "KV cache": "walk.kv",
  "final norm": "walk.norm",
  logits: "walk.logits",
  sampler: "walk.sampler",
  detokenizer: "walk.detokenizer",
  sent: "walk.sent",
  "led to": "walk.led",
  "read by": "walk.read",
});

/** @param {keyof typeof KEYS} name @param {...import("./dom.js").Single} parts shown with dots between them */
function station(name, ...parts) {
  const shown = parts.filter((part) => part !== null && part !== undefined && part !== false && part !== "");
  return h(
    "div",
    { class: "station" },
    h("dt", null, term(KEYS[name], name)),
    h("dd", null, shown.flatMap((part, i) => (i ? [DOT.cloneNode(true), part] : [part]))),
  );
}

/** @param {string | number} value */
const strong = (value) => h("b", null, String(value));

/** @param {Pass} pass @param {import("./store.js").Store} store */
export function stationsBefore(pass, store) {
  const { input } = pass;
  if (!input) return [station("text", "Nothing came before this token.")];
  return [textStation(pass), tokenizerStation(pass), queueStation(pass, store), embeddingStation(pass)];
}

/** @param {Pass} pass */
function textStation({ input, act }) {
  if (!input) return station("text");
  const from = input.event
    ? "generated, fed back"
    : input.start !== null && input.end !== null && input.end > input.start
      ? `${input.end - input.start === 1 ? "character" : "characters"} ${range(input.start, input.end - 1)} of the prompt`
      : "part of the prompt";
  const place = act === "chosen" ? ["the token before, at ", strong(count(input.position))] : ["at ", strong(count(input.position))];
  const written = input.bytes.length ? h("span", { class: "mono" }, hex(input.bytes)) : "a control token, no bytes";
  return station("text", tokenWord(input), written, h("span", null, ...place), from);
}

/** @param {number} from @param {number} to both included */
function range(from, to) {
  return from === to ? count(from) : `${count(from)}–${count(to)}`;
}

/** @param {Pass} pass */
function tokenizerStation({ run, record, input }) {
  const { kind, vocab } = run.header?.tokenizer ?? {};
  const took = record.tokenized && !input?.event ? `prompt cut into ${plural(record.promptLength, "token")} in ${duration(record.tokenized.duration_ns)}` : null;
  const id = h("span", null, "id ", strong(count(input?.id ?? 0)), vocab ? ` of ${count(vocab)}` : "");
  return station("tokenizer", id, kind, took);
}

/**
 * A part of a station that leads to its panel and, pointed at, shows the same there and in the ribbon.
 * @param {import("./store.js").Store} store
 * @param {string} tab
 * @param {import("./store.js").Hover} hover
 * @param {string} name for a screen reader
 * @param {...import("./dom.js").Single} label
 */
function leadsTo(store, tab, hover, name, ...label) {
  const point = () => store.hover(hover);
  const leave = () => store.hover({});
  return h("button", { type: "button", class: "plain link", "aria-label": name, onclick: () => store.select({ tab }), onpointerenter: point, onpointerleave: leave, onfocus: point, onblur: leave }, ...label);
}

/** @param {Pass} pass @param {import("./store.js").Store} store */
function queueStation({ run, record, query, row }, store) {
  const first = record.rows[0]?.slot ?? record.slot;
  const waited = record.scheduled ? h("span", null, "in ", first === null ? "a slot" : "slot ", first === null ? null : strong(first), ", ", strong(duration(record.scheduled.waited_ns)), " after it arrived") : "waiting";
  if (!row && query !== null && isCached(record, query)) return station("queue → slot", waited, "no pass here: its keys and values were there already");
  if (!row) return station("queue → slot", waited, record.finished ? "no pass of its own" : toCome(record, "its pass has not started"));
  const { started, finished } = run.steps.get(row.step) ?? {};
  const others = (started?.rows.length ?? 1) - 1;
  const unused = query !== null && endedWith(record, query) ? "begun before the answer’s end was known, and not used" : null;
  const work = row.phase === "prefill" ? `step ${count(row.step)}, prefill of ${range(row.from, row.to - 1)}` : `decode step ${count(row.step)}`;
  const words = others > 0 ? `with ${plural(others, "other")}` : "alone";
  const company = leadsTo(store, "scheduler", { step: row.step, positions: [row.from, row.to] }, `${words}: show the step in Scheduler`, words);
  const wall = finished
    ? h("span", { "data-tip": `Step wall: submission until the result was there. Building the graph took ${duration(finished.build_ns)}, sampling ${duration(finished.sample_ns)}, copying captured arrays ${duration(finished.capture_ns)}.` }, `${work}, `, company, ": ", strong(duration(finished.eval_ns)))
    : h("span", null, `${work}, `, company, `: ${toCome(record, "running")}`);
  const timed = h("span", { class: "muted" }, leadsTo(store, "kernels", { step: row.step }, "Where the step’s time went, in Kernels", run.layerTimes.has(row.step) ? "timed by layer" : "not timed"));
  return station("queue → slot", waited, row.slot === first ? null : h("span", null, "now in slot ", strong(row.slot)), wall, unused, timed);
}

/** Why the residual is not here. @param {import("./model.js").RequestRecord} record @param {number | null} query */
function missing(record, query) {
  return absentText(whyAbsent(record, "residual", query));
}

/** @param {Pass} pass */
function embeddingStation({ run, record, query, residual }) {
  if (!residual) return station("embedding", missing(record, query));
  return station("embedding", `${count(residual.keys)} numbers`, h("span", null, "norm ", strong(measure(residual.event.norms[0]))), run.header?.model.dtype);
}

/** @param {Pass} pass @param {import("./store.js").Store} store */
export function stationsAfter(pass, store) {
  const { act, query, target } = pass;
  if (query === null) return [];
  const common = [kvStation(pass, store), normStation(pass), logitsStation(pass, store)];
  if (act === "used") return [...common, ledTo(pass, store), readBy(pass, store)];
  return target ? [...common, samplerStation(target), detokenizerStation(target), sentStation(pass)] : common;
}

/** @param {Pass} pass @param {import("./store.js").Store} store */
function kvStation({ run, record, input, query, row }, store) {
  const { dtype } = run.header?.kv ?? {};
  const layers = run.header?.model.layers;
  const place = query === null ? null : run.blocks?.placeOf(record.id, query);
  const where = place
    ? h("span", { "data-tip": placeTip(place, run) }, leadsTo(store, "memory", { block: place.block, positions: blockSpan(run, place.logical) }, `Block ${place.block}: show it in Memory`, "block ", strong(place.block)), ", offset ", strong(place.offset))
    : `position ${count(query ?? 0)}`;
  if (row && query !== null && endedWith(record, query)) return station("KV cache", "nothing that is read: the answer ended with this token");
  if (row) return station("KV cache", h("span", null, `K and V of ${quoted(input)} written to `, where, `, ${layers ?? "all"} layers`), dtype);
  if (query === null || !isCached(record, query)) return station("KV cache", "nothing written: no pass was run");
  return station("KV cache", h("span", null, `K and V of ${quoted(input)} were there already, in `, where), whoseRow(run, record, query, store), dtype);
}

/**
 * Who computed what was reused, and the way to its row.
 * @param {import("./model.js").Run} run @param {import("./model.js").RequestRecord} record @param {number} query @param {import("./store.js").Store} store
 */
function whoseRow(run, record, query, store) {
  const other = rowElsewhere(run, record, query);
  if (!other) return "computed before what is recorded here";
  const title = `${requestNumber(other)} ${quotedTitle(other)}`;
  const go = () => store.select({ request: other.id, position: query, act: "used" });
  return h("span", null, "computed by ", h("button", { type: "button", class: "plain link", "aria-label": `See the row that ${title} computed`, "data-tip": "See the row that it computed: it begins with the same tokens, and its K and V are the ones read here", onclick: go }, title));
}

/** @param {import("./model.js").Run} run @param {number} logical @returns {[number, number]} positions of a block */
function blockSpan({ blocks }, logical) {
  const size = blocks?.size ?? 1;
  return [logical * size, (logical + 1) * size];
}

/** @param {import("./blocks.js").Placement & {logical: number}} place @param {import("./model.js").Run} run */
function placeTip({ block, how, logical }, run) {
  const came = { allocated: "was free, and was given to this request", reused: "was found by its content in the prefix cache", shared: "is shared with the request that this one branched off", copied: "is a copy: the block it shared may be written by one alone" }[how];
  return `Block ${block} of ${run.blocks?.blocks} ${came}.\nIt is the request’s block ${logical}, counted from 0. A block holds ${run.blocks?.size} positions, of all layers.`;
}

/** @param {Pass} pass */
function normStation({ record, query, residual }) {
  if (!residual) return station("final norm", missing(record, query));
  const { norms } = residual.event;
  return station("final norm", h("span", null, "scales the residual, norm ", strong(measure(norms[norms.length - 1])), ", for the output head"));
}

/** @param {Pass} pass @param {import("./store.js").Store} store */
function logitsStation({ record, target, act }, store) {
  if (target && !target.event) {
    return station("logits", `not needed: the prompt itself says what comes next, ${quoted(target)}`);
  }
  if (!target?.event) return station("logits", record.finished ? "not computed: the answer was over" : toCome(record, "not there yet"));
  const { entropy_bits: bits } = target.event;
  const top = candidatesOf(target.event);
  if (!top.length) return station("logits", "not captured");
  const candidates = top.slice(0, 4).map((/** @type {any} */ c) => {
    const numbers = `logit ${measure(c.logit)} · log-probability ${measure(c.logprob)}`;
    const own = c.id === target.id;
    const shown = own ? candidateWord(c, target, act === "chosen" ? "followed" : "") : whatIf(store, record, target.position, c, numbers);
    return h("span", { class: own ? "candidate is-target" : "candidate", "data-tip": own ? numbers : null }, shown, " ", percent(Math.exp(c.logprob)));
  });
  const rest = top.slice(0, 4).every((/** @type {any} */ c) => c.id !== target.id) ? `${quoted(target)} was ${ordinal(target.event.rank ?? 0)}` : null;
  return station("logits", h("span", { class: "candidates" }, candidates.flatMap((/** @type {HTMLElement} */ candidate) => [candidate, " "])), rest, bits === null ? null : `entropy ${entropy(bits)}`);
}

/** @param {import("./tokens.js").TokenRecord} target */
function samplerStation({ event }) {
  if (!event) return station("sampler", "not generated");
  const { draw, stages, rank } = event;
  if (draw.method === "greedy") {
    return station("sampler", h("span", null, strong("greedy"), ": the largest logit is taken"), rank === null ? null : `rank ${count(rank)}`);
  }
  const steps = stages
    .filter((/** @type {any} */ s) => s.name !== "raw")
    .map((/** @type {any} */ s) => h("span", null, `${stageName(s.name)} `, strong(String(s.value)), filters(s) ? ` keeps ${count(s.kept)} (${percent(s.mass)})` : ""));
  const drawn = typeof draw.u === "number" ? h("span", { "data-tip": `seed ${draw.seed}` }, "drew ", strong(draw.u.toFixed(4)), ` in ${Number(draw.low).toFixed(4)}–${Number(draw.high).toFixed(4)}`) : null;
  return station("sampler", ...steps, drawn, rank === null ? null : `${ordinal(rank)} of the model’s own ranking`);
}

/** @param {{name: string}} stage */
function filters({ name }) {
  return ["top_k", "top_p", "min_p"].includes(name);
}

/** @param {string} name */
function stageName(name) {
  return name.replaceAll("_", name.startsWith("top") || name.startsWith("min") ? "-" : " ");
}

/** @param {import("./tokens.js").TokenRecord} target */
function detokenizerStation({ event, bytes: own }) {
  if (!event) return station("detokenizer", "not generated");
  if (event.special) return station("detokenizer", "a control token: it has no bytes, and is no part of the answer");
  const released = event.text === "" ? "no text yet" : h("span", null, word(event.text), " released");
  const held = event.held_back_bytes ? `${plural(event.held_back_bytes, "byte")} held back` : "nothing held back";
  return station("detokenizer", h("span", { class: "mono" }, hex(own)), released, held);
}

/** @param {Pass} pass */
function sentStation({ record, target }) {
  if (!target?.event) return station("sent");
  const chunk = chunkOf(record, target.position);
  if (!chunk) return station("sent", record.finished ? "no chunk of its own was recorded" : toCome(record, "not sent yet"));
  const later = chunk.sent_ns - target.event.t_ns;
  const way = { sse: "event stream", json: "one JSON answer", stdout: "standard output" }[/** @type {string} */ (chunk.to)] ?? chunk.to;
  return station(
    "sent",
    h("span", null, "chunk ", strong(count(chunk.chunk)), `, ${bytes(chunk.chunk_bytes)}`),
    later >= 0 ? h("span", null, strong(duration(later)), " after it was chosen") : null,
    way,
    chunk.position > target.position ? `together with the tokens up to ${count(chunk.position)}` : null,
  );
}

/** @param {Pass} pass @param {import("./store.js").Store} store */
function ledTo({ record, target, token }, store) {
  if (!target) {
    return station("led to", record.finished ? "nothing: the answer ended with this token, which has only its first act" : toCome(record, "not there yet"));
  }
  const go = h("button", { type: "button", class: "plain link", onclick: () => store.select({ position: target.position }) }, wordNodes(tokenText(target)));
  go.setAttribute("aria-label", `Follow ${tokenName(target)}, position ${target.position}`);
  const how = target.event ? "chosen by this pass" : "given by the prompt";
  return station("led to", h("span", { class: "mono" }, go), `token ${count(token.position + 1)}, ${how}`);
}

/** @param {Pass} pass @param {import("./store.js").Store} store */
function readBy({ record, token }, store) {
  const { shares, captured } = readers(record, token.position, 4);
  if (!shares.length) return station("read by", record.finished ? "no later pass was captured" : toCome(record, "no later token yet"));
  return station("read by", h("span", null, "most by ", shareWords(shares, record, store)), `of ${plural(captured, "later pass", "later passes")}`);
}
