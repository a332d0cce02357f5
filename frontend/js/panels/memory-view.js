/** The block map on the page: one canvas, one tab stop, arrow keys. */

import { css, fraction, inkOn, rampPixel, unpack } from "../colour.js";
import { h, setAttribute } from "../dom.js";
import { fitCanvas } from "../paint.js";
import { colourOf, requestColours } from "../requests.js";
import { blockAt, cellCorner, stepTo } from "./memory-map.js";

/** @typedef {import("../blocks.js").Block} Block */

/**
 * @typedef {object} MapState
 * @property {import("./memory-map.js").MapLayout} layout
 * @property {readonly Block[]} blocks
 * @property {import("../model.js").Run} run
 * @property {string} request the followed one
 * @property {number[] | null} mass attention by index in its block table
 * @property {import("../colour.js").Scale} scale
 * @property {number | null} current the block of the pass that is followed
 * @property {Map<number, "new" | "evicted">} changed lately
 * @property {Set<number>} chain blocks of the prefix that is pointed at
 * @property {import("../canvas.js").Palette} palette
 * @property {string} label for a screen reader
 */

export class MapView {
  /** @param {{onPoint: (block: number | null, x: number, top: number, bottom: number) => void, onChoose: (block: number) => void}} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    /** @type {MapState | null} */
    this.state = null;
    this.focused = 0;
    /** The requests', in the theme that is on. @type {readonly string[]} */
    this.colours = [];
    /** @type {number | null} */
    this.pointed = null;
    this.canvas = h("canvas", {
      class: "block-map",
      tabindex: 0,
      role: "application",
      "aria-label": "Block map",
      "aria-roledescription": "map of KV blocks; arrow keys move, Enter follows the block's first token",
      "aria-describedby": "block-detail",
      onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
      onfocus: () => this.point(this.state?.current ?? this.focused),
      onblur: () => this.point(null),
      onclick: (event) => {
        const block = this.under(/** @type {MouseEvent} */ (event));
        if (block !== null) handlers.onChoose(block);
      },
      onpointermove: (event) => this.point(this.under(/** @type {PointerEvent} */ (event))),
      onpointerleave: () => this.point(null),
    });
  }

  /** @param {MapState} state */
  draw(state) {
    this.state = state;
    this.colours = requestColours();
    const { layout } = state;
    // Outlines lie outside their cells.
    const [width, height] = [layout.width + 4, layout.height + 4];
    const context = fitCanvas(this.canvas, width, height);
    if (!context) return;
    Object.assign(this.canvas.style, { inlineSize: `${width}px`, blockSize: `${height}px` });
    setAttribute(this.canvas, "aria-label", state.label);
    context.translate(2, 2);
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = `10.5px ${state.palette.font}`;
    for (let block = 0; block < layout.shown; block += 1) this.cell(context, state, state.blocks[block]);
    const { palette, current, chain } = state;
    for (const block of chain) this.outline(context, layout, block, palette.text, 1);
    if (current !== null && current < layout.shown) this.outline(context, layout, current, palette.followed, 2);
    if (this.pointed !== null && this.pointed < layout.shown) this.outline(context, layout, this.pointed, palette.text, 2);
  }

  /** @param {CanvasRenderingContext2D} context @param {MapState} state @param {Block} block */
  cell(context, state, block) {
    const { layout, palette, run, request, mass, scale } = state;
    const { cell } = layout;
    const { x, y } = cellCorner(layout, block.block);
    const radius = cell >= 12 ? 3 : 1;
    const hue = (/** @type {string | null} */ id) => colourOf(this.colours, run, id) ?? palette.muted;
    const box = () => {
      context.beginPath();
      context.roundRect(x + 0.5, y + 0.5, cell - 1, cell - 1, radius);
    };
    let ink = palette.muted;
    box();
    if (block.state === "held") {
      const followed = block.holders.includes(request);
      if (followed && mass) {
        const pixel = rampPixel(palette.ramp, fraction(scale, mass[block.logical ?? -1] ?? 0));
        context.fillStyle = css(pixel);
        context.fill();
        ink = inkOn(unpack(pixel));
      } else this.stripes(context, x, y, cell, block.holders.map(hue), followed ? 0.42 : 0.24);
      if (!followed || !mass) ink = palette.text;
      context.strokeStyle = hue(followed ? request : block.holders[0]);
      context.lineWidth = followed ? 2 : 1;
      box();
      context.stroke();
    } else {
      context.strokeStyle = palette.line;
      context.lineWidth = 1;
      if (block.state === "cached") {
        context.strokeStyle = hue(block.writer);
        context.globalAlpha = 0.75;
        context.setLineDash(cell >= 12 ? [2, 2] : []);
      }
      context.stroke();
      context.setLineDash([]);
      context.globalAlpha = 1;
    }
    if (layout.numbers) {
      context.fillStyle = ink;
      context.globalAlpha = block.state === "free" ? 0.6 : 1;
      context.fillText(String(block.block), x + cell / 2, y + cell / 2 + 0.5);
      context.globalAlpha = 1;
    }
    this.marks(context, state, block, x, y, ink);
  }

  /** One stripe a holder. @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} cell @param {string[]} hues @param {number} alpha */
  stripes(context, x, y, cell, hues, alpha) {
    context.save();
    context.clip();
    context.globalAlpha = alpha;
    hues.forEach((hue, i) => {
      context.fillStyle = hue;
      context.fillRect(x + (cell * i) / hues.length, y, cell / hues.length, cell);
    });
    context.restore();
  }

  /** Shared by several; just given out; just evicted. @param {CanvasRenderingContext2D} context @param {MapState} state @param {Block} block @param {number} x @param {number} y @param {string} ink */
  marks(context, { layout, palette, run, changed }, block, x, y, ink) {
    const { cell } = layout;
    if (block.refs > 1 && cell >= 12) {
      // A dot a holder along the lower edge, in its colour, ringed so that it shows on any fill.
      const most = Math.min(block.refs, Math.floor((cell - 4) / 5));
      for (let i = 0; i < most; i += 1) {
        context.fillStyle = colourOf(this.colours, run, block.holders[i]) ?? palette.muted;
        context.strokeStyle = ink;
        context.lineWidth = 0.75;
        context.beginPath();
        context.arc(x + 4.5 + i * 5, y + cell - 5, 2, 0, 2 * Math.PI);
        context.fill();
        context.stroke();
      }
    }
    const what = changed.get(block.block);
    if (!what) return;
    const size = Math.max(3, Math.min(7, cell / 3));
    context.fillStyle = what === "evicted" ? palette.text : palette.followed;
    context.beginPath();
    context.moveTo(x + cell - size, y);
    context.lineTo(x + cell, y);
    context.lineTo(x + cell, y + size);
    context.closePath();
    context.fill();
  }

  /** @param {CanvasRenderingContext2D} context @param {import("./memory-map.js").MapLayout} layout @param {number} block @param {string} colour @param {number} width */
  outline(context, layout, block, colour, width) {
    const { x, y } = cellCorner(layout, block);
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.strokeRect(x - width / 2, y - width / 2, layout.cell + width, layout.cell + width);
  }

  /** @param {number | null} block */
  point(block) {
    if (block === this.pointed) return;
    this.pointed = block;
    if (block !== null) this.focused = block;
    const box = this.canvas.getBoundingClientRect();
    const corner = this.state && block !== null ? cellCorner(this.state.layout, block) : { x: 0, y: 0 };
    const cell = this.state?.layout.cell ?? 0;
    this.handlers.onPoint(block, box.left + 2 + corner.x + cell / 2, box.top + 2 + corner.y, box.top + 2 + corner.y + cell);
  }

  /** @param {MouseEvent} event */
  under(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.state ? blockAt(this.state.layout, event.clientX - box.left - 2, event.clientY - box.top - 2) : null;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!this.state || event.altKey || event.ctrlKey || event.metaKey) return;
    const next = stepTo(this.state.layout, this.focused, event.key);
    if (next !== null) this.point(next);
    else if (event.key === "Enter") this.handlers.onChoose(this.focused);
    else return;
    event.preventDefault();
    event.stopPropagation(); // the page's own arrow keys walk over tokens
  }
}
