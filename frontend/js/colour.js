/**
 * Colour of a weight: one ramp, used wherever attention or probability is painted.
 *
 * The ramp is cividis (Nuñez, Anderton and Renslow 2018: made to look the same with and without red-green colour
 * blindness, and even in lightness), begun at the page's background so that nothing is the colour of nothing: upwards
 * into light in the dark theme, downwards into navy in the light one.
 *
 * A scale says where a weight lies on the ramp. It never changes the weight: hiding the sink moves the ramp's upper end
 * to the largest weight left, and the number at that end is shown.
 *
 * @typedef {[number, number, number]} Rgb  0 … 255 each
 * @typedef {"dark" | "light"} Theme
 * @typedef {"linear" | "root" | "log"} ScaleKind  root: by the square root
 * @typedef {{kind: ScaleKind, top: number, floor: number}} Scale  top: the weight at the ramp's end; floor: log only
 */

/** Eleven evenly spaced stops of cividis. */
const CIVIDIS = [
  [0, 32, 77],
  [0, 51, 111],
  [57, 72, 107],
  [87, 93, 109],
  [112, 113, 115],
  [138, 135, 121],
  [166, 157, 117],
  [196, 181, 108],
  [228, 207, 91],
  [243, 219, 80],
  [255, 234, 70],
];

/** How far up the ramp the background still shows through. Light pages need longer: yellow on white is a weak start. */
const FADE = { dark: 0.22, light: 0.4 };

/** A log scale covers four decades: less than a ten-thousandth is below what float16 rows tell apart from noise. */
export const LOG_DECADES = 4;

/** Steps in a ramp. */
export const RAMP_STEPS = 256;

/**
 * Read `#rgb`, `#rrggbb` or `rgb(r, g, b)`, the forms in which browsers report a colour.
 * @param {string} text
 * @returns {Rgb}
 */
