// The lens as a figure (the columns around the followed one) and a table (all columns that are here).

import { css, rampPixel, softRamp } from "../colour.js";
import { plural } from "../format.js";
import { byLayer, lensCell, shadeOf } from "../panels/lens-grid.js";
import { candidateName, tokenName, tokenText } from "../token-names.js";
import { fitted } from "./drawing.js";

/** @typedef {import("../model.js").RequestRecord} RequestRecord */

const COLUMN = 78;
const LABEL = 36;
const ROW = 18;

/** Columns of a figure: what is wider is no figure any more. */
const MOST_COLUMNS = 40;

/**
 * @param {RequestRecord} record
 * @param {{query: number | null, layer: number, layers: number, shade: import("../panels/lens-grid.js").Shade, vocabulary: number}} view
 * @param {import("./figure.js").Ink} ink
 */
export function lensFigure(record, { query, layer, layers, shade, vocabulary }, ink) {
  const total = record.tokens.length;
  // More of what led up to the followed column than of what came after.
  const from = Math.max(0, Math.min(total - MOST_COLUMNS, (query ?? total - 1) - Math.floor(MOST_COLUMNS * 0.7)));
  const to = Math.min(total, from + MOST_COLUMNS);
  const soft = softRamp(ink.ramp, ink.theme);
  const absent = Array.from({ length: to - from }, (_, i) => from + i).filter((position) => !record.lens.has(position)).length;
  return {
    title: "Logit lens: best guess after each layer",
    width: LABEL + (to - from) * COLUMN,
    height: (layers + 2) * ROW,
    caption: [
      `Layers down, positions across, from ${from} to ${to - 1}. ${total > to - from ? `${plural(total - (to - from), "more position")} not in this figure; the CSV has all.` : "All positions."}`,
      `Colour: ${shade === "probability" ? "probability of the best guess, linear from 0 to 1" : "rank of what came, logarithmic"}. Bold: the token that came ranks first.${absent ? ` Hatched: ${plural(absent, "column")} without a lens.` : ""}`,
    ],
    draw: (/** @type {import("./drawing.js").Drawing} */ d, /** @type {number} */ left, /** @type {number} */ top) => {
      for (let l = 0; l < layers; l += 1) d.text(left + LABEL - 8, top + (l + 2) * ROW - 5, String(l), { size: 10.5, fill: l === layer ? ink.followed : ink.muted, anchor: "end" });
      d.text(left, top + ROW - 5, "at", { size: 10.5, fill: ink.muted });
      d.text(left, top + (layers + 2) * ROW - 5, "next", { size: 10.5, fill: ink.muted });
      for (let position = from; position < to; position += 1) {
        const x = left + LABEL + (position - from) * COLUMN;
        const word = (/** @type {number} */ row, /** @type {string} */ text, fill = ink.text, weight = 400) => d.text(x + 4, top + (row + 1) * ROW - 5, fitted(text, COLUMN - 8, 10.5, true), { size: 10.5, mono: true, fill, weight });
        word(0, `${position} ${tokenName(record.tokens[position])}`, position === query ? ink.followed : ink.muted);
        const event = record.lens.get(position);
        if (!event) d.hatch(x + 1, top + ROW, COLUMN - 2, layers * ROW);
        const entries = event ? byLayer(event) : null;
        for (let l = 0; entries && l < layers; l += 1) {
          const cell = lensCell(entries.get(l));
          if (!cell) continue;
          const at = shadeOf(cell, shade, vocabulary);
          if (at !== null) d.rect(x + 0.5, top + (l + 1) * ROW + 0.5, COLUMN - 1, ROW - 1, { fill: css(rampPixel(soft, at)) });
          word(l + 1, candidateName(cell, record.tokens[position + 1]), ink.text, cell.rank === 1 ? 700 : 400);
        }
        const next = record.tokens[position + 1];
        word(layers + 1, next ? tokenName(next) : "nothing", ink.muted);
        if (position === query) d.rect(x, top + (layer + 1) * ROW, COLUMN, ROW, { stroke: ink.followed, width: 2 });
      }
    },
  };
}

/** @param {RequestRecord} record @returns {import("./csv.js").Table} */
export function lensTable(record) {
  return {
    columns: ["position", "token", "layer", "place", "guess id", "guess", "probability", "log-probability (nat)", "token that came", "its rank", "its log-probability (nat)", "entropy (bit)"],
    rows: lensRows(record),
  };
}

/** @param {RequestRecord} record @returns {Generator<import("./csv.js").Cell[]>} */
function* lensRows(record) {
  for (const [position, event] of [...record.lens].sort(([a], [b]) => a - b)) {
    const next = record.tokens[position + 1];
    for (const entry of event.layers) {
      for (const [i, guess] of entry.top.entries()) {
        yield [position, tokenText(record.tokens[position]), entry.layer, i + 1, guess.id, guess.label ?? null, Math.exp(guess.logprob), guess.logprob, next ? tokenText(next) : null, entry.rank, entry.logprob, entry.entropy_bits];
      }
    }
  }
}
