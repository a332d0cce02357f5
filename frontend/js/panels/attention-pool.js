/**
 * Attention rows gathered into square matrices, query by key, for drawing.
 *
 * A matrix has at most one cell a device pixel. Where a cell stands for several queries and keys it holds the
 * **largest** of their weights: a mean would drown the single bright weight that a head is about, and a sample would
 * miss it. Weights are as captured, never rescaled. Rows are folded in one by one as they arrive, and within a time
 * budget, so a long request neither blocks the page nor starts again at each token.
 *
 * @typedef {Pick<import("../tensors.js").TensorRecord,
 *   "event" | "parts" | "firstLayer" | "layers" | "heads" | "keys" | "array" | "passing" | "has">} Rows  one query's rows, all layers and heads
 * @typedef {{layer: number, head: number}} Head
 * @typedef {"one" | "mean" | "sum"} Combine
 */

/** Square matrices of pooled weights, all over the same tokens. */
export class PooledMatrices {
  /**
   * @param {number} count matrices
   * @param {number} span tokens along each side
   * @param {number} limit most cells along each side
   */
  constructor(count, span, limit) {
    this.count = count;
    this.span = Math.max(1, span);
    this.size = Math.max(1, Math.min(this.span, Math.floor(limit)));
    /** [count, query cell, key cell] */
    this.values = new Float32Array(count * this.size * this.size);
    /** [count, query cell]: whether a row was folded into it. A layer or head that is not here has none, and is no row of zeros. */
    this.rows = new Uint8Array(count * this.size);
    /** Token → cell. */
    this.cellOf = new Uint16Array(this.span);
    for (let token = 0; token < this.span; token++) this.cellOf[token] = Math.floor((token * this.size) / this.span);
  }

  /** Tokens of a cell: `[from, to)`. @param {number} cell @returns {[number, number]} */
  tokensOf(cell) {
    return [Math.ceil((cell * this.span) / this.size), Math.ceil(((cell + 1) * this.span) / this.size)];
  }

  /**
   * Fold one query's weights into one matrix.
   * @param {number} matrix
   * @param {number} query
   * @param {ArrayLike<number>} weights
   * @param {number} from where the row starts in `weights`
   * @param {number} keys its length
   * @param {number} firstKey position of its first key
   */
  fold(matrix, query, weights, from, keys, firstKey) {
    const { values, cellOf, size, span } = this;
    const line = matrix * size + cellOf[query];
    const start = line * size;
    this.rows[line] = 1;
    const end = Math.min(keys, span - firstKey);
    for (let i = 0; i < end; i++) {
      const at = start + cellOf[firstKey + i];
      const weight = weights[from + i];
      if (weight > values[at]) values[at] = weight;
    }
  }
}

/** A fold over recorded rows that remembers which it has done. */
export class RowFold {
  /**
   * @param {PooledMatrices} into
   * @param {(record: Rows, query: number, into: PooledMatrices) => boolean} foldRow false when the record lacks what was asked
   */
  constructor(into, foldRow) {
    this.into = into;
    this.foldRow = foldRow;
    /** The lists of parts that were folded: a position timed with barriers gets a new one with each layer. Weak: the rows may be let go of. @type {WeakSet<Rows["parts"]>} */
    this.done = new WeakSet();
    /** Queries whose row is in. @type {Set<number>} */
    this.counted = new Set();
  }

  /**
   * Fold rows that are new until the time is up.
   * @param {Iterable<[number, Rows]>} records by query position
   * @param {number} deadline on `performance.now()`'s clock
   * @returns {{changed: boolean, complete: boolean}}
   */
  run(records, deadline) {
    let changed = false;
    for (const [query, record] of records) {
      if (query >= this.into.span || this.done.has(record.parts)) continue;
      if (changed && performance.now() > deadline) return { changed, complete: false };
      const folded = this.foldRow(record, query, this.into);
      if (folded) this.counted.add(query);
      this.done.add(record.parts);
      changed = true;
    }
    return { changed, complete: true };
  }
}

/**
 * Tokens to lay a matrix out for. While tokens arrive it runs ahead in coarse strides, so that the picture stands still
 * and only fills up; a finished request has exactly its tokens.
 * @param {number} tokens
 * @param {boolean} finished
 */
export function spanFor(tokens, finished) {
  if (finished || tokens === 0) return Math.max(1, tokens);
  const stride = 2 ** Math.max(4, Math.floor(Math.log2(tokens)) - 2);
  return Math.ceil(tokens / stride) * stride;
}

/** @param {Rows} record @returns {number} position of the first key */
export function firstKey(record) {
  return record.event.first_key ?? 0;
}

/**
 * Fold every layer and head that the record holds into matrix `layer × heads + head`.
 * @param {Rows} record
 * @param {number} query
 * @param {PooledMatrices} into
 * @param {number} [perLayer] heads of a layer of the model
 * @returns {boolean}
 */
export function foldAllHeads(record, query, into, perLayer = record.heads) {
  const { heads, keys, firstLayer, layers } = record;
  const array = record.passing();
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) {
      if (!record.has(firstLayer + layer, head)) continue;
      const matrix = (firstLayer + layer) * perLayer + head;
      if (matrix < into.count) into.fold(matrix, query, array, (layer * heads + head) * keys, keys, firstKey(record));
    }
  }
  return true;
}

/**
 * One query's weights over the selected heads: as they are, or their mean or sum. Nothing is renormalised: the sum over
 * k heads sums to k.
 * @param {Rows} record
 * @param {readonly Head[]} heads
 * @param {Combine} combine
 * @returns {Float32Array | null} [keys]; null when a selected layer or head is not in the record
 */
export function combineRow(record, heads, combine) {
  if (heads.length === 0 || !heads.every(({ layer, head }) => record.has(layer, head))) return null;
  const { keys, array, firstLayer } = record;
  const sum = new Float64Array(keys); // 270 float32 rows added up would lose digits that the page shows
  for (const { layer, head } of heads) {
    const from = ((layer - firstLayer) * record.heads + head) * keys;
    for (let key = 0; key < keys; key++) sum[key] += array[from + key];
  }
  const share = combine === "mean" ? 1 / heads.length : 1;
  return Float32Array.from(sum, (weight) => weight * share);
}

/**
 * A row in numbers.
 * @param {ArrayLike<number>} row weights of keys `first` …
 * @param {number} first position of the first key
 * @returns {{sum: number, sink: number | null, entropyBits: number, order: number[]}} sink: the weight of position 0,
 *   null when the row does not reach it; order: positions, most weight first; entropy of the row divided by its sum
 */
export function rowStatistics(row, first) {
  let sum = 0;
  for (let i = 0; i < row.length; i++) sum += row[i];
  let entropyBits = 0;
  for (let i = 0; i < row.length; i++) {
    const share = row[i] / sum;
    if (share > 0) entropyBits -= share * Math.log2(share);
  }
  const order = Array.from({ length: row.length }, (_, i) => first + i);
  order.sort((a, b) => row[b - first] - row[a - first] || a - b);
  return { sum, sink: first === 0 && row.length > 0 ? row[0] : null, entropyBits, order };
}

/**
 * Largest weight off the sink, over all that was folded into the matrices.
 * @param {PooledMatrices} matrices
 */
export function largestOffSink({ values, size, span, cellOf }) {
  // Key 0's cell may hold other keys as well; then the sink cannot be told from them and they are left out with it.
  const sinkCell = span > 0 ? cellOf[0] : 0;
  let largest = 0;
  for (let i = 0; i < values.length; i++) {
    if (i % size !== sinkCell && values[i] > largest) largest = values[i];
  }
  return largest;
}
