// What canvases need to know of the page: its ramp for the theme that is on.

import { parseColour, ramp } from "./colour.js";

/** @type {{theme: string, pixels: Uint32Array} | null} */
let current = null;

/** The ramp from the page's background upwards, for the theme that is on. @returns {Uint32Array} */
export function pageRamp() {
  const theme = document.documentElement.dataset.theme === "light" ? "light" : "dark";
  if (current?.theme !== theme) current = { theme, pixels: ramp(theme, parseColour(cssColour("--bg"))) };
  return current.pixels;
}

/** Mean attention below this is drawn as none: with a hundred tokens, an even spread lies here. */
export const WEIGHT_FLOOR = 0.01;

/**
 * Where a mean attention weight lies on the ramp of ribbon and strips: logarithmic from 0.01 to 1, the same for every token
 * and layer, so that two of them can be compared.
 * @param {number} weight 0 … 1
 */
export function weightFraction(weight) {
  if (!(weight > WEIGHT_FLOOR)) return 0;
  return Math.min(1, 1 - Math.log10(weight) / Math.log10(WEIGHT_FLOOR));
}

/** Colours asked for since the theme was changed. Asking the browser makes it bring all styles up to date first: dear in a frame. @type {{theme: string | undefined, known: Map<string, string>}} */
const colours = { theme: undefined, known: new Map() };

/** A colour of css/tokens.css as it is in this theme. @param {string} name such as "--followed" */
export function cssColour(name) {
  const { theme } = document.documentElement.dataset;
  if (theme !== colours.theme) Object.assign(colours, { theme, known: new Map() });
  let colour = colours.known.get(name);
  if (colour === undefined) {
    colour = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    if (colour) colours.known.set(name, colour); // "" while the style sheet is still on its way
  }
  return colour;
}

/**
 * Makes a canvas as fine as the screen; what is on it is lost when its size changes.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width in CSS pixels
 * @param {number} height
 * @returns {CanvasRenderingContext2D | null} null when it has no area; scaled so that one unit is one CSS pixel
 */
export function fitCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, ht] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (w === 0 || ht === 0) return null;
  if (canvas.width !== w || canvas.height !== ht) Object.assign(canvas, { width: w, height: ht });
  const context = canvas.getContext("2d");
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  context?.clearRect(0, 0, width, height);
  return context;
}
