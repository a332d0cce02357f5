// The wire as a figure (the lines around the followed token) and a table (all tokens).

import { bytes, count, hex, plural, visibleText } from "../format.js";
import { delays } from "../panels/wire-data.js";
import { signed } from "../panels/wire-list.js";
import { tokenName, tokenText } from "../token-names.js";
import { fitted } from "./drawing.js";

/** @typedef {import("../panels/wire-data.js").WireRow} WireRow */

const ROW = 17;
const MOST_LINES = 60;
const COLUMNS = [0, 44, 164, 300, 440, 492, 540, 610, 680, 750];
const WIDTH = 900;

/** @param {readonly WireRow[]} rows @param {number | null} position followed @param {number} scale nanoseconds at the bars' end @param {import("./figure.js").Ink} ink */
export function wireFigure(rows, position, scale, ink) {
  const followed = rows.findIndex(({ token }) => token.position === position);
  const from = Math.max(0, Math.min(rows.length - MOST_LINES, (followed < 0 ? 0 : followed) - MOST_LINES / 2));
  const shown = rows.slice(from, from + MOST_LINES);
  return {
    title: "Wire: how the answer’s tokens left",
    width: WIDTH,
    height: (shown.length + 1) * ROW,
    caption: [
      rows.length > shown.length ? `${plural(rows.length - shown.length, "more token")} of the answer not in this figure; the CSV has all.` : `All ${plural(rows.length, "token")} of the answer.`,
      `Times from the moment each token was chosen; ″: in the same chunk. Bars end at ${signed(scale)}: until queued, then until the socket had it.`,
    ],
    draw: (/** @type {import("./drawing.js").Drawing} */ d, /** @type {number} */ left, /** @type {number} */ top) => {
      const line = (/** @type {number} */ row, /** @type {string[]} */ texts, /** @type {string} */ fill) => texts.forEach((text, i) => d.text(left + COLUMNS[i], top + row * ROW + 12, text, { size: 11, fill, mono: i === 1 || i === 2 || i === 3 }));
      line(0, ["at", "token", "bytes", "released", "held", "chunk", "size", "queued", "sent"], ink.muted);
      shown.forEach(({ token, event, chunk, first }, i) => {
        const delay = delays({ token, event, chunk, first, shares: 1 });
        const fit = (/** @type {string} */ text, /** @type {number} */ width) => fitted(text, width, 11, true);
        line(
          i + 1,
          [
            count(token.position), fit(tokenName(token), 112), fit(hex(token.bytes), 128), fit(event.special ? "control token" : visibleText(event.text), 132),
            event.held_back_bytes ? plural(event.held_back_bytes, "byte") : "", chunk ? (first ? count(chunk.chunk) : "″") : "–", chunk && first ? bytes(chunk.chunk_bytes) : "", delay ? signed(delay.queued) : "", delay ? signed(delay.sent) : "not sent",
          ],
          token.position === position ? ink.followed : ink.text,
        );
        if (!delay) return;
        const room = WIDTH - COLUMNS[9];
        const [queued, sent] = [delay.queued, delay.sent].map((ns) => room * Math.max(0, Math.min(1, ns / scale)));
        d.rect(left + COLUMNS[9], top + (i + 1) * ROW + 5, queued, 7, { fill: ink.bar });
        d.rect(left + COLUMNS[9] + queued, top + (i + 1) * ROW + 5, sent - queued, 7, { fill: ink.text });
      });
    },
  };
}

/** @param {readonly WireRow[]} rows @returns {import("./csv.js").Table} */
export function wireTable(rows) {
  return {
    columns: ["position", "token id", "token", "bytes (hex)", "control token", "text released", "held back (bytes)", "chunk", "tokens in chunk", "chunk size (bytes)", "text in chunk (bytes)", "chosen (ns of the run)", "queued (ns after choice)", "sent (ns after choice)"],
    rows: rows.map((row) => {
      const { token, event, chunk, shares } = row;
      const delay = delays(row);
      return [token.position, token.id, tokenText(token), hex(token.bytes), event.special, event.text, event.held_back_bytes, chunk?.chunk, chunk ? shares : null, chunk?.chunk_bytes, chunk?.text_bytes, event.t_ns, delay?.queued, delay?.sent];
    }),
  };
}
