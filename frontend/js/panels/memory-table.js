/** The followed request's block table: logical block → physical block, with what is in it, who else holds it, and what was read of it. */

import { fraction } from "../colour.js";
import { h, setAttribute, setText } from "../dom.js";
import { term } from "../explain.js";
import { plural, weight as weightText } from "../format.js";
import { blockText, positionsText } from "./memory-words.js";

/** @typedef {import("../blocks.js").Block} Block */

/**
 * @typedef {object} TableState
 * @property {import("../model.js").Run} run
 * @property {import("../model.js").RequestRecord} record
 * @property {Block[]} table by index in the block table
 * @property {number[] | null} mass
 * @property {number | null} current index of the followed pass's block
 * @property {import("../colour.js").Scale} scale
 */

/**
 * A row's elements, what it is about, and whether that can still become more.
 * @typedef {{row: HTMLElement, cells: HTMLElement[], bar: HTMLElement, weight: HTMLElement, block: Block | null, record: import("../model.js").RequestRecord | null, settled: boolean}} Entry
 */

export class BlockTable {
  /** @param {{onPoint: (block: number | null) => void, onChoose: (block: Block) => void}} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    /** @type {Entry[]} */
    this.rows = [];
    this.body = h("div", { role: "rowgroup" });
    const heads = ["", term("memory.table", "block"), "positions", "tokens", term("memory.shared", "shared"), term("memory.hash", "hash"), term("memory.attention", "attention")];
    this.root = h(
      "div",
      { class: "block-table", role: "table", "aria-label": "Blocks of this request" },
      h("div", { role: "row", class: "head" }, heads.map((name) => h("span", { role: name ? "columnheader" : "cell" }, name))),
      this.body,
    );
  }

  /** @param {TableState} state */
  draw({ run, record, table, mass, current, scale }) {
    while (this.rows.length < table.length) this.add(this.rows.length);
    this.rows.forEach((entry, logical) => {
      const block = table[logical] ?? null;
      entry.row.hidden = block === null;
      if (block && !(entry.settled && entry.block === block && entry.record === record)) this.describe(entry, logical, block, record);
      entry.block = block;
      if (!block) return;
      const weight = mass?.[logical];
      setText(entry.weight, weight === undefined ? "" : weightText(weight));
      entry.bar.style.inlineSize = `${100 * (weight === undefined ? 0 : fraction(scale, weight))}%`;
      setAttribute(entry.row, "aria-current", logical === current ? "true" : null);
    });
  }

  /**
   * What a row says of its block, which stays as it is: a block's state is never changed in place.
   * @param {Entry} entry @param {number} logical @param {Block} block @param {import("../model.js").RequestRecord} record
   */
  describe(entry, logical, block, record) {
    const others = block.refs - 1;
    const texts = [
      String(logical),
      String(block.block),
      positionsText(block.positions),
      blockText(record, block.positions, 60),
      others ? `+${others}` : block.writer !== null && block.writer !== record.id ? "found" : "",
      block.prefix_hash?.slice(0, 6) ?? "",
    ];
    texts.forEach((text, i) => setText(entry.cells[i], text));
    setAttribute(entry.cells[4], "data-tip", others ? `Held by ${plural(others, "other request")} too: computed once` : texts[4] ? "Found in the prefix cache: another request computed it" : null);
    setAttribute(entry.cells[5], "data-tip", block.prefix_hash ? `${block.prefix_hash}\nafter ${block.parent_hash ?? "nothing: it is the first"}` : null);
    entry.record = record;
    entry.settled = record.tokens.length >= (block.positions?.[1] ?? Infinity);
  }

  /** @param {number} logical */
  add(logical) {
    const cells = Array.from({ length: 6 }, (_, i) => h("span", { role: "cell", class: ["num", "num strong", "num", "mono text", "", "mono"][i] }));
    const bar = h("i");
    const weight = h("span", { class: "num" });
    const button = h("button", { type: "button", class: "plain", "aria-label": `Follow the first token of block ${logical}`, onclick: () => this.choose(logical) });
    button.append(cells[1].cloneNode());
    const number = /** @type {HTMLElement} */ (button.firstElementChild);
    number.removeAttribute("role");
    const holder = h("span", { role: "cell", class: "num strong" }, button);
    const row = h(
      "div",
      { role: "row", onpointerenter: () => this.handlers.onPoint(this.rows[logical].block?.block ?? null), onpointerleave: () => this.handlers.onPoint(null) },
      cells[0], holder, ...cells.slice(2),
      h("span", { role: "cell", class: "mass" }, h("span", { class: "bar" }, bar), weight),
    );
    cells[1] = number;
    this.rows.push({ row, cells, bar, weight, block: null, record: null, settled: false });
    this.body.append(row);
  }

  /** @param {number} logical */
  choose(logical) {
    const { block } = this.rows[logical];
    if (block) this.handlers.onChoose(block);
  }
}
