/** One step in words and numbers: its rows, its time, and what the scheduler said of requests about then. */

import { fill, h } from "../dom.js";
import { term } from "../explain.js";
import { count, duration, percent, plural } from "../format.js";
import { quotedTitle, requestMark, requestName, shortTitle } from "../requests.js";
import { tokenWord } from "../words.js";
import { utilisation } from "./scheduler-data.js";

/** @typedef {import("./scheduler-data.js").Step} Step */
/** @typedef {import("./scheduler-data.js").Row} Row */
/** @typedef {import("../model.js").Run} Run */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */

/** Rows that are listed; how many more there were is said. */
const MOST_ROWS = 64;

/** @param {Run} run @param {Step} step */
export function stepFacts(run, { started, finished, rows, waiting }) {
  const share = utilisation({ started, finished, rows, waiting, step: started.step, preempted: [] });
  /** @type {import("./facts.js").Fact[]} */
  const facts = [
    ["positions", `${count(started.tokens)} of ${count(started.token_budget)}${share === null ? "" : ` (${percent(share)})`}`, "scheduler.positions"],
    ["slots", `${count(rows.length)} of ${count(run.header?.slots ?? 0)}`, "scheduler.rows"],
    ["waiting", count(waiting), "scheduler.waiting"],
  ];
  if (!finished) {
    facts.push(["step wall", "running", "scheduler.wall", "The step has not ended, or its end is not in the recording"]);
    return facts;
  }
  facts.push(
    ["step wall", duration(finished.eval_ns), "scheduler.wall"],
    // Of a step that is timed operation by operation, building is no part of its own.
    ["build", finished.timing === "barriers" ? "not apart: timed by operation" : duration(finished.build_ns), "scheduler.build"],
    ["sampling", duration(finished.sample_ns), "scheduler.sampling"],
    ["capture, on the host", duration(finished.capture_ns), "scheduler.capture"],
  );
  if (finished.unused_rows) facts.push(["unused", plural(finished.unused_rows, "row"), "scheduler.unused"]);
  return facts;
}

/**
 * @param {Run} run
 * @param {Step} step
 * @param {{followed: string, query: number | null, choose: (record: RequestRecord, row: Row) => void, point: (hover: import("../store.js").Hover) => void}} more
 */
export function rowList(run, step, { followed, query, choose, point }) {
  const rows = [...step.rows].sort((a, b) => a.slot - b.slot);
  const listed = rows.slice(0, MOST_ROWS).map((row) => {
    const record = run.requests.get(row.request);
    const here = row.request === followed && query !== null && row.from <= query && query < row.to;
    const name = h("button", { type: "button", class: "plain link", "aria-label": `Follow ${requestName(run, row.request)} in step ${step.step}`, onclick: () => record && choose(record, row) }, record ? shortTitle(record) : row.request);
    return h(
      "div",
      {
        role: "row",
        "aria-current": here ? "true" : null,
        onpointerenter: () => point(row.request === followed ? { step: step.step, positions: [row.from, row.to] } : { step: step.step }),
        onpointerleave: () => point({}),
      },
      h("span", { role: "cell", class: "num" }, row.slot),
      h("span", { role: "cell", class: "name" }, record ? requestMark(record) : null, name),
      h("span", { role: "cell" }, row.phase === "prefill" ? `prefill ${count(row.from)}–${count(row.to - 1)}` : `decode ${count(row.from)}`),
      h("span", { role: "cell", class: "tokens-of" }, tokensOf(record, row)),
    );
  });
  const head = h("div", { role: "row", class: "head" }, ["slot", "request", term("scheduler.computed", "computed"), "token → chose"].map((text) => h("span", { role: "columnheader" }, text)));
  return [head, ...listed, rows.length > MOST_ROWS ? h("p", { class: "note" }, `and ${plural(rows.length - MOST_ROWS, "more row")}`) : null];
}

