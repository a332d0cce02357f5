/**
 * What the attention panel draws of one request: the wall's matrices and the chosen heads' one, kept up to date row by row.
 */

import { PooledMatrices, RowFold, combineRow, firstKey, foldAllHeads, spanFor } from "./attention-pool.js";

/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("./attention-pool.js").Head} Head */
/** @typedef {import("./attention-pool.js").Combine} Combine */
/** @typedef {{layers: number, heads: number, wallSide: number, headSide: number, chosen: readonly Head[], combine: Combine}} Wanted
 *   wallSide, headSide: most cells along the side of a matrix, in device pixels */

/** Up to here a cell a token, so that Plotly can show every weight as it is; above it, what a canvas has pixels for. */
export const EXACT_SPAN = 512;

export class AttentionData {
  constructor() {
    /** @type {RequestRecord | null} */
    this.record = null;
    this.wallKey = "";
    this.headKey = "";
    this.wall = new RowFold(new PooledMatrices(0, 1, 1), foldAllHeads);
    this.head = new RowFold(new PooledMatrices(1, 1, 1), () => false);
    /** Counts up when the wall's or the head's weights change. */
    this.wallVersion = 0;
    this.headVersion = 0;
  }

  /**
   * Start again where what is wanted has changed.
   * @param {RequestRecord} record
   * @param {Wanted} wanted
   */
  want(record, wanted) {
    const span = spanFor(record.tokens.length, record.finished !== null);
    const sameRecord = record === this.record;
    this.record = record;
    const wallKey = JSON.stringify([span, wanted.layers, wanted.heads, wanted.wallSide]);
    if (!sameRecord || wallKey !== this.wallKey) {
      this.wallKey = wallKey;
      this.wall = new RowFold(new PooledMatrices(wanted.layers * wanted.heads, span, wanted.wallSide), (rows, query, into) => foldAllHeads(rows, query, into, wanted.heads));
      this.wallVersion += 1;
    }
    const side = span <= EXACT_SPAN ? span : wanted.headSide;
    const headKey = JSON.stringify([span, side, wanted.chosen, wanted.combine]);
    if (!sameRecord || headKey !== this.headKey) {
      this.headKey = headKey;
      this.head = new RowFold(new PooledMatrices(1, span, side), (rows, query, into) => {
        const row = chosenRow(rows, wanted.chosen, wanted.combine);
        if (row) into.fold(0, query, row, 0, row.length, firstKey(rows));
        return row !== null;
      });
      this.headVersion += 1;
    }
  }

  /**
   * Fold in rows that have come, the chosen heads' first.
   * @param {number} deadline on `performance.now()`'s clock
   * @returns {boolean} whether all of them are in
   */
  fold(deadline) {
    if (!this.record) return true;
    const head = this.head.run(this.record.attention, deadline);
    if (head.changed) this.headVersion += 1;
    const wall = this.wall.run(this.record.attention, deadline);
    if (wall.changed) this.wallVersion += 1;
    return head.complete && wall.complete;
  }
}

/**
 * One query's weights over the chosen heads.
 * @param {import("../tensors.js").TensorRecord | import("./attention-pool.js").Rows} rows
 * @param {readonly Head[]} chosen
 * @param {Combine} combine
 * @returns {ArrayLike<number> | null} [keys]
 */
export function chosenRow(rows, chosen, combine) {
  // One head's row is decoded alone: a thousandth of the record on a large model.
  if (chosen.length === 1 && "row" in rows) return rows.row(chosen[0].layer, chosen[0].head);
  return combineRow(rows, chosen, combine);
}