export function parseColour(text) {
  const trimmed = text.trim();
  const hex = /^#([0-9a-f]{3}|[0-9a-f]{6})$/i.exec(trimmed);
  if (hex) {
    const digits = hex[1].length === 3 ? [...hex[1]].map((d) => d + d).join("") : hex[1];
    const number = parseInt(digits, 16);
    return [number >> 16, (number >> 8) & 0xff, number & 0xff];
  }
  const rgb = /^rgba?\(\s*([\d.]+)[\s,]+([\d.]+)[\s,]+([\d.]+)/i.exec(trimmed);
  if (rgb) return [Number(rgb[1]), Number(rgb[2]), Number(rgb[3])];
  throw new RangeError(`not a colour: "${text}"; expected #rgb, #rrggbb or rgb(r, g, b)`);
}

/**
 * @param {readonly number[]} from
 * @param {readonly number[]} to
 * @param {number} part 0 gives `from`, 1 gives `to`
 * @returns {Rgb}
 */
export function mix(from, to, part) {
  const at = (/** @type {number} */ i) => Math.round(from[i] + (to[i] - from[i]) * part);
  return [at(0), at(1), at(2)];
}

/** @param {number} at 0 … 1 */
function cividis(at) {
  const x = Math.min(1, Math.max(0, at)) * (CIVIDIS.length - 1);
  const below = Math.min(CIVIDIS.length - 2, Math.floor(x));
  return mix(CIVIDIS[below], CIVIDIS[below + 1], x - below);
}

/** One pixel as `ImageData` holds it on a little-endian machine, which every browser's is. @param {readonly number[]} rgb */
export function pack(rgb) {
  return (0xff000000 | (rgb[2] << 16) | (rgb[1] << 8) | rgb[0]) >>> 0;
}

/** @param {number} pixel @returns {Rgb} */
export function unpack(pixel) {
  return [pixel & 0xff, (pixel >>> 8) & 0xff, (pixel >>> 16) & 0xff];
}

/**
 * The ramp: `RAMP_STEPS` pixels, the first of which is the background.
 * @param {Theme} theme
 * @param {Rgb} background
 * @returns {Uint32Array}
 */
export function ramp(theme, background) {
  const pixels = new Uint32Array(RAMP_STEPS);
  for (let i = 0; i < RAMP_STEPS; i++) {
    const at = i / (RAMP_STEPS - 1);
    const colour = cividis(theme === "dark" ? at : 1 - at);
    pixels[i] = pack(mix(background, colour, Math.min(1, at / FADE[theme])));
  }
  return pixels;
}

/** How much of the ramp's colour a soft ramp keeps: as much as leaves the page's text at 4.5 : 1 on all of it. */
const SOFT = { dark: 0.42, light: 0.5 };

/**
 * The ramp turned down, to lie under words in the page's own text colour.
 * @param {Uint32Array} pixels a ramp
 * @param {Theme} theme
 */
export function softRamp(pixels, theme) {
  const background = unpack(pixels[0]);
  return pixels.map((pixel) => pack(mix(background, unpack(pixel), SOFT[theme])));
}

/** @param {Uint32Array} pixels a ramp @param {number} fraction 0 … 1 */
export function rampPixel(pixels, fraction) {
  return pixels[Math.round(Math.min(1, Math.max(0, fraction)) * (RAMP_STEPS - 1))];
}

/** @param {number | Rgb} colour a pixel or its parts @returns {string} */
export function css(colour) {
  const [r, g, b] = typeof colour === "number" ? unpack(colour) : colour;
  return `rgb(${r}, ${g}, ${b})`;
}

/**
 * @param {ScaleKind} kind
 * @param {number} [top] the weight at the ramp's end
 * @returns {Scale}
 */
export function makeScale(kind, top = 1) {
  const end = top > 0 ? top : 1;
  return { kind, top: end, floor: end / 10 ** LOG_DECADES };
}

/**
 * Where a weight lies on the ramp, 0 … 1. Weights outside the scale take its ends.
 * @param {Scale} scale
 * @param {number} weight
 */
export function fraction(scale, weight) {
  if (!(weight > 0)) return 0;
  const share = weight / scale.top;
  if (scale.kind === "log") return Math.min(1, Math.max(0, 1 + Math.log10(share) / LOG_DECADES));
  return Math.min(1, scale.kind === "root" ? Math.sqrt(share) : share);
}

/**
 * Numbers to write along the ramp.
 * @param {Scale} scale
 * @returns {{weight: number, at: number}[]}
 */
export function scaleTicks(scale) {
  if (scale.kind === "linear") return [0, 0.5, 1].map((at) => ({ weight: at * scale.top, at }));
  if (scale.kind === "root") return [0, 0.25, 1].map((share) => ({ weight: share * scale.top, at: Math.sqrt(share) }));
  return Array.from({ length: LOG_DECADES + 1 }, (_, i) => ({
    weight: scale.top * 10 ** (i - LOG_DECADES),
    at: i / LOG_DECADES,
  }));
}

/** A table's index is the upper half of the float32: sign, exponent and 7 bits of fraction, fine to 0.8 %. */
const TABLE_SHIFT = 16;

/**
 * A weight's pixel without a logarithm a weight: index the table with a float32's bits, shifted right by 16.
 * @param {Uint32Array} pixels a ramp
 * @param {Scale} scale
 * @returns {Uint32Array} 32,768 pixels, for weights ≥ 0
 */
export function weightTable(pixels, scale) {
  const table = new Uint32Array(1 << (32 - TABLE_SHIFT - 1));
  const bits = new Uint32Array(1);
  const value = new Float32Array(bits.buffer);
  for (let i = 0; i < table.length; i++) {
    bits[0] = (i << TABLE_SHIFT) | 0x8000; // the middle of the interval that shares these bits
    table[i] = rampPixel(pixels, fraction(scale, value[0]));
  }
  return table;
}

/** Relative luminance, WCAG 2. @param {readonly number[]} rgb */
export function luminance(rgb) {
  const [r, g, b] = rgb.map((part) => {
    const c = part / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Contrast ratio, WCAG 2: 1 … 21. @param {readonly number[]} a @param {readonly number[]} b */
export function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

/** Black or white, whichever reads better on a colour; never below 4.58 : 1. @param {readonly number[]} rgb */
export function inkOn(rgb) {
  return contrast(rgb, [0, 0, 0]) >= contrast(rgb, [255, 255, 255]) ? "#000000" : "#ffffff";
}
