// One run, built by applying its events one at a time. Pure: no DOM, no clock, no network.

import { blockHistory } from "./blocks.js";
import { ARRAY_LIMIT_BYTES, countEvent, keepArray } from "./held.js";
import { appendToken, generatedToken, promptTokens } from "./tokens.js";

/** So many words of a refusal's reason make its title. */
const TITLE_WORDS = 8;

/** @typedef {import("./codec.js").RunEvent} RunEvent */
/** @typedef {import("./codec.js").Frame} Frame */
/** @typedef {import("./tokens.js").TokenRecord} TokenRecord */
/** @typedef {import("./tensors.js").TensorRecord} TensorRecord */

/**
 * One batch row of a step that worked for a request: positions `from` ≤ p < `to` were computed.
 * @typedef {{step: number, phase: "prefill" | "decode", from: number, to: number, slot: number}} StepRow
 */

/** A request in a slot, `to` null while it has it. @typedef {{slot: number, request: string, from: number, to: number | null}} SlotSpan  times in ns */

/**
 * @typedef {object} RequestRecord
 * @property {string} id
 * @property {number} number place in the order of arrival, from 0: gives the request its colour
 * @property {RunEvent | null} arrived
 * @property {RequestRecord | null} parent the one it branched off from
 * @property {RunEvent | null} tokenized
 * @property {RunEvent | null} scheduled the latest time it could start: once more after each preemption
 * @property {RunEvent[]} admissions all of them
 * @property {RunEvent[]} preemptions
 * @property {RunEvent | null} finished
 * @property {RunEvent | null} rejected
 * @property {boolean} cut whether its run is over and the request is not: the recording breaks off, or the server went away
 * @property {number | null} slot the slot it has or last had
 * @property {TokenRecord[]} tokens prompt + answer; index == position
 * @property {number} promptLength
 * @property {import("./tokens.js").OpenPieces | null} open
 * @property {Map<number, TensorRecord>} attention by query position
 * @property {Map<number, TensorRecord>} residual by position
 * @property {Map<number, RunEvent>} lens by position
 * @property {Map<number, RunEvent>} attribution by position
 * @property {Map<number, RunEvent>} router by position, of a model with experts
 * @property {RunEvent[]} sent
 * @property {RunEvent[]} absent
 * @property {StepRow[]} rows
 * @property {Map<string, string>} refused readings that the server would not make: "lens:12", and why
 * @property {Map<string, number[]>} released arrays this page let go of: "attention:12" and the seqs of their frames
 * @property {number} room bytes that all arrays of the run had when one of this request's was let go of last
 */

/**
 * @typedef {object} Run
 * @property {string} name as in the list of traces and in the address
 * @property {RunEvent | null} header
 * @property {string | null} epoch
 * @property {number} lastSeq
 * @property {number} lastTime nanoseconds, of the newest event
 * @property {Map<string, RequestRecord>} requests
 * @property {Map<number, {started: RunEvent | null, finished: RunEvent | null}>} steps
 * @property {number} lastStep the newest of them
 * @property {number} readBytes of a live run: of all messages that came
 * @property {boolean} caughtUp of a live run: whether everything from before the page joined it is here
 * @property {SlotSpan[]} slots who had which slot, in order
 * @property {import("./blocks.js").BlockHistory | null} blocks null where the KV cache is not paged
 * @property {Map<number, Map<number, number>>} layerTimes nanoseconds by step and layer, of steps timed with barriers
 * @property {Map<number, RunEvent[]>} kernels by step, of the same steps
 * @property {RunEvent[]} gaps
 * @property {number} events how many were applied
 * @property {Map<string, number>} unknown kinds that this page does not know, and how many came
 * @property {boolean} complete whether all of it is here (a trace), or it is live
 * @property {number} textBytes of the events, as JSON
 * @property {number} arrayBytes
 * @property {number} arrayLimit
 * @property {{record: RequestRecord, what: "attention" | "residual", position: number}[]} arrayOrder
 */

/**
 * The selection that drives every panel.
 * @typedef {object} Selection
 * @property {string | null} run
 * @property {string | null} request
 * @property {number | null} position
 * @property {"chosen" | "used"} act
 * @property {number | null} layer
 * @property {number | null} head
 * @property {string} tab
 * @property {string | null} compare what is laid beside it: "run/request"
 */

/** @param {string} name @param {number} [arrayLimit] @returns {Run} */
export function createRun(name, arrayLimit = ARRAY_LIMIT_BYTES) {
  return {
    name,
    header: null,
    epoch: null,
    lastSeq: -1,
    lastTime: 0,
    requests: new Map(),
    steps: new Map(),
    lastStep: 0,
    readBytes: 0,
    caughtUp: false,
    slots: [],
    blocks: null,
    layerTimes: new Map(),
    kernels: new Map(),
    gaps: [],
    events: 0,
    unknown: new Map(),
    complete: false,
    textBytes: 0,
    arrayBytes: 0,
    arrayLimit,
    arrayOrder: [],
  };
}

