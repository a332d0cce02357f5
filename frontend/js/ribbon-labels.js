// Positions in the ribbon's margin: which token each line of chips begins with.

import { h } from "./dom.js";

/** Chips of one line differ by less, in pixels. */
const SAME_LINE = 8;

export class LineLabels {
  constructor() {
    /** How far a segment is labelled: the next chip, and the top of the line before it. @type {WeakMap<HTMLElement, {next: number, top: number}>} */
    this.reached = new WeakMap();
  }

  /**
   * Labels a segment anew: its chips may lie elsewhere now.
   * @param {HTMLElement} segment
   * @param {HTMLElement[]} chips all of them
   * @param {number} first of the segment's
   * @param {number} end
   */
  all(segment, chips, first, end) {
    for (const old of segment.querySelectorAll(".line")) old.remove();
    this.reached.delete(segment);
    this.more(segment, chips, first, end);
  }

  /**
   * Labels what was added to a segment's end. To ask every chip where it is, with every token of an answer, costs half a frame.
   * @param {HTMLElement} segment
   * @param {HTMLElement[]} chips
   * @param {number} first
   * @param {number} end
   */
  more(segment, chips, first, end) {
    let { next, top } = this.reached.get(segment) ?? { next: first, top: -1 };
    const labels = [];
    for (; next < end; next += 1) {
      const at = chips[next].offsetTop;
      if (at > top + SAME_LINE) labels.push(h("span", { class: "line", style: `top:${at}px`, "aria-hidden": "true" }, next));
      top = Math.max(top, at);
    }
    segment.append(...labels);
    this.reached.set(segment, { next, top });
  }
}
