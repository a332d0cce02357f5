// The attention panel's two views: the wall of heads and the chosen head.

import { css, fraction, rampPixel } from "../colour.js";
import { count } from "../format.js";
import { axisTicks } from "../panels/attention-axes.js";
import { combineRow, firstKey } from "../panels/attention-pool.js";
import { tokenName, tokenText } from "../token-names.js";

/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("../panels/attention-pool.js").PooledMatrices} PooledMatrices */
/** @typedef {import("./figure.js").Ink} Ink */
/** @typedef {{matrices: PooledMatrices, tokens: number, scale: import("../colour.js").Scale, hideSink: boolean}} Picture */

/** More lines than this no spreadsheet opens; what is left out is said in the last one. */
export const MOST_WEIGHTS = 4_000_000;

/**
 * One matrix as cells; what was not captured and a hidden sink are hatched.
 * @param {import("./drawing.js").Drawing} d
 * @param {Picture} picture
 * @param {number} index
 * @param {number} x
 * @param {number} y
 * @param {number} side
 * @param {Ink} ink
 */
function drawMatrix(d, { matrices, tokens, scale, hideSink }, index, x, y, side, ink) {
  const { size, values, rows, cellOf, span } = matrices;
  const cell = side / size;
  const last = tokens > 0 ? cellOf[Math.min(tokens, span) - 1] : -1;
  d.cells(x, y, last + 1, last + 1, cell, cell, (key, query) => {
    if (key > query || rows[index * size + query] === 0 || (hideSink && key === 0)) return null;
    const at = fraction(scale, values[(index * size + query) * size + key]);
    return at === 0 ? null : css(rampPixel(ink.ramp, at));
  });
  for (let from = 0; from <= last; ) {
    let to = from + 1;
    const absent = rows[index * size + from] === 0;
    while (to <= last && (rows[index * size + to] === 0) === absent) to += 1;
    for (let row = from; absent && row < to; row += 1) d.hatch(x, y + row * cell, (row + 1) * cell, cell);
    from = to;
  }
  if (hideSink && last >= 0) d.hatch(x, y, cell, (last + 1) * cell);
}

/** @param {PooledMatrices} matrices */
function pooledWords({ span, size }) {
  return span > size ? `A cell stands for about ${(span / size).toFixed(1)} × ${(span / size).toFixed(1)} weights and shows the largest.` : "A cell is one weight.";
}

/**
 * @param {Picture} picture
 * @param {{layers: number, heads: number, layer: number, head: number}} grid
 * @param {string} census how many rows there are, and why not the others
 * @param {Ink} ink
 */
export function wallFigure(picture, { layers, heads, layer, head }, census, ink) {
  const [side, gap, gutter, top0] = [34, 3, 26, 18];
  return {
    title: `Attention: ${layers} layers × ${heads} heads`,
    width: gutter + heads * (side + gap),
    height: top0 + layers * (side + gap),
    caption: [`Queries down, keys across; colour by the square root of the weight, to 1. ${pooledWords(picture.matrices)} Hatched: not captured${picture.hideSink ? ", and position 0, hidden on request" : ""}.`, census],
    draw: (/** @type {import("./drawing.js").Drawing} */ d, /** @type {number} */ left, /** @type {number} */ top) => {
      for (let h = 0; h < heads; h += 1) d.text(left + gutter + h * (side + gap) + side / 2, top + 11, String(h), { size: 10, fill: h === head ? ink.followed : ink.muted, anchor: "middle" });
      for (let l = 0; l < layers; l += 1) {
        const y = top + top0 + l * (side + gap);
        d.text(left + gutter - 6, y + side / 2 + 4, String(l), { size: 10, fill: l === layer ? ink.followed : ink.muted, anchor: "end" });
        for (let h = 0; h < heads; h += 1) {
          const x = left + gutter + h * (side + gap);
          drawMatrix(d, picture, l * heads + h, x, y, side, ink);
          if (l === layer && h === head) d.rect(x - 1, y - 1, side + 2, side + 2, { stroke: ink.followed, width: 2 });
        }
      }
    },
  };
}

/**
 * @param {Picture} picture
 * @param {{title: string, query: number | null, label: (position: number) => string, facts: string}} what
 * @param {Ink} ink
 */
