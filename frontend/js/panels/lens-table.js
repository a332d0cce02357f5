/** The lens's grid on the page: one row a layer, cells only for the columns in view. One tab stop, arrow keys. */

import { css, rampPixel } from "../colour.js";
import { h, setAttribute, setText } from "../dom.js";
import { tipsFor } from "../tip.js";
import { candidateName } from "../token-names.js";
import { tokenWord } from "../words.js";
import { byLayer, columnWindow, lensCell, scrollTo, shadeOf } from "./lens-grid.js";

/** @typedef {import("../model.js").RequestRecord} RequestRecord */

/** CSS pixels: the least width of a column, and panels.css's --label. */
const COLUMN = 74;
const LABEL = 34;

/**
 * @typedef {object} LensView
 * @property {RequestRecord} record
 * @property {number | null} query column of the selection
 * @property {number | null} followed position of the followed token
 * @property {number} layers
 * @property {number} layer
 * @property {import("./lens-grid.js").Shade} shade
 * @property {number} vocabulary
 * @property {Uint32Array} ramp turned down, to lie under text
 */

/**
 * @typedef {object} LensHandlers
 * @property {(position: number, layer: number) => void} onChoose
 * @property {(columns: number, rows: number) => void} onStep
 * @property {(position: number | null, layer: number | null) => void} onHover
 * @property {() => void} onScroll
 * @property {(position: number, layer: number) => string} describe
 */

/** @type {Record<string, [number, number]>} */
const STEPS = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  PageUp: [0, -5],
  PageDown: [0, 5],
};

export class LensTable {
  /** @param {LensHandlers} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    this.subject = "";
    /** @type {HTMLElement[]} */
    this.rows = [];
    /** Width of what is in view and where it begins; null until it is asked for again: in a frame the answer costs a layout. @type {{width: number, left: number} | null} */
    this.room = null;
    this.track = h("div", { class: "lens-track" });
    this.root = h(
      "div",
      {
        class: "lens-scroll",
        role: "grid",
        tabindex: 0,
        "aria-label": "Logit lens: layers by positions",
        onscroll: () => this.scrolled(),
        onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
      },
      this.track,
    );
    new ResizeObserver(() => {
      this.room = null;
    }).observe(this.root);
    this.root.addEventListener("click", (event) => this.pick(event, handlers.onChoose));
    this.root.addEventListener("pointerover", (event) => this.pick(event, handlers.onHover));
    this.root.addEventListener("pointerleave", () => handlers.onHover(null, null));
    tipsFor(this.root, ".lens-cell", (element) =>
      handlers.describe(Number(element.dataset.position), Number(element.dataset.layer)),
    );
  }

  /** @param {LensView} view @returns {{visibleFrom: number, visibleTo: number}} columns in view */
  draw(view) {
    const columns = view.record.tokens.length;
    if (this.rows.length !== view.layers + 2) this.makeRows(view.layers);
    setAttribute(this.root, "aria-colcount", String(columns));
    setAttribute(this.root, "aria-rowcount", String(view.layers + 2));
    const room = (this.room ??= { width: this.root.clientWidth, left: this.root.scrollLeft });
    const width = room.width - LABEL;
    // Whole columns fill the view: half a word at the edge is no word.
    const column = Math.max(COLUMN, Math.floor(width / Math.max(1, Math.floor(width / COLUMN))));
    this.root.style.setProperty("--column", `${column}px`);
    this.root.style.setProperty("--row", `${rowHeight(view.layers)}px`);
    this.track.style.inlineSize = `${LABEL + columns * column}px`;
    const subject = `${view.record.id} ${view.query}`;
    if (subject !== this.subject && width > 0 && view.query !== null && view.query < columns) {
      const left = scrollTo(view.query, room.left, width, column, columns);
      if (left !== room.left) {
        this.root.scrollLeft = left;
        room.left = this.root.scrollLeft;
      }
      this.subject = subject;
    }
    const span = columnWindow(room.left, width, column, columns);
    const events = Array.from({ length: span.to - span.from }, (_, i) => {
      const event = view.record.lens.get(span.from + i);
      return event ? byLayer(event) : null;
    });
    this.rows.forEach((row, index) => {
      const cells = cellsOf(row, span.to - span.from);
      cells.forEach((cell, i) => {
        const position = span.from + i;
        cell.style.insetInlineStart = `${LABEL + position * column}px`;
        setAttribute(cell, "aria-colindex", String(position + 1));
        if (index === 0) heading(cell, view, position);
        else if (index === view.layers + 1) footing(cell, view, position);
        else guess(cell, view, position, index - 1, events[i]);
      });
      row.classList.toggle("chosen", index === view.layer + 1);
    });
    const current = this.root.querySelector(".lens-cell.current");
    setAttribute(this.root, "aria-activedescendant", current ? current.id : null);
    return span;
  }

  /** The person has scrolled; not this table, which has drawn what came into view. */
  scrolled() {
    const { scrollLeft } = this.root;
    if (scrollLeft === this.room?.left) return;
    if (this.room) this.room.left = scrollLeft;
    this.handlers.onScroll();
  }

  /** A column, and a row, that are pointed at elsewhere. @param {number | null | undefined} position @param {number | null | undefined} layer */
  point(position, layer) {
    this.rows.forEach((row, index) => row.classList.toggle("pointed", layer != null && index === layer + 1));
    const [head] = this.rows;
    for (const cell of head ? Array.from(head.children).slice(1) : []) cell.classList.toggle("pointed", position != null && cell.getAttribute("aria-colindex") === String(position + 1));
  }

  /** @param {number} layers */
  makeRows(layers) {
    const names = ["at", ...Array.from({ length: layers }, (_, layer) => String(layer)), "next"];
    this.rows = names.map((name, index) => {
      const kind = index === 0 ? "head" : index === layers + 1 ? "foot" : "";
      return h(
        "div",
        { class: `lens-row ${kind}`, role: "row", "aria-rowindex": index + 1 },
        h(
          "span",
          { class: "lens-label", role: "rowheader", "aria-label": kind ? `token ${name}` : `Layer ${name}` },
          name,
        ),
      );
    });
    this.track.replaceChildren(...this.rows);
  }

  /** @param {Event} event @param {(position: number, layer: number) => void} act */
  pick(event, act) {
    const cell =
      event.target instanceof Element ? /** @type {HTMLElement | null} */ (event.target.closest(".lens-cell")) : null;
    if (cell?.dataset.position) act(Number(cell.dataset.position), Number(cell.dataset.layer));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = STEPS[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    this.handlers.onStep(...step);
    event.preventDefault();
    event.stopPropagation();
  }
}

