/** Whose the map's colours are: who holds blocks at that moment, or computed some that are kept, with their numbers. */

import { fill, h } from "../dom.js";
import { count, plural } from "../format.js";
import { requestMark, requestName, requestNumber, shortTitle } from "../requests.js";

/** @typedef {import("../blocks.js").Block} Block */
/** @typedef {import("../model.js").Run} Run */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */

/** How many are named; how many more there are is said. */
const MOST = 12;

/**
 * The requests that have blocks, by number, each with how many it holds and how many cached ones it left.
 * @param {Run} run
 * @param {readonly Block[]} blocks
 * @returns {{record: RequestRecord, held: number, cached: number}[]}
 */
export function holdersOf(run, blocks) {
  /** @type {Map<RequestRecord, {record: RequestRecord, held: number, cached: number}>} */
  const found = new Map();
  const add = (/** @type {string | null} */ id, /** @type {"held" | "cached"} */ what) => {
    const record = id === null ? undefined : run.requests.get(id);
    if (!record) return;
    const entry = found.get(record) ?? { record, held: 0, cached: 0 };
    entry[what] += 1;
    found.set(record, entry);
  };
  for (const { state, holders, writer } of blocks) {
    if (state === "held") for (const id of holders) add(id, "held");
    else if (state === "cached") add(writer, "cached");
  }
  return [...found.values()].sort((a, b) => a.record.number - b.record.number);
}

export class Holders {
  /** @param {{onPoint: (request: string | null) => void, onChoose: (request: string) => void}} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    this.root = h("ul", { class: "holders", "aria-label": "Requests that have blocks", onpointerleave: () => handlers.onPoint(null) });
  }

  /** @param {Run} run @param {readonly Block[]} blocks @param {string} followed */
  draw(run, blocks, followed) {
    const all = holdersOf(run, blocks);
    // The followed one is always among those that are named.
    const own = all.findIndex(({ record }) => record.id === followed);
    const named = own < MOST ? all.slice(0, MOST) : [...all.slice(0, MOST - 1), all[own]];
    const key = `${run.name} ${followed} ${named.map(({ record, held, cached }) => `${record.id} ${held} ${cached}`)} ${all.length}`;
    if (this.root.dataset.key === key) return;
    this.root.dataset.key = key;
    this.root.hidden = all.length === 0;
    fill(this.root, named.map((entry) => this.entry(run, entry, followed)), all.length > named.length ? h("li", { class: "muted" }, `and ${plural(all.length - named.length, "other")}`) : null);
  }

  /** @param {Run} run @param {{record: RequestRecord, held: number, cached: number}} entry @param {string} followed */
  entry(run, { record, held, cached }, followed) {
    const counts = [held ? `${count(held)} held` : "", cached ? `${count(cached)} cached` : ""].filter(Boolean).join(", ");
    const name = h(
      "button",
      {
        type: "button",
        class: "plain link",
        "aria-label": `Follow request ${requestNumber(record)}, ${shortTitle(record)}`,
        "data-tip": `${requestName(run, record.id)}: ${counts}. Click follows it.`,
        onclick: () => this.handlers.onChoose(record.id),
        onfocus: () => this.handlers.onPoint(record.id),
        onblur: () => this.handlers.onPoint(null),
      },
      shortTitle(record),
    );
    return h("li", { "aria-current": record.id === followed ? "true" : null, onpointerenter: () => this.handlers.onPoint(record.id) }, requestMark(record), name, h("span", { class: "muted" }, counts));
  }
}
