// What a glance at a token's walk should tell: where the answer appeared, from which tokens it came, who read it later.
// Every result is a selection of stored numbers, or their mean, and says which.

import { isOver } from "./model.js";

/** @typedef {import("./codec.js").RunEvent} RunEvent */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {{position: number, weight: number}} Share */

/**
 * Where the token that came next shows up in the lens.
 * @param {RunEvent} lens
 * @returns {{leads: number | null, topTen: number | null, layers: number}} `leads`: from this layer to the last it ranks
 *   first; `topTen`: from this layer to the last it is among the ten best; null where it is not even in the last layer
 */
export function appearance(lens) {
  const from = (/** @type {number} */ worst) => {
    let first = null;
    for (let i = lens.layers.length - 1; i >= 0; i -= 1) {
      const { rank, layer } = lens.layers[i];
      if (typeof rank !== "number" || rank > worst) break;
      first = layer;
    }
    return first;
  };
  return { leads: from(1), topTen: from(10), layers: lens.layers.length };
}

/**
 * The layers after which the token that came next ranked first, whatever came later; neighbours joined.
 * @param {RunEvent} lens
 * @returns {[number, number][]} first and last of each stretch
 */
export function leadingLayers(lens) {
  /** @type {[number, number][]} */
  const stretches = [];
  for (const { layer, rank } of lens.layers) {
    if (rank !== 1) continue;
    const last = stretches.at(-1);
    if (last?.[1] === layer - 1) last[1] = layer;
    else stretches.push([layer, layer]);
  }
  return stretches;
}

/** "layers 21–23, 25 and 28" @param {[number, number][]} stretches */
export function layersText(stretches) {
  const parts = stretches.map(([from, to]) => (from === to ? String(from) : `${from}–${to}`));
  const many = parts.length > 1 || stretches[0][0] !== stretches[0][1];
  // Many changes of mind are told by the first of them: the rows below have them all.
  const told = parts.length > 4 ? `${parts.slice(0, 3).join(", ")} and others` : parts.length > 1 ? `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}` : parts[0];
  return `${many ? "layers" : "layer"} ${told}`;
}

/**
 * The answer's token to open a recorded request on, because its walk shows most: the first word that the model was sure
 * of, that it knew rather than copied from the prompt, and that none of the earlier layers gave away. Where no word is all
 * that (or there is no lens), the first token of the answer.
 * @param {RequestRecord} record
 */
export function mostTelling(record) {
  const first = Math.min(record.promptLength, record.tokens.length - 1);
  const asked = new Set(record.tokens.slice(0, record.promptLength).map((token) => token.id));
  for (let position = first; position < record.tokens.length; position += 1) {
    const token = record.tokens[position];
    const layers = record.lens.get(position - 1)?.layers;
    if (!layers || token?.event?.logprob == null || asked.has(token.id) || !/^\s\p{L}{2}/u.test(token.label)) continue;
    const rank = layers[Math.floor(layers.length * 0.6)]?.rank ?? 1;
    if (Math.exp(token.event.logprob) > 0.8 && rank > 20) return position;
  }
  return first;
}

/**
 * The request to open a run on: of a live one the newest that has tokens, of a recording the first. One that was refused has
 * nothing to show but its reason: it is opened by itself only where a recording has nothing else.
 * @param {import("./model.js").Run} run
 * @param {boolean} live
 * @returns {RequestRecord | null}
 */
export function requestToShow(run, live) {
  const all = [...run.requests.values()];
  if (live) all.reverse();
  const other = all.find((record) => !record.rejected) ?? (run.complete ? all[0] : null);
  return all.find((record) => record.tokens.length > 0) ?? other ?? null;
}

/**
 * The newest token whose step has told everything: its arrays come a moment after the token itself, and a walk that is drawn
 * in between would flicker with each token.
 * @param {import("./model.js").Run} run
 * @param {RequestRecord} record
 */
export function newestWhole(run, record) {
  const newest = record.tokens.length - 1;
  if (isOver(record) || newest < record.promptLength) return newest;
  const step = record.tokens[newest].event?.step;
  return run.steps.get(step)?.finished ? newest : newest - 1;
}

/**
 * The keys with the largest weights. The sink at position 0 takes half of all attention whatever the text says, so it is
 * told apart rather than listed.
 * @param {ArrayLike<number>} weights one a key
 * @param {number} most
 * @param {number} [firstKey] position of the first weight
 * @returns {Share[]} largest first, position 0 left out
 */
export function largest(weights, most, firstKey = 0) {
  /** @type {Share[]} */
  const found = [];
  for (let i = 0; i < weights.length; i += 1) {
    const position = firstKey + i;
    const weight = weights[i];
    if (position === 0 || !(weight > 0)) continue;
    if (found.length === most && weight <= found[most - 1].weight) continue;
    let at = found.length;
    while (at > 0 && found[at - 1].weight < weight) at -= 1;
    found.splice(at, 0, { position, weight });
    found.length = Math.min(found.length, most);
  }
  return found;
}

/**
 * The later tokens whose passes looked at a position most, by the mean over their layers and heads.
 * @param {RequestRecord} record
 * @param {number} position
 * @param {number} most
 * @returns {{shares: Share[], captured: number}} and of how many later tokens rows are here
 */
export function readers(record, position, most) {
  const shares = [];
  let captured = 0;
  for (const [query, array] of record.attention) {
    if (query <= position) continue;
    captured += 1;
    shares.push({ position: query, weight: array.meanAt(position - (array.event.first_key ?? 0)) });
  }
  shares.sort((a, b) => b.weight - a.weight);
  return { shares: shares.slice(0, most), captured };
}

/**
 * Tokens a second of one request's answer, over its last tokens.
 * @param {RequestRecord} record
 * @param {number} [window] how many tokens at most
 * @returns {number | null} null with fewer than two tokens
 */
export function decodeSpeed(record, window = 32) {
  const answer = record.tokens.slice(Math.max(record.promptLength, record.tokens.length - window));
  const first = answer[0]?.event?.t_ns;
  const last = answer[answer.length - 1]?.event?.t_ns;
  if (answer.length < 2 || first === undefined || last === undefined || last <= first) return null;
  return ((answer.length - 1) / (last - first)) * 1e9;
}

/**
 * The one of a capture plan's numbers that is nearest to another.
 * @param {(number | [number, number])[] | null | undefined} planned numbers, and ranges [from, to); nothing means all
 * @param {number} wanted
 */
export function nearest(planned, wanted) {
  if (!planned?.length) return wanted;
  const within = planned.map((item) => (typeof item === "number" ? item : Math.max(item[0], Math.min(wanted, item[1] - 1))));
  return within.reduce((best, number) => (Math.abs(number - wanted) < Math.abs(best - wanted) ? number : best));
}
