// The KV blocks of a run, rebuilt from its events alone: who holds each, what can be found again, at any moment of the run.
// The engine keeps the same books (`engine/blocks`); what each event means is said in its schema.

/** @typedef {import("./codec.js").RunEvent} RunEvent */

/**
 * One block. Never changed in place: an event puts a new one in its stead, so that a moment of the past can keep the old.
 * @typedef {object} Block
 * @property {number} block physical number
 * @property {"free" | "cached" | "held"} state
 * @property {number} refs
 * @property {string[]} holders in the order in which they came to hold it
 * @property {number | null} logical index in their block tables
 * @property {[number, number] | null} positions [from, to) that it is for
 * @property {string | null} prefix_hash null when it cannot be found by its content
 * @property {string | null} parent_hash
 * @property {number | null} last_use_ns
 * @property {string | null} writer the request that it was allocated for, which computed what is in it
 * @property {string | null} copiedFrom the request that computed what was copied into it
 */

/** @typedef {{free: number, cached: number, held: number, shared: number}} Counts */

/** @param {number} block @returns {Block} */
function blank(block) {
  return {
    block, state: "free", refs: 0, holders: [], logical: null, positions: null, prefix_hash: null, parent_hash: null,
    last_use_ns: null, writer: null, copiedFrom: null,
  };
}

/** The blocks after some events. */
export class CacheMirror {
  /** @param {number | Block[]} blocks how many there are, or their states */
  constructor(blocks) {
    this.state = typeof blocks === "number" ? Array.from({ length: blocks }, (_, i) => blank(i)) : blocks;
  }

  /**
   * Takes in one block event.
   * @param {RunEvent} event
   * @returns {boolean} false when it contradicts the events before it: some of those are missing here
   */
  apply(event) {
    const before = this.state[event.block];
    if (!before) return false;
    const { kind } = event;
    const fresh = kind === "block.allocated" || kind === "block.copied";
    const holders = holdersAfter(kind, before.holders, event.request);
    const agrees = !(fresh && before.state !== "free") && holders.length === event.refs;
    if (kind === "block.freed" || (kind === "block.evicted" && holders.length === 0)) {
      this.state[event.block] = blank(event.block);
      return agrees;
    }
    const findable = kind !== "block.evicted";
    this.state[event.block] = {
      block: event.block,
      state: holders.length ? "held" : "cached",
      refs: holders.length,
      holders,
      logical: event.logical,
      positions: event.positions,
      prefix_hash: findable ? event.prefix_hash : null,
      parent_hash: findable ? event.parent_hash : null,
      last_use_ns: event.t_ns,
      writer: fresh ? event.request : before.writer,
      copiedFrom: kind === "block.copied" ? (this.state[event.source]?.writer ?? null) : fresh ? null : before.copiedFrom,
    };
    return agrees;
  }

  /** @returns {Counts} */
  counts() {
    const counts = { free: 0, cached: 0, held: 0, shared: 0 };
    for (const { state, refs } of this.state) {
      counts[state] += 1;
      if (refs > 1) counts.shared += 1;
    }
    return counts;
  }
}

/** @param {string} kind @param {string[]} holders @param {string} request */
function holdersAfter(kind, holders, request) {
  if (kind === "block.allocated" || kind === "block.copied") return [request];
  if (kind === "block.reused" || (kind === "block.ref_changed" && !holders.includes(request))) return [...holders, request];
  if (kind === "block.freed" || kind === "block.ref_changed") return holders.filter((holder) => holder !== request);
  return holders;
}

/** Between checkpoints, at most so many events are applied again to go back in time. */
const CHECKPOINT = 256;

/** All block events of a run, and the blocks as they were after any of them. */
export class BlockHistory {
  /** @param {number} blocks @param {number} size positions of a block */
  constructor(blocks, size) {
    this.blocks = blocks;
    this.size = size;
    /** @type {RunEvent[]} */
    this.events = [];
    this.contradictions = 0;
    this.newest = new CacheMirror(blocks);
    /** Highest block that was ever in use. */
    this.highest = -1;
    /** States after 0, 256, 512, … events. @type {Block[][]} */
    this.checkpoints = [this.newest.state.slice()];
    /** The moment that was looked at last. @type {{count: number, mirror: CacheMirror}} */
    this.cursor = { count: 0, mirror: new CacheMirror(this.newest.state.slice()) };
    /** Which blocks a request has had, by its id and the index in its block table, in order. @type {Map<string, Placement[][]>} */
    this.tables = new Map();
  }

  /** @param {RunEvent} event */
  apply(event) {
    if (!this.newest.apply(event)) this.contradictions += 1;
    this.events.push(event);
    this.highest = Math.max(this.highest, event.block);
    if (this.events.length % CHECKPOINT === 0) this.checkpoints.push(this.newest.state.slice());
    this.place(event);
  }

  /** Notes in the request's table that it came to hold the block. @param {RunEvent} event */
  place(event) {
    const how = HOW[event.kind];
    const block = this.newest.state[event.block];
    if (!how || event.logical === null || !event.request || !block?.holders.includes(event.request)) return;
    let table = this.tables.get(event.request);
    if (!table) this.tables.set(event.request, (table = []));
    (table[event.logical] ??= []).push({ block: event.block, how, t_ns: event.t_ns, writer: block.writer, copiedFrom: block.copiedFrom });
  }

  /** How many block events had happened at a moment. @param {number} moment ns */
  countAt(moment) {
    let low = 0;
    let high = this.events.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.events[middle].t_ns <= moment) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /**
   * The blocks after the first `count` events. Going on is cheap, and going back costs a checkpoint's worth of events.
   * @param {number} count
   * @returns {CacheMirror} valid until the next call
   */
  after(count) {
    if (count === this.events.length) return this.newest;
    const { cursor } = this;
    const checkpoint = Math.floor(count / CHECKPOINT);
    if (count < cursor.count || checkpoint * CHECKPOINT > cursor.count) {
      cursor.mirror = new CacheMirror(this.checkpoints[checkpoint].slice());
      cursor.count = checkpoint * CHECKPOINT;
    }
    for (; cursor.count < count; cursor.count += 1) cursor.mirror.apply(this.events[cursor.count]);
    return cursor.mirror;
  }

  /**
   * Where a request's position lies, or lay last.
   * @param {string} request
   * @param {number} position
   * @param {number} [moment] as it was then
   * @returns {(Placement & {offset: number, logical: number}) | null}
   */
  placeOf(request, position, moment = Infinity) {
    const logical = Math.floor(position / this.size);
    const placed = this.tables.get(request)?.[logical]?.findLast(({ t_ns: t }) => t <= moment);
    return placed ? { ...placed, logical, offset: position % this.size } : null;
  }
}

/**
 * @typedef {{block: number, how: "allocated" | "reused" | "shared" | "copied", t_ns: number, writer: string | null, copiedFrom: string | null}} Placement
 */

/** @type {Record<string, Placement["how"]>} */
const HOW = { "block.allocated": "allocated", "block.reused": "reused", "block.ref_changed": "shared", "block.copied": "copied" };

/**
 * The books of a run whose KV cache is paged; null for other stores.
 * @param {RunEvent} header
 * @returns {BlockHistory | null}
 */
export function blockHistory({ kv }) {
  return Number.isInteger(kv?.blocks) && Number.isInteger(kv?.block_size) ? new BlockHistory(kv.blocks, kv.block_size) : null;
}
