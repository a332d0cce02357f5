// Why a token was chosen: its logit by layer and part, with its path of ranks; the table has the heads and the tokens looked at.

import { measure } from "../format.js";
import { rankPlace } from "../panels/why-data.js";
import { tokenText } from "../token-names.js";
import { quoted } from "../words.js";

/** @typedef {import("../panels/why-data.js").LayerPart} LayerPart */
/** @typedef {{record: import("../model.js").RequestRecord, query: number, parts: ReturnType<typeof import("../panels/why-data.js").logitParts> | null, logit: number | null,
 *   lens: import("../codec.js").RunEvent | null, attention: import("../tensors.js").TensorRecord | null, layers: number, vocabulary: number}} View */

const ROW = 15;
const MIDDLE = 230;
const REACH = 170;
const AFTER = 460;
const RANK = 500;
const WIDTH = 760;

/** @param {View} view @param {import("./figure.js").Ink} ink */
export function whyFigure({ record, query, parts, logit, lens, layers, vocabulary }, ink) {
  const target = record.tokens[query + 1];
  return {
    title: `Why ${quoted(target)} at ${query + 1}: its logit by layer, and its rank on the way`,
    width: WIDTH,
    height: (layers + 2) * ROW,
    caption: [
      parts ? `Logit ${logit === null ? "unknown" : measure(logit)}: embedding ${measure(parts.embedding)}, bias ${measure(parts.bias)}, then each layer’s attention and MLP; bars share one linear scale, to ${measure(parts.largest)} either way.` : "The parts of the logit are not here.",
      lens ? `Rank by the logit lens, logarithmic: 1st at the right, ${vocabulary} at the left.` : "The ranks are not here.",
    ],
    draw: (/** @type {import("./drawing.js").Drawing} */ d, /** @type {number} */ left, /** @type {number} */ top) => {
      const text = (/** @type {number} */ x, /** @type {number} */ row, /** @type {string} */ words, fill = ink.muted, /** @type {"start" | "end"} */ anchor = "start") => d.text(left + x, top + row * ROW + 11, words, { size: 10.5, fill, anchor });
      text(0, 0, "layer");
      text(MIDDLE - 60, 0, "attention", ink.attention);
      text(MIDDLE + 10, 0, "MLP", ink.mlp);
      text(AFTER, 0, "logit so far", ink.muted, "end");
      text(RANK, 0, "rank");
      d.line(left + MIDDLE, top + ROW, left + MIDDLE, top + (layers + 1) * ROW, ink.line);
      const scale = REACH / Math.max(parts?.largest ?? 0, 1e-9);
      for (let layer = 0; layer < layers; layer += 1) {
        const y = top + (layer + 1) * ROW;
        text(28, layer + 1, String(layer), ink.muted, "end");
        const part = parts?.layers.find((one) => one.layer === layer);
        const bar = (/** @type {number | null} */ value, /** @type {string} */ fill, /** @type {number} */ offset, /** @type {number} */ height) => value !== null && d.rect(left + MIDDLE + Math.min(0, value) * scale, y + offset, Math.abs(value) * scale, height, { fill });
        if (part) {
          bar(part.attention, ink.attention, 2, 5);
          bar(part.mlp, ink.mlp, 8, 5);
          bar(part.whole, ink.bar, 3, 9);
          text(AFTER, layer + 1, measure(part.after), ink.text, "end");
        }
        const rank = lens?.layers[layer]?.rank;
        if (typeof rank !== "number") continue;
        const place = rankPlace(rank, vocabulary) * 150;
        d.rect(left + RANK, y + 5, place, 4, { fill: rank === 1 ? ink.followed : ink.bar });
        text(RANK + 158, layer + 1, String(rank), rank === 1 ? ink.followed : ink.text);
      }
    },
  };
}

/** @param {View} view @returns {import("./csv.js").Table} */
export function whyTable(view) {
  return { columns: ["what", "layer", "head", "token position", "token", "value", "unit"], rows: whyRows(view) };
}

/** @param {View} view @returns {Generator<import("./csv.js").Cell[]>} */
function* whyRows({ record, query, parts, logit, lens, attention }) {
  const target = record.tokens[query + 1];
  if (parts) {
    yield ["logit", null, null, query + 1, tokenText(target), logit, "logit"];
    yield ["embedding", null, null, null, null, parts.embedding, "part of the logit"];
    yield ["bias", null, null, null, null, parts.bias, "part of the logit"];
    for (const { layer, attention: a, mlp, whole, heads, after } of parts.layers) {
      if (whole !== null) yield ["whole layer", layer, null, null, null, whole, "part of the logit"];
      else {
        yield ["attention", layer, null, null, null, a, "part of the logit"];
        yield ["MLP", layer, null, null, null, mlp, "part of the logit"];
      }
      for (const [head, value] of (heads ?? []).entries()) yield ["attention head", layer, head, null, null, value, "part of the logit"];
      yield ["after the layer", layer, null, null, null, after, "logit so far"];
    }
  }
  for (const at of lens?.layers ?? []) yield ["rank", at.layer, null, query + 1, tokenText(target), at.rank, "place, 1 is best"];
  if (!attention) return;
  const first = attention.event.first_key ?? 0;
  for (const [i, mean] of attention.overallMean().entries()) {
    const token = record.tokens[first + i];
    yield ["looked at", null, null, first + i, token ? tokenText(token) : null, mean, "mean weight over the layers and heads that are here"];
  }
}
