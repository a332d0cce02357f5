// What looking inside a request will cost, as the server works it out, in words. Pure.

import { bytes, count } from "./format.js";

/**
 * @typedef {object} Estimate the answer of `POST /v1/capture/estimate`
 * @property {number} prompt_tokens
 * @property {number} max_tokens
 * @property {number} bytes
 * @property {number} needed_bytes
 * @property {number} budget_bytes
 * @property {{summarised: [number, number][], left_out: [number, number][]}} over_budget
 * @property {string | null} refused
 */

/** @param {Estimate} told @returns {string} a sentence or two */
export function costWords(told) {
  if (told.refused) return `This would be refused: ${told.refused}.`;
  const tokens = `${count(told.prompt_tokens)} + ${count(told.max_tokens)} tokens`;
  if (told.needed_bytes <= told.bytes) return `${count(told.bytes)} bytes (${bytes(told.bytes)}) of arrays for ${tokens}.`;
  const { summarised, left_out: out } = told.over_budget;
  const parts = [
    summarised.length ? `of ${count(positions(summarised))} positions each head’s 8 largest weights are kept (${ranges(summarised)})` : "",
    out.length ? `${count(positions(out))} are left out (${ranges(out)})` : "",
  ].filter(Boolean);
  return `${count(told.bytes)} bytes (${bytes(told.bytes)}) of arrays for ${tokens}; everything would be ${bytes(told.needed_bytes)}, and the budget is ${bytes(told.budget_bytes)}: ${parts.join("; ")}.`;
}

/** @param {[number, number][]} runs */
function positions(runs) {
  return runs.reduce((sum, [from, to]) => sum + to - from, 0);
}

/** @param {[number, number][]} runs [from, to) */
function ranges(runs) {
  return runs.map(([from, to]) => (to === from + 1 ? count(from) : `${count(from)}–${count(to - 1)}`)).join(", ");
}