/** @param {RequestRecord | undefined} record @param {Row} row */
function tokensOf(record, row) {
  if (!record) return [];
  const input = record.tokens[row.to - 1];
  const chosen = record.tokens[row.to];
  const first = row.to - row.from > 1 ? [record.tokens[row.from] ? tokenWord(record.tokens[row.from]) : "?", " … "] : [];
  return [...first, input ? tokenWord(input) : "?", " → ", chosen?.event ? tokenWord(chosen) : h("span", { class: "muted" }, row.to < record.promptLength ? "more of the prompt" : record.finished ? "nothing: it had ended" : "…")];
}

/**
 * When requests could start and had to give way, with the scheduler's reasons: the newest first. Where they are too many, the
 * followed one's stay in the list, and those of who had to give way.
 * @param {HTMLElement} list
 * @param {Run} run
 * @param {string} followed
 * @param {number} most
 */
export function fillDecisions(list, run, followed, most) {
  const decisions = [...run.requests.values()].flatMap((record) => [
    ...record.admissions.map((event) => ({ record, event, what: "started" })),
    ...record.preemptions.map((event) => ({ record, event, what: "preempted" })),
  ]);
  const listed = listedDecisions(decisions, followed, most);
  const key = `${run.name} ${followed} ${decisions.length}`;
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  fill(
    list,
    listed.map(({ record, event, what }) =>
      h(
        "li",
        { "data-what": what },
        requestMark(record),
        h("span", { class: "num" }, duration(event.t_ns)),
        h("span", null, h("b", null, what), ` ${quotedTitle(record, shortTitle(record))}: `, h("span", { class: "muted" }, named(run, event.reason))),
      ),
    ),
    decisions.length > most ? h("li", { class: "muted" }, `and ${plural(decisions.length - most, "more decision")}`) : null,
  );
}

/**
 * Which decisions are listed, the newest first.
 * @template {{record: {id: string}, event: {t_ns: number}, what: string}} D
 * @param {readonly D[]} decisions @param {string} followed @param {number} most @returns {D[]}
 */
export function listedDecisions(decisions, followed, most) {
  const rank = (/** @type {D} */ d) => (d.record.id === followed ? 0 : d.what === "preempted" ? 1 : 2);
  const newest = (/** @type {D} */ a, /** @type {D} */ b) => b.event.t_ns - a.event.t_ns;
  return [...decisions].sort((a, b) => rank(a) - rank(b) || newest(a, b)).slice(0, most).sort(newest);
}

/** Reasons name requests by their ids; on the page they are known by their prompts. @param {Run} run @param {string} reason */
function named(run, reason) {
  return reason.replace(/\br-[0-9a-f]+\b/g, (id) => (run.requests.has(id) ? requestName(run, id) : id));
}

/** One line for the tip and a screen reader. @param {Run} run @param {Step} step @param {number | null} slot */
export function stepText(run, step, slot) {
  const lines = [`Step ${step.step}: ${plural(step.rows.length, "row")}, ${plural(step.started.tokens, "position")} of ${count(step.started.token_budget)}${step.finished ? `, ${duration(step.finished.eval_ns)}` : ""}`];
  const rows = slot === null ? step.rows : step.rows.filter((row) => row.slot === slot);
  if (slot !== null && !rows.length) lines.push(`slot ${slot}: idle`);
  for (const row of rows.slice(0, 8)) lines.push(`slot ${row.slot}: ${row.phase === "prefill" ? `prefill of ${row.from}–${row.to - 1}` : `decode at ${row.from}`}, ${requestName(run, row.request)}`);
  if (rows.length > 8) lines.push(`and ${plural(rows.length - 8, "more row")}`);
  if (step.waiting) lines.push(`${plural(step.waiting, "request")} waiting`);
  for (const { request, reason } of step.preempted) lines.push(`before it, ${requestName(run, request)} was preempted: ${named(run, reason)}`);
  return lines.join("\n");
}
