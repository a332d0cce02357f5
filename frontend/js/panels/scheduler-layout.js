/** Where steps and slots lie on the chart. */

/**
 * @typedef {object} ChartLayout  CSS pixels
 * @property {number} slots
 * @property {number} pitch width of a step
 * @property {number} lane height of a slot
 * @property {number} gutter left of the first step, for labels
 * @property {number} slotsTop
 * @property {number} waitTop
 * @property {number} waitHeight
 * @property {number} useTop
 * @property {number} useHeight
 * @property {number} height
 */

const GUTTER = 62;
const AXIS = 18;
const WAIT = 26;
const USE = 30;

/** Steps are at most and at least so wide. */
export const PITCHES = [4, 8, 14, 26];

/** @param {number} slots @param {number} pitch @returns {ChartLayout} */
export function chartLayout(slots, pitch) {
  const lane = slots <= 8 ? 22 : slots <= 24 ? 14 : 8;
  const slotsTop = AXIS;
  const waitTop = slotsTop + slots * lane + 8;
  const useTop = waitTop + WAIT + 8;
  return { slots, pitch, lane, gutter: GUTTER, slotsTop, waitTop, waitHeight: WAIT, useTop, useHeight: USE, height: useTop + USE + 2 };
}

/**
 * The steps that are at least partly in view.
 * @param {ChartLayout} layout
 * @param {number} steps how many there are
 * @param {number} scroll how far the chart is scrolled
 * @param {number} width of the view
 */
export function visibleSteps({ pitch, gutter }, steps, scroll, width) {
  const from = Math.max(0, Math.floor(scroll / pitch));
  const to = Math.min(steps, Math.ceil((scroll + width - gutter) / pitch));
  return { from: Math.min(from, steps), to: Math.max(from, to) };
}

/** Left edge of a step in the view. @param {ChartLayout} layout @param {number} index @param {number} scroll */
export function stepLeft({ pitch, gutter }, index, scroll) {
  return gutter + index * pitch - scroll;
}

/**
 * What lies under a point of the view.
 * @param {ChartLayout} layout
 * @param {number} steps
 * @param {number} scroll
 * @param {number} x
 * @param {number} y
 * @returns {{index: number, slot: number | null} | null}
 */
export function hit({ pitch, gutter, lane, slots, slotsTop, height }, steps, scroll, x, y) {
  if (x < gutter || y < 0 || y >= height) return null;
  const index = Math.floor((x - gutter + scroll) / pitch);
  if (index < 0 || index >= steps) return null;
  const slot = Math.floor((y - slotsTop) / lane);
  return { index, slot: slot >= 0 && slot < slots ? slot : null };
}

/**
 * How far to scroll so that a step is in view; where it is in view already, nothing moves.
 * @param {ChartLayout} layout
 * @param {number} index
 * @param {number} scroll
 * @param {number} width
 */
export function scrollTo({ pitch, gutter }, index, scroll, width) {
  const room = Math.max(pitch, width - gutter);
  const [left, right] = [index * pitch, (index + 1) * pitch];
  if (left >= scroll && right <= scroll + room) return scroll;
  return Math.max(0, Math.round(left + pitch / 2 - room / 2));
}

/**
 * Steps in a row, of those from `from` to `to`, in which a slot worked for the same request.
 * @typedef {{slot: number, request: string, index: number, steps: number, decodes: number | null}} Stretch index: of its first step in
 *   view; decodes: of the first that is no prefill
 * @param {readonly {rows: readonly {slot: number, request: string, phase: string}[]}[]} steps
 * @param {number} from
 * @param {number} to
 * @returns {Stretch[]}
 */
export function stretches(steps, from, to) {
  /** @type {Stretch[]} */
  const found = [];
  /** @type {Map<number, Stretch>} */
  const open = new Map();
  for (let i = from; i < to; i += 1) {
    for (const { slot, request, phase } of steps[i].rows) {
      let stretch = open.get(slot);
      // A step in which the slot stood still does not end it.
      if (stretch?.request !== request) {
        stretch = { slot, request, index: i, steps: 1, decodes: null };
        open.set(slot, stretch);
        found.push(stretch);
      }
      stretch.steps = i + 1 - stretch.index;
      if (phase !== "prefill") stretch.decodes ??= i;
    }
  }
  return found;
}
