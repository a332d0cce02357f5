/** A logit's parts by layer as bars around zero, with the rank that the token had after each: one row a layer. */

import { fill, h } from "../dom.js";
import { term } from "../explain.js";
import { count, measure, ordinal, percent } from "../format.js";
import { listenToLayers, markLayer, pointAtLayer } from "../layer-rows.js";
import { tipsFor } from "../tip.js";
import { rankPlace } from "./why-data.js";

/** @typedef {ReturnType<typeof import("./why-data.js").logitParts>} Parts */
/** @typedef {import("../codec.js").RunEvent} RunEvent */

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {{parts: Parts | null, lens: RunEvent | null, layers: number, vocabulary: number, logit: number | null}} WhyView */

export class PartsByLayer {
  /** @param {{onChoose: (layer: number) => void, onHover: (layer: number | null) => void}} handlers */
  constructor(handlers) {
    /** @type {WhyView | null} */
    this.view = null;
    /** @type {HTMLElement[]} */
    this.rows = [];
    this.head = h(
      "div",
      { role: "row", class: "head" },
      h("span", { role: "columnheader", class: "num" }, "layer"),
      h("span", { role: "columnheader", class: "bars-head" }, h("span", { class: "by-attention-text" }, "attention"), " ", h("span", { class: "by-mlp-text" }, "MLP"), h("span", { class: "muted" }, " − ◂ ▸ +")),
      h("span", { role: "columnheader", class: "num" }, term("why.part", "attn")),
      h("span", { role: "columnheader", class: "num" }, term("why.part", "MLP")),
      h("span", { role: "columnheader", class: "num" }, term("why.after", "logit")),
      h("span", { role: "columnheader" }, term("why.rank", "rank, log scale")),
    );
    this.path = document.createElementNS(SVG, "polyline");
    this.drawing = document.createElementNS(SVG, "svg");
    this.drawing.setAttribute("class", "rank-path");
    this.drawing.setAttribute("preserveAspectRatio", "none");
    this.drawing.append(this.path);
    this.over = h("div", { class: "over", "aria-hidden": "true" }, this.drawing);
    this.before = h("div", { role: "row", class: "edge" });
    this.body = h("div", { role: "presentation", class: "layers-of" });
    this.after = h("div", { role: "row", class: "edge" });
    this.root = h("div", { class: "parts", role: "table", "aria-label": "Logit by layer" }, this.head, this.before, this.body, this.after);
    listenToLayers(this.body, handlers);
    tipsFor(this.body, "[data-layer]", (row) => this.describe(Number(row.dataset.layer)));
  }

  /** @param {WhyView} view @param {number | null} selected */
  draw(view, selected) {
    const { view: was } = this;
    if (!was || view.parts !== was.parts || view.lens !== was.lens || view.layers !== was.layers) this.build(view);
    markLayer(this.rows, selected);
  }

  /** @param {WhyView} view */
  build(view) {
    this.view = view;
    const { parts, lens, layers, vocabulary } = view;
    const places = Array.from({ length: layers }, (_, layer) => {
      const rank = lens?.layers[layer]?.rank;
      return typeof rank === "number" ? { rank, place: rankPlace(rank, vocabulary) } : null;
    });
    this.rows = places.map((place, layer) => this.row(layer, place));
    this.drawing.setAttribute("viewBox", `0 0 100 ${layers}`);
    this.path.setAttribute("points", places.flatMap((at, layer) => (at ? [`${(100 * at.place).toFixed(2)},${layer + 0.5}`] : [])).join(" "));
    this.over.hidden = lens === null;
    fill(this.body, ...this.rows, this.over);
    const edge = (/** @type {string} */ name, /** @type {number} */ value) => [h("span", { role: "rowheader" }, name), h("span", { role: "cell", class: "num" }, signed(value))];
    this.before.hidden = parts === null;
    this.after.hidden = parts === null;
    if (!parts) return;
    fill(this.before, ...edge("embedding", parts.embedding), ...(parts.bias ? edge("norm and head, whatever they are given", parts.bias) : []));
    fill(this.after, h("span", { role: "rowheader" }, "sum"), h("span", { role: "cell", class: "num strong" }, measure(parts.sum)), h("span", { role: "cell", class: "muted" }, view.logit === null ? "" : `the model’s own logit, but for ${Math.abs(parts.sum - view.logit).toExponential(0).replace("e-", "e−")}`));
  }

  /** @param {number} layer @param {{rank: number, place: number} | null} at */
  row(layer, at) {
    const parts = this.view?.parts ?? null;
    const part = parts?.layers.find((p) => p.layer === layer);
    const bar = (/** @type {number | null | undefined} */ value, /** @type {string} */ name) => {
      if (!value || !parts) return null;
      const size = 50 * Math.min(1, Math.abs(value) / (parts.largest || 1));
      return h("i", { class: name, style: `inline-size:${size}%;inset-inline-start:${value < 0 ? 50 - size : 50}%` });
    };
    const whole = part?.whole ?? null;
    return h(
      "div",
      { role: "row", "data-layer": layer, "aria-label": `Layer ${layer}`, class: at?.rank === 1 ? "leads" : null },
      h("span", { role: "rowheader", class: "num muted" }, layer),
      h("span", { role: "cell", class: "bars" }, bar(part?.attention, "by-attention"), bar(part?.mlp, "by-mlp"), bar(whole, "whole")),
      h("span", { role: "cell", class: "num" }, part?.attention == null ? (whole === null ? "" : fixed(whole)) : fixed(part.attention)),
      h("span", { role: "cell", class: "num" }, part?.mlp == null ? "" : fixed(part.mlp)),
      h("span", { role: "cell", class: "num muted" }, part ? fixed(part.after).replace("+", "") : ""),
      h("span", { role: "cell", class: "rank" }, at ? h("i", { class: "mark", style: `inset-inline-start:${100 * at.place}%` }) : null, at ? h("span", { class: "num" }, count(at.rank)) : null),
    );
  }

  /** @param {number} layer */
  describe(layer) {
    const part = this.view?.parts?.layers.find((p) => p.layer === layer);
    const lens = this.view?.lens?.layers[layer];
    const lines = [`Layer ${layer}`];
    if (part?.whole != null) lines[0] += `: attention and MLP together ${signed(part.whole)}`;
    else if (part) lines[0] += `: attention ${signed(part.attention ?? 0)}, MLP ${signed(part.mlp ?? 0)}`;
    if (part?.heads?.length) {
      const heads = part.heads.map((value, head) => ({ value, head })).sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 3);
      lines.push(`of attention: ${heads.map(({ head, value }) => `head ${head} ${signed(value)}`).join(", ")}`);
    }
    if (lens?.rank) lines.push(`afterwards it ranks ${ordinal(lens.rank)}, with ${percent(Math.exp(lens.logprob))} (lens)`);
    return lines.length > 1 || part ? lines.join("\n") : "";
  }

  /** @param {number | null | undefined} layer */
  point(layer) {
    pointAtLayer(this.rows, layer);
  }
}

/** The same digits in every row, so that sizes show. @param {number} value */
function fixed(value) {
  const text = Math.abs(value).toFixed(2);
  return text === "0.00" ? text : `${value < 0 ? "−" : "+"}${text}`;
}

/** A part of a logit, with its sign. @param {number} value */
export function signed(value) {
  return value > 0 ? `+${measure(value)}` : measure(value);
}
