/** Why this token: what each part of the model added to its logit, and which tokens the pass looked at. Pure. */

/** @typedef {import("../codec.js").RunEvent} RunEvent */
/** @typedef {import("../tensors.js").TensorRecord} TensorRecord */

/**
 * One layer's part of a logit. `whole` is given instead of the two where they cannot be told apart.
 * @typedef {{layer: number, attention: number | null, mlp: number | null, whole: number | null, heads: number[] | null, after: number}} LayerPart  after: the logit as it stands after the layer
 */

/**
 * @param {RunEvent} event an `attribution` event
 * @returns {{layers: LayerPart[], embedding: number, bias: number, largest: number, sum: number}} largest: size of the
 *   largest part of a layer, where bars end
 */
export function logitParts(event) {
  /** @type {Map<number, LayerPart>} */
  const byLayer = new Map();
  let [embedding, bias] = [0, 0];
  for (const { layer, component, value, heads } of event.components) {
    if (layer === null || layer === undefined) {
      if (component === "embedding") embedding += value;
      else bias += value;
      continue;
    }
    const part = byLayer.get(layer) ?? { layer, attention: null, mlp: null, whole: null, heads: null, after: 0 };
    byLayer.set(layer, part);
    if (component === "attention") Object.assign(part, { attention: value, heads: heads ?? null });
    else if (component === "mlp") part.mlp = value;
    else part.whole = value;
  }
  const layers = [...byLayer.values()].sort((a, b) => a.layer - b.layer);
  let after = embedding + bias;
  let largest = 0;
  for (const part of layers) {
    const sizes = [part.attention, part.mlp, part.whole].map((value) => value ?? 0);
    for (const size of sizes) {
      after += size;
      largest = Math.max(largest, Math.abs(size));
    }
    part.after = after;
  }
  return { layers, embedding, bias, largest, sum: after };
}

/**
 * The largest parts for and against.
 * @param {readonly LayerPart[]} layers
 * @param {number} most
 * @returns {{part: "attention" | "MLP" | "all", layer: number, value: number}[]} largest size first
 */
export function largestParts(layers, most) {
  return layers
    .flatMap(({ layer, attention, mlp, whole }) => [
      { part: /** @type {const} */ ("attention"), layer, value: attention ?? 0 },
      { part: /** @type {const} */ ("MLP"), layer, value: mlp ?? 0 },
      { part: /** @type {const} */ ("all"), layer, value: whole ?? 0 },
    ])
    .filter(({ value }) => value !== 0)
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value))
    .slice(0, most);
}

/** @typedef {{layer: number, head: number, weight: number}} HeadWeight */

/**
 * The tokens that a pass looked at most, by the mean over all layers and heads, each with the heads that looked there most.
 * Position 0 is no content: it is told apart.
 * @param {TensorRecord} attention
 * @param {number} most tokens
 * @param {number} heads of each
 * @returns {{tokens: {position: number, mean: number, heads: HeadWeight[], byLayer: number[]}[], sink: number | null}}
 *   byLayer: mean of each layer's heads
 */
export function lookedAt(attention, most, heads) {
  const first = attention.event.first_key ?? 0;
  const mean = attention.overallMean();
  const order = Array.from(mean, (weight, i) => ({ weight, i }))
    .filter(({ i, weight }) => first + i !== 0 && weight > 0)
    .sort((a, b) => b.weight - a.weight)
    .slice(0, most);
  const { array, keys, layers, heads: count, firstLayer } = attention;
  const byLayer = attention.headMeans();
  const tokens = order.map(({ weight, i }) => {
    /** @type {HeadWeight[]} */
    const all = [];
    for (let row = 0; row < layers * count; row += 1) {
      const [layer, head] = [firstLayer + Math.floor(row / count), row % count];
      if (attention.has(layer, head)) all.push({ layer, head, weight: array[row * keys + i] });
    }
    all.sort((a, b) => b.weight - a.weight);
    return { position: first + i, mean: weight, heads: all.slice(0, heads), byLayer: Array.from({ length: layers }, (_, layer) => byLayer[layer * keys + i]) };
  });
  return { tokens, sink: first === 0 ? mean[0] : null };
}

/**
 * Where a rank lies on a logarithmic path: 1 for the first, 0 for the last of the vocabulary.
 * @param {number} rank from 1
 * @param {number} vocabulary
 */
export function rankPlace(rank, vocabulary) {
  return 1 - Math.log(rank) / Math.log(Math.max(2, vocabulary));
}
