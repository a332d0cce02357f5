/**
 * The wall: every layer × head as a small lower-triangular matrix, all on one canvas. This file is its arithmetic and
 * its pixels; nothing here touches the page.
 *
 * @typedef {import("./attention-pool.js").PooledMatrices} PooledMatrices
 * @typedef {{layers: number, heads: number, cell: number, gap: number, gutter: number, top: number,
 *   width: number, height: number}} WallLayout  CSS pixels; gutter: left, for layer numbers; top: for head numbers
 */

const GUTTER = 24;
const TOP = 16;
const SMALLEST = 8;
const LARGEST = 36;

/**
 * Fit the wall into a space. The height may be exceeded rather than drop below the smallest legible cell: the panel
 * scrolls.
 * @param {number} layers
 * @param {number} heads
 * @param {number} width
 * @param {number} height
 * @returns {WallLayout}
 */
export function wallLayout(layers, heads, width, height) {
  const byWidth = Math.floor((width - GUTTER) / Math.max(1, heads));
  const byHeight = Math.floor((height - TOP) / Math.max(1, layers));
  const pitch = Math.max(SMALLEST, Math.min(LARGEST, byWidth, Math.max(14, byHeight)));
  const gap = pitch >= 14 ? 2 : 1;
  return {
    layers,
    heads,
    cell: pitch - gap,
    gap,
    gutter: GUTTER,
    top: TOP,
    width: GUTTER + heads * pitch - gap,
    height: TOP + layers * pitch - gap,
  };
}

/**
 * Which cell a point is in. Points in the gutter name a layer alone, points above the wall a head alone.
 * @param {WallLayout} layout
 * @param {number} x
 * @param {number} y
 * @returns {{layer: number | null, head: number | null} | null}
 */
export function wallHit(layout, x, y) {
  const pitch = layout.cell + layout.gap;
  const head = Math.floor((x - layout.gutter) / pitch);
  const layer = Math.floor((y - layout.top) / pitch);
  const inHead = head >= 0 && head < layout.heads;
  const inLayer = layer >= 0 && layer < layout.layers;
  if (inHead && inLayer) return { layer, head };
  if (inLayer && x >= 0 && x < layout.gutter) return { layer, head: null };
  if (inHead && y >= 0 && y < layout.top) return { layer: null, head };
  return null;
}

/** Top left corner of a cell. @param {WallLayout} layout @param {number} layer @param {number} head */
export function wallCorner(layout, layer, head) {
  const pitch = layout.cell + layout.gap;
  return { x: layout.gutter + head * pitch, y: layout.top + layer * pitch };
}

/**
 * The matrix cell (query, key) under a point of the wall, with the head it belongs to.
 * @param {WallLayout} layout
 * @param {PooledMatrices} matrices
 * @param {number} x
 * @param {number} y
 */
export function wallCell(layout, matrices, x, y) {
  const hit = wallHit(layout, x, y);
  if (!hit || hit.layer === null || hit.head === null) return null;
  const corner = wallCorner(layout, hit.layer, hit.head);
  const scale = matrices.size / layout.cell;
  const at = (/** @type {number} */ offset) => Math.min(matrices.size - 1, Math.floor(offset * scale));
  const query = at(y - corner.y);
  const key = at(x - corner.x);
  if (query < 0 || key < 0) return null;
  return { layer: hit.layer, head: hit.head, query, key };
}

/**
 * Move over the wall with the arrow keys.
 * @param {{layer: number, head: number}} from
 * @param {string} key `KeyboardEvent.key`
 * @param {number} layers
 * @param {number} heads
 * @returns {{layer: number, head: number} | null} null when the key means nothing here
 */
