/** Token axes: what to write where, for any zoom. Pure. */

/** A label needs this many pixels of its own. */
const LABEL_PIXELS = 11;
const NUMBER_PIXELS = 30;
const LONGEST = 12;

/**
 * Ticks for the tokens `from` ≤ t < `to` over so many pixels: every token by its text where the text fits, else positions
 * in round steps.
 * @param {number} from
 * @param {number} to
 * @param {number} pixels
 * @param {(position: number) => string} label
 * @returns {{labelled: boolean, ticks: {at: number, text: string}[]}}
 */
export function axisTicks(from, to, pixels, label) {
  const count = Math.max(1, to - from);
  if (pixels / count >= LABEL_PIXELS) {
    const ticks = Array.from({ length: to - from }, (_, i) => ({ at: from + i, text: shorten(label(from + i)) }));
    return { labelled: true, ticks };
  }
  const step = roundStep((count * NUMBER_PIXELS) / Math.max(1, pixels));
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at < to; at += step) ticks.push({ at, text: String(at) });
  return { labelled: false, ticks };
}

/** The next of 1, 2, 5, 10, 20 … @param {number} least */
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= least) ?? power * 10;
}

/** @param {string} text */
function shorten(text) {
  const characters = Array.from(text);
  return characters.length > LONGEST ? `${characters.slice(0, LONGEST - 1).join("")}…` : text;
}

/**
 * Runs of positions without a captured row.
 * @param {ArrayLike<number>} rows rows in each cell
 * @param {number} to how many cells count
 * @returns {[number, number][]} `[from, to)`
 */
export function absentRuns(rows, to) {
  /** @type {[number, number][]} */
  const runs = [];
  for (let i = 0; i < to; i++) {
    if (rows[i] > 0) continue;
    const last = runs.at(-1);
    if (last && last[1] === i) last[1] = i + 1;
    else runs.push([i, i + 1]);
  }
  return runs;
}