/** Keeps the event of a position. @param {"lens" | "attribution" | "router"} what @returns {(run: Run, frame: Frame) => string} */
const keepEvent = (what) => (run, { event }) => {
  request(run, event)[what].set(event.position, event);
  return what;
};

/** @type {Record<string, (run: Run, frame: Frame) => string>} */
const HANDLERS = {
  "run.header": (run, { event }) => {
    run.header = event;
    run.epoch = event.epoch;
    run.blocks = blockHistory(event);
    return "header";
  },
  "request.arrived": (run, { event }) => {
    const record = request(run, event);
    record.arrived = event;
    record.parent = run.requests.get(event.forked_from?.request) ?? null;
    return "requests";
  },
  "request.tokenized": (run, { event }) => {
    const record = request(run, event);
    const { tokens, open } = promptTokens(event, record.arrived?.text ?? null);
    Object.assign(record, { tokenized: event, tokens, open, promptLength: tokens.length });
    return "tokens";
  },
  "request.scheduled": (run, { event }) => {
    const record = request(run, event);
    record.scheduled = event;
    record.admissions.push(event);
    return "requests";
  },
  "request.finished": (run, { event }) => {
    request(run, event).finished = event;
    return "requests";
  },
  "request.rejected": (run, { event }) => {
    request(run, event).rejected = event;
    return "requests";
  },
  "request.preempted": (run, { event }) => {
    request(run, event).preemptions.push(event);
    return "requests";
  },
  "slot.assigned": (run, { event }) => {
    request(run, event).slot = event.slot;
    run.slots.push({ slot: event.slot, request: event.request, from: event.t_ns, to: null });
    return "requests";
  },
  "slot.released": (run, { event }) => {
    const span = run.slots.findLast(({ slot, request: id }) => slot === event.slot && id === event.request);
    if (span) span.to = event.t_ns;
    return "requests";
  },
  "step.started": (run, { event }) => {
    stepOf(run, event.step).started = event;
    for (const row of event.rows) {
      request(run, row).rows.push({ step: event.step, phase: row.phase, from: row.from, to: row.to, slot: row.slot });
    }
    return "steps";
  },
  "step.finished": (run, { event }) => {
    stepOf(run, event.step).finished = event;
    return "steps";
  },
  token: (run, { event }) => {
    const record = request(run, event);
    record.open = appendToken(record.tokens, generatedToken(event), record.open);
    return "tokens";
  },
  attention: (run, frame) => withArray(run, frame, "attention"),
  "attention.summary": (run, frame) => withArray(run, frame, "attention"),
  residual: (run, frame) => withArray(run, frame, "residual"),
  lens: keepEvent("lens"),
  "stream.sent": (run, { event }) => {
    request(run, event).sent.push(event);
    return "sent";
  },
  attribution: keepEvent("attribution"),
  router: keepEvent("router"),
  // Attribution is made of it where the model is; the page shows that.
  attention_out: () => "attribution",
  kernel: (run, { event }) => {
    const known = run.kernels.get(event.step);
    if (known) known.push(event);
    else run.kernels.set(event.step, [event]);
    if (event.layer === null) return "steps";
    let layers = run.layerTimes.get(event.step);
    if (!layers) run.layerTimes.set(event.step, (layers = new Map()));
    layers.set(event.layer, (layers.get(event.layer) ?? 0) + event.duration_ns);
    return "steps";
  },
  gap: (run, { event }) => {
    run.gaps.push(event);
    return "gaps";
  },
  absent: (run, { event }) => {
    request(run, event).absent.push(event);
    return "absent";
  },
};

/**
 * Applies one event. Events that were already applied (a reconnect can repeat some) change nothing.
 * @param {Run} run
 * @param {Frame} frame
 * @returns {string | null} what changed: header, requests, tokens, steps, blocks, attention, residual, lens, attribution, router, sent, gaps, absent or unknown
 */
export function apply(run, frame) {
  const { event } = frame;
  // A gap is no part of the run; its seq is the last one missing, which a later answer may fill.
  if (event.seq <= run.lastSeq && event.kind !== "gap") return null;
  run.lastSeq = Math.max(run.lastSeq, event.seq);
  run.lastTime = Math.max(run.lastTime, event.t_ns ?? 0);
  run.events += 1;
  countEvent(run, frame);
  if (event.kind.startsWith("block.")) {
    run.blocks?.apply(event);
    return "blocks";
  }
  const handler = HANDLERS[event.kind];
  if (!handler) {
    run.unknown.set(event.kind, (run.unknown.get(event.kind) ?? 0) + 1);
    return "unknown";
  }
  return handler(run, frame);
}

/** The record of the request that an event, or a step's row, names. @param {Run} run @param {Record<string, any>} event @returns {RequestRecord} */
function request(run, event) {
  const known = run.requests.get(event.request);
  if (known) return known;
  /** @type {RequestRecord} */
  const record = {
    id: event.request,
    number: run.requests.size,
    arrived: null,
    parent: null,
    tokenized: null,
    scheduled: null,
    admissions: [],
    preemptions: [],
    finished: null,
    rejected: null,
    cut: false,
    slot: null,
    tokens: [],
    promptLength: 0,
    open: null,
    attention: new Map(),
    residual: new Map(),
    lens: new Map(),
    attribution: new Map(),
    router: new Map(),
    sent: [],
    absent: [],
    rows: [],
    refused: new Map(),
    released: new Map(),
    room: 0,
  };
  run.requests.set(record.id, record);
  return record;
}

