// Captured arrays of one position: raw bytes are kept, numbers are made when somebody looks.

/** @typedef {import("./codec.js").Frame} Frame */
/** @typedef {import("./codec.js").RunEvent} RunEvent */
/** @typedef {import("./codec.js").Numbers} Numbers */

const DECODED_LIMIT_BYTES = 48 * 2 ** 20;

/** Decoded arrays, the one looked at last at the end. @type {Map<TensorRecord, Numbers>} */
const decoded = new Map();
let decodedBytes = 0;

/** Room for `passing()`. */
let passing = new Float32Array(0);

/**
 * Attention: `[layers, heads, keys]`. Residual: `[layers + 1, hidden]`, read as one head.
 *
 * A frame may hold some layers and heads alone, and the layers of a position may come in several frames. Here they stand
 * at their own numbers, from `firstLayer` and head 0 on; what is in no frame is NaN, never 0. Of a summary, each row has
 * the weights that it lists, and 0 for the others: `summary` says so.
 */
export class TensorRecord {
  /** @param {Frame} frame */
  constructor(frame) {
    /** @type {RunEvent} */
    this.event = frame.event;
    /** @type {Frame[]} */
    this.parts = [frame];
  }

  /** @param {Frame} frame a further part of the same position; one of the same layers takes the place of the former */
  add(frame) {
    const first = layersOf(frame)[0];
    this.parts = this.parts.filter((part) => layersOf(part)[0] !== first && part.event.kind === frame.event.kind);
    this.parts.push(frame);
    this.parts.sort((a, b) => layersOf(a)[0] - layersOf(b)[0]);
    this.event = this.parts[0].event;
    forget(this);
  }

  /** The same with a further part: another object, so that whoever keeps what was drawn sees that there is more. @param {Frame} frame */
  with(frame) {
    const grown = new TensorRecord(frame);
    grown.parts = this.parts;
    grown.add(frame);
    return grown;
  }

  /** How many layers it spans, from `firstLayer` on, those in between that are not here included. */
  get layers() {
    return Math.max(...this.parts.map((part) => layersOf(part).at(-1) ?? 0)) + 1 - this.firstLayer;
  }

  get firstLayer() {
    return layersOf(this.parts[0])[0] ?? 0;
  }

  /** How many heads it spans, from 0 on, those that are not here included. */
  get heads() {
    return Math.max(...headsOf(this.parts[0])) + 1;
  }

  /** The heads that are here. */
  get headNumbers() {
    return headsOf(this.parts[0]);
  }

  /** The layers that are here. */
  get layerNumbers() {
    return this.parts.flatMap(layersOf);
  }

  get keys() {
    const { shape, kind, keys } = this.event;
    return kind === SUMMARY ? keys : shape[shape.length - 1];
  }

  get byteLength() {
    return this.parts.reduce((sum, part) => sum + (part.raw?.byteLength ?? 0), 0);
  }

  /**
   * What is known of a row that the capture budget had no room for: null when rows are whole.
   * @returns {{kept: number, keys: number, mass: number, leastMass: number} | null} how many weights are listed of how
   *   many, and what they sum to: the mean over the rows, and the least
   */
  get summary() {
    const { kind, kept, keys } = this.event;
    if (kind !== SUMMARY) return null;
    // All parts have as many heads, so each counts by its layers.
    const mass = this.parts.reduce((sum, part) => sum + part.event.mass * layersOf(part).length, 0) / this.layerNumbers.length;
    return { kept, keys, mass, leastMass: Math.min(...this.parts.map(({ event }) => event.least_mass)) };
  }

  /**
   * What is said of the rows of some layers, whichever frames they came in: the event of the first, with the largest
   * error and the most that was left out of any.
   * @param {readonly number[]} [layers] all that are here, where none are named
   * @returns {RunEvent}
   */
  about(layers) {
    const own = layers ? this.parts.filter((part) => layersOf(part).some((layer) => layers.includes(layer))) : this.parts;
    const events = (own.length ? own : this.parts).map(({ event }) => event);
    if (events.length === 1) return events[0];
    const most = (/** @type {string} */ field) => Math.max(...events.map((event) => event[field] ?? 0));
    const omitted = events.find((event) => event.omitted)?.omitted ?? null;
    return { ...events[0], row_sum_error: most("row_sum_error"), omitted, omitted_mass: most("omitted_mass") };
  }

