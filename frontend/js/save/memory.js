// The block map as a figure and a table.

import { css, fraction, inkOn, rampPixel, unpack } from "../colour.js";
import { count, plural } from "../format.js";
import { cellCorner, mapLayout } from "../panels/memory-map.js";
import { blockText, positionsText } from "../panels/memory-words.js";
import { colourOf, requestName } from "../requests.js";
import { fitted } from "./drawing.js";

/** @typedef {import("../blocks.js").Block} Block */
/** @typedef {import("../model.js").Run} Run */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {{run: Run, record: RequestRecord, blocks: readonly Block[], mass: number[] | null, shown: number, current: number | null, title: string, scale: import("../colour.js").Scale}} View */

const WIDTH = 860;
const ROW = 17;

/** Lines of the request's block table in a figure. */
const MOST_LINES = 64;

/** @param {View} view @param {import("./figure.js").Ink} ink */
export function memoryFigure({ run, record, blocks, mass, shown, current, title, scale }, ink) {
  const layout = mapLayout(shown, WIDTH, 600);
  const own = blocks.filter((block) => block.state === "held" && block.logical !== null && block.holders.includes(record.id)).sort((a, b) => (a.logical ?? 0) - (b.logical ?? 0));
  const listed = own.slice(0, MOST_LINES);
  const holders = [...new Set(blocks.flatMap((block) => block.holders))];
  const named = holders.slice(0, 12);
  return {
    title,
    width: WIDTH,
    height: layout.height + 16 + named.length * ROW + 12 + (listed.length + 1) * ROW,
    caption: [
      blocks.length > shown ? `${count(blocks.length - shown)} more blocks, never used so far, are not drawn.` : `All ${count(blocks.length)} blocks.`,
      mass ? "Shade: share of the followed pass’s attention on the block." : "",
      "Solid frame: held, in the holder’s colour; dashed: cached; faint: free. Attention shares and hashes of all blocks are in the CSV.",
      own.length > listed.length ? `${plural(own.length - listed.length, "more block")} of this request not listed.` : "",
      holders.length > named.length ? `${plural(holders.length - named.length, "more holder")} not named.` : "",
    ],
    draw: (/** @type {import("./drawing.js").Drawing} */ d, /** @type {number} */ left, /** @type {number} */ top) => {
      for (const block of blocks.slice(0, shown)) drawBlock(d, block, { run, record, mass, layout, left, top, scale, ink });
      if (current !== null && current < shown) {
        const { x, y } = cellCorner(layout, current);
        d.rect(left + x - 1, top + y - 1, layout.cell + 2, layout.cell + 2, { stroke: ink.followed, width: 2 });
      }
      let y = top + layout.height + 16;
      for (const id of named) {
        d.rect(left, y + 3, 10, 10, { fill: colourOf(ink.requests, run, id) ?? ink.muted, radius: 2 });
        d.text(left + 18, y + 12, requestName(run, id), { size: 11, fill: ink.text });
        y += ROW;
      }
      y += 12;
      const columns = [0, 50, 110, 200, 640, 720, 800];
      ["", "block", "positions", "tokens", "holders", "hash", "attention"].forEach((name, i) => d.text(left + columns[i], y + 12, name, { size: 11, fill: ink.muted }));
      for (const block of listed) {
        y += ROW;
        const share = mass?.[block.logical ?? -1];
        const texts = [String(block.logical), String(block.block), positionsText(block.positions), fitted(blockText(record, block.positions, 70), 430, 11, true), String(block.refs), block.prefix_hash?.slice(0, 8) ?? "", share === undefined ? "" : share.toFixed(4)];
        texts.forEach((text, i) => d.text(left + columns[i], y + 12, text, { size: 11, fill: block.block === current ? ink.followed : ink.text, mono: i === 3 || i === 5 }));
      }
    },
  };
}

/**
 * @param {import("./drawing.js").Drawing} d
 * @param {Block} block
 * @param {{run: Run, record: RequestRecord, mass: number[] | null, layout: import("../panels/memory-map.js").MapLayout, left: number, top: number, scale: import("../colour.js").Scale, ink: import("./figure.js").Ink}} on
 */
function drawBlock(d, block, { run, record, mass, layout, left, top, scale, ink }) {
  const { cell } = layout;
  const corner = cellCorner(layout, block.block);
  const [x, y] = [left + corner.x, top + corner.y];
  const followed = block.holders.includes(record.id);
  let fill = ink.text;
  if (block.state === "held") {
    if (followed && mass) {
      const pixel = rampPixel(ink.ramp, fraction(scale, mass[block.logical ?? -1] ?? 0));
      d.rect(x, y, cell, cell, { fill: css(pixel) });
      fill = inkOn(unpack(pixel));
    } else {
      block.holders.forEach((id, i) => d.rect(x + (cell * i) / block.holders.length, y, cell / block.holders.length, cell, { fill: colourOf(ink.requests, run, id) ?? ink.muted, opacity: followed ? 0.42 : 0.24 }));
    }
    d.rect(x + 0.5, y + 0.5, cell - 1, cell - 1, { stroke: colourOf(ink.requests, run, followed ? record.id : block.holders[0]) ?? ink.muted, width: followed ? 2 : 1, radius: 2 });
  } else {
    const cached = block.state === "cached";
    fill = ink.muted;
    d.rect(x + 0.5, y + 0.5, cell - 1, cell - 1, { stroke: cached ? (colourOf(ink.requests, run, block.writer) ?? ink.muted) : ink.line, radius: 2, dash: cached ? "2 2" : undefined });
  }
  if (layout.numbers) d.text(x + cell / 2, y + cell / 2 + 4, String(block.block), { size: 10, fill, anchor: "middle" });
}

/** Every block, the free ones too. @param {Pick<View, "run" | "record" | "blocks" | "mass">} view @returns {import("./csv.js").Table} */
export function memoryTable({ run, record, blocks, mass }) {
  return {
    columns: ["block", "state", "holders", "held by", "logical index", "position from", "position to (excluded)", "prefix hash", "parent hash", "computed by", "last use (ns of the run)", "attention of the followed pass (share)"],
    rows: blocks.map((block) => [
      block.block, block.state, block.refs, block.holders.join(" "), block.logical, block.positions?.[0], block.positions?.[1], block.prefix_hash, block.parent_hash,
      block.writer === null ? null : requestName(run, block.writer), block.last_use_ns,
      mass && block.holders.includes(record.id) ? (mass[block.logical ?? -1] ?? 0) : null,
    ]),
  };
}
