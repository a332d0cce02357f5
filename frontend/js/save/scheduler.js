// The scheduler's chart as a figure (the steps around the followed one) and a table (all steps).

import { count, duration, plural } from "../format.js";
import { utilisation } from "../panels/scheduler-data.js";
import { chartLayout, stepLeft } from "../panels/scheduler-layout.js";
import { colourOf, requestName } from "../requests.js";
import { tokenText } from "../token-names.js";

/** @typedef {import("../panels/scheduler-data.js").Step} Step */
/** @typedef {import("../model.js").Run} Run */

const PITCH = 8;
const MOST_STEPS = 200;
const ROW = 17;

/** @param {{run: Run, steps: readonly Step[], slots: number, picked: number, current: number | null, mostWaiting: number}} view @param {import("./figure.js").Ink} ink */
export function schedulerFigure({ run, steps, slots, picked, current, mostWaiting }, ink) {
  const from = Math.max(0, Math.min(steps.length - MOST_STEPS, picked - MOST_STEPS / 2));
  const to = Math.min(steps.length, from + MOST_STEPS);
  const layout = chartLayout(slots, PITCH);
  const shown = steps.slice(from, to);
  const requests = [...new Set(shown.flatMap(({ rows }) => rows.map((row) => row.request)))];
  const named = requests.slice(0, 24);
  return {
    title: `Scheduler: slots by steps, ${count(shown.length)} of ${plural(steps.length, "step")}`,
    width: layout.gutter + Math.max(shown.length * PITCH, 300),
    height: layout.height + 14 + named.length * ROW,
    caption: [
      `Steps ${shown[0]?.step ?? 0} to ${shown.at(-1)?.step ?? 0}. ${steps.length > shown.length ? `${plural(steps.length - shown.length, "more step")} not in this figure; the CSV has all.` : ""}`,
      "One column a step, whatever time it took. Full colour: prefill; pale: decode. A step’s budget: its part for prefill is in the text’s colour.",
      requests.length > named.length ? `${plural(requests.length - named.length, "more request")} drawn and not named.` : "",
    ],
    draw: (/** @type {import("./drawing.js").Drawing} */ d, /** @type {number} */ left, /** @type {number} */ top) => {
      const hue = (/** @type {string} */ id) => colourOf(ink.requests, run, id) ?? ink.bar;
      const y = (/** @type {number} */ slot) => top + layout.slotsTop + slot * layout.lane;
      for (let slot = 0; slot < slots; slot += layout.lane >= 12 ? 1 : 2) d.text(left + layout.gutter - 8, y(slot) + layout.lane / 2 + 4, slot === 0 ? "slot 0" : String(slot), { size: 10, fill: ink.muted, anchor: "end" });
      d.text(left + layout.gutter - 8, top + layout.waitTop + layout.waitHeight / 2 + 4, mostWaiting ? `waiting, max ${mostWaiting}` : "waiting", { size: 10, fill: ink.muted, anchor: "end" });
      d.text(left + layout.gutter - 8, top + layout.useTop + layout.useHeight / 2 + 4, "budget", { size: 10, fill: ink.muted, anchor: "end" });
      const origin = steps[0]?.started.t_ns ?? 0;
      shown.forEach((step, i) => {
        const x = left + stepLeft(layout, i, 0);
        if (i % 20 === 0) d.text(x, top + 10, `${step.step} · ${duration(step.started.t_ns - origin)}`, { size: 9.5, fill: ink.muted });
        for (const row of step.rows) d.rect(x, y(row.slot) + 1.5, PITCH - 1, layout.lane - 3, { fill: hue(row.request), opacity: row.phase === "prefill" ? 1 : 0.55 });
        for (const { slot } of step.preempted) d.polygon([[x - 4, y(slot ?? 0) - 1], [x + 5, y(slot ?? 0) - 1], [x, y(slot ?? 0) + 6]], ink.warn);
        const waiting = step.waiting ? Math.max(3, (step.waiting / Math.max(1, mostWaiting)) * layout.waitHeight) : 0;
        d.rect(x, top + layout.waitTop + layout.waitHeight - waiting, PITCH - 1, waiting, { fill: ink.muted });
        const share = Math.min(1, utilisation(step) ?? 0) * layout.useHeight;
        const prefill = Math.min(share, (step.rows.reduce((sum, row) => sum + (row.phase === "prefill" ? row.to - row.from : 0), 0) / Math.max(1, step.started.token_budget)) * layout.useHeight);
        d.rect(x, top + layout.useTop + layout.useHeight - share, PITCH - 1, share, { fill: ink.bar });
        d.rect(x, top + layout.useTop + layout.useHeight - share, PITCH - 1, prefill, { fill: ink.text });
        if (from + i === current) d.rect(x - 1, top + layout.slotsTop - 1, PITCH + 1, layout.height - layout.slotsTop, { stroke: ink.followed, width: 1.5 });
      });
      named.forEach((id, i) => {
        const line = top + layout.height + 14 + i * ROW;
        d.rect(left, line + 3, 10, 10, { fill: hue(id), radius: 2 });
        d.text(left + 18, line + 12, requestName(run, id), { size: 11, fill: ink.text });
      });
    },
  };
}

/** A line a row of each step; a step without rows has one line. @param {Run} run @param {readonly Step[]} steps @returns {import("./csv.js").Table} */
export function schedulerTable(run, steps) {
  return {
    columns: [
      "step", "started (ns of the run)", "step wall (ns)", "build (ns)", "sampling (ns)", "capture (ns)", "positions computed", "budget (positions)", "waiting requests",
      "slot", "request", "request’s prompt", "phase", "position from", "position to (excluded)", "last token in", "token chosen",
    ],
    rows: schedulerRows(run, steps),
  };
}

/** @param {Run} run @param {readonly Step[]} steps @returns {Generator<import("./csv.js").Cell[]>} */
function* schedulerRows(run, steps) {
  for (const { step, started, finished, rows, waiting } of steps) {
    const all = [step, started.t_ns, finished?.eval_ns, finished?.build_ns, finished?.sample_ns, finished?.capture_ns, started.tokens, started.token_budget, waiting];
    if (rows.length === 0) yield [...all, null, null, null, null, null, null, null, null];
    for (const row of rows) {
      const tokens = run.requests.get(row.request)?.tokens;
      const [last, next] = [tokens?.[row.to - 1], tokens?.[row.to]];
      yield [...all, row.slot, row.request, requestName(run, row.request), row.phase, row.from, row.to, last ? tokenText(last) : null, next?.event ? tokenText(next) : null];
    }
  }
}
