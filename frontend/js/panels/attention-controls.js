/** How the attention panel is looked at: which heads, and how weights become colours. */

import { Legend } from "../colour-legend.js";
import { scaleTicks } from "../colour.js";
import { h, press, setAttribute } from "../dom.js";
import { exactWeight } from "./attention-words.js";

/** @typedef {import("./attention-pool.js").Combine} Combine */
/** @typedef {import("../colour.js").ScaleKind} ScaleKind */
/** @typedef {{scale: ScaleKind, hideSink: boolean, combine: Combine, heads: Set<string>}} Look  heads: "layer:head", for mean and sum */

/** @returns {Look} */
export function defaultLook() {
  return { scale: "log", hideSink: false, combine: "one", heads: new Set() };
}

/**
 * One of several, as a row of buttons.
 * @param {string} name for a screen reader
 * @param {[value: string, text: string, title: string][]} choices
 * @param {(value: string) => void} onChoose
 */
export function choice(name, choices, onChoose) {
  const buttons = choices.map(([value, text, title]) =>
    h("button", { type: "button", "data-value": value, title, onclick: () => onChoose(value) }, text),
  );
  const root = h("div", { class: "segmented", role: "group", "aria-label": name }, buttons);
  return { root, press: (/** @type {string} */ value) => press(buttons, value) };
}

export class Controls {
  /** @param {Look} look changed in place @param {(what: "look" | "heads", value?: string) => void} onChange */
  constructor(look, onChange) {
    this.look = look;
    this.scale = choice(
      "Colour scale",
      [
        ["linear", "linear", "Colour in proportion to the weight"],
        ["log", "log", "Colour by the weight's logarithm, over four decades"],
      ],
      (value) => {
        look.scale = /** @type {ScaleKind} */ (value);
        onChange("look");
      },
    );
    this.sink = h(
      "button",
      {
        type: "button",
        "aria-pressed": "false",
        title:
          "Leave position 0 out of the picture and let the colours end at the largest other weight. Weights stay as they are.",
        onclick: () => {
          look.hideSink = !look.hideSink;
          onChange("look");
        },
      },
      "hide sink",
    );
    this.scale.root.append(this.sink);
    this.combine = choice(
      "Heads",
      [
        ["one", "one head", "The weights of one head"],
        ["mean", "mean", "Mean of the captured weights over the heads selected"],
        ["sum", "sum", "Sum of the captured weights over the heads selected"],
      ],
      (value) => onChange("heads", value),
    );
    const pick = (/** @type {string} */ value, /** @type {string} */ text) =>
      h("button", { type: "button", class: "quiet", onclick: () => onChange("heads", value) }, text);
    this.picks = h(
      "span",
      { class: "picks" },
      pick("layer", "this layer"),
      pick("all", "all heads"),
      pick("none", "none"),
    );
    this.legend = new Legend();
  }

  /** @param {import("../colour.js").Scale} scale @param {import("../canvas.js").Palette} palette */
  draw(scale, palette) {
    const { look } = this;
    this.scale.press(look.scale);
    setAttribute(this.sink, "aria-pressed", String(look.hideSink));
    this.combine.press(look.combine);
    this.picks.hidden = look.combine === "one";
    const ticks = scaleTicks(scale).map(({ weight, at }, i) => ({
      at,
      text: (scale.kind === "log" && i === 0 ? "≤ " : "") + tickText(weight),
    }));
    this.legend.draw(ticks, palette.ramp);
  }
}

/** Short, so that five of them fit under a narrow ramp. @param {number} weight */
function tickText(weight) {
  const decades = Math.round(Math.log10(weight));
  if (weight > 0 && weight < 0.005 && Math.abs(Math.log10(weight) - decades) < 1e-9)
    return `10⁻${"⁰¹²³⁴⁵⁶⁷⁸⁹"[-decades]}`;
  return exactWeight(Number(weight.toPrecision(2)));
}