export function headFigure(picture, { title, query, label, facts }, ink) {
  const side = 640;
  const { labelled, ticks } = axisTicks(0, picture.matrices.span, side, label);
  const margin = labelled ? 92 : 36;
  const { scale, hideSink, matrices } = picture;
  const cell = side / matrices.span;
  return {
    title: `Attention: ${title}`,
    width: margin + side,
    height: side + margin,
    caption: [
      `Queries down, keys across. Colour ${scale.kind}, ${scale.kind === "log" ? `from ${scale.floor.toPrecision(2)} ` : "from 0 "}to ${scale.top.toPrecision(3)}. ${pooledWords(matrices)} Hatched: not captured${hideSink ? ", and position 0, hidden on request" : ""}. Nothing is renormalised.`,
      facts,
    ],
    draw: (/** @type {import("./drawing.js").Drawing} */ d, /** @type {number} */ left, /** @type {number} */ top) => {
      const x = left + margin;
      drawMatrix(d, picture, 0, x, top, side, ink);
      d.rect(x - 0.5, top - 0.5, side + 1, side + 1, { stroke: ink.line });
      for (const { at, text } of ticks) {
        const middle = (at + 0.5) * cell;
        d.text(x - 5, top + middle + 3.5, text, { size: 10, fill: ink.muted, anchor: "end" });
        if (labelled) d.text(x + middle + 3.5, top + side + 6, text, { size: 10, fill: ink.muted, anchor: "end", turned: true });
        else d.text(x + middle, top + side + 14, text, { size: 10, fill: ink.muted, anchor: "middle" });
      }
      if (query !== null && query < matrices.span) d.rect(x - 1, top + query * cell - 1, (query + 1) * cell + 2, Math.max(1, cell) + 2, { stroke: ink.followed, width: 1.5 });
    },
  };
}

/** Whether a weight is not in the record: of a layer or head that was not captured, or of a summary, not listed. @param {import("../tensors.js").TensorRecord} rows @param {number} weight */
function unknown(rows, weight) {
  return Number.isNaN(weight) || (weight === 0 && Boolean(rows.summary));
}

/** All captured weights of all heads, a line each. @param {RequestRecord} record @param {number} [most] @returns {import("./csv.js").Table} */
export function wallTable(record, most = MOST_WEIGHTS) {
  return { columns: ["query position", "layer", "head", "key position", "weight (probability)"], rows: wallRows(record, most) };
}

/** @param {RequestRecord} record @param {number} most @returns {Generator<import("./csv.js").Cell[]>} */
function* wallRows(record, most) {
  let written = 0;
  let left = 0;
  for (const [query, rows] of [...record.attention].sort(([a], [b]) => a - b)) {
    const size = rows.layers * rows.heads * rows.keys;
    if (written + size > most) {
      left += size;
      continue;
    }
    const { array, keys, heads } = rows;
    for (let i = 0; i < size; i += 1) {
      const row = Math.floor(i / keys);
      if (unknown(rows, array[i])) continue;
      const [layer, head] = [rows.firstLayer + Math.floor(row / heads), row % heads];
      // Of a summarised row the other weights are not known: no line says that they are 0.
      if (!rows.has(layer, head) || (rows.summary && array[i] === 0)) continue;
      yield [query, layer, head, firstKey(rows) + (i % keys), array[i]];
    }
    written += size;
  }
  if (left) yield [`cut: ${count(left)} more weights are not in this file; “tokenwalk trace export” writes them all`];
}

/**
 * The chosen heads' weights, a line each.
 * @param {RequestRecord} record
 * @param {readonly import("../panels/attention-pool.js").Head[]} heads
 * @param {import("../panels/attention-pool.js").Combine} combine
 * @param {number} [most]
 * @returns {import("./csv.js").Table}
 */
export function headTable(record, heads, combine, most = MOST_WEIGHTS) {
  const how = combine === "one" ? "weight (probability)" : `${combine} of the weights of ${heads.length} heads`;
  return { columns: ["layer:head", "query position", "query token", "key position", "key token", how], rows: headRows(record, heads, combine, most) };
}

/** @param {RequestRecord} record @param {readonly import("../panels/attention-pool.js").Head[]} heads @param {import("../panels/attention-pool.js").Combine} combine @param {number} most @returns {Generator<import("./csv.js").Cell[]>} */
function* headRows(record, heads, combine, most) {
  const name = heads.map(({ layer, head }) => `${layer}:${head}`).join(" ");
  const text = (/** @type {number} */ position) => (record.tokens[position] ? tokenText(record.tokens[position]) : null);
  let written = 0;
  let left = 0;
  for (const [query, rows] of [...record.attention].sort(([a], [b]) => a - b)) {
    const row = heads.length === 1 ? rows.row(heads[0].layer, heads[0].head) : combineRow(rows, heads, combine);
    if (!row) continue;
    if (written + row.length > most) {
      left += row.length;
      continue;
    }
    for (let i = 0; i < row.length; i += 1) if (!unknown(rows, row[i])) yield [name, query, text(query), firstKey(rows) + i, text(firstKey(rows) + i), row[i]];
    written += row.length;
  }
  if (left) yield [`cut: ${count(left)} more weights are not in this file; “tokenwalk trace export” writes them all`];
}

/** @param {RequestRecord} record */
export function labelsOf(record) {
  return (/** @type {number} */ position) => (record.tokens[position] ? tokenName(record.tokens[position]) : "");
}
