/**
 * The lens's grid of layers × positions: its arithmetic. Pure.
 *
 * @typedef {import("../codec.js").RunEvent} RunEvent
 * @typedef {"probability" | "rank"} Shade
 * @typedef {{id: number, label: string, probability: number, top: {id: number, label: string, logprob: number}[], rank: number | null,
 *   targetLogprob: number | null, entropyBits: number | null}} LensCell
 */

import { labelOf } from "../token-names.js";

/** Columns kept ready on either side of what is visible, so that a small scroll shows words and not blanks. */
export const MARGIN = 2;

/**
 * Which columns to have in the page.
 * @param {number} scrollLeft
 * @param {number} width of the scrolled area that shows columns
 * @param {number} column width of a column
 * @param {number} count of columns
 * @returns {{from: number, to: number, visibleFrom: number, visibleTo: number}} half open
 */
export function columnWindow(scrollLeft, width, column, count) {
  const clamp = (/** @type {number} */ value) => Math.min(count, Math.max(0, value));
  const visibleFrom = clamp(Math.floor(scrollLeft / column));
  const visibleTo = clamp(Math.ceil((scrollLeft + width) / column));
  return { from: clamp(visibleFrom - MARGIN), to: clamp(visibleTo + MARGIN), visibleFrom, visibleTo };
}

/**
 * Where to scroll so that a column is seen with those before it: what led up to a token matters more than what came after.
 * @param {number} position
 * @param {number} scrollLeft where the person is now
 * @param {number} width
 * @param {number} column
 * @param {number} count
 * @returns {number} `scrollLeft` itself when the column is already comfortably in view
 */
export function scrollTo(position, scrollLeft, width, column, count) {
  const left = position * column;
  if (left >= scrollLeft && left + column <= scrollLeft + width) return scrollLeft;
  const before = Math.floor((width * 0.7) / column) - 1;
  const wanted = left - Math.max(0, before) * column;
  return Math.min(Math.max(0, count * column - width), Math.max(0, wanted));
}

/**
 * Positions in view that the engine can still compute: their residuals are here, their lens is not.
 * @param {{lens: Map<number, unknown>, residual: Map<number, unknown>}} record
 * @param {number} from
 * @param {number} to
 * @returns {number[]}
 */
export function lensWanted(record, from, to) {
  const wanted = [];
  for (let position = from; position < to; position++) {
    if (record.residual.has(position) && !record.lens.has(position)) wanted.push(position);
  }
  return wanted;
}

/** The layers of a lens event, by layer. @param {RunEvent} event @returns {Map<number, any>} */
export function byLayer(event) {
  return new Map(event.layers.map((/** @type {any} */ entry) => [entry.layer, entry]));
}

/**
 * @param {any} entry one of a lens event's layers
 * @returns {LensCell | null}
 */
export function lensCell(entry) {
  const best = entry?.top?.[0];
  if (!best) return null;
  return {
    id: best.id,
    label: labelOf(best),
    probability: Math.exp(best.logprob),
    top: entry.top,
    rank: entry.rank ?? null,
    targetLogprob: entry.logprob ?? null,
    entropyBits: entry.entropy_bits ?? null,
  };
}

/**
 * Where a cell lies on the ramp. Probability as it is; rank by its logarithm, first place at the top, last in the
 * vocabulary at the bottom: from 20,000 to 2,000 is as much news as from 20 to 2.
 * @param {LensCell} cell
 * @param {Shade} shade
 * @param {number} vocabulary
 * @returns {number | null} null when there is no rank: nothing came next
 */
export function shadeOf(cell, shade, vocabulary) {
  if (shade === "probability") return Math.min(1, Math.max(0, cell.probability));
  if (cell.rank === null) return null;
  return Math.max(0, 1 - Math.log(cell.rank) / Math.log(Math.max(2, vocabulary)));
}

/**
 * The selection that a cell stands for. The lens at position p guesses p + 1: seen from how a token was chosen, that is
 * the token at p + 1; seen from what a token did next, the one at p.
 * @param {number} position of the residual
 * @param {"chosen" | "used"} act
 * @param {number} tokens
 * @returns {{position: number, act: "chosen" | "used"}}
 */
export function selectionFor(position, act, tokens) {
  return act === "chosen" && position + 1 < tokens ? { position: position + 1, act } : { position, act: "used" };
}
