/** The tokens that a head looked at most, with their weights as numbers. */

import { css, fraction, rampPixel } from "../colour.js";
import { fill, h } from "../dom.js";
import { plural } from "../format.js";
import { tokenWord } from "../words.js";
import { exactWeight } from "./attention-words.js";

const SHORT = 8;

/**
 * @typedef {object} ListView
 * @property {string} key changes when what is listed does
 * @property {Float32Array} row weights
 * @property {number} first position of the first key
 * @property {number[]} order positions, most weight first
 * @property {import("../colour.js").Scale} scale
 * @property {boolean} hideSink
 * @property {import("../canvas.js").Palette} palette
 * @property {(position: number) => import("../words.js").TokenRecord | undefined} token
 */

export class LookedAt {
  /** @param {HTMLElement} root @param {{onChoose: (position: number) => void, onHover: (position: number | null) => void}} handlers */
  constructor(root, handlers) {
    this.root = root;
    this.handlers = handlers;
    this.all = false;
    this.drawn = "";
    /** @type {ListView | null} */
    this.view = null;
    this.list = h("ol", { class: "looked-at", "aria-label": "Looked at most" });
    this.more = h("button", { type: "button", class: "quiet", onclick: () => this.toggle() });
    this.rest = h("span", { class: "rest" });
    fill(root, this.list, h("p", { class: "note" }, this.rest, " ", this.more));
    this.list.addEventListener("click", (event) => this.pick(event, (position) => handlers.onChoose(position)));
    this.list.addEventListener("pointerover", (event) => this.pick(event, (position) => handlers.onHover(position)));
    this.list.addEventListener("pointerleave", () => handlers.onHover(null));
  }

  /** Mark the token that is pointed at elsewhere. @param {number | null} position */
  hover(position) {
    for (const button of this.list.querySelectorAll("button"))
      button.toggleAttribute("data-hovered", button.dataset.position === String(position));
  }

  /** @param {Event} event @param {(position: number) => void} act */
  pick(event, act) {
    const button = /** @type {HTMLElement} */ (event.target).closest("button");
    if (button?.dataset.position) act(Number(button.dataset.position));
  }

  toggle() {
    this.all = !this.all;
    if (this.view) this.draw(this.view);
  }

  /** @param {ListView} view */
  draw(view) {
    // A list that is left alone keeps its focus, and a click that is under way.
    const key = `${view.key} ${this.all}`;
    this.view = view;
    if (key === this.drawn) return;
    this.drawn = key;
    const { row, first, order } = view;
    const shown = this.all ? order : order.slice(0, SHORT);
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset?.position;
    fill(
      this.list,
      shown.map((position) => this.item(view, position)),
    );
    if (focused) /** @type {HTMLElement | null} */ (this.list.querySelector(`[data-position="${focused}"]`))?.focus();
    const others = order.slice(shown.length);
    const held = others.reduce((sum, position) => sum + row[position - first], 0);
    this.rest.textContent = others.length
      ? `${plural(others.length, "more token")} hold ${exactWeight(held)} together.`
      : "";
    this.more.textContent = this.all ? "Show fewer" : "Show all";
    this.more.hidden = order.length <= SHORT;
  }

  /** @param {ListView} view @param {number} position */
  item({ row, first, scale, palette, token, hideSink }, position) {
    const hidden = hideSink && position === 0;
    const known = token(position);
    const weight = row[position - first];
    const at = fraction(scale, weight);
    const bar = h("span", { class: "bar", "aria-hidden": "true" });
    const fillBar = h("span", null);
    // Length is the weight itself, colour follows the scale: a logarithm is no length.
    fillBar.style.inlineSize = `${(100 * Math.min(1, weight / scale.top)).toFixed(2)}%`;
    if (hidden) fillBar.className = "hatch";
    else fillBar.style.background = css(rampPixel(palette.ramp, Math.max(0.3, at)));
    bar.append(fillBar);
    return h(
      "li",
      null,
      h(
        "button",
        {
          type: "button",
          "data-position": position,
          title: hidden ? "Hidden in the picture, with its weight as it is" : `Follow the token at ${position}`,
        },
        known ? tokenWord(known) : "",
        h("span", { class: "at" }, position),
        bar,
        h("span", { class: "num" }, exactWeight(weight)),
      ),
    );
  }
}
