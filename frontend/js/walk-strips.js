// One canvas for all layers' strips: a row a layer, a column a token. Where rows are tall, as with few layers, a line a head.

import { rampPixel } from "./colour.js";
import { fitCanvas, pageRamp, weightFraction } from "./paint.js";

/** @typedef {import("./tensors.js").TensorRecord} TensorRecord */

const GAP = 1;

/** Between layers whose heads have lines of their own: theirs touch. */
const WIDE_GAP = 3;

/** A head's line needs so many pixels to be told from its neighbours. */
const LEAST_LINE = 5;

/** @type {HTMLCanvasElement | null} */
let scratch = null;

/**
 * Whether each head has a line of its own, or the layer one for all of them.
 * @param {number} height of all strips, in CSS pixels
 * @param {number} layers
 * @param {number} heads
 */
export function linesByHead(height, layers, heads) {
  return heads > 1 && (height / layers - 2 * WIDE_GAP) / heads >= LEAST_LINE;
}

/**
 * The layer and head under a point of the strips.
 * @param {number} y from the strips' upper edge
 * @param {number} height
 * @param {number} layers
 * @param {number} heads
 * @returns {{layer: number, head: number | null}} head: null where there is one line for all of them
 */
export function lineAt(y, height, layers, heads) {
  const row = height / layers;
  const layer = Math.max(0, Math.min(layers - 1, Math.floor(y / row)));
  if (!linesByHead(height, layers, heads)) return { layer, head: null };
  const part = (y - layer * row - WIDE_GAP) / (row - 2 * WIDE_GAP);
  return { layer, head: Math.max(0, Math.min(heads - 1, Math.floor(part * heads))) };
}

/**
 * Draws where the heads looked: the mean over each layer's, or a line for each.
 * @param {HTMLCanvasElement} canvas
 * @param {{width: number, height: number}} size in CSS pixels
 * @param {TensorRecord | null} attention
 * @param {number} layers
 */
export function drawStrips(canvas, { width, height }, attention, layers) {
  const context = fitCanvas(canvas, width, height);
  if (!context || !attention) return;
  const { keys } = attention;
  const { heads, firstLayer } = attention;
  const lines = linesByHead(height, layers, heads) ? heads : 1;
  const columns = Math.min(keys, canvas.width);
  const pixels = pageRamp();
  scratch ??= document.createElement("canvas");
  scratch.width = columns;
  scratch.height = layers * lines;
  const drawing = scratch.getContext("2d");
  if (!drawing) return;
  const image = drawing.createImageData(columns, layers * lines);
  const out = new Uint32Array(image.data.buffer);
  const means = lines === 1 ? attention.headMeans() : null;
  const paint = (/** @type {ArrayLike<number>} */ row, /** @type {number} */ line) => {
    for (let column = 0; column < columns; column += 1) {
      // Where a column stands for several tokens it shows the largest: a mean would drown the one that matters.
      const from = Math.floor((column * keys) / columns);
      const to = Math.max(from + 1, Math.floor(((column + 1) * keys) / columns));
      let value = 0;
      for (let key = from; key < to; key += 1) if (row[key] > value) value = row[key];
      out[line * columns + column] = rampPixel(pixels, weightFraction(value));
    }
  };
  for (const layer of attention.layerNumbers) {
    if (means) paint(means.subarray((layer - firstLayer) * keys, (layer - firstLayer + 1) * keys), layer);
    else
      for (const head of attention.headNumbers) {
        const row = attention.row(layer, head);
        if (row) paint(row, layer * lines + head);
      }
  }
  drawing.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  const row = height / layers;
  const gap = lines === 1 ? GAP : WIDE_GAP;
  for (let layer = 0; layer < layers; layer += 1) {
    context.drawImage(scratch, 0, layer * lines, columns, lines, 0, layer * row + gap, width, row - 2 * gap);
  }
}

/**
 * Where a token lies along the strips; null where it is not in them.
 * @param {TensorRecord} attention
 * @param {number | null | undefined} position
 * @param {number} width
 * @returns {{left: number, width: number} | null}
 */
export function placeOfKey({ keys, event }, position, width) {
  const key = position == null ? -1 : position - (event.first_key ?? 0);
  return key < 0 || key >= keys ? null : { left: (key / keys) * width, width: width / keys };
}

/**
 * The token under a point of the strips.
 * @param {TensorRecord} attention
 * @param {number} x from the strips' left edge
 * @param {number} width
 */
export function keyAt(attention, x, width) {
  const { keys } = attention;
  const key = Math.max(0, Math.min(keys - 1, Math.floor((x / width) * keys)));
  return key + (attention.event.first_key ?? 0);
}
