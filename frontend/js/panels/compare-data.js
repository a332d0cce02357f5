/** Two passes over the same position, layer by layer: where they begin to differ. Pure. */

import { labelOf } from "../token-names.js";

/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("../tensors.js").TensorRecord} TensorRecord */
/** A lens's best guess, and the token that came there. @typedef {{id: number, label: string, logprob: number, came: import("../tokens.js").TokenRecord | undefined}} Guess */

/**
 * One layer of two passes.
 * @typedef {object} LayerPair
 * @property {number} layer
 * @property {Guess | null} guessA
 * @property {Guess | null} guessB
 * @property {boolean | null} sameGuess null where one of them is not here
 * @property {number | null} attention total variation distance of the head means, 0 … 1
 * @property {number | null} residual ‖a − b‖ / max(‖a‖, ‖b‖) of the residual after the layer
 */

/**
 * @param {RequestRecord} a
 * @param {RequestRecord} b
 * @param {number} query position of both passes
 * @param {number} layers
 * @param {boolean} byId whether token ids mean the same in both
 * @returns {{layers: LayerPair[], embedding: number | null}} embedding: the same distance before the first layer
 */
export function layerPairs(a, b, query, layers, byId) {
  const [attentionA, attentionB] = [a.attention.get(query), b.attention.get(query)];
  const [residualA, residualB] = [a.residual.get(query), b.residual.get(query)];
  const [lensA, lensB] = [a.lens.get(query), b.lens.get(query)];
  const pairs = Array.from({ length: layers }, (_, layer) => {
    const [guessA, guessB] = [best(lensA, layer, a.tokens[query + 1]), best(lensB, layer, b.tokens[query + 1])];
    return {
      layer,
      guessA,
      guessB,
      sameGuess: guessA && guessB ? (byId ? guessA.id === guessB.id : guessA.label === guessB.label) : null,
      attention: attentionDistance(attentionA, attentionB, layer),
      residual: residualDistance(residualA, residualB, layer + 1),
    };
  });
  return { layers: pairs, embedding: residualDistance(residualA, residualB, 0) };
}

/** @param {import("../codec.js").RunEvent | undefined} lens @param {number} layer @param {Guess["came"]} came @returns {Guess | null} */
function best(lens, layer, came) {
  const at = lens?.layers.find((/** @type {any} */ entry) => entry.layer === layer);
  const top = at?.top?.[0];
  return top ? { id: top.id, label: labelOf(top), logprob: top.logprob, came } : null;
}

/**
 * Total variation distance, ½ Σ |a − b|, of the mean over the heads: the share of attention that would have to move.
 * @param {TensorRecord | undefined} a
 * @param {TensorRecord | undefined} b
 * @param {number} layer
 * @returns {number | null} null where one is not here, or not whole, or of other heads
 */
export function attentionDistance(a, b, layer) {
  if (!a || !b) return null;
  const [at, bt] = [layer - a.firstLayer, layer - b.firstLayer];
  // Means of other heads, or of rows of which only some weights are known, would differ for that reason alone.
  if (a.summary || b.summary || String(a.headNumbers) !== String(b.headNumbers)) return null;
  if (!a.layerNumbers.includes(layer) || !b.layerNumbers.includes(layer)) return null;
  const [meansA, meansB] = [a.headMeans(), b.headMeans()];
  const [firstA, firstB] = [a.event.first_key ?? 0, b.event.first_key ?? 0];
  const end = Math.max(firstA + a.keys, firstB + b.keys);
  let sum = 0;
  for (let key = Math.min(firstA, firstB); key < end; key += 1) {
    sum += Math.abs(weightAt(meansA, at, a.keys, key - firstA) - weightAt(meansB, bt, b.keys, key - firstB));
  }
  return sum / 2;
}

/** @param {Float32Array} means @param {number} layer @param {number} keys @param {number} at */
function weightAt(means, layer, keys, at) {
  return at >= 0 && at < keys ? means[layer * keys + at] : 0;
}

/**
 * @param {TensorRecord | undefined} a `[layers + 1, hidden]`
 * @param {TensorRecord | undefined} b
 * @param {number} row
 * @returns {number | null} null where one is not here, or their widths differ
 */
export function residualDistance(a, b, row) {
  const [one, other] = [a?.row(row, 0), b?.row(row, 0)];
  if (!one || !other || one.length !== other.length) return null;
  let [difference, sizeA, sizeB] = [0, 0, 0];
  for (let i = 0; i < one.length; i += 1) {
    difference += (one[i] - other[i]) ** 2;
    sizeA += one[i] ** 2;
    sizeB += other[i] ** 2;
  }
  const size = Math.max(sizeA, sizeB);
  return size === 0 ? 0 : Math.sqrt(difference / size);
}

/**
 * The first layer from which on what is compared differs: by the residual at all, and by the best guess.
 * @param {ReturnType<typeof layerPairs>} compared
 * @returns {{residual: number | null, attention: number | null, guess: number | null, known: boolean}} residual: −1 for
 *   the embedding; known: whether any of it could be compared
 */
export function firstDifferences({ layers, embedding }) {
  const first = (/** @type {(pair: LayerPair) => boolean} */ differs) => layers.find(differs)?.layer ?? null;
  return {
    residual: embedding !== null && embedding > 0 ? -1 : first(({ residual }) => residual !== null && residual > 0),
    attention: first(({ attention }) => attention !== null && attention > 0),
    guess: first(({ sameGuess }) => sameGuess === false),
    known: embedding !== null || layers.some((pair) => pair.attention !== null || pair.residual !== null || pair.sameGuess !== null),
  };
}