export function wallStep({ layer, head }, key, layers, heads) {
  const clamp = (/** @type {number} */ value, /** @type {number} */ count) => Math.min(count - 1, Math.max(0, value));
  switch (key) {
    case "ArrowUp":
      return { layer: clamp(layer - 1, layers), head };
    case "ArrowDown":
      return { layer: clamp(layer + 1, layers), head };
    case "ArrowLeft":
      return { layer, head: clamp(head - 1, heads) };
    case "ArrowRight":
      return { layer, head: clamp(head + 1, heads) };
    case "PageUp":
      return { layer: clamp(layer - 5, layers), head };
    case "PageDown":
      return { layer: clamp(layer + 5, layers), head };
    case "Home":
      return { layer, head: 0 };
    case "End":
      return { layer, head: heads - 1 };
    default:
      return null;
  }
}

/**
 * What a matrix is painted with.
 * @typedef {{table: Uint32Array, absent: Uint32Array, future: number, hideSink: boolean}} Paint
 *   table: `weightTable`; absent: two pixels, hatched where nothing was captured; future: a pixel, for keys after the query
 */

/**
 * Paint matrix `index` into a square of pixels. Keys after the query are exactly 0 by construction and take `future`;
 * rows nobody captured of this layer and head, and a hidden sink, are hatched.
 * @param {PooledMatrices} matrices
 * @param {number} index
 * @param {number} tokens how many of the span's tokens exist
 * @param {Paint} paint
 * @param {Uint32Array} pixels
 * @param {number} stride pixels in a line
 * @param {number} at first pixel of the square
 * @param {number} side its side in pixels
 */
export function paintMatrix(matrices, index, tokens, paint, pixels, stride, at, side) {
  const { size, values, rows, cellOf, span } = matrices;
  const { table, absent, future, hideSink } = paint;
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const cells = cellColumns(size, side);
  const lastRow = tokens > 0 ? cellOf[Math.min(tokens, span) - 1] : -1;
  for (let y = 0; y < side; y++) {
    const row = cells[y];
    const line = at + y * stride;
    const from = (index * size + row) * size;
    const captured = rows[index * size + row] > 0;
    for (let x = 0; x < side; x++) {
      const key = cells[x];
      if (key > row || row > lastRow) pixels[line + x] = future;
      else if (!captured || (hideSink && key === 0)) pixels[line + x] = absent[((x + y) >> 1) & 1];
      else pixels[line + x] = table[bits[from + key] >>> 16];
    }
  }
}

/** @type {Map<number, Uint16Array>} */
const columns = new Map();

/** Pixel → cell, for `size` cells over `side` pixels. @param {number} size @param {number} side */
function cellColumns(size, side) {
  const name = size * 65536 + side;
  let cells = columns.get(name);
  if (!cells) {
    cells = Uint16Array.from({ length: side }, (_, pixel) => Math.floor((pixel * size) / side));
    if (columns.size > 64) columns.clear();
    columns.set(name, cells);
  }
  return cells;
}

/**
 * Paint the whole wall.
 * @param {WallLayout} layout
 * @param {PooledMatrices} matrices layers × heads of them
 * @param {number} tokens
 * @param {Paint} paint
 * @param {number} ratio device pixels a CSS pixel
 * @returns {{pixels: Uint32Array, width: number, height: number}} device pixels; 0 (transparent) between the cells
 */
export function paintWall(layout, matrices, tokens, paint, ratio) {
  const width = Math.round(layout.width * ratio);
  const height = Math.round(layout.height * ratio);
  const pixels = new Uint32Array(width * height);
  const side = Math.round(layout.cell * ratio);
  for (let layer = 0; layer < layout.layers; layer++) {
    for (let head = 0; head < layout.heads; head++) {
      const corner = wallCorner(layout, layer, head);
      const x = Math.min(width - side, Math.round(corner.x * ratio));
      const y = Math.min(height - side, Math.round(corner.y * ratio));
      paintMatrix(matrices, layer * layout.heads + head, tokens, paint, pixels, width, y * width + x, side);
    }
  }
  return { pixels, width, height };
}
