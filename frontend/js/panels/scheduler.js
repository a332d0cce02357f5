/**
 * The scheduler panel: which request was in which slot at each step, what each row computed, who waited and who had to
 * give way; the followed token's step, and the rows that ran with it.
 */

import { readPalette } from "../canvas.js";
import { fill, h, setText } from "../dom.js";
import { about, keepingTerm, term } from "../explain.js";
import { count, percent, plural } from "../format.js";
import { queryPosition, rowOf, selectedRequest } from "../model.js";
import { noRequest } from "../nothing.js";
import { saveButton } from "../save/save.js";
import { schedulerFigure, schedulerTable } from "../save/scheduler.js";
import { hideTip, showTip } from "../tip.js";
import { choice } from "./attention-controls.js";
import { StepLog, followedStep, selectionOf } from "./scheduler-data.js";
import { fillFacts } from "./facts.js";
import { fillDecisions, rowList, stepFacts, stepText } from "./scheduler-detail.js";
import { PITCHES, chartLayout } from "./scheduler-layout.js";
import { ChartView } from "./scheduler-view.js";

/** @typedef {import("../store.js").Store} Store */
/** @typedef {import("../store.js").State} State */
/** @typedef {import("../model.js").Run} Run */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */

const WATCHED = ["run", "header", "selection", "steps", "requests", "theme", "tokens"];

/** Decisions that are listed; how many more there were is said. */
const MOST_DECISIONS = 12;

