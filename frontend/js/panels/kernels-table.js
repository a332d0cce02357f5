/** A timed step in two pictures: time by operation, and layers by operations. */

import { fill, h } from "../dom.js";
import { term } from "../explain.js";
import { count, duration, percent } from "../format.js";
import { listenToLayers, markLayer, pointAtLayer } from "../layer-rows.js";
import { tipsFor } from "../tip.js";
import { operationName, partOf } from "./kernels-data.js";

/** @typedef {import("./kernels-data.js").StepTimes} StepTimes */

/** Column heads have little room. @type {Record<string, string>} */
const SHORT = { capture: "capture", qkv_projection: "q k v", kv_write: "kv write", output_projection: "out", attention: "attn" };

/** Operations in order of their time, each with its share of all. @param {StepTimes} times */
export function totalRows({ totals, sum }) {
  const most = totals[0]?.ns ?? 1;
  const head = h("div", { role: "row", class: "head" }, h("span", { role: "columnheader" }, term("kernels.operation", "operation")), h("span", { role: "columnheader" }, "time"), h("span", { role: "columnheader" }, "share"), h("span", { role: "columnheader" }, "times"), h("span", { role: "columnheader" }, ""));
  const rows = totals.map(({ operation, ns, calls }) =>
    h(
      "div",
      { role: "row", "data-part": partOf(operation) },
      h("span", { role: "rowheader" }, operation === "capture" ? term("kernels.device", operationName(operation)) : operationName(operation)),
      h("span", { role: "cell", class: "num strong" }, duration(ns)),
      h("span", { role: "cell", class: "num" }, percent(sum ? ns / sum : 0)),
      h("span", { role: "cell", class: "num muted" }, count(calls)),
      h("span", { role: "cell", class: "track" }, h("i", { style: `inline-size:${(100 * ns) / most}%` })),
    ),
  );
  const foot = h("div", { role: "row", class: "foot" }, h("span", { role: "rowheader" }, "all operations"), h("span", { role: "cell", class: "num strong" }, duration(sum)), h("span", { role: "cell", class: "num" }, "100%"));
  return [head, ...rows, foot];
}

export class HeatTable {
  /** @param {{onChoose: (layer: number) => void, onHover: (layer: number | null) => void}} handlers */
  constructor(handlers) {
    /** @type {StepTimes | null} */
    this.times = null;
    /** @type {HTMLElement[]} */
    this.rows = [];
    this.body = h("div", { role: "presentation" });
    this.head = h("div", { role: "row", class: "head" });
    this.root = h("div", { class: "heat", role: "table", "aria-label": "Layers by operations" }, this.head, this.body);
    listenToLayers(this.body, handlers);
    tipsFor(this.body, "[data-operation]", (cell) => this.describe(cell));
  }

  /** @param {StepTimes} times @param {number | null} selected */
  draw(times, selected) {
    if (times !== this.times) this.build(times);
    markLayer(this.rows, selected);
  }

  /** @param {StepTimes} times */
  build(times) {
    this.times = times;
    const { operations, cells, largest } = times;
    this.root.style.setProperty("--operations", String(operations.length));
    const column = (/** @type {string} */ text, /** @type {string} */ tip = "") => h("span", { role: "columnheader", "data-tip": tip || null }, text);
    fill(this.head, column("layer"), operations.map((operation) => column(SHORT[operation] ?? operationName(operation), operationName(operation))), column("all, µs", "Microseconds, with a barrier after each operation"));
    this.rows = cells.map((row, layer) =>
      h(
        "div",
        { role: "row", "data-layer": layer, "aria-label": `Layer ${layer}` },
        h("span", { role: "rowheader", class: "num muted" }, layer),
        row.map((ns, i) => h("span", { role: "cell", class: "num", "data-operation": operations[i], "data-part": partOf(operations[i]), style: `--share:${(100 * Math.sqrt(ns / (largest || 1))).toFixed(1)}%` }, ns ? micro(ns) : "")),
        h("span", { role: "cell", class: "num strong" }, micro(row.reduce((a, b) => a + b, 0))),
      ),
    );
    fill(this.body, ...this.rows);
  }

  /** @param {HTMLElement} cell */
  describe(cell) {
    const layer = Number(cell.parentElement?.dataset.layer);
    const { times } = this;
    const operation = cell.dataset.operation ?? "";
    const ns = times?.cells[layer]?.[times.operations.indexOf(operation)] ?? 0;
    const mean = times ? times.cells.reduce((sum, row) => sum + row[times.operations.indexOf(operation)], 0) / times.cells.length : 0;
    return `Layer ${layer}, ${operationName(operation)}: ${duration(ns)}\nmean of all layers ${duration(mean)}`;
  }

  /** @param {number | null | undefined} layer */
  point(layer) {
    pointAtLayer(this.rows, layer);
  }
}

/** Microseconds, as many digits as there is room for. @param {number} ns */
function micro(ns) {
  const value = ns / 1000;
  return value >= 99.5 ? count(Math.round(value)) : value.toFixed(1);
}
