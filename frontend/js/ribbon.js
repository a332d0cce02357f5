// The ribbon: every token as a chip, prompt then answer.
//
// Chips are plain elements in segments that the browser lays out and paints only when they are in view
// (content-visibility), and only segments in view are coloured: 8,000 tokens cost what a screenful costs.

import { css, rampPixel } from "./colour.js";
import { fill, h, press, setAttribute, setText } from "./dom.js";
import { about } from "./explain.js";
import { count } from "./format.js";
import { ROLES } from "./schema.js";
import { selectedRequest } from "./model.js";
import { pageRamp } from "./paint.js";
import { chipText, dress, paint, positionOf } from "./ribbon-chips.js";
import { MODES, colouringOf } from "./ribbon-colours.js";
import { LineLabels } from "./ribbon-labels.js";
import { linesWanted } from "./ribbon-lines.js";
import { ribbonFigure, ribbonTable } from "./save/ribbon.js";
import { saveButton } from "./save/save.js";
import { tipsFor } from "./tip.js";
import { noRequest, noTokens } from "./nothing.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./store.js").State} State */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {import("./tokens.js").TokenRecord} TokenRecord */

const SEGMENT = 200;

/** More lines than css/ribbon.css lets the ribbon have on any screen. */
const MOST_LINES = 5;

/** @param {HTMLElement} root @param {Store} store */
export function ribbon(root, store) {
  const view = new Ribbon(root, store);
  return { update: view.update.bind(view) };
}

