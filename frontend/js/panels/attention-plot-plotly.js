/** The chosen head's matrix as a Plotly heatmap. */

import { css, fraction } from "../colour.js";
import { PLOTLY_CONFIG, plotlyMatrix, plotlyText } from "../figure.js";
import { absentRuns, axisTicks } from "./attention-axes.js";
import { MARGIN, matrixSide, plotHeight } from "./attention-plot-canvas.js";

/** @typedef {import("./attention-plot.js").HeadView} HeadView */
/** @typedef {{x: [number, number], y: [number, number]}} Ranges */

const COLOUR_STOPS = 64;

export class PlotlyMatrix {
  /**
   * @param {import("../figure.js").Plotly} library
   * @param {HTMLElement} host
   * @param {import("./attention-plot.js").PlotHandlers} handlers
   */
  constructor(library, host, handlers) {
    this.library = library;
    this.host = host;
    this.handlers = handlers;
    /** @type {HeadView | null} */
    this.view = null;
    /** @type {Ranges | null} what the person zoomed to */
    this.zoom = null;
    this.key = "";
    this.trace = /** @type {any} */ (null);
    this.subject = "";
    this.image = { key: "", source: "" };
    this.listening = false;
  }

  /** @param {HeadView} view */
  draw(view) {
    const subject = `${view.subject} ${view.matrix.span}`;
    if (subject !== this.subject) this.zoom = null;
    this.subject = subject;
    this.view = view;
    const key = `${view.version} ${view.tokens} ${view.side} ${JSON.stringify(view.scale)} ${view.hideSink} ${view.palette.theme}`;
    // Another token followed in the same picture moves the outline: redrawing 400 × 400 weights for that takes 50 ms.
    if (key === this.key) this.library.relayout(this.host, { shapes: outline(view) });
    else {
      this.trace = heatmap(view);
      this.library.react(this.host, [this.trace], this.layout(view), PLOTLY_CONFIG);
    }
    this.key = key;
    if (!this.listening) this.listen();
  }

  /** @param {HeadView} view */
  layout(view) {
    const { matrix, palette, side } = view;
    const whole = /** @type {[number, number]} */ ([-0.5, matrix.span - 0.5]);
    const ranges = this.zoom ?? { x: whole, y: [whole[1], whole[0]] };
    const ticks = (/** @type {number[]} */ range) => {
      const [from, to] = [Math.min(...range), Math.max(...range)];
      return axisTicks(
        Math.max(0, Math.ceil(from)),
        Math.min(matrix.span, Math.floor(to) + 1),
        matrixSide(side, true),
        view.label,
      );
    };
    const [x, y] = [ticks(ranges.x), ticks(ranges.y)];
    const axis = {
      showgrid: false,
      zeroline: false,
      showline: true,
      mirror: true,
      linecolor: palette.line,
      linewidth: 1,
      ticks: "",
      tickfont: { size: 10, color: palette.muted, family: palette.font },
      fixedrange: false,
    };
    return {
      width: side,
      height: plotHeight(side, y.labelled),
      autosize: false,
      uirevision: this.subject,
      dragmode: "zoom",
      hovermode: "closest",
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      showlegend: false,
      margin: {
        l: (y.labelled ? MARGIN.labels : MARGIN.numbers).left,
        r: MARGIN.right,
        t: MARGIN.top,
        b: (x.labelled ? MARGIN.labels : MARGIN.numbers).bottom,
        pad: 0,
      },
      xaxis: { ...axis, ...tickLayout(x), range: ranges.x, tickangle: x.labelled ? -90 : 0 },
      yaxis: { ...axis, ...tickLayout(y), range: ranges.y },
      shapes: outline(view),
      images: this.hatching(view),
      font: { family: palette.font, color: palette.text },
    };
  }

  /** Where there is nothing to show, a hatched picture lies under the matrix. @param {HeadView} view */
  hatching(view) {
    const { matrix, tokens, hideSink, palette, side } = view;
    const runs = absentRuns(matrix.rows, Math.min(tokens, matrix.span));
    if (runs.length === 0 && !hideSink) return [];
    const key = JSON.stringify([runs, matrix.span, tokens, hideSink, palette.theme, side]);
    if (key !== this.image.key) this.image = { key, source: hatchPicture(view, runs) };
    const { span } = matrix;
    return [
      {
        source: this.image.source,
        xref: "x",
        yref: "y",
        x: -0.5,
        y: -0.5,
        sizex: span,
        sizey: span,
        sizing: "stretch",
        layer: "below",
        xanchor: "left",
        yanchor: "top",
      },
    ];
  }

