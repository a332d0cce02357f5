/** The chart on the page: slots by steps, waiting and the use of the budget below. One canvas that draws what is in view. */

import { inkOn, parseColour } from "../colour.js";
import { h, setAttribute } from "../dom.js";
import { count, duration } from "../format.js";
import { cssColour, fitCanvas } from "../paint.js";
import { requestColours, requestHue, requestNumber } from "../requests.js";
import { utilisation } from "./scheduler-data.js";
import { hit, scrollTo, stepLeft, stretches, visibleSteps } from "./scheduler-layout.js";

/** @typedef {import("./scheduler-data.js").Step} Step */
/** @typedef {import("./scheduler-layout.js").ChartLayout} ChartLayout */

/**
 * @typedef {object} ChartState
 * @property {ChartLayout} layout
 * @property {import("../model.js").Run} run
 * @property {readonly Step[]} steps
 * @property {string} request the followed one
 * @property {number | null} current place of the followed step
 * @property {number} picked place of the step that is described
 * @property {number} mostWaiting in any step
 * @property {import("../canvas.js").Palette} palette
 */

export class ChartView {
  /** @param {{onPoint: (at: {index: number, slot: number | null} | null, x: number, top: number, bottom: number) => void, onChoose: (at: {index: number, slot: number | null}) => void, onStep: (by: number) => void}} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    /** @type {ChartState | null} */
    this.state = null;
    this.frame = 0;
    this.shown = "";
    /** The requests', in the theme that is on. @type {readonly string[]} */
    this.colours = [];
    /** @type {{index: number, slot: number | null} | null} */
    this.pointed = null;
    /** Place of the step that is pointed at elsewhere. @type {number | null} */
    this.marked = null;
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.width = h("div", { class: "chart-width" });
    this.scroller = h(
      "div",
      {
        class: "chart",
        tabindex: 0,
        role: "application",
        "aria-label": "Steps by slot",
        "aria-roledescription": "chart of steps; left and right choose a step",
        "aria-describedby": "step-detail",
        onscroll: () => this.redraw(),
        onkeydown: (event) => this.key(/** @type {KeyboardEvent} */ (event)),
        onpointermove: (event) => this.point(/** @type {PointerEvent} */ (event)),
        onpointerleave: () => {
          this.pointed = null;
          handlers.onPoint(null, 0, 0, 0);
          this.redraw();
        },
        onclick: (event) => {
          const at = this.under(/** @type {MouseEvent} */ (event));
          if (at) handlers.onChoose(at);
        },
      },
      this.canvas,
      this.width,
    );
  }

  /** @param {number | null} index */
  mark(index) {
    if (index === this.marked) return;
    this.marked = index;
    this.redraw();
  }

  redraw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.state && this.scroller.isConnected) this.draw(this.state, false);
    });
  }

  /** @param {ChartState} state @param {boolean} [reveal] scroll to the described step when it is another one */
  draw(state, reveal = true) {
    this.state = state;
    const { layout, steps } = state;
    const view = this.scroller.clientWidth;
    this.width.style.inlineSize = `${layout.gutter + steps.length * layout.pitch + 2}px`;
    this.scroller.style.blockSize = `${layout.height + 12}px`; // 12: the scroll bar's place, whether there is one or not
    const key = `${state.run.name} ${state.picked} ${layout.pitch} ${view}`;
    if (reveal && key !== this.shown) {
      this.shown = key;
      const to = scrollTo(layout, state.picked, this.scroller.scrollLeft, view);
      if (to !== this.scroller.scrollLeft) this.scroller.scrollLeft = to;
    }
    const context = fitCanvas(this.canvas, view, layout.height);
    if (!context) return;
    Object.assign(this.canvas.style, { inlineSize: `${view}px`, blockSize: `${layout.height}px` });
    this.colours = requestColours();
    const scroll = this.scroller.scrollLeft;
    const { from, to } = visibleSteps(layout, steps.length, scroll, view);
    context.save();
    context.beginPath();
    context.rect(layout.gutter, 0, view - layout.gutter, layout.height);
    context.clip();
    this.lanes(context, state, view);
    for (let i = from; i < to; i += 1) this.step(context, state, i, stepLeft(layout, i, scroll));
    if (layout.lane >= 14) this.numbers(context, state, from, to, scroll);
    this.axis(context, state, from, to, scroll, view);
    this.outlines(context, state, scroll);
    context.restore();
    this.labels(context, state);
    setAttribute(this.scroller, "aria-label", `Steps by slot: ${count(steps.length)} steps, ${layout.slots} slots`);
  }

  /** @param {CanvasRenderingContext2D} context @param {ChartState} state @param {number} view */
  lanes(context, { layout, palette }, view) {
    context.fillStyle = palette.line;
    for (let slot = 0; slot <= layout.slots; slot += 1) context.fillRect(layout.gutter, layout.slotsTop + slot * layout.lane - 0.5, view, 1);
    context.fillRect(layout.gutter, layout.waitTop + layout.waitHeight, view, 1);
    context.fillRect(layout.gutter, layout.useTop + layout.useHeight, view, 1);
  }

  /** @param {CanvasRenderingContext2D} context @param {ChartState} state @param {number} i @param {number} x */
  step(context, { layout, run, steps, request, palette, mostWaiting }, i, x) {
    const step = steps[i];
    const { pitch, lane, slotsTop } = layout;
    const width = Math.max(1, pitch - (pitch >= 8 ? 2 : pitch > 4 ? 1 : 0.5));
    for (const row of step.rows) {
      const record = run.requests.get(row.request);
      const y = slotsTop + row.slot * lane + 2;
      context.fillStyle = this.colours[record ? requestHue(record) : 0];
      context.globalAlpha = row.phase === "prefill" ? 1 : row.request === request ? 0.62 : 0.42;
      context.fillRect(x, y, width, lane - 4);
      context.globalAlpha = 1;
      if (row.phase === "prefill" && lane >= 14) {
        // A notch tells a chunk of the prompt from a decode step without its colour.
        context.fillStyle = palette.text;
        context.fillRect(x, y + lane - 6, width, 2);
      }
      if (row.phase === "prefill" && pitch >= 26 && lane >= 18) {
        context.fillStyle = inkOn(parseColour(this.colours[record ? requestHue(record) : 0]));
        context.font = `600 10px ${palette.font}`;
        context.textAlign = "center";
        context.textBaseline = "middle";
        context.fillText(String(row.to - row.from), x + width / 2, y + (lane - 5) / 2);
      }
    }
    if (step.waiting) {
      const height = Math.max(3, (step.waiting / Math.max(1, mostWaiting)) * layout.waitHeight);
      context.fillStyle = palette.muted;
      context.fillRect(x, layout.waitTop + layout.waitHeight - height, width, height);
    }
    const share = utilisation(step);
    if (share !== null) {
      const prefill = step.rows.reduce((sum, row) => sum + (row.phase === "prefill" ? row.to - row.from : 0), 0) / step.started.token_budget;
      const height = Math.max(1, Math.min(1, share) * layout.useHeight);
      context.fillStyle = cssColour("--bar");
      context.fillRect(x, layout.useTop + layout.useHeight - height, width, height);
      context.fillStyle = palette.text;
      if (prefill) context.fillRect(x, layout.useTop + layout.useHeight - height, width, Math.min(height, Math.max(1, prefill * layout.useHeight)));
    }
    for (const { slot } of step.preempted) this.preemption(context, layout, x, slot ?? 0);
  }

  /**
   * Each request's number, in each slot where its steps come into view: two may have the same colour.
   * @param {CanvasRenderingContext2D} context @param {ChartState} state @param {number} from @param {number} to @param {number} scroll
   */
  numbers(context, { layout, run, steps, palette }, from, to, scroll) {
    context.font = `600 10px ${palette.font}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (const { slot, request, index, steps: length, decodes } of stretches(steps, from, to)) {
      const record = run.requests.get(request);
      if (!record) continue;
      const text = requestNumber(record);
      const width = context.measureText(text).width + 6;
      const end = stepLeft(layout, index + length, scroll);
      // After the prompt's chunks, which show how many positions they are; over them where nothing else is in view.
      const [over, after] = [index, decodes ?? index].map((step) => Math.max(layout.gutter, stepLeft(layout, step, scroll)) + 1);
      const left = after + width <= end || layout.pitch >= 26 ? after : over;
      if (left + width > end) continue;
      const middle = layout.slotsTop + (slot + 0.5) * layout.lane - 1;
      context.beginPath();
      context.roundRect(left, middle - 6, width, 12, 3);
      context.fillStyle = cssColour("--bg");
      context.fill();
      context.fillStyle = palette.text;
      context.fillText(text, left + 3, middle + 0.5);
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {ChartLayout} layout @param {number} x @param {number} slot */
  preemption(context, { slotsTop, lane }, x, slot) {
    const y = slotsTop + slot * lane;
    context.fillStyle = cssColour("--warn");
    context.fillRect(x - 1.5, y + 1, 2, lane - 2);
    context.beginPath();
    context.moveTo(x - 5.5, y - 1);
    context.lineTo(x + 4.5, y - 1);
    context.lineTo(x - 0.5, y + 7);
    context.closePath();
    context.fill();
  }

  /** @param {CanvasRenderingContext2D} context @param {ChartState} state @param {number} from @param {number} to @param {number} scroll @param {number} view width */
  axis(context, { layout, steps, palette }, from, to, scroll, view) {
    context.font = `10px ${palette.font}`;
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    context.fillStyle = palette.muted;
    const every = Math.max(1, Math.ceil(110 / layout.pitch / 5) * 5);
    const origin = steps[0]?.started.t_ns ?? 0;
    const atEnd = stepLeft(layout, steps.length, scroll) <= view;
    for (let i = Math.ceil(from / every) * every; i < to; i += every) {
      const x = stepLeft(layout, i, scroll);
      context.fillRect(x, layout.slotsTop - 4, 1, 4);
      const label = i === 0 ? `step ${steps[i].step}` : `${steps[i].step} · ${duration(steps[i].started.t_ns - origin)}`;
      const wide = context.measureText(label).width;
      // At the chart's end there is nowhere to scroll to: the label goes to the other side of its mark.
      context.fillText(label, atEnd && x + 3 + wide > view ? x - 3 - wide : x + 3, 10);
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {ChartState} state @param {number} scroll */
  outlines(context, { layout, current, picked, palette }, scroll) {
    const box = (/** @type {number} */ index, /** @type {string} */ colour) => {
      context.strokeStyle = colour;
      context.lineWidth = 1.5;
      context.strokeRect(stepLeft(layout, index, scroll) - 1.25, layout.slotsTop - 1, layout.pitch + 0.5, layout.height - layout.slotsTop);
    };
    if (this.pointed) box(this.pointed.index, palette.line);
    else if (this.marked !== null) box(this.marked, palette.text);
    if (picked !== current) box(picked, palette.text);
    if (current !== null) box(current, palette.followed);
  }

  /** @param {CanvasRenderingContext2D} context @param {ChartState} state */
  labels(context, { layout, palette, mostWaiting }) {
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillStyle = palette.muted;
    context.font = `11px ${palette.font}`;
    const every = layout.lane >= 12 ? 1 : 2;
    for (let slot = 0; slot < layout.slots; slot += every)
      context.fillText(slot === 0 ? "slot 0" : String(slot), layout.gutter - 8, layout.slotsTop + (slot + 0.5) * layout.lane);
    context.fillText("waiting", layout.gutter - 8, layout.waitTop + layout.waitHeight / 2 + (mostWaiting ? -5 : 0));
    if (mostWaiting) context.fillText(`max ${count(mostWaiting)}`, layout.gutter - 8, layout.waitTop + layout.waitHeight / 2 + 8);
    context.fillText("budget", layout.gutter - 8, layout.useTop + layout.useHeight / 2 - 5);
    context.fillText("used", layout.gutter - 8, layout.useTop + layout.useHeight / 2 + 8);
  }

  /** @param {MouseEvent} event */
  under(event) {
    const box = this.scroller.getBoundingClientRect();
    return this.state ? hit(this.state.layout, this.state.steps.length, this.scroller.scrollLeft, event.clientX - box.left, event.clientY - box.top) : null;
  }

  /** @param {PointerEvent} event */
  point(event) {
    const at = this.under(event);
    if (at?.index === this.pointed?.index && at?.slot === this.pointed?.slot) return;
    this.pointed = at;
    const box = this.scroller.getBoundingClientRect();
    this.handlers.onPoint(at, event.clientX, box.top, box.top + (this.state?.layout.height ?? 0));
    this.redraw();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    /** @type {Record<string, number>} */
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -Infinity, End: Infinity };
    if (!(event.key in by)) return;
    this.handlers.onStep(by[event.key]);
    event.preventDefault();
    event.stopPropagation(); // the page's own arrow keys walk over tokens
  }
}
