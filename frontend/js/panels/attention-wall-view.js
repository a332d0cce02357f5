/** The wall on the page: one canvas, one tab stop, arrow keys. */

import { putPixels } from "../canvas.js";
import { h, setAttribute } from "../dom.js";
import { fitCanvas } from "../paint.js";
import { paintWall, wallCell, wallCorner, wallHit, wallStep } from "./attention-wall.js";

/** @typedef {import("./attention-wall.js").WallLayout} WallLayout */
/** @typedef {import("./attention-pool.js").Head} Head */

/**
 * @typedef {object} WallViewState
 * @property {WallLayout} layout
 * @property {import("./attention-pool.js").PooledMatrices} matrices
 * @property {string} key changes when the pixels do
 * @property {number} tokens
 * @property {import("./attention-wall.js").Paint} paint
 * @property {import("../canvas.js").Palette} palette
 * @property {Head} current
 * @property {Set<string> | null} selected "layer:head" of those that are averaged or summed
 * @property {{layer?: number | null, head?: number | null}} hover
 */

/**
 * @typedef {object} WallHandlers
 * @property {(head: Head, keyboard: boolean) => void} onCurrent
 * @property {(which: {layer: number | null, head: number | null}) => void} onToggle a cell, a whole layer or a head of all layers
 * @property {(cell: {layer: number, head: number, query: number, key: number, x: number, y: number} | null) => void} onHover
 */

export class WallView {
  /** @param {HTMLElement} root @param {WallHandlers} handlers */
  constructor(root, handlers) {
    this.handlers = handlers;
    /** @type {WallViewState | null} */
    this.state = null;
    /** @type {{key: string, buffer: Uint32Array, width: number, height: number}} */
    this.pixels = { key: "", buffer: new Uint32Array(0), width: 0, height: 0 };
    this.canvas = h("canvas", {
      class: "attn-wall",
      tabindex: 0,
      role: "application",
      "aria-label": "Attention heads",
      "aria-roledescription": "wall of heads; arrow keys choose layer and head, Enter adds to a mean or sum",
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
      onclick: (event) => this.click(/** @type {MouseEvent} */ (event)),
      onpointermove: (event) => this.hover(/** @type {PointerEvent} */ (event)),
      onpointerleave: () => handlers.onHover(null),
    });
    /** Scrolls where the wall is taller than its share of the panel. */
    this.frame = h("div", { class: "attn-wall-frame" }, this.canvas);
    this.shown = "";
    root.append(this.frame);
  }

  /** @param {WallViewState} state */
  draw(state) {
    this.state = state;
    const { layout, matrices, palette } = state;
    const [width, height] = [layout.width + 2, layout.height + 2]; // an outline lies outside its cell
    const context = fitCanvas(this.canvas, width, height);
    if (!context) return;
    Object.assign(this.canvas.style, { inlineSize: `${width}px`, blockSize: `${height}px` });
    const ratio = devicePixelRatio || 1;
    const key = `${state.key} ${ratio} ${layout.width} ${layout.height}`;
    if (key !== this.pixels.key) {
      const painted = paintWall(layout, matrices, state.tokens, state.paint, ratio);
      this.pixels = { key, buffer: painted.pixels, width: painted.width, height: painted.height };
    }
    putPixels(context, this.pixels.buffer, this.pixels.width, this.pixels.height);
    this.drawLabels(context, layout, palette);
    this.drawOutlines(context, state);
    const { layer, head } = state.current;
    this.keepInView(layout, layer);
    setAttribute(
      this.canvas,
      "aria-label",
      `Attention heads: layer ${layer}, head ${head} of ${layout.layers} layers × ${layout.heads} heads`,
    );
  }

  /** Scroll to the chosen layer when it changes, and leave the person's own scrolling alone. @param {WallLayout} layout @param {number} layer */
  keepInView(layout, layer) {
    const key = `${layer} ${layout.height}`;
    if (key === this.shown) return;
    this.shown = key;
    const { frame } = this;
    const { y } = wallCorner(layout, layer, 0);
    if (y < frame.scrollTop || y + layout.cell > frame.scrollTop + frame.clientHeight)
      frame.scrollTop = y - frame.clientHeight / 2;
  }