  /** Whether a layer and head are here. @param {number} layer @param {number} head */
  has(layer, head) {
    return this.parts.some((part) => layersOf(part).includes(layer) && headsOf(part).includes(head));
  }

  /** All numbers, flat, C order. Decoded on demand; lately used ones are kept. @returns {Numbers} */
  get array() {
    const known = decoded.get(this);
    if (known) {
      decoded.delete(this);
      decoded.set(this, known);
      return known;
    }
    const array = this.plain ? this.parts[0].slice(0, this.parts[0].length) : this.spread();
    decoded.set(this, array);
    decodedBytes += array.byteLength;
    for (const oldest of decoded.keys()) {
      if (decodedBytes <= DECODED_LIMIT_BYTES || oldest === this) break;
      forget(oldest);
    }
    return array;
  }

  /** Whether its one frame holds all rows in their places. */
  get plain() {
    const [{ event }] = this.parts;
    return this.parts.length === 1 && !event.layers && !event.heads;
  }

  /**
   * All numbers as `array` has them, for one look: they are good until the next call, of any record. Whoever takes in the
   * rows of every token as they stream by would fill the memory with what nobody asks for twice.
   * @returns {Numbers}
   */
  passing() {
    const known = decoded.get(this);
    if (known) return known;
    const length = this.plain ? this.parts[0].length : this.layers * this.heads * this.keys;
    if (passing.length < length) passing = new Float32Array(length);
    if (this.plain) this.parts[0].into(passing);
    else this.spread(passing.subarray(0, length));
    return passing;
  }

  /** Every row at its own number. @param {Float32Array} [whole] where to @returns {Float32Array} */
  spread(whole = new Float32Array(this.layers * this.heads * this.keys)) {
    const { keys, heads, firstLayer } = this;
    whole.fill(NaN);
    for (const part of this.parts) {
      const layers = layersOf(part);
      const numbers = headsOf(part);
      for (let i = 0; i < layers.length * numbers.length; i += 1) {
        const layer = layers[Math.floor(i / numbers.length)] - firstLayer;
        whole.set(rowIn(part, i, keys), (layer * heads + numbers[i % numbers.length]) * keys);
      }
    }
    return whole;
  }

  /**
   * One row: over the keys, of one layer and head. A few hundred numbers are decoded rather than all layers' rows.
   * @param {number} layer
   * @param {number} head
   * @returns {Numbers | null} null when that layer or head is not in the record
   */
  row(layer, head) {
    for (const part of this.parts) {
      const layers = layersOf(part);
      const heads = headsOf(part);
      const [l, h] = [layers.indexOf(layer), heads.indexOf(head)];
      if (l >= 0 && h >= 0) return rowIn(part, l * heads.length + h, this.keys);
    }
    return null;
  }

  /** Entropy in bits of a summarised row as it was; null where the row itself tells. @param {number} layer @param {number} head */
  entropyBits(layer, head) {
    for (const part of this.event.kind === SUMMARY ? this.parts : []) {
      const heads = headsOf(part);
      const [l, h] = [layersOf(part).indexOf(layer), heads.indexOf(head)];
      const width = 2 * part.event.kept + 2;
      if (l >= 0 && h >= 0) return part.at((l * heads.length + h) * width + width - 1);
    }
    return null;
  }

  /**
   * Mean over the heads that are here of each layer, `[layers, keys]` flat: what the walk's strips show. NaN for a layer
   * that is not here.
   * @returns {Float32Array}
   */
  headMeans() {
    return means(this).byLayer;
  }

