// The walk as a figure and a table: the words of its stations, and its layers drawn from the numbers.

import { whyNoLayers } from "../absent.js";
import { css, rampPixel } from "../colour.js";
import { count, duration, weight } from "../format.js";
import { weightFraction } from "../paint.js";
import { headsWord } from "../tensor-words.js";
import { candidateName, labelOf, nameInSentence, tokenText } from "../token-names.js";
import { quoted } from "../words.js";
import { fitted, wrapped } from "./drawing.js";

/** @typedef {import("../walk.js").Pass} Pass */
/** @typedef {{name: string, text: string}} Station */

const ROW = 14;
const STRIP = { left: 40, width: 300 };
const ADDED = { left: 352, width: 110 };
const GUESS = { left: 478, width: 160 };
const RANK = { left: 650, width: 130 };
const WIDTH = 860;
const NAMES = 100;

/**
 * @param {Pass} pass
 * @param {{verdict: string, before: Station[], after: Station[]}} words as they stand on the page
 * @param {number | null} selected layer
 * @param {import("./figure.js").Ink} ink
 */
export function walkFigure(pass, { verdict, before, after }, selected, ink) {
  const times = pass.row ? pass.run.layerTimes.get(pass.row.step) : undefined;
  const layers = times || !whyNoLayers(pass.record) ? (pass.run.header?.model.layers ?? 0) : 0;
  const lead = wrapped(verdict, WIDTH, 12);
  const blocks = [before, after].map((stations) => stations.map(({ name, text }) => ({ name, lines: wrapped(text, WIDTH - NAMES, 11.5) })));
  const heights = blocks.map((stations) => stations.reduce((sum, { lines }) => sum + Math.max(1, lines.length) * 16 + 2, 0));
  const grid = layers && 24 + layers * ROW + 10;
  const missing = /** @type {const} */ (["attention", "residual", "lens"]).filter((what) => pass[what] === null);
  const keys = pass.attention?.keys ?? 0;
  const lacking = pass.attention ? layers - pass.attention.layerNumbers.length : 0;
  return {
    title: `The walk of ${quoted(pass.token)}: ${pass.act === "chosen" ? "how it was chosen" : "what it did next"}`,
    width: WIDTH,
    height: lead.length * 17 + 6 + heights[0] + grid + heights[1],
    caption: [
      keys ? `Strips: mean attention of each layer’s heads over tokens ${pass.attention?.event.first_key ?? 0} to ${pass.query}, colour log₁₀ from 0.01 to 1.${lacking ? ` Hatched: not here, in ${lacking} of ${layers} layers.` : ""}` : "",
      keys > STRIP.width ? `A column stands for up to ${Math.ceil(keys / STRIP.width)} tokens and shows the largest.` : "",
      layers ? "Bars: L2 norms of what attention (left) and MLP (right) added, one linear scale; rank bars are logarithmic." : "",
      missing.length ? `Not in this figure because it is not here: ${missing.join(", ")}.` : "",
    ],
    draw: (/** @type {import("./drawing.js").Drawing} */ d, /** @type {number} */ left, /** @type {number} */ top) => {
      let y = top;
      for (const line of lead) d.text(left, (y += 17) - 4, line, { size: 12, fill: ink.text });
      y += 6;
      const stations = (/** @type {typeof blocks[0]} */ list) => {
        for (const { name, lines } of list) {
          d.text(left, y + 12, name, { size: 11.5, fill: ink.muted });
          for (const line of lines.length ? lines : [""]) d.text(left + NAMES, (y += 16) - 4, line, { size: 11.5, fill: ink.text });
          y += 2;
        }
      };
      stations(blocks[0]);
      if (layers) drawLayers(d, pass, layers, selected, left, y, ink);
      y += grid;
      stations(blocks[1]);
    },
  };
}

