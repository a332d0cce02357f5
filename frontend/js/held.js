// What a run takes in memory, and which arrays are let go of so that the page lives: a page that dies shows nothing.

import { TensorRecord, forget } from "./tensors.js";

/** @typedef {import("./codec.js").Frame} Frame */
/** @typedef {import("./model.js").Run} Run */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */

const MIB = 2 ** 20;

/** Rows of long answers add up to gigabytes. */
export const ARRAY_LIMIT_BYTES = 160 * MIB;

/** Events and arrays together: as a run grows long, its events take the arrays' room. */
const HELD_LIMIT_BYTES = 224 * MIB;

/** What is left to the arrays in any case: the rows of the last tokens, eighty or a few. */
const LEAST_ARRAY_BYTES = 32 * MIB;

/**
 * An event takes about so many times its JSON: 0.7 as measured over 20,000 tokens with twenty candidates each, which are kept as
 * numbers; 1.3 without candidates, and then there is a third as much of it.
 */
const OBJECT_PER_TEXT = 0.8;

/** What a run takes in this page, bytes: its events, which are all kept, and its arrays. @param {Pick<Run, "textBytes" | "arrayBytes">} run */
export function heldBytes({ textBytes, arrayBytes }) {
  return { events: textBytes * OBJECT_PER_TEXT, arrays: arrayBytes };
}

/** Bytes that the run's arrays may take now. @param {Run} run */
export function arrayRoom({ arrayLimit, textBytes }) {
  return Math.min(arrayLimit, Math.max(LEAST_ARRAY_BYTES, HELD_LIMIT_BYTES - textBytes * OBJECT_PER_TEXT));
}

/**
 * Keeps an array.
 * @param {Run} run
 * @param {RequestRecord} record
 * @param {Frame} frame
 * @param {"attention" | "residual"} what
 * @param {boolean} [again] whether it had been let go of, and was fetched
 */
export function keepArray(run, record, frame, what, again = false) {
  const { position, seq } = frame.event;
  const name = `${what}:${position}`;
  const gone = record.released.get(name);
  // A further layer of a position whose first ones were let go of: it is fetched with them, or it would look like all.
  if (gone && !again) {
    gone.push(seq);
    return;
  }
  if (gone) stillGone(record, name, gone.filter((other) => other !== seq));
  const known = record[what].get(position);
  if (known && what === "attention") {
    run.arrayBytes -= known.byteLength;
    forget(known);
    const grown = known.with(frame);
    record[what].set(position, grown);
    run.arrayBytes += grown.byteLength;
  } else {
    run.arrayBytes += (frame.raw?.byteLength ?? 0) - (known?.byteLength ?? 0);
    if (known) forget(known);
    record[what].set(position, new TensorRecord(frame));
    if (!known) run.arrayOrder.push({ record, what, position });
  }
  makeRoom(run);
}

/** Counts an event that is kept. @param {Run} run @param {Frame} frame */
export function countEvent(run, frame) {
  run.textBytes += frame.textBytes;
  makeRoom(run);
}

/**
 * What could not be fetched again is not let go of: it is lost.
 * @param {RequestRecord} record
 * @param {readonly number[]} seqs
 */
export function giveUp(record, seqs) {
  for (const [name, gone] of [...record.released]) stillGone(record, name, gone.filter((seq) => !seqs.includes(seq)));
}

/** Frames further apart than this are fetched one by one: those of a long prompt's layers have all its positions between them. */
const NEAR = 64;

/**
 * From which frames to which to fetch.
 * @param {readonly number[]} seqs
 * @returns {[number, number][]}
 */
export function stretches(seqs) {
  /** @type {[number, number][]} */
  const found = [];
  for (const seq of [...seqs].sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && seq - last[1] <= NEAR) last[1] = seq;
    else found.push([seq, seq]);
  }
  return found;
}

/** @param {RequestRecord} record @param {string} name @param {number[]} seqs */
function stillGone(record, name, seqs) {
  if (seqs.length) record.released.set(name, seqs);
  else record.released.delete(name);
}

/** @param {Run} run */
function makeRoom(run) {
  const room = arrayRoom(run);
  while (run.arrayBytes > room && run.arrayOrder.length > 1) release(run, room);
}

/** Lets go of the oldest array, and remembers that it was here: it is fetched again when it is looked at. @param {Run} run @param {number} room bytes */
function release(run, room) {
  const oldest = run.arrayOrder.shift();
  const array = oldest?.record[oldest.what].get(oldest.position);
  if (!oldest || !array) return;
  oldest.record[oldest.what].delete(oldest.position);
  const name = `${oldest.what}:${oldest.position}`;
  const seqs = array.parts.map((part) => part.event.seq);
  oldest.record.released.set(name, [...(oldest.record.released.get(name) ?? []), ...seqs]);
  oldest.record.room = room;
  run.arrayBytes -= array.byteLength;
  forget(array);
}