/** @param {Run} run @param {number} step */
function stepOf(run, step) {
  let known = run.steps.get(step);
  if (!known) run.steps.set(step, (known = { started: null, finished: null }));
  run.lastStep = Math.max(run.lastStep, step);
  return known;
}

/** @param {Run} run @param {Frame} frame @param {"attention" | "residual"} what @param {boolean} [again] */
function withArray(run, frame, what, again) {
  keepArray(run, request(run, frame.event), frame, what, again);
  return what;
}

/**
 * Takes back an array that was let go of.
 * @param {Run} run
 * @param {Frame} frame
 */
export function restore(run, frame) {
  const what = frame.event.kind === "attention.summary" ? "attention" : frame.event.kind;
  if (what === "attention" || what === "residual") withArray(run, frame, what, true);
}

// --- selectors --------------------------------------------------------------------------------------------------------

/** @param {{run: Run | null, selection: Selection}} state @returns {RequestRecord | null} */
export function selectedRequest({ run, selection }) {
  return (selection.request !== null && run?.requests.get(selection.request)) || null;
}

/** @param {{run: Run | null, selection: Selection}} state @returns {TokenRecord | null} */
export function selectedToken(state) {
  const { position } = state.selection;
  return (position !== null && selectedRequest(state)?.tokens[position]) || null;
}

/**
 * The position whose forward pass the selection is about: the pass at p − 1 chose the token at p, the pass at p used it.
 * @param {Selection} selection
 * @returns {number | null} null where there is none: nothing chose the first token of a prompt
 */
export function queryPosition({ position, act }) {
  if (position === null) return null;
  const query = act === "chosen" ? position - 1 : position;
  return query < 0 ? null : query;
}

/** Whether the token was generated, so that something chose it. @param {RequestRecord} record @param {number} position */
export function isGenerated(record, position) {
  return position >= record.promptLength;
}

/** The step's row in which a position was computed. @param {RequestRecord} record @param {number} position */
export function rowOf(record, position) {
  for (let i = record.rows.length - 1; i >= 0; i -= 1) {
    const row = record.rows[i];
    if (row.from <= position && position < row.to) return row;
  }
  return null;
}

/** Whether the request computed a position itself. @param {RequestRecord} record @param {number} position */
export function hasOwnRow(record, position) {
  return rowOf(record, position) !== null;
}

/** Whether a position's keys and values were there already when the request began. @param {RequestRecord} record @param {number} position */
export function isCached(record, position) {
  return !hasOwnRow(record, position) && record.admissions.some(({ cached_tokens: cached }) => position < cached);
}

/** The chunk that carried a token's text out. @param {RequestRecord} record @param {number} position */
export function chunkOf(record, position) {
  return record.sent.find((sent) => sent.position !== null && sent.position >= position) ?? null;
}

/** @param {RequestRecord} record @returns {"rejected" | "finished" | "decode" | "prefill" | "waiting"} */
export function phaseOf(record) {
  if (record.rejected) return "rejected";
  if (record.finished) return "finished";
  if (record.tokens.length > record.promptLength) return "decode";
  return record.scheduled || record.rows.length ? "prefill" : "waiting";
}

/** Nothing more will come of a run: what has not ended by now never does. @param {Run} run */
export function endRun(run) {
  run.complete = true;
  for (const record of run.requests.values()) record.cut = !record.finished && !record.rejected;
}

/** Whether nothing more will come of a request. @param {RequestRecord} record */
export function isOver({ finished, rejected, cut }) {
  return finished !== null || rejected !== null || cut;
}

/** Words to know a request by. @param {RequestRecord} record @returns {string} */
export function titleOf(record) {
  const { arrived, parent, tokens, rejected } = record;
  if (arrived?.name) return arrived.name;
  if (parent) {
    const at = arrived?.forked_from.position;
    return `“${tokens[at]?.label.trim() ?? "…"}” at ${at}: ${titleOf(parent)}`;
  }
  const asked = arrived?.messages?.filter((/** @type {any} */ message) => message.role === "user").pop()?.content;
  if (typeof asked === "string" && asked.trim()) return asked.trim();
  if (arrived?.text?.trim()) return arrived.text.trim();
  // What is refused at the door is not recorded: why it was is all there is to know it by.
  if (rejected) return `refused: ${firstWords(rejected.reason)}`;
  return arrived?.text ? "a prompt of blanks" : record.id;
}

/** @param {string} text */
function firstWords(text) {
  const words = text.trim().split(/\s+/);
  return words.length > TITLE_WORDS ? `${words.slice(0, TITLE_WORDS).join(" ")}…` : words.join(" ");
}