/** @param {import("./drawing.js").Drawing} d @param {Pass} pass @param {number} layers @param {number | null} selected @param {number} left @param {number} top @param {import("./figure.js").Ink} ink */
function drawLayers(d, pass, layers, selected, left, top, ink) {
  const { attention, residual, lens, target } = pass;
  const head = (/** @type {number} */ x, /** @type {string} */ text, fill = ink.muted) => d.text(left + x, top + 14, text, { size: 10.5, fill });
  head(0, "layer");
  head(STRIP.left, attention ? `${headsWord(attention)} looked at` : "where its heads looked");
  head(ADDED.left, "attention", ink.attention);
  head(ADDED.left + ADDED.width / 2 + 6, "MLP", ink.mlp);
  head(GUESS.left, "best guess here");
  head(RANK.left, target ? fitted(`rank of ${nameInSentence(target)}`, RANK.width, 10.5) : "rank");
  const y0 = top + 22;
  if (selected !== null) d.rect(left - 4, y0 + selected * ROW, WIDTH + 8, ROW, { fill: ink.raised });
  strips(d, attention, layers, left + STRIP.left, y0, ink);
  const norms = residual ? [...residual.event.attention_norms, ...residual.event.mlp_norms].map((n) => n ?? 0) : [];
  const longest = Math.max(...norms, 1e-9);
  const middle = left + ADDED.left + ADDED.width / 2;
  const times = pass.row ? pass.run.layerTimes.get(pass.row.step) : undefined;
  if (times) head(WIDTH - 56, "time");
  for (let layer = 0; layer < layers; layer += 1) {
    const y = y0 + layer * ROW;
    const write = (/** @type {number} */ x, /** @type {string} */ text, /** @type {import("./drawing.js").Lettering} */ how = {}) => d.text(left + x, y + 11, text, { size: 10.5, fill: ink.text, ...how });
    write(26, String(layer), { fill: ink.muted, anchor: "end" });
    if (residual) {
      const [a, m] = [residual.event.attention_norms[layer] ?? 0, residual.event.mlp_norms[layer] ?? 0].map((n) => ((n / longest) * ADDED.width) / 2);
      d.rect(middle - a, y + 3, a, ROW - 6, { fill: ink.attention });
      d.rect(middle, y + 3, m, ROW - 6, { fill: ink.mlp });
    }
    const at = lens?.layers[layer];
    const best = at?.top?.[0];
    if (best) {
      const leads = at.rank === 1;
      write(GUESS.left, fitted(candidateName(best, target), GUESS.width - 36, 10.5, true), { mono: true, fill: leads ? ink.followed : ink.text });
      write(GUESS.left + GUESS.width - 30, weight(Math.exp(best.logprob)), { fill: ink.muted });
      if (typeof at.rank === "number") {
        const share = Math.max(0, 1 - Math.log(at.rank) / Math.log(Math.max(2, pass.run.header?.model.vocab ?? 2)));
        d.rect(left + RANK.left + 46 * (1 - share), y + 5, 46 * share, 4, { fill: leads ? ink.followed : ink.bar, radius: 2 });
        write(RANK.left + 54, count(at.rank), { fill: leads ? ink.followed : ink.text });
      }
    }
    const time = times?.get(layer);
    if (time !== undefined) write(WIDTH - 2, duration(time), { anchor: "end" });
  }
}

/** @param {import("./drawing.js").Drawing} d @param {import("../tensors.js").TensorRecord | null} attention @param {number} layers @param {number} x @param {number} y @param {import("./figure.js").Ink} ink */
function strips(d, attention, layers, x, y, ink) {
  if (!attention) return;
  const { keys, firstLayer } = attention;
  const means = attention.headMeans();
  const columns = Math.min(keys, STRIP.width);
  const here = new Set(attention.layerNumbers);
  for (let layer = 0; layer < layers; layer += 1) if (!here.has(layer)) d.hatch(x, y + layer * ROW + 1, STRIP.width, ROW - 2);
  for (let layer = 0; layer < Math.min(attention.layers, layers - firstLayer); layer += 1) {
    d.cells(x, y + (layer + firstLayer) * ROW + 1, columns, 1, STRIP.width / columns, ROW - 2, (column) => {
      const from = Math.floor((column * keys) / columns);
      const to = Math.max(from + 1, Math.floor(((column + 1) * keys) / columns));
      let value = 0;
      for (let key = from; key < to; key += 1) if (means[layer * keys + key] > value) value = means[layer * keys + key];
      const at = weightFraction(value);
      return at === 0 ? null : css(rampPixel(ink.ramp, at));
    });
  }
}

/** One value a line, so that stations and layers share a table. @param {Pass} pass @param {Station[]} stations @returns {import("./csv.js").Table} */
export function walkTable(pass, stations) {
  return { columns: ["part", "layer", "quantity", "token position", "token", "value", "unit"], rows: walkRows(pass, stations) };
}

/** @param {Pass} pass @param {Station[]} stations @returns {Generator<import("./csv.js").Cell[]>} */
function* walkRows({ run, record, attention, residual, lens, target, row }, stations) {
  for (const { name, text } of stations) yield ["station", null, name, null, null, text, "in words"];
  const norms = residual?.event.norms ?? [];
  if (residual) yield ["embedding", null, "residual norm", null, null, norms[0], `L2, ${residual.event.source_dtype}`];
  const times = row ? run.layerTimes.get(row.step) : undefined;
  for (let layer = 0; layer < (run.header?.model.layers ?? 0); layer += 1) {
    if (residual) {
      yield ["layer", layer, "attention added", null, null, residual.event.attention_norms[layer], "L2 norm"];
      yield ["layer", layer, "MLP added", null, null, residual.event.mlp_norms[layer], "L2 norm"];
      yield ["layer", layer, "residual norm afterwards", null, null, norms[layer + 1], "L2 norm"];
    }
    const at = lens?.layers[layer];
    for (const guess of at?.top ?? []) yield ["layer", layer, "lens guess", null, labelOf(guess), Math.exp(guess.logprob), "probability"];
    if (at && target) {
      yield ["layer", layer, "lens rank of what came", target.position, tokenText(target), at.rank, "place, 1 is best"];
      yield ["layer", layer, "lens probability of what came", target.position, tokenText(target), at.logprob == null ? null : Math.exp(at.logprob), "probability"];
      yield ["layer", layer, "lens entropy", null, null, at.entropy_bits, "bit"];
    }
    if (times?.has(layer)) yield ["layer", layer, "time with barriers", null, null, times.get(layer), "ns"];
    if (!attention?.layerNumbers.includes(layer)) continue;
    const means = attention.headMeans();
    for (let key = 0; key < attention.keys; key += 1) {
      const position = key + (attention.event.first_key ?? 0);
      const token = record.tokens[position];
      yield ["layer", layer, "attention", position, token ? tokenText(token) : null, means[(layer - attention.firstLayer) * attention.keys + key], `mean weight of ${headsWord(attention)}`];
    }
  }
}
