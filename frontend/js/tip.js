// One tip for the whole page: the number and where it comes from, on hover and on focus.

import { h, setText } from "./dom.js";

/** @type {HTMLElement | null} */
let tip = null;

/** While a tip is about an element. One that is taken away under the pointer says nothing of it. @type {MutationObserver | null} */
let watch = null;

/** @returns {HTMLElement} */
function shown() {
  tip ??= h("div", { id: "tip", role: "tooltip" });
  if (!tip.isConnected) document.body.append(tip);
  tip.hidden = false;
  return tip;
}

/**
 * @param {string} text lines are kept
 * @param {number} x of the point it is about, in the window
 * @param {number} top
 * @param {number} bottom the tip goes below it, or above `top` where there is no room
 */
export function showTip(text, x, top, bottom) {
  watch?.disconnect();
  const element = shown();
  setText(element, text);
  const { width, height } = element.getBoundingClientRect();
  const left = Math.max(6, Math.min(x - width / 2, window.innerWidth - width - 6));
  const below = bottom + 8;
  element.style.left = `${left}px`;
  element.style.top = `${below + height > window.innerHeight - 6 ? Math.max(6, top - height - 8) : below}px`;
}

export function hideTip() {
  watch?.disconnect();
  if (tip) tip.hidden = true;
}

/** The tip goes when its element does. @param {HTMLElement} target */
function hideWith(target) {
  watch = new MutationObserver(() => {
    if (!target.isConnected) hideTip();
  });
  watch.observe(document.body, { childList: true, subtree: true });
}

/**
 * Elements under `root` that match get a tip.
 * @param {Element} root
 * @param {string} selector
 * @param {(element: HTMLElement) => string} describe "" for no tip
 */
export function tipsFor(root, selector, describe) {
  const show = (/** @type {Event} */ event) => {
    const at = event.target instanceof Element ? event.target : null;
    // A label that explains itself answers in its own box.
    const target = at?.closest("[data-explain]") ? null : /** @type {HTMLElement | null} */ (at?.closest(selector) ?? null);
    const text = target && root.contains(target) ? describe(target) : "";
    if (!target || !text) return;
    const box = target.getBoundingClientRect();
    showTip(text, box.left + box.width / 2, box.top, box.bottom);
    hideWith(target);
  };
  root.addEventListener("pointerover", show);
  root.addEventListener("focusin", (event) => {
    if (event.target instanceof Element && event.target.matches(":focus-visible")) show(event);
  });
  for (const leave of ["pointerout", "focusout", "pointerdown"]) root.addEventListener(leave, hideTip);
}

/** Every element with `data-tip`, wherever it is. */
export function installTips() {
  tipsFor(document.body, "[data-tip]", (element) => element.dataset.tip ?? "");
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideTip();
  });
}
