/** The chosen head's matrix on a canvas, with the axes that Plotly would have drawn. */

import { putPixels } from "../canvas.js";
import { fitCanvas } from "../paint.js";
import { axisTicks } from "./attention-axes.js";
import { paintMatrix } from "./attention-wall.js";

/** Room for the axes, in CSS pixels; labels of tokens need more than numbers. */
export const MARGIN = { numbers: { left: 34, bottom: 24 }, labels: { left: 84, bottom: 80 }, top: 6, right: 6 };

/** Side of the matrix itself, in a plot that is so wide. @param {number} width @param {boolean} labelled */
export function matrixSide(width, labelled) {
  return width - (labelled ? MARGIN.labels : MARGIN.numbers).left - MARGIN.right;
}

/** Height of the plot, so that the matrix is a square. @param {number} width @param {boolean} labelled */
export function plotHeight(width, labelled) {
  return matrixSide(width, labelled) + (labelled ? MARGIN.labels : MARGIN.numbers).bottom + MARGIN.top;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import("./attention-plot.js").HeadView} view
 * @returns {{left: number, top: number, side: number} | null} where the matrix is, in CSS pixels
 */
export function drawOnCanvas(canvas, view) {
  const { matrix, palette, side: whole } = view;
  const { labelled } = axisTicks(0, matrix.span, matrixSide(whole, true), view.label);
  const { left } = labelled ? MARGIN.labels : MARGIN.numbers;
  const side = matrixSide(whole, labelled);
  const height = plotHeight(whole, labelled);
  const context = fitCanvas(canvas, whole, height);
  if (!context) return null;
  Object.assign(canvas.style, { inlineSize: `${whole}px`, blockSize: `${height}px` });
  const ratio = devicePixelRatio || 1;
  const pixels = Math.max(1, Math.round(side * ratio));
  const buffer = new Uint32Array(pixels * pixels);
  const paint = { table: view.table, absent: palette.absent, future: 0, hideSink: view.hideSink };
  paintMatrix(matrix, 0, view.tokens, paint, buffer, pixels, 0, pixels);
  putPixels(context, buffer, pixels, pixels, Math.round(left * ratio), Math.round(MARGIN.top * ratio));
  const area = { left, top: MARGIN.top, side };
  drawAxes(context, view, area);
  outline(context, view, area);
  return area;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import("./attention-plot.js").HeadView} view
 * @param {{left: number, top: number, side: number}} area
 */
function drawAxes(context, view, { left, top, side }) {
  const { matrix, palette } = view;
  const cell = side / matrix.span;
  const { labelled, ticks } = axisTicks(0, matrix.span, side, view.label);
  context.fillStyle = palette.muted;
  context.font = `10px ${palette.font}`;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const { at, text } of ticks) {
    context.fillText(text, left - 5, top + (at + 0.5) * cell);
    context.save();
    context.translate(left + (at + 0.5) * cell, top + side + 5);
    if (labelled) context.rotate(-Math.PI / 2);
    else {
      context.textAlign = "center";
      context.textBaseline = "top";
    }
    context.fillText(text, 0, 0);
    context.restore();
  }
  context.strokeStyle = palette.line;
  context.strokeRect(left - 0.5, top - 0.5, side + 1, side + 1);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import("./attention-plot.js").HeadView} view
 * @param {{left: number, top: number, side: number}} area
 */
function outline(context, { matrix, query, hover, palette }, { left, top, side }) {
  const cell = side / matrix.span;
  if (hover !== null && hover < matrix.span) {
    context.strokeStyle = palette.text;
    context.strokeRect(left + hover * cell - 1, top + hover * cell - 1, Math.max(1, cell) + 2, side - hover * cell + 2);
  }
  if (query === null || query >= matrix.span) return;
  context.strokeStyle = palette.followed;
  context.lineWidth = 1.5;
  context.strokeRect(left - 1, top + query * cell - 1, (query + 1) * cell + 2, Math.max(1, cell) + 2);
}
