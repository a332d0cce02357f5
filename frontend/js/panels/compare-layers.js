/** Two passes layer by layer, a row each. */

import { fill, h, setAttribute } from "../dom.js";
import { term } from "../explain.js";
import { percent, weight } from "../format.js";
import { listenToLayers, markLayer, pointAtLayer } from "../layer-rows.js";
import { tipsFor } from "../tip.js";
import { candidateWord } from "../words.js";
import { firstDifferences } from "./compare-data.js";
import { layerText } from "./compare-words.js";

/** @typedef {import("./compare-data.js").LayerPair} LayerPair */

export class PairedLayers {
  /** @param {{onChoose: (layer: number) => void, onHover: (layer: number | null) => void}} handlers */
  constructor(handlers) {
    /** @type {LayerPair[]} */
    this.pairs = [];
    /** @type {HTMLElement[]} */
    this.rows = [];
    this.body = h("div", { role: "presentation" });
    this.root = h(
      "div",
      { class: "paired-layers", role: "table", "aria-label": "Layers side by side" },
      h("div", { role: "row", class: "head" }, [
        h("span", { role: "columnheader", class: "num" }, "layer"),
        h("span", { role: "columnheader" }, term("compare.guess", "guess here")),
        h("span", { role: "columnheader" }, "there"),
        h("span", { role: "columnheader" }, term("compare.attention", "attention apart")),
        h("span", { role: "columnheader" }, term("compare.residual", "residual apart")),
      ]),
      this.body,
    );
    listenToLayers(this.body, handlers);
    tipsFor(this.body, "[data-layer]", (row) => (this.pairs[Number(row.dataset.layer)] ? layerText(this.pairs[Number(row.dataset.layer)]) : ""));
  }

  /** @param {{layers: LayerPair[], embedding: number | null}} compared @param {number | null} selected */
  draw(compared, selected) {
    this.pairs = compared.layers;
    const first = firstDifferences(compared);
    if (this.rows.length !== this.pairs.length) {
      this.rows = this.pairs.map(({ layer }) => h("div", { role: "row", "data-layer": layer, "aria-label": `Layer ${layer}` }));
      fill(this.body, ...this.rows);
    }
    this.pairs.forEach((pair, layer) => {
      const row = this.rows[layer];
      setAttribute(row, "class", pair.sameGuess === false ? (layer === first.guess ? "differs first" : "differs") : null);
      fill(
        row,
        h("span", { role: "rowheader", class: "num muted" }, layer),
        guess(pair.guessA),
        guess(pair.guessB),
        distance(pair.attention, layer === first.attention),
        distance(pair.residual, layer === first.residual),
      );
    });
    markLayer(this.rows, selected);
  }

  /** @param {number | null | undefined} layer */
  point(layer) {
    pointAtLayer(this.rows, layer);
  }
}

/** @param {import("./compare-data.js").Guess | null} of */
function guess(of) {
  return h("span", { role: "cell", class: "guess" }, of ? [candidateWord(of, of.came), h("span", { class: "p" }, weight(Math.exp(of.logprob)))] : "");
}

/** @param {number | null} value 0 … 1, or beyond @param {boolean} first */
function distance(value, first) {
  if (value === null) return h("span", { role: "cell", class: "distance" });
  const bar = h("i", { style: `inline-size:${100 * Math.min(1, value)}%` });
  return h("span", { role: "cell", class: first ? "distance first" : "distance" }, h("span", { class: "track" }, bar), h("span", { class: "num" }, value === 0 ? "same" : percent(value)));
}
