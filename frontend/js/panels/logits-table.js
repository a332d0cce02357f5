/** The sampler's table: candidates as rows, stages as columns. */

import { h } from "../dom.js";
import { term } from "../explain.js";
import { count, percent } from "../format.js";
import { tokenWord } from "../words.js";

/** @typedef {import("./logits-stages.js").Sampling} Sampling */
/** @typedef {import("./logits-stages.js").Candidate} Candidate */
/** @typedef {import("./logits-stages.js").Stage} Stage */

/** @typedef {(candidate: Candidate) => Node} Named  how a candidate is written: the one that was chosen, or one to try */

/** @param {Sampling} view @param {import("../tokens.js").TokenRecord} token that was chosen @param {Named} named */
export function stageTable({ stages, candidates, chosenListed }, token, named) {
  return h(
    "table",
    { class: "logits-table" },
    h(
      "colgroup",
      null,
      h("col"),
      h("col"),
      h("col"),
      stages.map(() => h("col", { class: "stage", width: `${Math.floor(100 / stages.length)}%` })),
    ),
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        h("th", { scope: "col", class: "num" }, term("logits.rank", "rank")),
        h("th", { scope: "col" }, term("logits.candidate", "candidate")),
        h("th", { scope: "col", class: "num" }, term("logits.candidate", "logit")),
        stages.map((stage) =>
          h(
            "th",
            { scope: "col" },
            term("logits.stage", stage.title),
            stage.value === null ? "" : h("span", { class: "value" }, ` ${stage.value}`),
          ),
        ),
      ),
      h(
        "tr",
        { class: "kept" },
        h("td", { colspan: 3 }, term("logits.kept", "candidates left")),
        stages.map((stage) =>
          h(
            "td",
            { "data-tip": keptTip(stage) },
            h("b", null, count(stage.kept)),
            stage.removes ? h("div", null, `with ${percent(stage.mass)}`) : "",
          ),
        ),
      ),
    ),
    h(
      "tbody",
      null,
      candidates.map((candidate) => candidateRow(candidate, stages, named)),
      chosenListed ? null : unlistedChosen(token, stages),
    ),
    h(
      "tfoot",
      null,
      h(
        "tr",
        null,
        h("td", null),
        h("td", { colspan: 2 }, term("logits.others", "all others")),
        stages.map((stage) =>
          h(
            "td",
            null,
            bar(stage.rest, "rest"),
            h("span", { class: "num" }, stage.restKept ? percent(stage.rest) : "none left"),
          ),
        ),
      ),
    ),
  );
}

/** @param {Stage} stage */
function keptTip(stage) {
  return (
    `${count(stage.kept)} candidates left after this stage.\n${percent(stage.mass)} of the probability that entered it was kept` +
    `${stage.removes ? "; what is left is scaled up to 100%." : "."}`
  );
}

/** @param {Candidate} candidate @param {Stage[]} stages @param {Named} named */
function candidateRow(candidate, stages, named) {
  const { place, logit, probabilities, removedBy, chosen } = candidate;
  const classes = [chosen ? "chosen" : "", removedBy === null ? "" : "removed"].join(" ");
  return h(
    "tr",
    { class: classes },
    h("td", { class: "num muted" }, place),
    h("th", { scope: "row" }, named(candidate)),
    h("td", { class: "num" }, logit === null ? "" : logit.toFixed(2)),
    stages.map((stage, s) => {
      if (removedBy === null || s < removedBy)
        return h("td", null, bar(probabilities[s]), h("span", { class: "num" }, percent(probabilities[s])));
      return h("td", { class: "out" }, s === removedBy ? "removed" : "");
    }),
  );
}

/** The chosen token when it is not among the listed: what its own event says of it. @param {import("../tokens.js").TokenRecord} token @param {Stage[]} stages */
function unlistedChosen(token, stages) {
  /** @type {Record<string, any>} */
  const event = token.event ?? {};
  const p = typeof event.logprob === "number" ? Math.exp(event.logprob) : NaN;
  const { low, high } = event.draw ?? {};
  return h(
    "tr",
    { class: "chosen" },
    h("td", { class: "num muted" }, event.rank ? count(event.rank) : ""),
    h("th", { scope: "row" }, tokenWord(token)),
    h("td", null),
    stages.map((_, s) => {
      const known = s === 0 ? p : s === stages.length - 1 && typeof high === "number" ? high - low : null;
      return h(
        "td",
        null,
        known === null
          ? h("span", { class: "muted" }, "not listed")
          : [bar(known), h("span", { class: "num" }, percent(known))],
      );
    }),
  );
}

/** @param {number} share @param {string} [kind] */
function bar(share, kind = "") {
  const inner = h("span", null);
  inner.style.inlineSize = `${(100 * Math.min(1, Math.max(0, share))).toFixed(2)}%`;
  return h("span", { class: `bar ${kind}`, "aria-hidden": "true" }, inner);
}