class Ribbon {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    /** @type {typeof MODES[number]} */
    this.mode = "attention";
    this.key = h("p", { class: "key", hidden: true });
    this.legend = h("span");
    /** Explains the colours that are on. */
    this.about = about("ribbon.attention");
    /** @type {RequestRecord | null} */
    this.record = null;
    this.built = 0;
    /** @type {HTMLElement[]} */
    this.chips = [];
    /** @type {HTMLElement[]} */
    this.segments = [];
    /** Those whose colours are of before. @type {Set<HTMLElement>} */
    this.stale = new Set();
    this.labels = new LineLabels();
    /** How each chip is coloured: a pixel, or what its tone is called. @type {(number | string)[]} */
    this.looks = [];
    this.keyDrawn = "";
    /** @type {Set<HTMLElement>} */
    this.inView = new Set();
    /** @type {HTMLElement | null} */
    this.current = null;
    /** @type {HTMLElement[]} */
    this.pointed = [];
    /** Of the list, as it was laid out last: its width, the height of a line, the size of its letters, pixels. */
    this.measured = { width: 0, line: 23, font: 12 };
    /** Whether the prompt's tokens were there when the ribbon's height was chosen. */
    this.fitted = false;
    this.root = root;
    /** @type {import("./ribbon-colours.js").Colouring | null} */
    this.colouring = null;
    this.build(root);
  }

  /** @param {HTMLElement} root */
  build(root) {
    const modes = MODES.map((mode) =>
      h("button", { type: "button", "data-value": mode, onclick: () => this.setMode(mode) }, mode),
    );
    this.modes = h("div", { class: "segmented", role: "group", "aria-label": "Colour tokens by" }, modes);
    this.list = h("div", { class: "tokens", role: "list", "aria-label": "Tokens" });
    this.empty = h("p", { class: "empty" });
    this.scroller = h("div", { class: "scroller" }, this.empty, this.list);
    this.place = h("span", { class: "place" });
    const step = (/** @type {number} */ by, /** @type {string} */ name, /** @type {string} */ sign) =>
      h("button", { type: "button", "aria-label": name, onclick: () => this.step(by) }, sign);
    this.steps = [step(-1, "Token before", "←"), step(1, "Next token", "→")];
    fill(
      root,
      h("div", { class: "controls" }, this.modes, this.key, h("p", { class: "legend" }, this.legend, this.about)),
      this.scroller,
      h("div", { class: "where" }, h("p", { class: "titled" }, this.place, about("ribbon")), h("div", { class: "steps" }, saveButton(this.store, () => this.saves()), this.steps)),
    );
    press(this.modes.querySelectorAll("button"), this.mode);
    this.observer = new IntersectionObserver((entries) => this.sawSegments(entries), { root: this.scroller, rootMargin: "60px" });
    new ResizeObserver(([{ contentRect }]) => {
      // A higher ribbon has no other width: only what changes that asks for its height anew.
      if (contentRect.width !== this.measured.width) this.measure(contentRect.width);
      this.labelLines();
    }).observe(this.scroller);
    this.list.addEventListener("click", (event) => this.clicked(event));
    this.list.addEventListener("pointerover", (event) => this.store.hover({ position: positionOf(event) }));
    this.list.addEventListener("pointerleave", () => this.store.hover({}));
    tipsFor(this.list, ".chip", (chip) => (this.record ? chipText(this.record, Number(chip.dataset.position), this.store.state) : ""));
  }

  /** @param {typeof MODES[number]} mode */
  setMode(mode) {
    this.mode = mode;
    const named = about(`ribbon.${mode}`);
    this.about.replaceWith(named);
    this.about = named;
    press(/** @type {HTMLElement} */ (this.modes).querySelectorAll("button"), mode);
    this.recolour();
  }

  /** @param {number} by */
  step(by) {
    const { position } = this.store.state.selection;
    if (position === null || !this.record) return;
    const to = Math.max(0, Math.min(this.record.tokens.length - 1, position + by));
    this.store.select({ position: to });
  }

  /** @param {Event} event */
  clicked(event) {
    const position = positionOf(event);
    if (position !== null) this.store.select({ position });
  }

  /** @param {State} state @param {Set<string>} changed */
  update(state, changed) {
    const record = selectedRequest(state);
    const other = record !== this.record || changed.has("run") || (record !== null && record.tokens.length < this.built);
    if (other) this.restart(record);
    if (!this.fitted && record?.tokens.length) this.fit();
    if (other || changed.has("tokens") || changed.has("header")) this.addChips();
    if (other || changed.has("selection") || changed.has("tokens")) this.mark(state);
    const colours = ["selection", "attention", "absent", "theme", "tokens", ...(this.mode === "block" || this.mode === "cached" ? ["blocks", "steps"] : [])];
    if (other || colours.some((what) => changed.has(what))) this.recolour();
    if (changed.has("hover")) this.point(state.hover);
    if (other || changed.has("loading") || changed.has("connection") || changed.has("requests") || changed.has("tokens")) {
      this.sayEmpty(state, record);
    }
  }

  /** @param {RequestRecord | null} record */
  restart(record) {
    this.record = record;
    this.fitted = false;
    this.built = 0;
    this.chips = [];
    this.looks = [];
    this.segments = [];
    this.inView.clear();
    this.observer?.disconnect();
    this.current = null;
    fill(/** @type {HTMLElement} */ (this.list));
  }

  /** @param {number} width of the list */
  measure(width) {
    const list = /** @type {HTMLElement} */ (this.list);
    const style = getComputedStyle(list);
    this.measured = { width, line: parseFloat(style.lineHeight), font: parseFloat(style.fontSize) };
    this.fit();
  }

  /** As many lines as the request's tokens will take, those to come among them: nothing below moves as they come. */
  fit() {
    const { record, measured } = this;
    if (!record?.tokens.length || !measured.width) return;
    this.fitted = true;
    this.root.style.setProperty("--wanted", String(linesWanted(record, measured.width, measured.font, MOST_LINES)));
  }

  addChips() {
    const tokens = this.record?.tokens ?? [];
    const from = Math.max(0, this.built - 8);
    // A character's last piece gives the ones before it their text.
    const regrouped = tokens.slice(from, this.built).filter((token) => token?.group);
    for (const token of regrouped) dress(this.chips[token.position], token);
    while (this.built < tokens.length) {
      if (this.built % SEGMENT === 0) {
        const segment = h("div", { class: "segment", role: "presentation" });
        this.segments.push(segment);
        this.list?.append(segment);
        this.observer?.observe(segment);
      }
      const token = tokens[this.built];
      const chip = h("span", { role: "listitem", tabindex: -1, "data-position": this.built });
      if (token) dress(chip, token);
      this.chips.push(chip);
      this.segments[this.segments.length - 1].append(chip);
      this.built += 1;
    }
    for (const segment of this.segments.slice(Math.floor(from / SEGMENT))) {
      if (!this.inView.has(segment)) continue;
      if (regrouped.length) this.labels.all(segment, this.chips, ...this.rangeOf(segment));
      else this.labels.more(segment, this.chips, ...this.rangeOf(segment));
    }
  }

  /** The followed chip, and which ones were still to come when it was chosen. @param {State} state */
  mark({ selection, following }) {
    const chip = selection.position === null ? null : (this.chips[selection.position] ?? null);
    if (chip !== this.current) {
      const hadFocus = this.current !== null && this.current === document.activeElement;
      this.current?.removeAttribute("aria-current");
      if (this.current) this.current.tabIndex = -1;
      if (chip) {
        chip.setAttribute("aria-current", "true");
        chip.tabIndex = 0;
        if (hadFocus) chip.focus({ preventScroll: true });
      }
      this.current = chip;
    }
    const total = this.record?.tokens.length ?? 0;
    for (const button of this.steps ?? []) button.disabled = total === 0;
    if (this.place) {
      fill(this.place, ...(selection.position === null || selection.position >= total ? [] : ["token ", h("b", null, count(selection.position)), ` of 0–${count(total - 1)}`]));
    }
    if (chip) this.reveal(chip, following);
  }

  /** Scrolls only when the chip is out of sight: nothing moves while one reads. @param {HTMLElement} chip @param {boolean} atEnd */
  reveal(chip, atEnd) {
    const view = /** @type {HTMLElement} */ (this.scroller);
    if (atEnd) {
      view.scrollTop = view.scrollHeight;
      return;
    }
    const [box, outer] = [chip.getBoundingClientRect(), view.getBoundingClientRect()];
    if (box.top >= outer.top && box.bottom <= outer.bottom) return;
    // Whole lines, with one more on the side from which one comes.
    const line = box.top - outer.top + view.scrollTop;
    const { line: height } = this.measured;
    const first = box.top < outer.top ? line - height : line - view.clientHeight + 2 * height;
    view.scrollTop = Math.max(0, Math.round(first / height) * height);
  }

  // --- colours --------------------------------------------------------------------------------------------------------

  recolour() {
    this.colouring = this.record ? colouringOf(this.mode, this.record, this.store.state) : null;
    const legend = this.colouring?.legend ?? "";
    setText(this.legend, legend);
    this.legend.title = legend; // of a long one the page has room for the beginning
    this.about.hidden = legend === "";
    const ends = this.colouring?.ends ?? null;
    this.key.hidden = ends === null && this.mode !== "role";
    this.drawKey(ends);
    this.stale = new Set(this.segments);
    for (const segment of this.inView) this.colourSegment(segment);
  }

  /** @param {[string, string] | null} ends what the ramp's ends mean */
  drawKey(ends) {
    const drawn = `${this.mode} ${ends} ${this.store.state.theme}`;
    if (drawn === this.keyDrawn) return;
    this.keyDrawn = drawn;
    if (this.mode === "role") fill(this.key, ROLES.map((role) => h("span", { class: "chip", "data-role": role }, role)));
    else if (ends) fill(this.key, h("span", null, ends[0]), h("i", { style: `background:${rampGradient()}` }), h("span", null, ends[1]));
    setAttribute(/** @type {HTMLElement} */ (this.list), "data-mode", this.mode);
    setAttribute(this.key, "data-mode", this.mode);
  }

  /** @param {IntersectionObserverEntry[]} entries */
  sawSegments(entries) {
    for (const { target, isIntersecting } of entries) {
      const segment = /** @type {HTMLElement} */ (target);
      if (!isIntersecting) this.inView.delete(segment);
      else {
        this.inView.add(segment);
        if (this.stale.has(segment)) this.colourSegment(segment);
      }
    }
    this.labelLines();
  }

  /** @param {HTMLElement} segment */
  colourSegment(segment) {
    this.stale.delete(segment);
    const { position } = this.store.state.selection;
    const pixels = pageRamp();
    const [first, end] = this.rangeOf(segment);
    for (let p = first; p < end; p += 1) {
      const token = this.record?.tokens[p];
      const place = token && this.colouring ? this.colouring.place(token) : null;
      const tone = (token && this.colouring?.tone?.(token)) || null;
      const pixel = place === null ? null : rampPixel(pixels, place);
      // Touched only where it changes: most chips look the same from one token to the next.
      const look = pixel ?? (tone ? `${tone.name} ${tone.hue} ${tone.label}` : "");
      if (this.looks[p] !== look) paint(this.chips[p], pixel, tone);
      this.looks[p] = look;
      this.chips[p].classList.toggle("later", position !== null && p > position);
    }
  }

  /** @param {import("./store.js").Hover} hover */
  point({ position, positions }) {
    for (const chip of this.pointed) chip.classList.remove("pointed");
    const [from, to] = positions ?? (position == null ? [0, 0] : [position, position + 1]);
    this.pointed = this.chips.slice(from, to);
    for (const chip of this.pointed) chip.classList.add("pointed");
  }

  /** Positions in the margin, where chips may lie elsewhere than they did. */
  labelLines() {
    for (const segment of this.inView) this.labels.all(segment, this.chips, ...this.rangeOf(segment));
  }

  /** @param {HTMLElement} segment @returns {[number, number]} positions from, to */
  rangeOf(segment) {
    const first = this.segments.indexOf(segment) * SEGMENT;
    return [first, Math.min(first + SEGMENT, this.built)];
  }

  // --- words ----------------------------------------------------------------------------------------------------------

  /** @returns {import("./save/save.js").Saveable[]} */
  saves() {
    const { record } = this;
    const { state } = this.store;
    if (!record?.tokens.length) return [];
    return [{ view: "ribbon", name: "Tokens", figure: (ink) => ribbonFigure(record, state, colouringOf(this.mode, record, state), ink), table: () => ribbonTable(record, state) }];
  }

  /** @param {State} state @param {RequestRecord | null} record */
  sayEmpty(state, record) {
    const text = record?.tokens.length
      ? ""
      : state.loading
        ? `Reading “${state.loading.name}”…`
        : record
          ? noTokens(record)
          : state.run
            ? noRequest(state)
            : "";
    if (this.empty) {
      setText(this.empty, text);
      this.empty.hidden = text === "";
    }
  }
}

/** The ramp as a picture of itself. */
function rampGradient() {
  const pixels = pageRamp();
  const stops = Array.from({ length: 9 }, (_, i) => css(rampPixel(pixels, i / 8)));
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}
