// How requests are told apart: each by its number, which is its own, and by a colour that goes with it.
//
// Eight colours are about as many as can be told apart, by the colour-blind as well, on a dark page and on a light one; and
// as many requests run at once unless one is told otherwise. The ninth has the first one's colour again, so that colour
// never stands alone: the number is beside it.

import { h } from "./dom.js";
import { titleOf } from "./model.js";
import { cssColour } from "./paint.js";

/** @typedef {import("./model.js").Run} Run */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {{number: number}} Numbered */

/** As many as css/tokens.css has. */
export const REQUEST_COLOURS = 8;

/** Characters of a prompt where there is room for a name. */
const NAME = 34;

/** A request's number as one reads it, in the order of arrival: “#1” is the run's first. @param {Numbered} record */
export function requestNumber({ number }) {
  return `#${number + 1}`;
}

/** Which of the colours, for `data-hue`. @param {Numbered} record */
export function requestHue({ number }) {
  return number % REQUEST_COLOURS;
}

/** The colours in the theme that is on, for canvases and figures. @returns {string[]} */
export function requestColours() {
  return Array.from({ length: REQUEST_COLOURS }, (_, i) => cssColour(`--request-${i}`));
}

/** A request's colour; null for one that is not here. @param {readonly string[]} colours @param {Run} run @param {string | null} id @returns {string | null} */
export function colourOf(colours, run, id) {
  const record = id === null ? undefined : run.requests.get(id);
  return record ? colours[requestHue(record)] : null;
}

/** What was asked, on one line that is not too long. @param {RequestRecord} record @param {number} [most] characters */
export function shortTitle(record, most = NAME) {
  const title = titleOf(record).replace(/\s+/g, " ");
  return title.length > most ? `${title.slice(0, most - 1)}…` : title;
}

/** What was asked, in quotes; that of a fork begins with the quoted token, and takes no more of them. @param {RequestRecord} record @param {string} [title] */
export function quotedTitle(record, title = titleOf(record)) {
  return record.parent && !record.arrived?.name ? title : `“${title}”`;
}

/** A request in a sentence: its number and what was asked. @param {Run} run @param {string | null} id */
export function requestName(run, id) {
  const record = id === null ? undefined : run.requests.get(id);
  return record ? `${requestNumber(record)} ${quotedTitle(record, shortTitle(record))}` : (id ?? "a request that is not here");
}

/** Number and colour in one. @param {Numbered} record */
export function requestMark(record) {
  return h("span", { class: "request-mark", "data-hue": requestHue(record) }, record.number + 1);
}
