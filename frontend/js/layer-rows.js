/** Rows that stand for layers, whatever a panel writes in them: chosen with a click, pointed at together with the walk. */

import { setAttribute } from "./dom.js";

/** The layer whose row an event is about; null beside the rows. @param {Event} event @returns {number | null} */
export function layerUnder(event) {
  const row = event.target instanceof Element ? event.target.closest("[data-layer]") : null;
  return row instanceof HTMLElement ? Number(row.dataset.layer) : null;
}

/**
 * @param {HTMLElement} body holds the rows, each with its `data-layer`
 * @param {{onChoose: (layer: number) => void, onHover: (layer: number | null) => void}} handlers
 */
export function listenToLayers(body, { onChoose, onHover }) {
  body.addEventListener("click", (event) => {
    const layer = layerUnder(event);
    if (layer !== null) onChoose(layer);
  });
  body.addEventListener("pointerover", (event) => onHover(layerUnder(event)));
  body.addEventListener("pointerleave", () => onHover(null));
}

/** @param {readonly HTMLElement[]} rows by layer @param {number | null} selected */
export function markLayer(rows, selected) {
  rows.forEach((row, layer) => setAttribute(row, "aria-current", layer === selected ? "true" : null));
}

/** @param {readonly HTMLElement[]} rows by layer @param {number | null | undefined} layer that is pointed at, here or elsewhere */
export function pointAtLayer(rows, layer) {
  rows.forEach((row, i) => row.classList.toggle("pointed", i === layer));
}