/** As tall as lets all layers be seen at once, within what can be read. @param {number} layers */
function rowHeight(layers) {
  return Math.max(15, Math.min(20, Math.floor((innerHeight - 330) / (layers + 3))));
}

/** The row's cells, as many as there are columns in view. @param {HTMLElement} row @param {number} wanted */
function cellsOf(row, wanted) {
  const cells = /** @type {HTMLElement[]} */ (Array.from(row.children).slice(1));
  while (cells.length > wanted) cells.pop()?.remove();
  while (cells.length < wanted) {
    const cell = h("span", null);
    cells.push(cell);
    row.append(cell);
  }
  return cells;
}

/** @param {HTMLElement} cell @param {LensView} view @param {number} position */
function heading(cell, view, position) {
  const token = view.record.tokens[position];
  setAttribute(cell, "role", "columnheader");
  cell.className = position === view.query ? "lens-name query" : "lens-name";
  cell.replaceChildren(h("small", null, position), token ? tokenWord(token) : "");
}

/** @param {HTMLElement} cell @param {LensView} view @param {number} position */
function footing(cell, view, position) {
  const next = view.record.tokens[position + 1];
  setAttribute(cell, "role", "gridcell");
  cell.className = next && position + 1 === view.followed ? "lens-name followed" : "lens-name";
  cell.replaceChildren(next ? tokenWord(next) : h("small", null, "nothing"));
}

/**
 * @param {HTMLElement} cell
 * @param {LensView} view
 * @param {number} position
 * @param {number} layer
 * @param {Map<number, any> | null} layers
 */
function guess(cell, view, position, layer, layers) {
  const content = lensCell(layers?.get(layer));
  const shade = content && shadeOf(content, view.shade, view.vocabulary);
  const current = position === view.query && layer === view.layer;
  const right = content?.rank === 1;
  setAttribute(cell, "role", "gridcell");
  cell.className = [
    "lens-cell",
    content ? "" : "hatch",
    right ? "right" : "",
    current ? "current" : "",
    position === view.query ? "query" : "",
  ].join(" ");
  cell.dataset.position = String(position);
  cell.dataset.layer = String(layer);
  setAttribute(cell, "id", current ? "lens-current" : null);
  setAttribute(cell, "aria-selected", current ? "true" : null);
  setText(cell, content ? candidateName(content, view.record.tokens[position + 1]) : "");
  const pixel = shade === null ? null : rampPixel(view.ramp, shade);
  cell.style.background = pixel === null ? "" : css(pixel);
}
