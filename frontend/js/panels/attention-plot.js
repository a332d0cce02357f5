/**
 * The chosen head as a matrix with token axes: drawn by Plotly up to 512 tokens, on a canvas above that, where Plotly
 * would take a quarter of a second a frame. The canvas also stands in while tokens stream in, when each would cost Plotly
 * a redrawing of everything, and until Plotly has been loaded. Both put the matrix in the same place.
 */

import { loadPlotly } from "../figure.js";
import { drawOnCanvas } from "./attention-plot-canvas.js";
import { PlotlyMatrix } from "./attention-plot-plotly.js";

/** @typedef {import("../canvas.js").Palette} Palette */
/** @typedef {import("../colour.js").Scale} Scale */
/** @typedef {import("./attention-pool.js").PooledMatrices} PooledMatrices */

/**
 * @typedef {object} HeadView
 * @property {PooledMatrices} matrix one of them
 * @property {number} version changes when the matrix's weights do
 * @property {number} tokens
 * @property {number | null} query the followed row
 * @property {Scale} scale
 * @property {Uint32Array} table
 * @property {boolean} hideSink
 * @property {Palette} palette
 * @property {number} side CSS pixels
 * @property {string} subject names the request; zoom is kept while it stays the same
 * @property {boolean} streaming whether rows are still coming
 * @property {number | null} hover a key that is pointed at elsewhere
 * @property {(position: number) => string} label
 * @property {string} description for those who cannot see it
 */

/** @typedef {{query: number, key: number, x: number, y: number}} MatrixPoint  x, y: in the window */
/** @typedef {{onPoint: (point: MatrixPoint | null) => void, onChoose: (query: number) => void, onReady: () => void}} PlotHandlers */

export const LARGEST_PLOTLY_SIDE = 512;

export class HeadPlot {
  /** @param {HTMLElement} root @param {PlotHandlers} handlers */
  constructor(root, handlers) {
    this.root = root;
    this.handlers = handlers;
    /** @type {HeadView | null} */
    this.view = null;
    /** @type {PlotlyMatrix | null} */
    this.plotly = null;
    /** @type {string | null} why Plotly is not used, when it should be */
    this.fault = null;
    this.asked = false;
    /** Whether what is drawn can be zoomed. */
    this.zooms = false;
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.host = document.createElement("div");
    this.host.className = "plotly-host";
    this.host.setAttribute("role", "img");
    root.append(this.canvas, this.host);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => handlers.onPoint(null));
    this.canvas.addEventListener("click", (event) => {
      const point = this.pointAt(event);
      if (point) handlers.onChoose(point.query);
    });
  }

  /** @param {HeadView} view */
  draw(view) {
    this.view = view;
    const usePlotly = view.matrix.span <= LARGEST_PLOTLY_SIDE && !view.streaming;
    if (usePlotly && !this.asked) this.ask();
    const plotly = usePlotly ? this.plotly : null;
    this.zooms = plotly !== null;
    this.canvas.hidden = plotly !== null;
    this.host.hidden = plotly === null;
    (plotly ? this.host : this.canvas).setAttribute("aria-label", view.description);
    if (plotly) plotly.draw(view);
    else this.area = drawOnCanvas(this.canvas, view);
  }

  ask() {
    this.asked = true;
    loadPlotly().then(
      (library) => {
        this.plotly = new PlotlyMatrix(library, this.host, this.handlers);
        this.fault = null;
        this.handlers.onReady();
      },
      (/** @type {Error} */ error) => {
        this.fault = `${error.message}: drawn without Plotly, so without zoom`;
        this.asked = false;
      },
    );
  }

  /** @param {PointerEvent | MouseEvent} event @returns {MatrixPoint | null} */
  pointAt(event) {
    if (!this.view || !this.area) return null;
    const box = this.canvas.getBoundingClientRect();
    const { left, top, side } = this.area;
    const { matrix, tokens } = this.view;
    const at = (/** @type {number} */ offset) => Math.floor((offset / side) * matrix.span);
    const query = at(event.clientY - box.top - top);
    const key = at(event.clientX - box.left - left);
    if (key < 0 || query < key || query >= tokens) return null;
    return { query, key, x: event.clientX, y: event.clientY };
  }

  /** @param {PointerEvent} event */
  point(event) {
    this.handlers.onPoint(this.pointAt(event));
  }

  destroy() {
    this.plotly?.destroy();
    this.root.replaceChildren();
  }
}
