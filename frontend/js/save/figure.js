// A figure: what it shows and of which run above it, the drawing, and below it what a reader must know, what was left out among it.

import { css } from "../colour.js";
import { titleOf } from "../model.js";
import { cssColour, pageRamp } from "../paint.js";
import { quotedTitle, requestColours, requestNumber } from "../requests.js";
import { tokenName } from "../token-names.js";
import { Drawing, wrapped } from "./drawing.js";

/**
 * The page's colours, resolved.
 * @typedef {{theme: "dark" | "light", background: string, raised: string, text: string, muted: string, faint: string, line: string,
 *   strong: string, followed: string, onFollowed: string, attention: string, mlp: string, bar: string, warn: string, ramp: Uint32Array,
 *   requests: readonly string[]}} Ink
 */

/**
 * @typedef {object} Figure
 * @property {string} title
 * @property {string} of which token of which request of which run
 * @property {number} width of the drawing itself
 * @property {number} height
 * @property {string[]} caption sentences
 * @property {(drawing: Drawing, left: number, top: number) => void} draw
 */

const MARGIN = 20;
const TITLE = 24;
const NARROWEST = 460;
const SMALL = 11;
const LEADING = 15;

/** @returns {Ink} */
export function readInk() {
  const ramp = pageRamp();
  return {
    theme: document.documentElement.dataset.theme === "light" ? "light" : "dark",
    background: css(ramp[0]),
    raised: cssColour("--raised"),
    text: cssColour("--text"),
    muted: cssColour("--muted"),
    faint: cssColour("--faint"),
    line: cssColour("--line"),
    strong: cssColour("--line-strong"),
    followed: cssColour("--followed"),
    onFollowed: cssColour("--on-followed"),
    attention: cssColour("--attention"),
    mlp: cssColour("--mlp"),
    bar: cssColour("--bar"),
    warn: cssColour("--warn"),
    ramp,
    requests: requestColours(),
  };
}

/** @param {Figure} figure @param {Ink} ink @returns {{svg: string, width: number, height: number}} */
export function drawFigure({ title, of, width, height, caption, draw }, ink) {
  const inner = Math.max(width, NARROWEST);
  const small = (/** @type {string[]} */ sentences) => sentences.filter(Boolean).flatMap((sentence) => wrapped(sentence, inner, SMALL));
  const [titles, subject, lines] = [wrapped(title, inner, 16), small([of]), small(caption)];
  const top = MARGIN + titles.length * TITLE + subject.length * LEADING + 8;
  const drawing = new Drawing(inner + 2 * MARGIN, top + height + 14 + lines.length * LEADING + MARGIN, ink.background);
  titles.forEach((line, i) => drawing.text(MARGIN, MARGIN + i * TITLE + 14, line, { size: 16, weight: 600, fill: ink.text }));
  const write = (/** @type {string[]} */ text, /** @type {number} */ y) => text.forEach((line, i) => drawing.text(MARGIN, y + (i + 0.8) * LEADING, line, { size: SMALL, fill: ink.muted }));
  write(subject, MARGIN + titles.length * TITLE - 6);
  draw(drawing, MARGIN, top);
  write(lines, top + height + 14);
  return { svg: drawing.svg(`${title}. ${of}`, ink.strong), width: drawing.width, height: drawing.height };
}

/**
 * @param {import("../store.js").State} state
 * @param {import("../model.js").RequestRecord | null} record
 */
export function subjectOf({ run, selection }, record) {
  if (!run) return "no run";
  const token = selection.position === null ? undefined : record?.tokens[selection.position];
  const asked = record ? `${requestNumber(record)} ${quotedTitle(record, titleOf(record).replace(/\s+/g, " ").slice(0, 80))} · ` : "";
  const followed = token ? `token ${token.position} “${tokenName(token)}”, ${selection.act === "chosen" ? "how it was chosen" : "what it did next"} · ` : "";
  return `${asked}${followed}run ${run.name} · ${run.header?.model.name ?? "unknown model"} · Tokenwalk ${run.header?.engine_version ?? ""}`;
}

/** A ramp with its ends. @param {Drawing} drawing @param {number} x @param {number} y @param {Ink} ink @param {[string, string]} ends */
export function drawRamp(drawing, x, y, ink, [low, high]) {
  drawing.text(x, y + 8, low, { size: 10, fill: ink.muted });
  const left = x + 8 + low.length * 6;
  drawing.cells(left, y, 128, 1, 1, 8, (i) => css(ink.ramp[i * 2]));
  drawing.text(left + 136, y + 8, high, { size: 10, fill: ink.muted });
}