  /** @param {CanvasRenderingContext2D} context @param {WallLayout} layout @param {import("../canvas.js").Palette} palette */
  drawLabels(context, layout, palette) {
    const { layer: chosenLayer, head: chosenHead } = this.state?.current ?? { layer: -1, head: -1 };
    const pitch = layout.cell + layout.gap;
    context.font = `10px ${palette.font}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    // Numbers that would touch are left out; the chosen ones are always written.
    const every = Math.max(1, Math.ceil(11 / pitch));
    for (let layer = 0; layer < layout.layers; layer++) {
      const chosen = layer === chosenLayer;
      if (!chosen && (layer % every || (every > 1 && Math.abs(layer - chosenLayer) < every))) continue;
      context.fillStyle = chosen ? palette.followed : palette.muted;
      context.fillText(String(layer), layout.gutter - 5, wallCorner(layout, layer, 0).y + layout.cell / 2 + 0.5);
    }
    context.textAlign = "center";
    const everyHead = Math.max(1, Math.ceil(14 / pitch));
    for (let head = 0; head < layout.heads; head++) {
      const chosen = head === chosenHead;
      if (!chosen && (head % everyHead || (everyHead > 1 && Math.abs(head - chosenHead) < everyHead))) continue;
      context.fillStyle = chosen ? palette.followed : palette.muted;
      context.fillText(String(head), wallCorner(layout, 0, head).x + layout.cell / 2, layout.top / 2);
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {WallViewState} state */
  drawOutlines(context, { layout, palette, current, selected, hover }) {
    const box = (
      /** @type {number} */ layer,
      /** @type {number} */ head,
      /** @type {string} */ colour,
      /** @type {number} */ width,
    ) => {
      const { x, y } = wallCorner(layout, layer, head);
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.strokeRect(x - width / 2, y - width / 2, layout.cell + width, layout.cell + width);
    };
    for (const name of selected ?? []) {
      const [layer, head] = name.split(":").map(Number);
      box(layer, head, palette.followed, 1);
    }
    if (hover.layer !== null && hover.layer !== undefined && hover.layer < layout.layers) {
      const { head } = hover;
      if (head !== null && head !== undefined) box(hover.layer, head, palette.text, 1);
      else {
        const { y } = wallCorner(layout, hover.layer, 0);
        context.strokeStyle = palette.text;
        context.lineWidth = 1;
        context.strokeRect(layout.gutter - 0.5, y - 0.5, layout.width - layout.gutter + 1, layout.cell + 1);
      }
    }
    if (!selected) box(current.layer, current.head, palette.followed, 2);
    else box(current.layer, current.head, palette.text, 2);
  }

  /** @param {MouseEvent} event */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  /** @param {MouseEvent} event */
  click(event) {
    if (!this.state) return;
    const { x, y } = this.at(event);
    const hit = wallHit(this.state.layout, x, y);
    if (!hit) return;
    if (hit.layer !== null && hit.head !== null) this.handlers.onCurrent({ layer: hit.layer, head: hit.head }, false);
    else if (!this.state.selected) this.handlers.onCurrent({ ...this.state.current, ...known(hit) }, false);
    if (this.state.selected) this.handlers.onToggle(hit);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!this.state || event.altKey || event.ctrlKey || event.metaKey) return;
    const { layout, current, selected } = this.state;
    const next = wallStep(current, event.key, layout.layers, layout.heads);
    if (next) this.handlers.onCurrent(next, true);
    else if ((event.key === "Enter" || event.key === " ") && selected) this.handlers.onToggle(current);
    else return;
    event.preventDefault();
    event.stopPropagation(); // the page's own arrow keys walk over tokens
  }

  /** @param {PointerEvent} event */
  hover(event) {
    if (!this.state) return;
    const { x, y } = this.at(event);
    const cell = wallCell(this.state.layout, this.state.matrices, x, y);
    this.handlers.onHover(cell ? { ...cell, x: event.clientX, y: event.clientY } : null);
  }
}

/** @param {{layer: number | null, head: number | null}} hit @returns {Partial<Head>} */
function known({ layer, head }) {
  return { ...(layer === null ? {} : { layer }), ...(head === null ? {} : { head }) };
}
