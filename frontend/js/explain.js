// Explanations at hand: labels that can be asked what they mean, and the one box that answers.
//
// A label is a button, so that mouse, finger and keyboard reach it alike: pointing at it or coming to it by keyboard shows
// the explanation, pressing it keeps it there, Escape or a press elsewhere takes it away.

import { fill, h, setAttribute } from "./dom.js";
import { explanation } from "./explanations/index.js";
import { hideTip } from "./tip.js";

/** @typedef {import("./explanations/index.js").Key} Key */

/** A pointer that only passes by opens nothing. */
const HOVER_DELAY_MS = 350;

const BOX = "explanation";

/** A label that can be asked. @param {Key} key @param {...import("./dom.js").Child} label */
export function term(key, ...label) {
  explanation(key);
  return h("button", { type: "button", class: "plain term", "data-explain": key }, ...label);
}

/** The mark behind a panel's heading. @param {Key} key */
export function about(key) {
  return h("button", { type: "button", class: "about", "data-explain": key, "aria-label": `About: ${explanation(key).name}` }, "?");
}

/** What a text that is about to be replaced leaves to what replaces it: the focus on a label. @param {Element} root @param {() => void} draw */
export function keepingTerm(root, draw) {
  const focused = document.activeElement;
  const key = focused instanceof HTMLElement && root.contains(focused) ? focused.dataset.explain : undefined;
  draw();
  if (key !== undefined && !focused?.isConnected) /** @type {HTMLElement | null} */ (root.querySelector(`[data-explain="${key}"]`))?.focus({ preventScroll: true });
}

class Box {
  constructor() {
    this.root = h("div", { id: BOX, role: "tooltip", hidden: true });
    /** @type {HTMLElement | null} */
    this.label = null;
    this.pinned = false;
    this.timer = 0;
  }

  /** @param {HTMLElement} label @param {boolean} pinned */
  show(label, pinned) {
    clearTimeout(this.timer);
    if (this.label !== label) this.hide();
    this.label = label;
    this.pinned = pinned;
    const { name, what, how, formula, careful } = explanation(/** @type {Key} */ (label.dataset.explain));
    const part = (/** @type {string} */ title, /** @type {string} */ text, /** @type {string} */ className = "") => [h("dt", null, title), h("dd", { class: className }, text)];
    fill(this.root, h("b", null, name), h("p", null, what), h("dl", null, part("obtained", how), part("formula", formula, "formula"), part("careful", careful)));
    if (!this.root.isConnected) document.body.append(this.root);
    // A modal dialog lies above all else: the box goes into it.
    const host = label.closest("dialog") ?? document.body;
    if (this.root.parentElement !== host) host.append(this.root);
    this.root.hidden = false;
    hideTip();
    setAttribute(label, "aria-describedby", BOX);
    this.place(label);
  }

  /** Below the label, above it where there is no room, and always on the screen. @param {HTMLElement} label */
  place(label) {
    const at = label.getBoundingClientRect();
    const { width, height } = this.root.getBoundingClientRect();
    const left = Math.max(6, Math.min(at.left, window.innerWidth - width - 6));
    const below = at.bottom + 6;
    const top = below + height > window.innerHeight - 6 ? Math.max(6, at.top - height - 6) : below;
    Object.assign(this.root.style, { left: `${left}px`, top: `${top}px` });
  }

  /** @param {HTMLElement} label */
  soon(label) {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => label.isConnected && this.show(label, false), HOVER_DELAY_MS);
  }

  hide() {
    clearTimeout(this.timer);
    if (this.label) setAttribute(this.label, "aria-describedby", null);
    this.label = null;
    this.pinned = false;
    this.root.hidden = true;
  }

  /** The pointer or the focus has left: what was pressed stays. */
  leave() {
    clearTimeout(this.timer);
    if (!this.pinned) this.hide();
  }
}

/** @param {EventTarget | null} target @returns {HTMLElement | null} */
export function labelOf(target) {
  return target instanceof Element ? target.closest("[data-explain]") : null;
}

/** Every label, wherever it is or will be. */
export function installExplanations() {
  const box = new Box();
  document.addEventListener("pointerover", (event) => {
    const label = labelOf(event.target);
    if (label && event.pointerType === "mouse" && !box.pinned) box.soon(label);
  });
  document.addEventListener("pointerout", (event) => {
    if (labelOf(event.target)) box.leave();
  });
  document.addEventListener("focusin", (event) => {
    const label = labelOf(event.target);
    if (label?.matches(":focus-visible")) box.show(label, false);
  });
  document.addEventListener("focusout", (event) => {
    if (labelOf(event.target)) box.hide();
  });
  document.addEventListener("click", (event) => {
    const label = labelOf(event.target);
    if (label && !(box.pinned && box.label === label)) box.show(label, true);
    else if (!(event.target instanceof Node && box.root.contains(event.target))) box.hide();
  });
  document.addEventListener("scroll", () => box.leave(), { capture: true, passive: true });
  document.addEventListener(
    "keydown",
    (event) => {
      if (event.key !== "Escape" || box.root.hidden) return;
      // The box alone is closed: not the dialog under it, nor is the label left.
      event.preventDefault();
      event.stopPropagation();
      box.hide();
    },
    { capture: true },
  );
}
