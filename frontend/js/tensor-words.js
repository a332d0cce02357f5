// What a captured position's attention is of, in words: which layers and heads, and what a summary leaves out.

import { count, plural, weight } from "./format.js";

/** @typedef {import("./tensors.js").TensorRecord} TensorRecord */

/** The heads of each layer that are here. @param {TensorRecord} attention */
export function headsWord({ headNumbers }) {
  const [first, last] = [headNumbers[0], headNumbers[headNumbers.length - 1]];
  if (first === 0 && last === headNumbers.length - 1) return plural(headNumbers.length, "head");
  return headNumbers.length > 4 ? `${headNumbers.length} of its heads` : `${headNumbers.length === 1 ? "head" : "heads"} ${headNumbers.join(", ")}`;
}

/** Which layers and heads are here. @param {TensorRecord} attention @param {number} layers of the model @param {number} heads of a layer */
export function whatIsHere(attention, layers, heads) {
  const whole = attention.layerNumbers.length >= layers && attention.headNumbers.length >= heads;
  return whole ? "all layers and heads" : `the ${plural(attention.layerNumbers.length, "layer")} and ${headsWord(attention)} captured`;
}

/** What a mean over all that is here is a mean of. @param {TensorRecord} attention @param {number} layers of the model @param {number} heads of a layer */
export function meanOf(attention, layers, heads) {
  const of = whatIsHere(attention, layers, heads);
  return attention.summary ? `${of}; ${summaryWords(attention)}` : of;
}

/** What a summary shows of how much. @param {TensorRecord} attention @returns {string} empty when the rows are whole */
export function summaryWords({ summary }) {
  if (!summary) return "";
  const { kept, keys, mass } = summary;
  return `Summarised, the capture budget being spent: the ${count(kept)} largest of ${count(keys)} keys of each head, showing ${Number.isFinite(mass) ? weight(mass) : "an unknown share"} of the mass`;
}
