/** Painting pixels in the page's own colours. */

import { mix, pack, parseColour } from "./colour.js";
import { cssColour, pageRamp } from "./paint.js";

/** @typedef {import("./colour.js").Rgb} Rgb */
/** @typedef {import("./colour.js").Theme} Theme */

/**
 * @typedef {object} Palette the page's colours, resolved for painting
 * @property {Theme} theme
 * @property {Rgb} background
 * @property {string} text
 * @property {string} muted
 * @property {string} line
 * @property {string} followed
 * @property {Uint32Array} ramp
 * @property {Uint32Array} absent two pixels, to hatch with
 * @property {string} font
 */

/**
 * The page's colours as they are now. Read it again when the theme changes, not at every drawing.
 * @param {Theme} theme
 * @returns {Palette}
 */
export function readPalette(theme) {
  const background = parseColour(cssColour("--bg"));
  return {
    theme,
    background,
    text: cssColour("--text"),
    muted: cssColour("--muted"),
    line: cssColour("--line"),
    followed: cssColour("--followed"),
    ramp: pageRamp(),
    absent: Uint32Array.of(pack(mix(background, parseColour(cssColour("--muted")), 0.5)), pack(background)),
    font: getComputedStyle(document.body).fontFamily,
  };
}

/**
 * Put packed pixels on a canvas, replacing what is there.
 * @param {CanvasRenderingContext2D} context
 * @param {Uint32Array} pixels
 * @param {number} width device pixels
 * @param {number} height device pixels
 * @param {number} [x] device pixels
 * @param {number} [y] device pixels
 */
export function putPixels(context, pixels, width, height, x = 0, y = 0) {
  if (width < 1 || height < 1) return;
  const bytes = new Uint8ClampedArray(/** @type {ArrayBuffer} */ (pixels.buffer), pixels.byteOffset, pixels.byteLength);
  context.putImageData(new ImageData(bytes, width, height), x, y);
}
