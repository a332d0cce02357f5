// How many lines of chips a request's tokens take: the ribbon is that high, so that what is below keeps its place while an
// answer comes. Estimated from the texts, because to ask the browser would have it lay out the page anew. Pure.

import { pieceNumber, tokenName } from "./token-names.js";

/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {import("./tokens.js").TokenRecord} TokenRecord */

/** A chip's padding and margin in css/ribbon.css, and the margin that has the positions, pixels. */
const CHIP = 6;
const POSITIONS = 38;

/** Of the font's size: a character of the monospaced fonts that css/tokens.css names; one of Chinese or an emoji is two. */
const CHARACTER = 0.602;
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/gu;

/** Characters of a token that is still to come, taken all in all. */
const TO_COME = 4.5;

/** Lines break between chips: a little of each is left empty. */
const FILLED = 0.95;

/** @param {TokenRecord} token */
function characters(token) {
  // Of a character in pieces the first alone is written out.
  const name = token.group && token.position > token.group.from ? pieceNumber(token) : tokenName(token);
  return name.length + (name.match(WIDE)?.length ?? 0);
}

/**
 * @param {Pick<RequestRecord, "tokens" | "promptLength" | "finished" | "arrived">} record
 * @param {number} width of the ribbon's list, pixels
 * @param {number} font its size, pixels
 * @param {number} most lines that matter: no more are counted
 * @returns {number} at least 1
 */
export function linesWanted({ tokens, promptLength, finished, arrived }, width, font, most) {
  const room = Math.max(1, (width - POSITIONS) * FILLED);
  const toCome = finished ? 0 : Math.max(0, (arrived?.max_tokens ?? 0) - (tokens.length - promptLength));
  let pixels = toCome * (TO_COME * CHARACTER * font + CHIP);
  for (const token of tokens) {
    if (pixels > most * room) break;
    if (token) pixels += characters(token) * CHARACTER * font + CHIP;
  }
  return Math.max(1, Math.min(most, Math.ceil(pixels / room)));
}
