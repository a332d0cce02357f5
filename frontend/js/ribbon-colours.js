// What the ribbon's colours mean.

import { absentText, whyAbsent } from "./absent.js";
import { count, entropy } from "./format.js";
import { isCached, queryPosition } from "./model.js";
import { noTokens } from "./nothing.js";
import { WEIGHT_FLOOR, weightFraction } from "./paint.js";
import { requestHue, requestNumber } from "./requests.js";
import { computedBy } from "./reuse.js";
import { meanOf } from "./tensor-words.js";
import { quoted } from "./words.js";

/** @typedef {import("./store.js").State} State */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {import("./tokens.js").TokenRecord} TokenRecord */

export const MODES = /** @type {const} */ (["attention", "probability", "entropy", "role", "block", "cached"]);

/** A colour that stands for a thing: a CSS class's worth of it, the colour of the request whose it is, and a mark before the token. @typedef {{name: string, hue: number | null, label: string | null}} Tone */

/**
 * How chips are coloured now: each token's place on the ramp, 0 … 1 or null for no colour, and what its ends mean; or its
 * tone, where colours are no numbers.
 * @typedef {{place: (token: TokenRecord) => number | null, legend: string, ends: [string, string] | null, tone?: (token: TokenRecord) => Tone | null}} Colouring
 */

/**
 * @param {typeof MODES[number]} mode
 * @param {RequestRecord} record
 * @param {State} state
 * @returns {Colouring}
 */
export function colouringOf(mode, record, state) {
  if (mode === "role") return { place: () => null, legend: "whose part of the conversation each token is", ends: null };
  if (mode === "probability") {
    return {
      place: (t) => (t.event?.logprob == null ? null : Math.exp(t.event.logprob)),
      legend: "probability of each generated token when it was chosen",
      ends: ["0", "1"],
    };
  }
  if (mode === "entropy") {
    const top = record.tokens.reduce((most, t) => Math.max(most, t.event?.entropy_bits ?? 0), 0) || 1;
    return {
      place: (t) => (t.event?.entropy_bits == null ? null : t.event.entropy_bits / top),
      legend: "how unsure the model was when it chose each token",
      ends: ["0", entropy(top)],
    };
  }
  if (mode === "block" || mode === "cached") return blockColouring(mode, record, state);
  const query = queryPosition(state.selection);
  const array = query === null ? undefined : record.attention.get(query);
  if (!array) return { place: () => null, legend: record.tokens.length ? `No attention to show. ${absentText(whyAbsent(record, "attention", query))}.` : noTokens(record), ends: null };
  const mean = array.overallMean();
  const firstKey = array.event.first_key ?? 0;
  return {
    place: (t) => {
      const value = mean[t.position - firstKey];
      return value === undefined ? null : weightFraction(value);
    },
    legend: `how much ${quoted(record.tokens[query ?? 0])} looked there, log scale; mean of ${meanOf(array, state.run?.header?.model.layers ?? 0, state.run?.header?.model.heads ?? 0)}`,
    ends: [String(WEIGHT_FLOOR), "1"],
  };
}

/**
 * By KV block (neighbours in turn lighter and darker, each block's number where it begins), or by who computed what was
 * in the cache already.
 * @param {"block" | "cached"} mode
 * @param {RequestRecord} record
 * @param {State} state
 * @returns {Colouring}
 */
function blockColouring(mode, record, { run }) {
  const place = () => null;
  const history = run?.blocks;
  if (!run || !history) return { place, legend: "This run's KV cache is not made of blocks.", ends: null };
  const writerOf = (/** @type {number} */ position) => {
    const writer = isCached(record, position) ? computedBy(run, record, position) : null;
    return (writer !== null && run.requests.get(writer)) || null;
  };
  const hueOf = (/** @type {number} */ position) => {
    const writer = writerOf(position);
    return writer && requestHue(writer);
  };
  const cached = record.tokens.filter((token) => isCached(record, token.position)).length;
  if (mode === "cached") {
    return {
      place,
      legend: cached
        ? `${count(cached)} of ${count(record.tokens.length)} had their K and V already: in the colour of the request that computed them, and with its number where its part begins`
        : "no K and V were there already: this request computed all of its own",
      ends: null,
      tone: ({ position }) => {
        if (!isCached(record, position)) return null;
        const writer = writerOf(position);
        const begins = writer !== null && (position === 0 || writerOf(position - 1) !== writer);
        return { name: "cached", hue: writer && requestHue(writer), label: begins ? requestNumber(writer) : null };
      },
    };
  }
  return {
    place,
    legend: `KV blocks of ${history.size} positions, each with its number${cached ? "; coloured: computed by another request" : ""}`,
    ends: null,
    tone: ({ position }) => {
      const at = history.placeOf(record.id, position);
      if (!at) return null;
      const hue = hueOf(position);
      return { name: `${hue === null ? "own" : "cached"} ${at.logical % 2 ? "odd" : "even"}`, hue, label: at.offset === 0 ? String(at.block) : null };
    },
  };
}
