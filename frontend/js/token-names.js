// What tokens are called: the same in every view. Pure.
//
// A token's name is its text, with stand-ins for what cannot be seen. One that is only a piece of a character is called by the
// character and which piece it is, “你 1/2”; where nobody knows the character yet, as with a guess that did not come, by its
// bytes, “<0xE4>”.

import { plural, visibleText } from "./format.js";

/** @typedef {import("./tokens.js").TokenRecord} TokenRecord */

/** A token that might come, or might have: a lens's guess, a candidate of the sampler. @typedef {{id: number, label?: string | null}} Candidate */

/** Bytes that are no whole character, as the engine writes them in a label. Below 0x80 each is one: there it is text that looks so. */
const BYTES = /<0x[89A-F][0-9A-F]>/g;

/** The text to know a token by: of a piece, the whole character that it is part of. @param {TokenRecord} token */
export function tokenText(token) {
  return token.group ? token.group.text : (token.text ?? token.label);
}

/** Which piece of its character a token is, “1/2”; "" for a token that stands alone. @param {TokenRecord} token */
export function pieceNumber({ group, position }) {
  return group ? `${position - group.from + 1}/${group.to - group.from + 1}` : "";
}

/** The same in words: “piece 2 of 3”. @param {TokenRecord} token */
export function pieceText(token) {
  return token.group ? `piece ${pieceNumber(token).replace("/", " of ")}` : "";
}

/** @param {TokenRecord} token */
export function tokenName(token) {
  return [visibleText(tokenText(token)), pieceNumber(token)].filter(Boolean).join(" ");
}

/** Whether a token has neither letter nor digit: in a sentence it would be taken for the sentence's own punctuation. @param {TokenRecord} token */
export function isPunctuation(token) {
  return !/[\p{L}\p{N}]/u.test(tokenText(token));
}

/** A token's name within a sentence. @param {TokenRecord} token */
export function nameInSentence(token) {
  return isPunctuation(token) ? `“${tokenName(token)}”` : tokenName(token);
}

/** Whether a candidate is the token that came. @param {Candidate} candidate @param {TokenRecord | null | undefined} came @returns {came is TokenRecord} */
export function isWhatCame(candidate, came) {
  return came != null && came.id === candidate.id;
}

/** The text of a candidate's label, as it is. @param {Candidate} candidate */
export function labelOf({ id, label }) {
  return label ?? `#${id}`;
}

/** @param {Candidate} candidate @param {TokenRecord | null | undefined} came the token that came there, if one did */
export function candidateName(candidate, came) {
  return isWhatCame(candidate, came) ? tokenName(came) : visibleText(labelOf(candidate));
}

/** What a name in bytes means; "" for every other name. @param {string} label */
export function bytesNote(label) {
  const bytes = label.match(BYTES)?.length ?? 0;
  return bytes ? `${label.match(BYTES)?.join("")}: ${plural(bytes, "byte")} of a character; the rest would be in other tokens` : "";
}
