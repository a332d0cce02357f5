// The logits panel as a figure and a table.

import { count, entropy, percent, visibleText } from "../format.js";
import { drawSegments } from "../panels/logits-stages.js";
import { listedInWords } from "../panels/logits-draw.js";
import { candidateName, tokenName } from "../token-names.js";
import { fitted } from "./drawing.js";

/** @typedef {import("../codec.js").RunEvent} RunEvent */
/** @typedef {import("../panels/logits-stages.js").Sampling} Sampling */

const ROW = 19;
const STAGE = 112;
const NAME = 210;

/** @param {import("../tokens.js").TokenRecord} token that was chosen @param {RunEvent} event its own @param {Sampling} view @param {import("./figure.js").Ink} ink */
export function logitsFigure(token, event, view, ink) {
  const { stages, candidates } = view;
  const line = drawSegments(event, view);
  const width = NAME + Math.max(1, stages.length) * STAGE;
  const table = (candidates.length + 2) * ROW + 16;
  const { method, seed } = event.draw ?? {};
  return {
    title: `How “${tokenName(token)}” was chosen at position ${event.position}`,
    width,
    height: table + (line ? 54 : 4),
    caption: [
      listedInWords(view),
      `Chosen: rank ${event.rank ?? "unknown"}, entropy ${entropy(event.entropy_bits ?? null)}. ${method === "greedy" ? "Greedy: the largest logit was taken, no number was drawn." : line ? `u = ${event.draw.u.toFixed(4)}, seed ${seed}.` : ""}`,
    ],
    draw: (/** @type {import("./drawing.js").Drawing} */ d, /** @type {number} */ left, /** @type {number} */ top) => {
      const write = (/** @type {number} */ x, /** @type {number} */ row, /** @type {string} */ text, /** @type {import("./drawing.js").Lettering} */ how = {}) => d.text(left + x, top + row * ROW + 13, text, { size: 11, fill: ink.text, ...how });
      write(0, 0, "rank", { fill: ink.muted });
      write(34, 0, "candidate", { fill: ink.muted });
      write(NAME - 16, 0, "logit", { fill: ink.muted, anchor: "end" });
      stages.forEach((stage, s) => {
        write(NAME + s * STAGE, 0, fitted(`${stage.title} ${stage.value ?? ""}`, STAGE - 6, 11), { fill: ink.muted });
        write(NAME + s * STAGE, 1, `${count(stage.kept)} left${stage.removes ? `, ${percent(stage.mass)}` : ""}`);
      });
      candidates.forEach((candidate, i) => {
        const fill = candidate.chosen ? ink.followed : candidate.removedBy === null ? ink.text : ink.muted;
        write(22, i + 2, String(candidate.place), { fill: ink.muted, anchor: "end" });
        write(34, i + 2, fitted(candidateName(candidate, token), NAME - 90, 11, true), { mono: true, fill, weight: candidate.chosen ? 700 : undefined });
        write(NAME - 16, i + 2, candidate.logit === null ? "" : Number(candidate.logit).toFixed(2), { anchor: "end" });
        stages.forEach((_, s) => {
          const out = candidate.removedBy !== null && s >= candidate.removedBy;
          if (out) {
            if (s === candidate.removedBy) write(NAME + s * STAGE, i + 2, "removed", { fill: ink.muted });
            return;
          }
          d.rect(left + NAME + s * STAGE, top + (i + 2) * ROW + 5, (STAGE - 62) * candidate.probabilities[s], 9, { fill: candidate.chosen ? ink.followed : ink.bar });
          write(NAME + s * STAGE + STAGE - 12, i + 2, percent(candidate.probabilities[s]), { anchor: "end" });
        });
      });
      if (line) drawLine(d, token, line.segments, event.draw.u, left, top + table + 12, width, ink);
    },
  };
}

/** @param {import("./drawing.js").Drawing} d @param {import("../tokens.js").TokenRecord} token @param {import("../panels/logits-stages.js").Segment[]} segments @param {number} u @param {number} x @param {number} y @param {number} width @param {import("./figure.js").Ink} ink */
function drawLine(d, token, segments, u, x, y, width, ink) {
  d.hatch(x, y, width, 22);
  for (const { label, low, high, chosen } of segments) {
    d.rect(x + low * width, y, (high - low) * width, 22, { fill: chosen ? ink.followed : ink.raised, stroke: ink.strong, width: 0.5 });
    if (high - low > 0.07) d.text(x + low * width + 4, y + 15, fitted(chosen ? tokenName(token) : visibleText(label), (high - low) * width - 8, 11, true), { size: 11, mono: true, fill: chosen ? ink.onFollowed : ink.text });
  }
  d.line(x + u * width, y - 4, x + u * width, y + 26, ink.text, 1.5);
  d.text(x + u * width, y + 38, `u = ${u.toFixed(4)}`, { size: 11, fill: ink.text, anchor: u > 0.8 ? "end" : "start" });
}

/** @param {RunEvent} event @param {Sampling} view @returns {import("./csv.js").Table} */
export function logitsTable(event, { stages, candidates }) {
  const { u, low, high, seed, method } = event.draw ?? {};
  return {
    columns: [
      "rank", "token id", "text", "chosen", "logit", "log-probability (nat)", ...stages.map((stage) => `probability after ${stage.title} ${stage.value ?? ""}`.trim()),
      "removed by", "draw", "u", "interval from", "interval to", "seed",
    ],
    rows: [
      ...candidates.map((c) => [
        c.place, c.id, c.label, c.chosen, c.logit, c.logprob, ...c.probabilities, c.removedBy === null ? null : stages[c.removedBy].title,
        ...(c.chosen ? [method, u, low, high, seed] : [null, null, null, null, null]),
      ]),
      [null, null, "all others together", false, null, null, ...stages.map((stage) => stage.rest), null, null, null, null, null, null],
      ...(candidates.some((c) => c.chosen) ? [] : [[event.rank, event.id, event.label, true, null, event.logprob, ...stages.map(() => null), null, method, u, low, high, seed]]),
    ],
  };
}
