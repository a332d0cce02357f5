/** What the scheduler did, step by step: which request was in which slot, what each row computed, who waited, who had to give way. */

import { isGenerated, queryPosition, rowOf } from "../model.js";

/** @typedef {import("../model.js").Run} Run */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("../model.js").Selection} Selection */
/** @typedef {import("../codec.js").RunEvent} RunEvent */

/** @typedef {{request: string, slot: number, phase: "prefill" | "decode", from: number, to: number}} Row */

/**
 * One step of the run.
 * @typedef {object} Step
 * @property {number} step
 * @property {RunEvent} started
 * @property {RunEvent | null} finished
 * @property {Row[]} rows
 * @property {number} waiting requests that waited when it started
 * @property {{request: string, slot: number | null, reason: string}[]} preempted in the time before it, since the step before
 */

/** @typedef {{from: number, to: number, request: string}} Wait  nanoseconds; to is Infinity while it lasts */

/**
 * When requests waited: from arrival, or from giving way, until they could start, ended, or were refused.
 * @param {Run} run
 * @returns {Wait[]}
 */
export function waits(run) {
  /** @type {Wait[]} */
  const found = [];
  for (const record of run.requests.values()) {
    const end = record.finished?.t_ns ?? record.rejected?.t_ns ?? Infinity;
    const starts = [record.arrived?.t_ns, ...record.preemptions.map((event) => event.t_ns)];
    for (const from of starts) {
      if (from === undefined) continue;
      const to = record.admissions.find(({ t_ns: t }) => t >= from)?.t_ns ?? end;
      found.push({ from, to, request: record.id });
    }
  }
  return found.sort((a, b) => a.from - b.from);
}

/** The steps of a run in order; kept up to date at the price of what is new. */
export class StepLog {
  constructor() {
    /** @type {Run | null} */
    this.run = null;
    /** @type {Step[]} */
    this.steps = [];
    /** Place in `steps`, by the step's number. @type {Map<number, number>} */
    this.index = new Map();
    this.summary = new Summary();
    /** Steps whose end is still to come. @type {Set<Step>} */
    this.open = new Set();
  }

  /** @param {Run} run */
  update(run) {
    if (run !== this.run) Object.assign(this, { run, steps: [], index: new Map(), summary: new Summary(), open: new Set() });
    if (run.steps.size === this.steps.length) return this.close();
    const fresh = [...run.steps].slice(this.steps.length);
    const waiting = waits(run);
    const preemptions = preemptionsOf(run);
    for (const [number, { started, finished }] of fresh) {
      // Its start is missing: its events were dropped, and what it did is not known.
      const before = this.steps.at(-1)?.started.t_ns ?? -Infinity;
      const t = started?.t_ns ?? finished?.t_ns ?? 0;
      this.index.set(number, this.steps.length);
      /** @type {Step} */
      const step = {
        step: number,
        started: started ?? { kind: "step.started", seq: -1, t_ns: t, step: number, rows: [], tokens: 0, token_budget: 0 },
        finished: null,
        rows: started?.rows ?? [],
        waiting: waiting.filter(({ from, to }) => from <= t && t < to).length,
        preempted: preemptions.filter((p) => before < p.t_ns && p.t_ns <= t),
      };
      this.steps.push(step);
      this.summary.add(step);
      this.open.add(step);
    }
    return this.close();
  }

  /** Gives the steps that ended since then their end. */
  close() {
    for (const step of this.open) {
      const finished = this.run?.steps.get(step.step)?.finished;
      if (!finished) continue;
      step.finished = finished;
      this.summary.end(finished);
      this.open.delete(step);
    }
    return this;
  }
}

/** @param {Run} run @returns {{request: string, slot: number | null, reason: string, t_ns: number}[]} */
function preemptionsOf(run) {
  return [...run.requests.values()].flatMap((record) =>
    record.preemptions.map(({ t_ns: t, reason }) => ({ request: record.id, slot: slotAt(run, record.id, t), reason, t_ns: t })),
  );
}

/** The slot that a request had at a moment, or gave up just then. @param {Run} run @param {string} request @param {number} moment */
export function slotAt(run, request, moment) {
  return run.slots.findLast((span) => span.request === request && span.from <= moment)?.slot ?? null;
}

/**
 * The step of the followed pass.
 * @param {RequestRecord} record
 * @param {Selection} selection
 * @returns {number | null}
 */
export function followedStep(record, selection) {
  const query = queryPosition(selection);
  if (query === null) return null;
  return rowOf(record, query)?.step ?? null;
}

/**
 * What to follow when a row is picked: the token it chose, or of a chunk of the prompt that chose none, its last token.
 * @param {RequestRecord} record
 * @param {Row} row
 * @returns {{request: string, position: number, act: "chosen" | "used"}}
 */
export function selectionOf(record, row) {
  const next = row.to;
  if (isGenerated(record, next) && record.tokens[next]) return { request: record.id, position: next, act: "chosen" };
  return { request: record.id, position: Math.max(0, Math.min(record.tokens.length, row.to) - 1), act: "used" };
}

/** Share of the step's budget of positions that was used. @param {Step} step @returns {number | null} */
export function utilisation({ started }) {
  return started.token_budget > 0 ? started.tokens / started.token_budget : null;
}

/** The run in numbers; steps are added one at a time. */
export class Summary {
  constructor() {
    this.steps = 0;
    this.rows = 0;
    this.prefill = 0;
    this.decode = 0;
    this.preempted = 0;
    this.unused = 0;
    this.mostWaiting = 0;
  }

  /** @param {Step} step all but its end, which comes later: `end` */
  add(step) {
    this.steps += 1;
    this.rows += step.rows.length;
    this.preempted += step.preempted.length;
    this.mostWaiting = Math.max(this.mostWaiting, step.waiting);
    for (const row of step.rows) {
      if (row.phase === "prefill") this.prefill += row.to - row.from;
      else this.decode += row.to - row.from;
    }
  }

  /** @param {RunEvent} finished */
  end(finished) {
    this.unused += finished.unused_rows;
  }

  /** Share of the slots that had a row, over all steps. @param {number} slots @returns {number | null} */
  utilisation(slots) {
    return this.steps && slots ? this.rows / (this.steps * slots) : null;
  }
}