  /** Mean over all layers and heads that are here, one number a key. @returns {Float32Array} */
  overallMean() {
    return means(this).overall;
  }

  /**
   * The same mean for one key alone, reading no more than it needs: over thousands of positions, all others would cost
   * a gigabyte.
   * @param {number} key place in the row
   */
  meanAt(key) {
    const { keys, summary } = this;
    if (key < 0 || key >= keys) return 0;
    let sum = 0;
    let rows = 0;
    for (const part of this.parts) {
      rows += layersOf(part).length * headsOf(part).length;
      if (summary) sum += listedAt(part, key, summary.kept);
      else for (let at = key; at < part.length; at += keys) sum += part.at(at);
    }
    return sum / rows;
  }
}

const SUMMARY = "attention.summary";

/** The layers of a part, rising. @param {Frame} part @returns {number[]} */
function layersOf({ event }) {
  return event.layers ?? range(event.layer ?? 0, event.shape[0]);
}

/** Its heads. @param {Frame} part @returns {number[]} */
function headsOf({ event }) {
  return event.heads ?? range(0, event.shape.length === 3 ? event.shape[1] : 1);
}

/** @type {Map<string, number[]>} */
const ranges = new Map();

/** Numbers from one on, the same list each time: it is asked for with every row. @param {number} from @param {number} length */
function range(from, length) {
  const name = `${from} ${length}`;
  let numbers = ranges.get(name);
  if (!numbers) {
    numbers = Array.from({ length }, (_, index) => from + index);
    if (ranges.size > 255) ranges.clear();
    ranges.set(name, numbers);
  }
  return numbers;
}

/** The row at a place among those of a part, `[keys]`. @param {Frame} part @param {number} index @param {number} keys @returns {Numbers} */
function rowIn(part, index, keys) {
  if (part.event.kind !== SUMMARY) return part.slice(index * keys, (index + 1) * keys);
  const { kept } = part.event;
  const width = 2 * kept + 2;
  const numbers = part.slice(index * width, (index + 1) * width);
  const row = new Float32Array(keys);
  for (let i = 0; i < kept; i += 1) row[numbers[i]] = numbers[kept + i];
  return row;
}

/** Sum of what the rows of a summary list for a key. @param {Frame} part @param {number} key @param {number} kept */
function listedAt(part, key, kept) {
  const width = 2 * kept + 2;
  let sum = 0;
  for (let start = 0; start < part.length; start += width) {
    for (let i = 0; i < kept; i += 1) if (part.at(start + i) === key) sum += part.at(start + kept + i);
  }
  return sum;
}

/** Means of the records looked at last. @type {Map<TensorRecord, {byLayer: Float32Array, overall: Float32Array}>} */
const known = new Map();
const MOST_MEANS = 24;

/** @param {TensorRecord} record */
function means(record) {
  const found = known.get(record);
  if (found) return found;
  const { layers, heads, keys, firstLayer } = record;
  const array = record.passing();
  const byLayer = new Float32Array(layers * keys).fill(NaN);
  const overall = new Float32Array(keys);
  const here = record.layerNumbers;
  const count = record.headNumbers.length;
  for (const layer of here) {
    const to = (layer - firstLayer) * keys;
    byLayer.fill(0, to, to + keys);
    for (const head of record.headNumbers) {
      const from = ((layer - firstLayer) * heads + head) * keys;
      for (let key = 0; key < keys; key += 1) byLayer[to + key] += array[from + key] / count;
    }
    for (let key = 0; key < keys; key += 1) overall[key] += byLayer[to + key] / here.length;
  }
  const made = { byLayer, overall };
  known.set(record, made);
  for (const oldest of known.keys()) {
    if (known.size <= MOST_MEANS) break;
    known.delete(oldest);
  }
  return made;
}

/** Lets go of the decoded numbers (not of the bytes they come from). @param {TensorRecord} record */
export function forget(record) {
  known.delete(record);
  const array = decoded.get(record);
  if (!array) return;
  decoded.delete(record);
  decodedBytes -= array.byteLength;
}
