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

/** An event takes about so many times its JSON, as measured over 2,000 tokens with twenty candidates each. */
const OBJECT_PER_TEXT = 1.1;

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
 */
export function keepArray(run, record, frame, what) {
  const { position } = frame.event;
  record.released.delete(`${what}:${position}`);
  const known = record[what].get(position);
  if (known && what === "attention") {
    run.arrayBytes -= known.byteLength;
    known.add(frame);
    run.arrayBytes += known.byteLength;
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

/** @param {Run} run */
function makeRoom(run) {
  const room = arrayRoom(run);
  while (run.arrayBytes > room && run.arrayOrder.length > 1) release(run);
}

/** Lets go of the oldest array, and remembers that it was here: it is fetched again when it is looked at. @param {Run} run */
function release(run) {
  const oldest = run.arrayOrder.shift();
  const array = oldest?.record[oldest.what].get(oldest.position);
  if (!oldest || !array) return;
  oldest.record[oldest.what].delete(oldest.position);
  oldest.record.released.set(`${oldest.what}:${oldest.position}`, array.event.seq);
  run.arrayBytes -= array.byteLength;
  forget(array);
}
