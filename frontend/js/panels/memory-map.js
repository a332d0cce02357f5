/** Where each block lies on the map, and which one a point or a key leads to. */

/** @typedef {{shown: number, columns: number, rows: number, cell: number, gap: number, width: number, height: number, numbers: boolean}} MapLayout  sizes in CSS pixels */

/** As many blocks are shown at first, even when only one was ever used. */
const LEAST_SHOWN = 64;

/** A cell that three digits fit into, and the smallest that can still be told from its neighbour. */
const LARGEST = 27;
const SMALLEST = 5;

/** From this size on, cells carry their numbers. */
const NUMBERED = 22;

/**
 * How many blocks to show: most of a large memory is never used. It grows by doubling, so that the map does not creep.
 * @param {number} blocks how many there are
 * @param {number} highest the highest that was ever in use, or −1
 */
export function shownBlocks(blocks, highest) {
  let shown = LEAST_SHOWN;
  while (shown <= highest) shown *= 2;
  return Math.min(blocks, shown);
}

/**
 * @param {number} shown blocks
 * @param {number} width there is
 * @param {number} height that it should not exceed, if cells can be made small enough
 * @returns {MapLayout}
 */
export function mapLayout(shown, width, height) {
  let cell = LARGEST;
  const at = (/** @type {number} */ size) => {
    const gap = size >= 12 ? 3 : 1;
    const columns = Math.max(1, Math.min(shown, Math.floor((width + gap) / (size + gap))));
    const rows = Math.ceil(shown / columns);
    return { shown, columns, rows, cell: size, gap, width: columns * (size + gap) - gap, height: rows * (size + gap) - gap, numbers: size >= NUMBERED };
  };
  while (cell > SMALLEST && at(cell).height > height) cell -= 1;
  return at(cell);
}

/** Upper left corner of a block. @param {MapLayout} layout @param {number} block */
export function cellCorner({ columns, cell, gap }, block) {
  return { x: (block % columns) * (cell + gap), y: Math.floor(block / columns) * (cell + gap) };
}

/** @param {MapLayout} layout @param {number} x @param {number} y @returns {number | null} the block there; gaps belong to the cell before */
export function blockAt({ columns, cell, gap, shown, width, height }, x, y) {
  if (x < 0 || y < 0 || x >= width || y >= height) return null;
  const block = Math.floor(y / (cell + gap)) * columns + Math.floor(x / (cell + gap));
  return block < shown ? block : null;
}

/** @param {MapLayout} layout @param {number} block @param {string} key @returns {number | null} null for other keys */
export function stepTo({ columns, shown }, block, key) {
  /** @type {Record<string, number>} */
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  if (key === "Home") return 0;
  if (key === "End") return shown - 1;
  if (!(key in by)) return null;
  const to = block + by[key];
  return to < 0 || to >= shown ? block : to;
}
