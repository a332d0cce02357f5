// Tokens as words on the page: stand-ins for what cannot be seen, and pieces of one character.

import { h } from "./dom.js";
import { visible, visibleText, weight } from "./format.js";
import { bytesNote, isPunctuation, isWhatCame, labelOf, pieceNumber, pieceText, tokenText } from "./token-names.js";

/** @typedef {import("./tokens.js").TokenRecord} TokenRecord */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {import("./store.js").Store} Store */

/** @type {Record<string, string>} */
const CLASSES = { space: "stand-in", control: "control" };

/** Text with stand-ins, as nodes. Most tokens are one text node. @param {string} text @returns {(Node | string)[]} */
export function wordNodes(text) {
  return visible(text).map((stretch) =>
    stretch.kind === "plain" ? stretch.text : h("span", { class: CLASSES[stretch.kind] }, stretch.text),
  );
}

/** @param {string} text @param {string} [className] */
export function word(text, className = "") {
  return h("span", { class: `word ${className}`, dir: "auto" }, wordNodes(text));
}

/** @param {TokenRecord} token @param {string} [className] */
export function tokenWord(token, className) {
  const shown = word(tokenText(token), className);
  if (token.group) shown.append(h("span", { class: "piece-of", title: `${pieceText(token)} of this character: one token each` }, pieceNumber(token)));
  else setNote(shown, token.special ? "" : bytesNote(token.label));
  return shown;
}

/** A token within a sentence: in quotes where it is punctuation itself. @param {TokenRecord} token @param {string} [className] */
export function tokenInSentence(token, className) {
  const shown = tokenWord(token, className);
  return isPunctuation(token) ? h("span", null, "“", shown, "”") : shown;
}

/**
 * A token that might come: called as the token that did come, where it is that one.
 * @param {import("./token-names.js").Candidate} candidate
 * @param {TokenRecord | null | undefined} came
 * @param {string} [className]
 */
export function candidateWord(candidate, came, className) {
  if (isWhatCame(candidate, came)) return tokenWord(came, className);
  const shown = word(labelOf(candidate), className);
  setNote(shown, bytesNote(labelOf(candidate)));
  return shown;
}

/** @param {HTMLElement} shown @param {string} note */
function setNote(shown, note) {
  if (note) shown.title = note;
}

/** For names and tips: “·Paris” @param {TokenRecord | undefined | null} token */
export function quoted(token) {
  if (!token) return "a token that is not here";
  const piece = pieceText(token);
  return `“${visibleText(tokenText(token))}”${piece ? ` (${piece})` : ""}`;
}

/**
 * Tokens with their weights, as links that follow them.
 * @param {import("./insight.js").Share[]} shares
 * @param {RequestRecord} record
 * @param {Store} store
 * @param {string} [of] what the weights are means of
 */
export function shareWords(shares, record, store, of = "the layers and heads that are here of its pass") {
  return shares.flatMap(({ position, weight: w }, i) => {
    const token = record.tokens[position];
    const label = token ? tokenInSentence(token) : `token ${position}`;
    const button = h(
      "button",
      {
        type: "button",
        class: "plain link",
        "aria-label": `Follow ${quoted(token)}, position ${position}`,
        "data-tip": `position ${position} · mean weight ${weight(w)} over ${of}`,
        onclick: () => store.select({ position }),
        onpointerenter: () => store.hover({ position }),
        onpointerleave: () => store.hover({}),
      },
      label,
    );
    return [i ? ", " : "", button, ` ${weight(w)}`];
  });
}

/**
 * Which experts a layer sent a token to, the heaviest first.
 * @param {{experts: number[], weights: number[] | null, of: number}} routed
 */
export function expertsText({ experts, weights, of }) {
  const order = experts.map((_, i) => i).sort((a, b) => (weights ? weights[b] - weights[a] : experts[a] - experts[b]));
  const named = order.map((i) => (weights ? `${experts[i]} (× ${weight(weights[i])})` : `${experts[i]}`));
  return `went to ${named.length === 1 ? "expert" : "experts"} ${named.join(", ")} of ${of}${weights ? "" : "; how much each one counts is not known"}`;
}
