/** The ramp with numbers along it. */

import { css, rampPixel } from "./colour.js";
import { fill, h } from "./dom.js";

/** @typedef {{at: number, text: string}} LegendTick  at: 0 … 1 along the ramp */

export class Legend {
  constructor() {
    this.bar = h("canvas", { class: "ramp", width: 256, height: 1, "aria-hidden": "true" });
    this.ticks = h("div", { class: "ramp-ticks" });
    this.root = h("div", { class: "ramp-legend" }, this.bar, this.ticks);
    this.drawn = "";
  }

  /** @param {LegendTick[]} ticks @param {Uint32Array} pixels the ramp */
  draw(ticks, pixels) {
    const key = `${pixels[0]} ${pixels[255]} ${JSON.stringify(ticks)}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const context = this.bar.getContext("2d");
    for (let i = 0; context && i < 256; i++) {
      context.fillStyle = css(rampPixel(pixels, i / 255));
      context.fillRect(i, 0, 1, 1);
    }
    fill(
      this.ticks,
      ticks.map(({ at, text }) => {
        const tick = h("span", { class: at < 0.02 ? "first" : at > 0.98 ? "last" : "" }, text);
        tick.style.insetInlineStart = `${100 * at}%`;
        return tick;
      }),
    );
  }
}