class SchedulerPanel {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.root = root;
    this.store = store;
    this.log = new StepLog();
    this.pitch = 14;
    /** The step that the person picked, where no token is to be followed in it. @type {number | null} */
    this.picked = null;
    this.frame = 0;
    /** @type {import("../canvas.js").Palette | null} */
    this.palette = null;
    this.empty = h("p", { class: "absence" });
    this.title = h("h2", null, "Slots by steps");
    this.zoom = choice("Width of a step", PITCHES.map((pitch, i) => [String(pitch), ["narrow", "small", "medium", "wide"][i], `A step is ${pitch} pixels wide`]), (value) => {
      this.pitch = Number(value);
      this.draw();
    });
    this.facts = h("dl", { class: "facts", "aria-label": "The run" });
    this.chart = new ChartView({ onPoint: (at, x, top, bottom) => this.point(at, x, top, bottom), onChoose: (at) => this.choose(at), onStep: (by) => this.step(by) });
    const key = [["prefill", "prefill: a chunk of a prompt"], ["decode", "decode: one position"], ["idle", "idle"], ["preempted", "preempted"], ["followed", "the followed token’s step"]];
    this.key = h("div", { class: "map-key", "aria-hidden": "true" }, key.map(([kind, text]) => h("span", { class: "key-entry" }, h("i", { "data-kind": kind }), text)));
    this.stepTitle = h("h2");
    this.back = h("button", { type: "button", "aria-label": "Step before", onclick: () => this.step(-1) }, "←");
    this.forward = h("button", { type: "button", "aria-label": "Next step", onclick: () => this.step(1) }, "→");
    this.stepFacts = h("dl", { class: "facts", "aria-label": "The step" });
    this.rows = h("div", { class: "step-rows", role: "table", "aria-label": "Rows of the step" });
    this.detail = h("p", { id: "step-detail", class: "visually-hidden", "aria-live": "polite" });
    this.decisions = h("ol", { class: "decisions", "aria-label": "Decisions" });
    this.body = h(
      "div",
      null,
      h("header", null, h("span", { class: "titled" }, this.title, about("scheduler"), saveButton(store, () => this.saves())), this.zoom.root),
      this.facts,
      this.chart.scroller,
      this.key,
      h("header", null, this.stepTitle, h("span", null, this.back, " ", this.forward)),
      this.stepFacts,
      this.rows,
      this.detail,
      h("h3", null, term("scheduler.decisions", "Why requests started, or gave way"), h("span", { class: "muted" }, ", since the run began, newest first")),
      this.decisions,
    );
    fill(root, h("div", { class: "scheduler-panel" }, this.empty, this.body));
    this.resized = new ResizeObserver(() => this.schedule());
    this.resized.observe(root);
  }

  /** @param {State} state @param {Set<string>} changed */
  update(state, changed) {
    if (this.palette?.theme !== state.theme) this.palette = readPalette(state.theme);
    if (changed.has("hover")) this.hovered(state);
    if (!WATCHED.some((what) => changed.has(what))) return;
    if (changed.has("selection") || changed.has("run")) this.picked = null;
    this.draw();
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.root.isConnected && this.root.offsetParent !== null) this.draw();
    });
  }

  draw() {
    const { palette } = this;
    const { run, selection } = this.store.state;
    const record = selectedRequest(this.store.state);
    const steps = run ? this.log.update(run).steps : [];
    const reason = !run?.header || !record ? noRequest(this.store.state) : steps.length === 0 ? "No step has run yet." : null;
    this.empty.hidden = reason === null;
    this.body.hidden = reason !== null;
    setText(this.empty, reason ?? "");
    if (reason !== null || !run || !record || !palette) return;
    const slots = Math.max(1, run.header?.slots ?? 1);
    const followed = followedStep(record, selection);
    const current = followed === null ? null : (this.log.index.get(followed) ?? null);
    const picked = this.pickedIndex(record, current);
    this.zoom.press(String(this.pitch));
    this.drawFacts(slots);
    this.chart.draw({
      layout: chartLayout(slots, this.pitch),
      run,
      steps,
      request: record.id,
      current,
      picked,
      mostWaiting: this.log.summary.mostWaiting,
      palette,
    });
    const step = steps[picked];
    const others = step.rows.filter((row) => row.request !== record.id).length;
    setText(this.stepTitle, `Step ${count(step.step)}${picked === current ? `: the followed pass, ${others ? `with ${plural(others, "other row")}` : "alone"}` : ""}`);
    fillFacts(this.stepFacts, stepFacts(run, step));
    // Written only where something differs: a button keeps its focus while events come in.
    const key = JSON.stringify([run.name, step.step, record.id, queryPosition(selection), step.rows.map((row) => {
      const other = run.requests.get(row.request);
      return [(other?.tokens.length ?? 0) > row.to, other?.finished != null];
    })]);
    if (this.rows.dataset.key !== key) {
      this.rows.dataset.key = key;
      keepingTerm(this.rows, () => fill(this.rows, rowList(run, step, { followed: record.id, query: queryPosition(selection), choose: (other, row) => this.store.select(selectionOf(other, row)), point: (hover) => this.store.hover(hover) })));
    }
    this.back.disabled = picked === 0;
    this.forward.disabled = picked === steps.length - 1;
    fillDecisions(this.decisions, run, record.id, MOST_DECISIONS);
  }

  /** @returns {import("../save/save.js").Saveable[]} */
  saves() {
    const { run, selection } = this.store.state;
    const record = selectedRequest(this.store.state);
    const { steps, summary, index } = this.log;
    if (!run?.header || !record || !steps.length) return [];
    const followed = followedStep(record, selection);
    const current = followed === null ? null : (index.get(followed) ?? null);
    const view = { run, steps, slots: Math.max(1, run.header.slots ?? 1), picked: this.pickedIndex(record, current), current, mostWaiting: summary.mostWaiting };
    return [{ view: "scheduler", name: "Slots by steps", figure: (ink) => schedulerFigure(view, ink), table: () => schedulerTable(run, steps) }];
  }

  /** The step that is described: picked, followed, or the request's last. @param {RequestRecord} record @param {number | null} current */
  pickedIndex(record, current) {
    const last = this.log.steps.length - 1;
    if (this.picked !== null && this.picked <= last) return this.picked;
    return current ?? this.log.index.get(record.rows.at(-1)?.step ?? -1) ?? last;
  }

  /** @param {number} slots */
  drawFacts(slots) {
    const all = this.log.summary;
    const busy = all.utilisation(slots);
    /** @type {import("./facts.js").Fact[]} */
    const facts = [
      ["steps", count(all.steps), "scheduler.steps"],
      ["prefill", plural(all.prefill, "position"), "scheduler.prefill"],
      ["decode", plural(all.decode, "position"), "scheduler.decode"],
      ["slots in use", busy === null ? "unknown" : percent(busy), "scheduler.use"],
      ["preempted", plural(all.preempted, "time"), "scheduler.preempted"],
    ];
    if (all.unused) facts.push(["unused", plural(all.unused, "row"), "scheduler.unused"]);
    fillFacts(this.facts, facts);
  }

  /** @param {{index: number, slot: number | null} | null} at @param {number} x @param {number} top @param {number} bottom */
  point(at, x, top, bottom) {
    const { run } = this.store.state;
    if (!at || !run) {
      hideTip();
      this.store.hover({});
      return;
    }
    const step = this.log.steps[at.index];
    showTip(stepText(run, step, at.slot), x, top, bottom);
    const own = step.rows.find(({ request }) => request === this.store.state.selection.request);
    this.store.hover(own ? { step: step.step, positions: [own.from, own.to] } : { step: step.step });
  }

  /** What is pointed at elsewhere was computed in a step here. @param {State} state */
  hovered({ hover, selection, run }) {
    const record = selectedRequest({ run, selection });
    const position = hover.position ?? hover.positions?.[0] ?? null;
    const step = hover.step ?? (record && position !== null ? rowOf(record, position)?.step : undefined);
    this.chart.mark(step === undefined ? null : (this.log.index.get(step) ?? null));
  }

  /** A row is followed; a place without one only shows its step. @param {{index: number, slot: number | null}} at */
  choose({ index, slot }) {
    const { run } = this.store.state;
    const row = this.log.steps[index]?.rows.find((r) => r.slot === slot);
    const record = row && run?.requests.get(row.request);
    if (row && record) this.store.select(selectionOf(record, row));
    this.picked = index;
    this.draw();
    if (row) this.picked = null;
  }

  /** To another step: to the followed request's token there if it has a row, else the step alone. @param {number} by */
  step(by) {
    const { run } = this.store.state;
    const record = selectedRequest(this.store.state);
    if (!run || !record || !this.log.steps.length) return;
    const followed = followedStep(record, this.store.state.selection);
    const from = this.pickedIndex(record, followed === null ? null : (this.log.index.get(followed) ?? null));
    const index = Math.max(0, Math.min(this.log.steps.length - 1, from + by));
    const step = this.log.steps[index];
    const row = step.rows.find((r) => r.request === record.id);
    setText(this.detail, stepText(run, step, null));
    if (row) this.store.select(selectionOf(record, row));
    this.picked = index;
    this.draw();
    if (row) this.picked = null;
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    this.resized.disconnect();
    this.root.replaceChildren();
  }
}

/**
 * @param {HTMLElement} root
 * @param {Store} store
 * @returns {{update(state: State, changed: Set<string>): void, destroy(): void}}
 */
export function schedulerPanel(root, store) {
  return new SchedulerPanel(root, store);
}
