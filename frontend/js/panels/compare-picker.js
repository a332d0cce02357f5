/** Which request lies beside the followed one: of this run, of the live one, or of any recording. */

import { candidates, formatCompare, parseCompare } from "../compare.js";
import { fill, h, setText } from "../dom.js";
import { count, plural } from "../format.js";
import { titleOf } from "../model.js";
import { requestMark, requestNumber } from "../requests.js";

/** @typedef {import("../store.js").State} State */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */

/** Requests that are suggested. */
const SUGGESTED = 5;

export class Picker {
  /** @param {{onChoose: (compare: string | null) => void}} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    this.recording = h("select", { "aria-label": "Recording to compare with", onchange: () => handlers.onChoose(this.recording.value ? formatCompare(this.recording.value, "") : null) });
    this.request = h("select", { "aria-label": "Request to compare with", onchange: () => handlers.onChoose(formatCompare(this.recording.value, this.request.value)) });
    this.root = h("span", { class: "picker" }, this.recording, this.request);
    this.suggestions = h("ul", { class: "suggestions", "aria-label": "Requests to compare with" });
  }

  /** @param {State} state @param {RequestRecord} record the followed one */
  draw(state, record) {
    const { run, compareRun, selection } = state;
    const wanted = parseCompare(selection.compare);
    const runs = runsToOffer(state);
    options(this.recording, [["", "choose…"], ...runs], wanted?.run ?? "");
    const here = compareRun && wanted?.run === compareRun.name && run ? candidates(run, compareRun, record) : [];
    this.request.disabled = here.length === 0;
    const names = [...here].sort((a, b) => a.record.number - b.record.number).map(({ record: other }) => /** @type {[string, string]} */ ([other.id, `${requestNumber(other)} ${short(titleOf(other))}`]));
    options(this.request, names.length ? [...(wanted?.request ? [] : [/** @type {[string, string]} */ (["", "choose…"])]), ...names] : [["", wanted ? "no other request" : "–"]], wanted?.request ?? "");
    this.suggest(state, record);
  }

  /** What of this run would be worth comparing. @param {State} state @param {RequestRecord} record */
  suggest({ run }, record) {
    const best = run ? candidates(run, run, record).slice(0, SUGGESTED) : [];
    const key = `${run?.name} ${record.id} ${best.map(({ record: other, common }) => `${other.id} ${common}`)}`;
    if (this.suggestions.dataset.key === key) return;
    this.suggestions.dataset.key = key;
    fill(
      this.suggestions,
      best.map(({ record: other, common, fork }) => {
        const why = fork
          ? fork.child === "b" ? `branched off from this one at ${count(fork.position)}` : `this one branched off from it at ${count(fork.position)}`
          : common ? `the first ${plural(common, "token")} ${common === 1 ? "is" : "are"} the same` : "begins differently";
        return h("li", null, requestMark(other), " ", h("button", { type: "button", class: "plain link", onclick: () => this.handlers.onChoose(formatCompare(run?.name ?? "", other.id)) }, short(titleOf(other))), h("span", { class: "muted" }, ` ${why}`));
      }),
    );
  }
}

/** @param {State} state @returns {[string, string][]} */
function runsToOffer({ run, liveRun, traces }) {
  /** @type {Map<string, string>} */
  const found = new Map();
  if (run) found.set(run.name, "this run");
  if (liveRun && !found.has(liveRun.name)) found.set(liveRun.name, "the live run");
  for (const trace of traces) if (!found.has(trace.name)) found.set(trace.name, trace.title ?? trace.name);
  return [...found];
}

/** Written only where something differs: an open list stays open. @param {HTMLSelectElement} select @param {[string, string][]} entries @param {string} value */
function options(select, entries, value) {
  const key = JSON.stringify(entries);
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    fill(select, entries.map(([id, text]) => {
      const option = h("option", { value: id });
      setText(option, text);
      return option;
    }));
  }
  if (select.value !== value) select.value = value;
}

/** @param {string} text */
function short(text) {
  const line = text.replace(/\s+/g, " ");
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}
