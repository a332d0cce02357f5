// The steps of the requests on one time axis, and which token a moment belongs to.

import { cssColour, fitCanvas } from "./paint.js";
import { requestColours, requestHue } from "./requests.js";

/** @typedef {import("./model.js").Run} Run */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {{from: number, to: number}} Span nanoseconds of the run's clock */

/** As many as run at once, unless a server is told otherwise; how many more there were is said. */
const MOST_LANES = 8;

/**
 * When a token was there: the moment it was chosen; a prompt token's, its share of the step that computed it or, where its
 * keys and values were found in the cache, the moment its request could start.
 * @param {Run} run
 * @param {RequestRecord} record
 * @param {number} position
 * @returns {number | null}
 */
export function momentOf(run, record, position) {
  const event = record.tokens[position]?.event;
  if (event) return event.t_ns;
  for (const row of record.rows) {
    if (position < row.from || position >= row.to) continue;
    const span = stepSpan(run, row.step);
    if (span) return span.from + ((span.to - span.from) * (position - row.from + 1)) / (row.to - row.from);
  }
  const found = record.admissions.find(({ cached_tokens: cached }) => position < cached);
  return found?.t_ns ?? record.arrived?.t_ns ?? null;
}

/** @param {Run} run @param {number} step @returns {Span | null} */
export function stepSpan(run, step) {
  const { started, finished } = run.steps.get(step) ?? {};
  if (!started) return null;
  return { from: started.t_ns, to: finished?.t_ns ?? run.lastTime };
}

/**
 * The request's last token that was there at a moment.
 * @param {Run} run
 * @param {RequestRecord} record
 * @param {number} moment
 */
export function positionAt(run, record, moment) {
  let low = 0;
  let high = record.tokens.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if ((momentOf(run, record, middle) ?? Infinity) <= moment) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** From the request's arrival to its end, or to now. @param {Run} run @param {RequestRecord} record @returns {Span} */
export function spanOf(run, record) {
  const from = record.arrived?.t_ns ?? record.rows.map((row) => stepSpan(run, row.step)?.from).find((t) => t !== undefined) ?? 0;
  const last = record.finished?.t_ns ?? run.lastTime;
  return { from, to: Math.max(last, from + 1e6) };
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{width: number, height: number}} size of it, in CSS pixels
 * @param {Run} run
 * @param {RequestRecord} selected its lane is on top, and its time is the axis
 * @param {number | null} moment of the followed token
 */
export function drawTimeline(canvas, { width, height }, run, selected, moment) {
  const context = fitCanvas(canvas, width, height);
  if (!context) return;
  const span = spanOf(run, selected);
  const x = (/** @type {number} */ t) => ((t - span.from) / (span.to - span.from)) * width;
  const { lanes, more } = lanesOf(run, selected, span);
  const lane = Math.min(13, (height - 4) / lanes.length);
  const top = (height - lane * lanes.length) / 2;
  const colours = requestColours();
  lanes.forEach((record, i) => {
    const y = top + i * lane;
    context.fillStyle = cssColour("--line");
    context.fillRect(0, y + lane / 2 - 0.5, width, 1);
    for (const row of record.rows) {
      const step = stepSpan(run, row.step);
      if (!step || step.to < span.from || step.from > span.to) continue;
      const [left, right] = [x(step.from), x(step.to)];
      // A gap of a pixel tells steps apart while there is room for one.
      const size = Math.max(0.6, right - left - (right - left > 3 ? 1 : 0));
      context.globalAlpha = row.phase === "prefill" ? 1 : record === selected ? 0.62 : 0.4;
      context.fillStyle = colours[requestHue(record)];
      const margin = lane > 7 ? 1.5 : 0.75;
      context.fillRect(left, y + margin, size, lane - 2 * margin);
    }
    context.globalAlpha = 1;
  });
  if (more) sayMore(context, `+${more}`, width, height);
  if (moment === null) return;
  context.fillStyle = cssColour("--followed");
  context.fillRect(Math.max(0, Math.min(width - 2, x(moment) - 1)), 0, 2, height);
}

/** Requests that have no lane, in the lower right corner. @param {CanvasRenderingContext2D} context @param {string} text @param {number} width @param {number} height */
function sayMore(context, text, width, height) {
  context.font = "600 10px sans-serif";
  const size = context.measureText(text).width + 6;
  context.fillStyle = cssColour("--panel");
  context.fillRect(width - size, height - 13, size, 13);
  context.fillStyle = cssColour("--muted");
  context.fillText(text, width - size + 3, height - 3);
}

/** @param {Run} run @param {RequestRecord} selected @param {Span} span @returns {{lanes: RequestRecord[], more: number}} */
export function lanesOf(run, selected, span) {
  const others = [...run.requests.values()].filter((record) => {
    if (record === selected || record.rows.length === 0) return false;
    const own = spanOf(run, record);
    return own.to >= span.from && own.from <= span.to;
  });
  const lanes = [selected, ...others].slice(0, MOST_LANES);
  return { lanes, more: others.length + 1 - lanes.length };
}
