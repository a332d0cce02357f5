/** Which heads are shown: one, or a set whose weights are averaged or summed. Pure. */

/** @typedef {import("./attention-pool.js").Head} Head */
/** @typedef {import("./attention-pool.js").Combine} Combine */
/** @typedef {{combine: Combine, heads: Set<string>}} HeadChoice  heads: "layer:head", for mean and sum */
/** @typedef {{layers: number, heads: number}} Size */

/**
 * @param {HeadChoice} choice
 * @param {Head} current the one that the selection names
 * @returns {Head[]}
 */
export function chosenHeads({ combine, heads }, current) {
  if (combine === "one") return [current];
  return [...heads].map((name) => {
    const [layer, head] = name.split(":").map(Number);
    return { layer, head };
  });
}

/**
 * What the buttons do: a way to combine (which starts from the heads of the current layer), or which heads to take.
 * @param {HeadChoice} choice changed in place
 * @param {string} what "one", "mean", "sum", "layer", "all" or "none"
 * @param {number} layer the current layer
 * @param {Size} size
 */
export function chooseHeads(choice, what, layer, size) {
  if (what === "one" || what === "mean" || what === "sum") {
    choice.combine = what;
    if (what === "one" || choice.heads.size > 0) return;
  }
  const layers = what === "none" ? [] : what === "all" ? range(size.layers) : [layer];
  choice.heads = new Set(names(layers, range(size.heads)));
}

/**
 * Add to, or take from, the heads that are averaged or summed: one cell, a whole layer (head null), or one head of all
 * layers (layer null). If any of them is missing, all are added.
 * @param {HeadChoice} choice changed in place
 * @param {{layer: number | null, head: number | null}} which
 * @param {Size} size
 */
export function toggleHeads({ heads }, { layer, head }, size) {
  const named = names(layer === null ? range(size.layers) : [layer], head === null ? range(size.heads) : [head]);
  const add = named.some((name) => !heads.has(name));
  for (const name of named) {
    if (add) heads.add(name);
    else heads.delete(name);
  }
}

/** @param {number[]} layers @param {number[]} heads */
function names(layers, heads) {
  return layers.flatMap((layer) => heads.map((head) => `${layer}:${head}`));
}

/** @param {number} n */
function range(n) {
  return Array.from({ length: n }, (_, i) => i);
}
