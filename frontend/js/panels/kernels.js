/**
 * The kernels panel: where the followed step's time went. Of every step what the engine measures anyway; of a step timed
 * with barriers also each operation of each layer, with how much slower that made it.
 */

import { fill, h, setText } from "../dom.js";
import { about, term } from "../explain.js";
import { count, duration, plural } from "../format.js";
import { selectedRequest } from "../model.js";
import { noRequest, noTokens } from "../nothing.js";
import { kernelsFigure, kernelsTable } from "../save/kernels.js";
import { saveButton } from "../save/save.js";
import { HeatTable, totalRows } from "./kernels-table.js";
import { nearestTimed, slowdown, split, stepTimes, timedWords } from "./kernels-data.js";
import { followedStep, selectionOf } from "./scheduler-data.js";

/** @typedef {import("../store.js").Store} Store */
/** @typedef {import("../store.js").State} State */
/** @typedef {import("../model.js").Run} Run */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("../codec.js").RunEvent} RunEvent */

const WATCHED = ["run", "header", "selection", "steps", "tokens", "requests", "connection", "live", "health", "timingRefused"];

class KernelsPanel {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.root = root;
    this.store = store;
    /** What the tables were drawn from. */
    this.drawn = "";
    /** @type {import("./kernels-data.js").StepTimes | null} */
    this.times = null;
    this.empty = h("p", { class: "absence" });
    this.title = h("h2");
    this.steps = h("select", { "aria-label": "Steps to time" }, [1, 4, 16].map((n) => h("option", { value: n }, plural(n, "step"))));
    this.button = h("button", { type: "button", onclick: () => this.time() }, "Time the next");
    this.ask = h("span", { class: "ask" }, this.button, this.steps);
    this.asked = h("p", { class: "note", "aria-live": "polite" });
    /** How many steps of the run will have been timed when those are that were asked for. @type {number | null} */
    this.awaited = null;
    this.overlap = h("p", { class: "note" }, "All but the wall are times of the engine’s own thread. They overlap with the computation, so they do not add up to it.");
    this.split = h("dl", { class: "step-split", "aria-label": "The step’s time" });
    this.how = h("p", { class: "how" });
    this.nearest = h("p", { class: "how" });
    this.totals = h("div", { class: "totals", role: "table", "aria-label": "Time by operation" });
    this.heat = new HeatTable({ onChoose: (layer) => store.select({ layer }), onHover: (layer) => store.hover(layer === null ? {} : { layer }) });
    this.timed = h("section", null, h("h3", null, "By operation"), this.totals, h("h3", null, "By layer and operation, µs; the stronger the colour, the longer (by its square root)"), this.heat.root);
    this.body = h("div", null, h("header", null, h("span", { class: "titled" }, this.title, about("kernels"), saveButton(store, () => this.saves())), this.ask), this.asked, this.split, this.overlap, this.nearest, this.how, this.timed);
    fill(root, h("div", { class: "kernels-panel" }, this.empty, this.body));
  }

  /** @param {State} state @param {Set<string>} changed */
  update(state, changed) {
    if (changed.has("hover")) this.heat.point(state.hover.layer);
    if (WATCHED.some((what) => changed.has(what))) this.draw(state);
  }

  /** @param {State} state */
  draw(state) {
    const { run, selection } = state;
    const record = selectedRequest(state);
    const reason = !run?.header || !record ? noRequest(state) : run.steps.size === 0 ? "No step has run yet." : record.rejected ? noTokens(record) : null;
    this.empty.hidden = reason === null;
    this.body.hidden = reason !== null;
    setText(this.empty, reason ?? "");
    if (reason !== null || !run || !record) return;
    const live = run === state.liveRun;
    this.ask.hidden = !live;
    this.button.disabled = state.connection.status !== "open" || state.health?.status === "error";
    if (!live || (run !== null && this.awaited !== null && run.kernels.size >= this.awaited)) {
      this.awaited = null;
      setText(this.asked, "");
    }
    if (live && this.awaited !== null && state.timingRefused !== null) {
      this.awaited = null;
      setText(this.asked, `The server refused: ${state.timingRefused}.`);
    }
    this.asked.hidden = this.asked.textContent === "";
    const step = followedStep(record, selection);
    const finished = step === null ? null : (run.steps.get(step)?.finished ?? null);
    setText(this.title, step === null ? "No step to show" : `Step ${count(step)}: where its time went`);
    this.drawSplit(finished, step);
    const kernels = step === null ? [] : (run.kernels.get(step) ?? []);
    this.overlap.hidden = finished === null || finished.timing !== null;
    this.timed.hidden = kernels.length === 0;
    this.drawHow(run, record, step, kernels, finished, live);
    if (!kernels.length) return;
    const key = `${run.name} ${step} ${record.id} ${kernels.length}`;
    if (key !== this.drawn || !this.times) {
      this.drawn = key;
      this.times = stepTimes(kernels, run.header?.model.layers ?? 0, record.id);
      fill(this.totals, ...totalRows(this.times));
    }
    this.heat.draw(this.times, selection.layer);
  }

  /** @param {RunEvent | null} finished @param {number | null} step */
  drawSplit(finished, step) {
    const key = `${step} ${finished?.seq}`;
    if (this.split.dataset.key === key) return;
    this.split.dataset.key = key;
    if (!finished) {
      fill(this.split, h("p", { class: "note" }, step === null ? "The followed token has no pass of its own here." : "The step has not ended, or its end is not in the recording."));
      return;
    }
    const parts = split(finished);
    const most = Math.max(...parts.map(({ ns }) => ns), finished.normal_ns ?? 0, 1);
    const bar = (/** @type {number} */ ns, /** @type {string} */ name = "") => h("span", { class: "track" }, h("i", { class: name, style: `inline-size:${(100 * ns) / most}%` }));
    fill(
      this.split,
      parts.map(({ name, ns, key: of }) => h("div", null, h("dt", null, term(of, name)), h("dd", { class: "num" }, duration(ns)), h("dd", null, bar(ns)))),
      finished.normal_ns ? h("div", null, h("dt", null, term("kernels.normal", "normally")), h("dd", { class: "num" }, duration(finished.normal_ns)), h("dd", null, bar(finished.normal_ns, "normal"))) : null,
    );
  }

  /**
   * How the step was timed and what that did to it; where it was not, what would give its times.
   * @param {Run} run @param {RequestRecord} record @param {number | null} step @param {readonly RunEvent[]} kernels
   * @param {RunEvent | null} finished @param {boolean} live
   */
  drawHow(run, record, step, kernels, finished, live) {
    const timed = kernels.length > 0;
    const near = timed ? null : nearestTimed(run, record, step);
    const key = JSON.stringify([run.name, record.id, step, kernels.length, finished?.seq, near?.step, near?.request, live]);
    if (this.how.dataset.key === key) return;
    this.how.dataset.key = key;
    this.nearest.hidden = near === null;
    if (timed) {
      const others = kernels.filter(({ request }) => request != null && request !== record.id).length;
      fill(
        this.how,
        term("kernels.barriers", `Timed with ${kernels[0].timing === "barriers" ? "barriers" : kernels[0].timing}`),
        ": ",
        ...slowerWords(finished),
        finished?.operations_ns ? ` Its operations took ${duration(finished.operations_ns)}; the rest is between the operations.` : "",
        others ? ` Other requests had passes of their own in it, which are not shown.` : "",
      );
      return;
    }
    fill(
      this.how,
      step === null ? "" : "The operations of this step were not timed: a barrier has to follow each one, which slows the step, so only steps that are asked for are, and some of requests captured at level full. ",
      near ? "" : live ? "Time the next ones above, while an answer is being generated." : run.kernels.size ? "" : "No step of this recording was. On a live server, “Time the next” is here.",
    );
    if (near) this.drawNearest(run, near);
  }

  /**
   * The way to the timed steps. While an answer is followed its step changes many times a second and the nearest timed one
   * does not: the button stays the same one, so that it can be pressed.
   * @param {Run} run @param {NonNullable<ReturnType<typeof nearestTimed>>} near
   */
  drawNearest(run, near) {
    const key = JSON.stringify([run.name, near.step, near.request, run.kernels.size]);
    if (this.nearest.dataset.key === key) return;
    this.nearest.dataset.key = key;
    const other = run.requests.get(near.request);
    const go = h("button", { type: "button", onclick: () => other && this.store.select(selectionOf(other, near.row)) }, `Go to step ${count(near.step)}`);
    fill(this.nearest, timedWords(near.step, run.kernels.size), " ", go);
  }

  time() {
    const steps = Number(this.steps.value);
    this.store.set({ timingRefused: null });
    const sent = this.store.send({ kind: "time", steps });
    const { liveRun } = this.store.state;
    this.awaited = sent && liveRun ? Math.max(this.awaited ?? 0, liveRun.kernels.size) + steps : null;
    setText(this.asked, sent ? `The next ${steps === 1 ? "step" : `${steps} steps`} will be timed, as soon as there is one to run.` : "The server is not connected: nothing was asked of it.");
    this.asked.hidden = false;
  }

  /** @returns {import("../save/save.js").Saveable[]} */
  saves() {
    const { run, selection } = this.store.state;
    const record = selectedRequest(this.store.state);
    const step = record && followedStep(record, selection);
    if (!run || !record || step === null) return [];
    const finished = run.steps.get(step)?.finished ?? null;
    const kernels = run.kernels.get(step) ?? [];
    const view = { step, finished, parts: finished ? split(finished) : [], times: kernels.length ? stepTimes(kernels, run.header?.model.layers ?? 0, record.id) : null };
    return [{ view: "kernels", name: "Where the step’s time went", figure: (ink) => kernelsFigure(view, ink), table: () => kernelsTable(view) }];
  }

  destroy() {
    this.root.replaceChildren();
  }
}

/** @param {RunEvent | null} finished @returns {(Node | string)[]} */
function slowerWords(finished) {
  const times = slowdown(finished);
  if (times === null || !finished) return ["slower than normal; no like step was measured to say by how much."];
  const factor = h("b", null, `× ${times.toFixed(times < 10 ? 1 : 0)}`);
  const normal = ` (normally ${duration(finished.normal_ns)}, median of ${plural(finished.normal_steps, "like step")}).`;
  if (times >= 1) return ["slower than normal by ", factor, normal];
  return ["it took ", factor, " of the normal time", normal, " Times vary more here than the barriers cost."];
}

/**
 * @param {HTMLElement} root
 * @param {Store} store
 * @returns {{update(state: State, changed: Set<string>): void, destroy(): void}}
 */
export function kernelsPanel(root, store) {
  return new KernelsPanel(root, store);
}
