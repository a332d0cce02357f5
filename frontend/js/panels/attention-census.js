/** How many rows of a request were captured, and why the others were not. Pure, but for the clock. */

import { count, plural } from "../format.js";
import { absentText, layersLost, whyAbsent } from "../absent.js";

/** @typedef {import("../model.js").RequestRecord} RequestRecord */

/** Milliseconds between countings while tokens stream in: each looks up a reason for every row that is missing. */
const EVERY = 400;

/** @type {ReadonlySet<number>} */
const NONE = new Set();

export class RowCensus {
  constructor() {
    this.request = "";
    this.key = "";
    this.text = "";
    /** The same in few words: "44 of 45 rows". */
    this.brief = "";
    this.at = -Infinity;
  }

  /**
   * @param {RequestRecord} record
   * @param {number} layers of the model
   * @param {ReadonlySet<number>} [drawn] positions whose rows are in the picture, though they may have been let go of since
   * @param {number} [now] milliseconds
   */
  words(record, layers, drawn = NONE, now = performance.now()) {
    let frames = 0;
    for (const { parts } of record.attention.values()) frames += parts.length;
    const key = [layers, frames, record.attention.size, record.tokens.length, record.absent.length, record.finished !== null, drawn.size].join(" ");
    const same = record.id === this.request;
    const wait = same && record.finished === null && now - this.at < EVERY;
    if ((same && key === this.key) || wait) return this.text;
    Object.assign(this, { request: record.id, key, ...inWords(record, layers, drawn), at: now });
    return this.text;
  }
}

/** @param {RequestRecord} record @param {number} layers @param {ReadonlySet<number>} drawn @returns {{text: string, brief: string}} */
function inWords(record, layers, drawn) {
  /** Positions without a row, by why: how many, and the first. @type {Map<string, {count: number, first: number}>} */
  const missing = new Map();
  /** Positions that are in the picture and no longer in memory. @type {number[]} */
  const gone = [];
  for (let position = 0; position < record.tokens.length; position++) {
    if (record.attention.has(position)) continue;
    const { reason } = whyAbsent(record, "attention", position);
    if (reason === "released" && drawn.has(position)) {
      gone.push(position);
      continue;
    }
    const known = missing.get(reason);
    if (known) known.count += 1;
    else missing.set(reason, { count: 1, first: position });
  }
  const captured = record.tokens.length - [...missing.values()].reduce((sum, { count: n }) => sum + n, 0);
  const summarised = [...record.attention.values()].filter((rows) => rows.summary).length;
  const sentences = [`${count(captured)} of ${plural(record.tokens.length, "row")} captured${summarised ? `, ${count(summarised)} of them as the largest weights alone: the capture budget was spent` : ""}.`];
  const partly = [...record.attention.keys()].filter((position) => layersLost(record, position, layers) > 0);
  if (partly.length) {
    const [first] = partly;
    const here = record.attention.get(first)?.layerNumbers.length ?? 0;
    const missed = Array.from({ length: layers }, (_, layer) => layer).find((layer) => !record.attention.get(first)?.layerNumbers.includes(layer));
    sentences.push(`In part, ${count(partly.length)}: of the pass at ${first}, ${here} of ${layers} layers. ${absentText(whyAbsent(record, "attention", first, { layer: missed }))}.`);
  }
  if (gone.length) sentences.push(`Drawn, but not in one piece any more, ${count(gone.length)}: ${absentText(whyAbsent(record, "attention", gone[0]))}.`);
  for (const { count: n, first } of missing.values()) {
    sentences.push(`Hatched, ${count(n)}: ${absentText(whyAbsent(record, "attention", first))}.`);
  }
  return { text: sentences.join(" "), brief: `${count(captured)} of ${plural(record.tokens.length, "row")}${missing.size ? ", others hatched" : ""}${partly.length ? `, ${count(partly.length)} in part` : ""}` };
}
