/** What the memory panel shows of one moment: the blocks, what changed, how much of them is empty, what a head read of each. */

import { queryPosition, rowOf } from "../model.js";
import { momentOf, stepSpan } from "../timeline.js";

/** @typedef {import("../model.js").Run} Run */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("../model.js").Selection} Selection */
/** @typedef {import("../blocks.js").Block} Block */
/** @typedef {import("../codec.js").RunEvent} RunEvent */

/**
 * The stretch of time that the selection is about: up to the moment at which the followed token was chosen or, in its
 * second act, at which its own pass had ended; from the same of the token before.
 * @param {Run} run
 * @param {RequestRecord} record
 * @param {Selection} selection
 * @returns {{from: number, to: number} | null} nanoseconds of the run's clock
 */
export function memoryMoment(run, record, { position, act }) {
  if (position === null || !record.tokens[position]) return null;
  const began = record.arrived?.t_ns ?? 0;
  if (act === "chosen") {
    const to = momentOf(run, record, position);
    const before = record.tokens[position - 1]?.event?.t_ns;
    return to === null ? null : { from: before ?? began, to };
  }
  // What was found in the cache has no pass here: the first pass is the first that read it.
  const row = rowOf(record, position) ?? (position < (record.rows[0]?.from ?? 0) ? record.rows[0] : null);
  const span = row && stepSpan(run, row.step);
  if (!row || !span) {
    const to = momentOf(run, record, position);
    return to === null ? null : { from: record.tokens[position - 1]?.event?.t_ns ?? began, to };
  }
  const before = record.rows[record.rows.indexOf(row) - 1];
  return { from: (before && stepSpan(run, before.step)?.to) ?? began, to: span.to };
}

/**
 * How many of a request's positions had been computed, or found, at a moment.
 * @param {Run} run
 * @param {RequestRecord} record
 * @param {number} moment
 */
export function computedTo(run, record, moment) {
  const cached = record.admissions.findLast(({ t_ns: t }) => t <= moment)?.cached_tokens ?? 0;
  const { rows } = record; // in the order of their steps
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((run.steps.get(rows[middle].step)?.started?.t_ns ?? Infinity) <= moment) low = middle + 1;
    else high = middle;
  }
  return Math.max(cached, rows[low - 1]?.to ?? 0);
}

/**
 * Positions of held blocks that hold no token (yet): what paging wastes.
 * @param {Run} run
 * @param {readonly Block[]} blocks
 * @param {number} size positions of a block
 * @param {number} moment
 * @returns {{empty: number, held: number}} positions
 */
export function waste(run, blocks, size, moment) {
  /** @type {Map<string, number>} */
  const lengths = new Map();
  let empty = 0;
  let held = 0;
  for (const { state, holders, logical } of blocks) {
    if (state !== "held" || logical === null) continue;
    held += size;
    let longest = 0;
    for (const holder of holders) {
      const record = run.requests.get(holder);
      if (record && !lengths.has(holder)) lengths.set(holder, computedTo(run, record, moment));
      longest = Math.max(longest, lengths.get(holder) ?? 0);
    }
    empty += Math.min(size, Math.max(0, (logical + 1) * size - longest));
  }
  return { empty, held };
}

/**
 * A row of attention summed over the blocks of the request's block table.
 * @param {ArrayLike<number>} row one weight a key
 * @param {number} firstKey position of the first
 * @param {number} size positions of a block
 * @returns {number[]} by index in the block table
 */
export function massByBlock(row, firstKey, size) {
  /** @type {number[]} */
  const mass = [];
  for (let key = 0; key < row.length; key += 1) {
    const logical = Math.floor((firstKey + key) / size);
    while (mass.length <= logical) mass.push(0);
    mass[logical] += row[key];
  }
  return mass;
}

/**
 * The row of attention to spread over the blocks: the chosen head's, or the mean of all.
 * @param {RequestRecord} record
 * @param {Selection} selection
 * @param {"head" | "mean" | "off"} which
 * @returns {{row: ArrayLike<number>, firstKey: number} | null} null when it is not here, or not wanted
 */
export function attentionOf(record, selection, which) {
  const query = queryPosition(selection);
  const array = query === null ? undefined : record.attention.get(query);
  if (!array || which === "off") return null;
  const row = which === "mean" ? array.overallMean() : array.row(selection.layer ?? 0, selection.head ?? 0);
  return row && { row, firstKey: array.event.first_key ?? 0 };
}

/** The request's blocks at a moment, by index in its block table. @param {readonly Block[]} blocks @param {string} request */
export function tableOf(blocks, request) {
  /** @type {Block[]} */
  const table = [];
  for (const block of blocks) if (block.logical !== null && block.holders.includes(request)) table[block.logical] = block;
  return table;
}

/**
 * A block and those whose content its hash stands on, from the first. A block that cannot be found by its content yet has
 * no hash: then only itself.
 * @param {readonly Block[]} blocks
 * @param {number} block
 * @returns {Block[]}
 */
export function prefixChain(blocks, block) {
  /** @type {Map<string, Block>} */
  const byHash = new Map();
  for (const state of blocks) if (state.prefix_hash) byHash.set(state.prefix_hash, state);
  const chain = [blocks[block]];
  while (chain.length <= blocks.length) {
    const parent = byHash.get(chain[0].parent_hash ?? "");
    if (!parent || chain.includes(parent)) break;
    chain.unshift(parent);
  }
  return chain;
}

/** Bytes of keys and values that a block holds, of all layers. @param {RunEvent} header @returns {number | null} */
export function blockBytes({ model, kv }) {
  /** @type {Record<string, number>} */
  const sizes = { float32: 4, float16: 2, bfloat16: 2 };
  const bytes = kv.block_size * 2 * model.kv_heads * model.head_dim * model.layers * sizes[kv.dtype];
  return Number.isFinite(bytes) ? bytes : null;
}
