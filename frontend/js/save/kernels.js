// Where a step's time went, as a figure and a table.

import { css, rampPixel } from "../colour.js";
import { duration } from "../format.js";
import { operationName } from "../panels/kernels-data.js";

/** @typedef {{step: number, finished: import("../codec.js").RunEvent | null, parts: {name: string, ns: number}[], times: import("../panels/kernels-data.js").StepTimes | null}} View */

const ROW = 17;
const NAME = 170;
const BAR = 300;
const CELL = 74;

/** @param {View} view @param {import("./figure.js").Ink} ink */
export function kernelsFigure({ step, finished, parts, times }, ink) {
  const bars = [...parts, ...(finished?.normal_ns ? [{ name: "normally", ns: finished.normal_ns }] : []), ...(times?.totals.map(({ operation, ns, calls }) => ({ name: `${operationName(operation)} (${calls})`, ns })) ?? [])];
  const longest = Math.max(...bars.map(({ ns }) => ns), 1);
  const grid = times ? times.cells.length + 2 : 0;
  return {
    title: `Step ${step}: where its time went`,
    width: Math.max(NAME + BAR + 80, times ? 40 + times.operations.length * CELL : 0),
    height: (bars.length + grid) * ROW + 8,
    caption: [
      times ? "Operations were timed with a barrier after each, which slows the step; in brackets, how often each ran. Below: layers by operations, µs, colour linear to the largest." : "The operations of this step were not timed: these are the step’s own times, which overlap and do not add up.",
      times?.others ? `${times.others} operations of other requests’ own passes are not in this figure.` : "",
    ],
    draw: (/** @type {import("./drawing.js").Drawing} */ d, /** @type {number} */ left, /** @type {number} */ top) => {
      bars.forEach(({ name, ns }, i) => {
        d.text(left, top + i * ROW + 12, name, { size: 11, fill: ink.muted });
        d.rect(left + NAME, top + i * ROW + 4, (ns / longest) * BAR, 9, { fill: i === 0 ? ink.text : ink.bar });
        d.text(left + NAME + BAR + 10, top + i * ROW + 12, duration(ns), { size: 11, fill: ink.text });
      });
      if (!times) return;
      const y = top + bars.length * ROW + 8;
      times.operations.forEach((operation, o) => d.text(left + 40 + o * CELL, y + 12, operation.replaceAll("_", " ").slice(0, 12), { size: 10, fill: ink.muted }));
      times.cells.forEach((row, layer) => {
        d.text(left + 28, y + (layer + 1) * ROW + 12, String(layer), { size: 10, fill: ink.muted, anchor: "end" });
        row.forEach((ns, o) => {
          d.rect(left + 40 + o * CELL, y + (layer + 1) * ROW + 1, 22, ROW - 2, { fill: css(rampPixel(ink.ramp, ns / Math.max(times.largest, 1))) });
          d.text(left + 66 + o * CELL, y + (layer + 1) * ROW + 12, (ns / 1000).toFixed(ns < 1e4 ? 1 : 0), { size: 10, fill: ink.text });
        });
      });
    },
  };
}

/** @param {View} view @returns {import("./csv.js").Table} */
export function kernelsTable({ step, finished, parts, times }) {
  return {
    columns: ["step", "what", "layer", "duration (ns)", "calls", "how"],
    rows: [
      ...parts.map(({ name, ns }) => [step, name, null, ns, null, "the step’s own"]),
      ...(finished?.normal_ns ? [[step, "normal step wall", null, finished.normal_ns, finished.normal_steps ?? null, "median of like steps"]] : []),
      ...(times?.totals ?? []).map(({ operation, ns, calls }) => [step, operation, null, ns, calls, "timed with barriers, all layers"]),
      ...(times?.cells ?? []).flatMap((row, layer) => row.map((ns, o) => [step, times?.operations[o], layer, ns, null, "timed with barriers"])),
    ],
  };
}
