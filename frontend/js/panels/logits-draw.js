/** The draw: where the random number fell among the candidates laid end to end. */

import { h } from "../dom.js";
import { count, percent, visibleText } from "../format.js";
import { tokenName } from "../token-names.js";
import { candidateWord, tokenWord } from "../words.js";
import { drawSegments } from "./logits-stages.js";

/** @typedef {import("../codec.js").RunEvent} RunEvent */
/** @typedef {import("./logits-stages.js").Sampling} Sampling */

/** Narrower than this share of the line, a segment is too small for its word. */
const WORD_SHARE = 0.07;

/**
 * @param {import("../tokens.js").TokenRecord} token that was drawn
 * @param {RunEvent} event its own
 * @param {Sampling} view
 * @returns {import("../dom.js").Child}
 */
export function drawSection(token, event, view) {
  const draw = event.draw ?? {};
  if (draw.method === "greedy") {
    const after = view.stages.length > 1 ? " after the stages above" : "";
    return h("p", null, h("b", null, "Greedy: "), `it took the largest logit${after}. No number was drawn.`);
  }
  const line = drawSegments(event, view);
  if (!line) return h("p", { class: "absence" }, "How this token was drawn is not in the recording.");
  const track = h("div", { class: "cdf", role: "img", "aria-label": drawInWords(token, event) });
  for (const [i, { id, label, low, high, chosen }] of line.segments.entries()) {
    const segment = h(
      "span",
      {
        class: `cdf-part ${chosen ? "chosen" : i % 2 ? "odd" : ""}`,
        "data-tip": `“${chosen ? tokenName(token) : visibleText(label)}”\n${low.toFixed(4)} ≤ u < ${high.toFixed(4)}\n${percent(high - low)}`,
      },
      high - low >= WORD_SHARE ? (chosen ? tokenWord(token) : candidateWord({ id: id ?? -1, label }, token)) : null,
    );
    segment.style.insetInlineStart = `${100 * low}%`;
    segment.style.inlineSize = `${100 * Math.max(0, high - low)}%`;
    track.append(segment);
  }
  const mark = h("span", { class: "cdf-mark" });
  const number = h("span", { class: draw.u > 0.8 ? "cdf-number left" : "cdf-number" }, `u = ${draw.u.toFixed(4)}`);
  mark.style.insetInlineStart = number.style.insetInlineStart = `${100 * draw.u}%`;
  return [
    h("p", null, drawInWords(token, event)),
    h(
      "div",
      { class: "cdf-frame" },
      number,
      track,
      mark,
      h("div", { class: "cdf-ends" }, h("span", null, "0"), h("span", null, "1")),
    ),
    h("p", { class: "note" }, lineInWords(line, 1 - (line.segments.at(-1)?.high ?? 0))),
    h(
      "p",
      { class: "note" },
      Number.isSafeInteger(draw.seed)
        ? `Seed ${draw.seed}; the number depends on seed and position alone, so the same request draws it again.`
        : `Seed about ${draw.seed}: too large for a browser to tell exactly; the trace has it. The number depends on seed and position alone.`,
    ),
  ];
}

/** @param {{exact: boolean, cut: boolean}} line @param {number} left what the segments leave of the line */
function lineInWords({ exact, cut }, left) {
  if (!exact)
    return "Hatched: candidates that are not listed lie before the chosen one, so only its own place is known.";
  const order = "Candidates in falling order, each as long as its probability.";
  if (cut)
    return `${order} Hatched: all that come after it. Stages changed their order, so not all of their places are known.`;
  return left > 5e-5 ? `${order} Hatched: ${percent(left)} held by candidates that are not listed.` : order;
}

/** @param {import("../tokens.js").TokenRecord} token @param {RunEvent} event */
function drawInWords(token, { draw }) {
  return `u = ${draw.u.toFixed(4)} fell into “${tokenName(token)}”, which holds ${draw.low.toFixed(4)} to ${draw.high.toFixed(4)}.`;
}

/**
 * How many candidates there were and how many of them are listed, with the mass those hold.
 * @param {Sampling} view
 */
export function listedInWords(view) {
  const [raw] = view.stages;
  if (!raw) return "";
  const unlisted = raw.kept - view.candidates.length;
  return (
    `Listed: the ${count(view.candidates.length)} largest of ${count(raw.kept)} logits. The other ${count(unlisted)} together hold ` +
    `${percent(raw.rest)} of the model's probability.`
  );
}
