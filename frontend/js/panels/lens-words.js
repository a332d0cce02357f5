/** What the lens says at one place, in words and numbers. */

import { h } from "../dom.js";
import { term } from "../explain.js";
import { entropy, ordinal, percent } from "../format.js";
import { appearance, layersText, leadingLayers } from "../insight.js";
import { bytesNote, candidateName, isWhatCame, labelOf } from "../token-names.js";
import { candidateWord, quoted, tokenInSentence, tokenWord } from "../words.js";
import { byLayer, lensCell } from "./lens-grid.js";

/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("./lens-grid.js").LensCell} LensCell */

/**
 * A cell in lines of text.
 * @param {RequestRecord} record
 * @param {number} position
 * @param {number} layer
 * @param {LensCell} cell
 */
export function describeCell(record, position, layer, cell) {
  const lines = [`After layer ${layer}, at ${quoted(record.tokens[position])} (${position}):`];
  const next = record.tokens[position + 1];
  for (const guess of cell.top) lines.push(`“${candidateName(guess, next)}” ${percent(Math.exp(guess.logprob))}`);
  if (next && cell.rank !== null) {
    const p = cell.targetLogprob === null ? "" : `, ${percent(Math.exp(cell.targetLogprob))}`;
    lines.push(`${quoted(next)} came: ${ordinal(cell.rank)}${p}`);
  }
  lines.push(...cell.top.map((guess) => (isWhatCame(guess, next) ? "" : bytesNote(labelOf(guess)))).filter(Boolean));
  return lines.join("\n");
}

/**
 * The selected column, and its cell at the selected layer.
 * @param {RequestRecord} record
 * @param {number | null} position
 * @param {number} layer
 * @returns {import("../dom.js").Child}
 */
export function describeColumn(record, position, layer) {
  const event = position === null ? undefined : record.lens.get(position);
  if (position === null || !event) return null;
  const next = record.tokens[position + 1];
  const here = record.tokens[position];
  const cell = lensCell(byLayer(event).get(layer));
  return [
    h(
      "p",
      null,
      "At ",
      here ? tokenInSentence(here) : "",
      ` ${position}`,
      next ? [", ", tokenInSentence(next), " came next. ", whereItAppears(event)] : ". Nothing came next.",
    ),
    cell &&
      h(
        "table",
        { class: "lens-top" },
        h(
          "caption",
          null,
          term("lens.column", `After layer ${layer}: best guesses`),
          ", ",
          cell.entropyBits === null ? "" : `entropy ${entropy(cell.entropyBits)}`,
        ),
        h(
          "tbody",
          null,
          cell.top.map((guess, i) => topRow(i + 1, candidateWord(guess, next), guess.logprob, guess.id === event.target)),
          next && cell.rank !== null && cell.rank > cell.top.length
            ? topRow(cell.rank, tokenWord(next), cell.targetLogprob, true)
            : null,
        ),
      ),
    h(
      "p",
      { class: "note" },
      `Logit lens: final norm and output head applied to the residual after each layer, read as ${event.residual_dtype}, ` +
        `${event.how === "baked" ? "baked into the trace" : "computed on request"}. Early layers were not trained to be read this way: their words can mislead.`,
    ),
  ];
}

/** @param {number} rank @param {HTMLElement} name @param {number | null} logprob @param {boolean} came */
function topRow(rank, name, logprob, came) {
  const p = logprob === null ? NaN : Math.exp(logprob);
  const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span", null));
  /** @type {HTMLElement} */ (bar.firstChild).style.inlineSize = `${Math.min(100, 100 * p).toFixed(2)}%`;
  return h(
    "tr",
    { class: came ? "came" : "" },
    h("td", { class: "num" }, ordinal(rank)),
    h("td", null, name),
    h("td", null, bar),
    h("td", { class: "num" }, percent(p)),
    h("td", { class: "muted" }, came ? "came next" : ""),
  );
}

/** @param {import("../codec.js").RunEvent} event */
function whereItAppears(event) {
  const { leads, topTen, layers } = appearance(event);
  if (leads !== null)
    return leads === 0 ? "It is the best guess after every layer." : `It is the best guess from layer ${leads} on.`;
  const led = leadingLayers(event);
  if (led.length) return `It was the best guess after ${layersText(led)}, and not after the last.`;
  if (topTen !== null) return `It is among the ten best from layer ${topTen} on, and not the best after the last.`;
  const last = byLayer(event).get(layers - 1)?.rank;
  return last ? `The last layer ranks it ${ordinal(last)}.` : "";
}
