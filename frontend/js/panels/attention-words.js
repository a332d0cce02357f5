/** What the attention panel says: titles and captions. Pure. */

import { count, plural, weight } from "../format.js";

/** @typedef {import("./attention-pool.js").Head} Head */
/** @typedef {import("./attention-pool.js").Combine} Combine */
/** @typedef {import("../codec.js").RunEvent} RunEvent */

/** @type {Record<string, string>} */
const DTYPES = { f16: "float16", f32: "float32", u8: "8 bits a weight", i32: "int32" };

/**
 * @param {readonly Head[]} heads
 * @param {Combine} combine
 * @param {number} layers in the model
 * @param {number} perLayer heads in a layer
 */
export function headsTitle(heads, combine, layers, perLayer) {
  if (combine === "one") return heads.length ? `Layer ${heads[0].layer}, head ${heads[0].head}` : "No head";
  const verb = combine === "mean" ? "Mean" : "Sum";
  if (heads.length === 0) return `${verb} of no head`;
  if (heads.length === layers * perLayer) return `${verb} of all ${count(heads.length)} heads`;
  const inLayers = new Set(heads.map(({ layer }) => layer));
  if (inLayers.size > 1) return `${verb} of ${plural(heads.length, "head")} in ${plural(inLayers.size, "layer")}`;
  const layer = heads[0].layer;
  if (heads.length === perLayer) return `${verb} of all ${perLayer} heads of layer ${layer}`;
  const numbers = heads.map(({ head }) => head).sort((a, b) => a - b);
  return `${verb} of layer ${layer}, ${numbers.length === 1 ? "head" : "heads"} ${numbers.join(", ")}`;
}

/**
 * The largest weight a row can hold: k for a sum over k heads.
 * @param {readonly Head[]} heads
 * @param {Combine} combine
 */
export function largestPossible(heads, combine) {
  return combine === "sum" ? Math.max(1, heads.length) : 1;
}

/**
 * A row in words: what it sums to, what the sink holds, and how the numbers came to be here.
 * @param {RunEvent} event the `attention` event
 * @param {{sum: number, sink: number | null, entropyBits: number}} statistics
 * @param {readonly Head[]} heads
 * @param {Combine} combine
 * @param {string} [summary] what a summary leaves out, in words
 * @returns {import("./facts.js").Fact[]}
 */
export function rowFacts(event, statistics, heads, combine, summary = "") {
  const of =
    combine === "one" ? "" : combine === "mean" ? `, mean of ${heads.length}` : `, sum of ${heads.length} heads`;
  /** @type {import("./facts.js").Fact[]} */
  const facts = [
    [`row ${event.position} sums to`, statistics.sum.toFixed(4), "attention.sum", `the captured weights added up${of}`],
    statistics.sink === null
      ? ["sink (position 0)", "outside the window", "attention.sink", "the row starts at a later key"]
      : ["sink (position 0) holds", weight(statistics.sink), "attention.sink"],
    ["spread", Number.isFinite(statistics.entropyBits) ? `${statistics.entropyBits.toFixed(2)} bit` : "not known", "attention.spread"],
    ["stored as", DTYPES[event.dtype] ?? event.dtype, "attention.stored", `computed in ${event.source_dtype}`],
    ["captured in", `step ${event.step}`, "attention.step"],
    ["row-sum error ≤", small(event.row_sum_error), "attention.error", "as computed, before it was stored"],
  ];
  if (summary) facts.push(["left out", "all but the largest", "attention.omitted", summary]);
  if (event.omitted)
    facts.push(["left out", `${event.omitted} (at most ${weight(event.omitted_mass)} of a row)`, "attention.omitted"]);
  return facts;
}

/** @param {number | undefined} value */
function small(value) {
  if (value === undefined || !Number.isFinite(value)) return "unknown";
  return value === 0 ? "0" : value.toExponential(1).replace("e-", "e−");
}

/** A weight with four digits that matter: float16 holds no more. @param {number} value */
export function exactWeight(value) {
  if (!Number.isFinite(value)) return String(value);
  if (value === 0) return "0";
  if (value >= 1e-4) return String(Number(value.toPrecision(4)));
  return value.toExponential(2).replace("e-", "e−");
}
