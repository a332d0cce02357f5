// The ribbon as a figure and a table.

import { css, inkOn, rampPixel, unpack } from "../colour.js";
import { hex } from "../format.js";
import { isCached, isGenerated, queryPosition } from "../model.js";
import { momentOf } from "../timeline.js";
import { pieceNumber, tokenName, tokenText } from "../token-names.js";
import { fitted, textWidth } from "./drawing.js";
import { drawRamp } from "./figure.js";

/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("../store.js").State} State */

const WIDTH = 1000;
const GUTTER = 40;
const LINE = 22;
const SIZE = 12;

/** Text of a chip: of a character in pieces, the first piece has it all. @param {import("../tokens.js").TokenRecord} token */
function chipText(token) {
  const { group, position } = token;
  return group && position > group.from ? pieceNumber(token) : tokenName(token);
}

/**
 * @param {RequestRecord} record
 * @param {State} state
 * @param {import("../ribbon-colours.js").Colouring} colouring
 * @param {import("./figure.js").Ink} ink
 */
export function ribbonFigure(record, { selection }, colouring, ink) {
  let [x, line] = [GUTTER, 0];
  const chips = record.tokens.map((token) => {
    const text = fitted(chipText(token), WIDTH - GUTTER - 8, SIZE, true);
    const tone = colouring.tone?.(token) ?? null;
    const label = tone?.label ?? "";
    const width = textWidth(label + text, SIZE, true) + 6 + (label ? 6 : 0);
    if (x + width > WIDTH && x > GUTTER) [x, line] = [GUTTER, line + 1];
    const chip = { token, text, label, tone, x, line, width, first: x === GUTTER };
    x += width + 2;
    return chip;
  });
  return {
    title: `Tokens, coloured: ${colouring.legend}`,
    width: WIDTH,
    height: (line + 1) * LINE + (colouring.ends ? 22 : 0),
    caption: [`All ${record.tokens.length} tokens: ${record.promptLength} of the prompt, ${record.tokens.length - record.promptLength} of the answer (underlined). Stand-ins: · space, ↵ line feed, → tab.`],
    draw: (/** @type {import("./drawing.js").Drawing} */ d, /** @type {number} */ left, /** @type {number} */ top) => {
      for (const { token, text, label, tone, x: chipLeft, line: row, width, first } of chips) {
        const [cx, cy] = [left + chipLeft, top + row * LINE];
        const place = colouring.place(token);
        const pixel = place === null ? null : rampPixel(ink.ramp, place);
        if (first) d.text(left + GUTTER - 8, cy + 14, String(token.position), { size: 10, fill: ink.faint, anchor: "end" });
        if (pixel !== null) d.rect(cx, cy, width, LINE - 3, { fill: css(pixel), radius: 3 });
        else if (tone) d.rect(cx, cy, width, LINE - 3, { fill: tone.hue === null ? ink.bar : ink.requests[tone.hue], opacity: tone.name.includes("odd") ? 0.45 : 0.25, radius: 3 });
        if (label) d.text(cx + 3, cy + 13, label, { size: 9, fill: ink.muted });
        d.text(cx + 3 + (label ? textWidth(label, SIZE, true) + 6 : 0), cy + 14, text, { size: SIZE, mono: true, fill: pixel === null ? ink.text : inkOn(unpack(pixel)), weight: token.position === selection.position ? 700 : undefined });
        if (isGenerated(record, token.position)) d.line(cx, cy + LINE - 3, cx + width, cy + LINE - 3, ink.strong);
        if (token.position === selection.position) d.rect(cx - 1, cy - 1, width + 2, LINE - 1, { stroke: ink.followed, width: 2, radius: 3 });
      }
      if (colouring.ends) drawRamp(d, left + GUTTER, top + (line + 1) * LINE + 8, ink, colouring.ends);
    },
  };
}

/** @param {RequestRecord} record @param {State} state @returns {import("./csv.js").Table} */
export function ribbonTable(record, { run, selection }) {
  const query = queryPosition(selection);
  const array = query === null ? undefined : record.attention.get(query);
  const mean = array?.overallMean();
  const first = array?.event.first_key ?? 0;
  const arrived = record.arrived?.t_ns ?? 0;
  const rows = record.tokens.map((token) => {
    const { event, position } = token;
    const place = run?.blocks?.placeOf(record.id, position);
    const moment = run ? momentOf(run, record, position) : null;
    return [
      position, token.id, hex(token.bytes), tokenText(token), token.role, token.special, event !== null,
      event?.logprob == null ? null : Math.exp(event.logprob), event?.logprob, event?.entropy_bits, event?.rank, event?.step,
      moment === null ? null : moment - arrived, mean?.[position - first], place?.block, place?.offset, isCached(record, position),
    ];
  });
  return {
    columns: [
      "position", "token id", "bytes (hex)", "text", "role", "control token", "generated", "probability", "log-probability (nat)", "entropy (bit)",
      "rank", "step", "time after arrival (ns)", `mean attention of the pass at ${query ?? "none"}`, "KV block", "offset in block", "found in cache",
    ],
    rows,
  };
}