  listen() {
    this.listening = true;
    const host = /** @type {any} */ (this.host);
    host.on("plotly_hover", (/** @type {any} */ { points, event }) => {
      const [point] = points;
      if (point) this.handlers.onPoint({ query: point.y, key: point.x, x: event.clientX, y: event.clientY });
    });
    host.on("plotly_unhover", () => this.handlers.onPoint(null));
    host.on("plotly_click", (/** @type {any} */ { points }) => {
      if (points[0]) this.handlers.onChoose(points[0].y);
    });
    host.on("plotly_relayout", (/** @type {any} */ change) => this.zoomed(change));
  }

  /** @param {any} change */
  zoomed(change) {
    const names = Object.keys(change);
    if (!names.some((name) => /^[xy]axis\.(range|autorange)/.test(name)) || !this.view) return;
    const { xaxis, yaxis } = /** @type {any} */ (this.host).layout;
    const whole = names.some((name) => name.endsWith("autorange"));
    this.zoom = whole ? null : { x: [xaxis.range[0], xaxis.range[1]], y: [yaxis.range[0], yaxis.range[1]] };
    this.library.react(
      this.host,
      [this.trace],
      { ...this.layout(this.view), uirevision: `${Math.random()}` },
      PLOTLY_CONFIG,
    );
  }

  destroy() {
    this.library.purge(this.host);
  }
}

/** @param {HeadView} view */
function heatmap(view) {
  const { matrix, scale, palette, hideSink, tokens } = view;
  const { span, values, rows } = matrix;
  const z = new Float32Array(span * span).fill(NaN); // NaN is left transparent: the future, and what is absent
  for (let query = 0; query < Math.min(span, tokens); query++) {
    if (rows[query] === 0) continue;
    for (let key = hideSink ? 1 : 0; key <= query; key++)
      z[query * span + key] = fraction(scale, values[query * span + key]);
  }
  const last = palette.ramp.length - 1;
  const colorscale = Array.from({ length: COLOUR_STOPS + 1 }, (_, i) => [
    i / COLOUR_STOPS,
    css(palette.ramp[Math.round((i / COLOUR_STOPS) * last)]),
  ]);
  return {
    type: "heatmap",
    z: plotlyMatrix(z, span, span),
    x0: 0,
    dx: 1,
    y0: 0,
    dy: 1,
    zmin: 0,
    zmax: 1,
    zauto: false,
    colorscale,
    showscale: false,
    hoverinfo: "none",
  };
}

/** @param {{ticks: {at: number, text: string}[]}} axis */
function tickLayout({ ticks }) {
  return {
    tickmode: "array",
    tickvals: ticks.map(({ at }) => at),
    ticktext: ticks.map(({ text }) => plotlyText(text)),
  };
}

/** The followed row, and the key that is pointed at elsewhere. @param {HeadView} view */
function outline({ query, hover, matrix: { span }, palette }) {
  const box = (/** @type {number[]} */ [x0, x1, y0, y1], /** @type {string} */ color, /** @type {number} */ width) => ({
    type: "rect",
    xref: "x",
    yref: "y",
    x0,
    x1,
    y0,
    y1,
    line: { color, width },
    layer: "above",
  });
  const boxes = [];
  if (hover !== null && hover < span)
    boxes.push(box([hover - 0.5, hover + 0.5, hover - 0.5, span - 0.5], palette.text, 1));
  if (query !== null && query < span)
    boxes.push(box([-0.5, query + 0.5, query - 0.5, query + 0.5], palette.followed, 1.5));
  return boxes;
}

/** @param {HeadView} view @param {[number, number][]} runs @returns {string} a data URL */
function hatchPicture({ matrix, tokens, hideSink, palette, side }, runs) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d");
  if (!context) return "";
  const cell = side / matrix.span;
  const pattern = document.createElement("canvas");
  pattern.width = pattern.height = 4;
  const ink = pattern.getContext("2d");
  if (!ink) return "";
  ink.fillStyle = css(palette.absent[0]);
  for (let i = 0; i < 4; i++) ink.fillRect((4 - i) % 4, i, 2, 1);
  context.fillStyle = context.createPattern(pattern, "repeat") ?? palette.muted;
  for (const [from, to] of runs) {
    for (let query = from; query < to; query++) context.fillRect(0, query * cell, (query + 1) * cell, cell + 0.5);
  }
  if (hideSink) context.fillRect(0, 0, cell, tokens * cell);
  return canvas.toDataURL();
}
