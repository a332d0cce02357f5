// Two requests side by side, as a figure (from a little before they part) and a table (all positions and layers).

import { percent, plural } from "../format.js";
import { candidateName, tokenName, tokenText } from "../token-names.js";
import { sameToken } from "../compare.js";
import { fitted } from "./drawing.js";

/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {{a: RequestRecord, b: RequestRecord, names: [string, string], common: number, byId: boolean, position: number | null, query: number | null,
 *   compared: ReturnType<typeof import("../panels/compare-data.js").layerPairs> | null}} View */

const ROW = 17;
const MOST_LINES = 60;
const COLUMNS = [0, 50, 250, 320, 520];
const LAYERS = [620, 650, 720, 800, 900];
const WIDTH = 980;

/** @param {View} view @param {import("./figure.js").Ink} ink */
export function compareFigure({ a, b, names, common, byId, position, compared, query }, ink) {
  const total = Math.max(a.tokens.length, b.tokens.length);
  const from = Math.max(0, Math.min(common - 3, total - MOST_LINES));
  const shown = Math.min(total - from, MOST_LINES);
  const layers = compared?.layers ?? [];
  return {
    title: `Two requests: ${common < total ? `the first token that differs is at ${common}` : "the same tokens"}`,
    width: WIDTH,
    height: (Math.max(shown, layers.length) + 1) * ROW,
    caption: [
      `Here: ${names[0]}. There: ${names[1]}. Compared by ${byId ? "token ids" : "bytes: two vocabularies"}.`,
      total > shown ? `${plural(total - shown, "more position")} not in this figure; the CSV has all.` : "All positions.",
      compared ? `Right: the passes at ${query}, layer by layer: total variation of the head means, relative distance of the residual, best guesses.` : "",
    ],
    draw: (/** @type {import("./drawing.js").Drawing} */ d, /** @type {number} */ left, /** @type {number} */ top) => {
      const text = (/** @type {number} */ x, /** @type {number} */ row, /** @type {string} */ words, fill = ink.text, mono = false) => d.text(left + x, top + row * ROW + 12, words, { size: 11, fill, mono });
      ["at", "here", "p", "there", "p"].forEach((name, i) => text(COLUMNS[i], 0, name, ink.muted));
      for (let row = 0; row < shown; row += 1) {
        const at = from + row;
        const [one, other] = [a.tokens[at], b.tokens[at]];
        const same = one && other && sameToken(one, other, byId);
        text(COLUMNS[0], row + 1, String(at), at === position ? ink.followed : ink.muted);
        [one, other].forEach((token, i) => {
          if (!token) return;
          text(COLUMNS[1 + 2 * i], row + 1, fitted(tokenName(token), 190, 11, true), same ? ink.muted : ink.text, true);
          if (token.event?.logprob != null) text(COLUMNS[2 + 2 * i], row + 1, percent(Math.exp(token.event.logprob)), ink.muted);
        });
      }
      if (!compared) return;
      ["", "attention", "residual", "here", "there"].forEach((name, i) => text(LAYERS[i], 0, name, ink.muted));
      layers.forEach(({ layer, attention, residual, guessA, guessB, sameGuess }, i) => {
        text(LAYERS[0], i + 1, String(layer), ink.muted);
        text(LAYERS[1], i + 1, attention === null ? "–" : attention.toFixed(3));
        text(LAYERS[2], i + 1, residual === null ? "–" : residual.toFixed(3));
        [guessA, guessB].forEach((guess, g) => text(LAYERS[3 + g], i + 1, guess ? fitted(candidateName(guess, guess.came), 88, 11, true) : "–", sameGuess ? ink.muted : ink.text, true));
      });
    },
  };
}

/** @param {View} view @returns {import("./csv.js").Table} */
export function compareTable(view) {
  return {
    columns: ["what", "position", "layer", "here", "there", "same", "probability here", "probability there", "attention distance (total variation, 0 to 1)", "residual distance (relative)"],
    rows: compareRows(view),
  };
}

/** @param {View} view @returns {Generator<import("./csv.js").Cell[]>} */
function* compareRows({ a, b, byId, query, compared }) {
  const p = (/** @type {import("../tokens.js").TokenRecord | undefined} */ token) => (token?.event?.logprob == null ? null : Math.exp(token.event.logprob));
  for (let at = 0; at < Math.max(a.tokens.length, b.tokens.length); at += 1) {
    const [one, other] = [a.tokens[at], b.tokens[at]];
    yield ["token", at, null, one ? tokenText(one) : null, other ? tokenText(other) : null, Boolean(one && other && sameToken(one, other, byId)), p(one), p(other), null, null];
  }
  if (!compared) return;
  yield ["embedding", query, null, null, null, null, null, null, null, compared.embedding];
  for (const { layer, guessA, guessB, sameGuess, attention, residual } of compared.layers) {
    yield ["layer", query, layer, guessA?.label, guessB?.label, sameGuess, guessA ? Math.exp(guessA.logprob) : null, guessB ? Math.exp(guessB.logprob) : null, attention, residual];
  }
}
