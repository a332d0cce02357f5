// Numbers with their units, and text whose every character can be seen.

const GROUPED = new Intl.NumberFormat("en-GB");
const THIN = "\u202f";

/** 49152 → "49,152" @param {number} n */
export function count(n) {
  return GROUPED.format(n);
}

/** "1 token", "3 tokens" @param {number} n @param {string} noun @param {string} [plural] */
export function plural(n, noun, plural = `${noun}s`) {
  return `${count(n)} ${n === 1 ? noun : plural}`;
}

/** A duration, three digits of it. @param {number} ns nanoseconds */
export function duration(ns) {
  if (!Number.isFinite(ns)) return "unknown";
  if (ns < 1e3) return `${Math.round(ns)}${THIN}ns`;
  if (ns < 1e6) return `${digits(ns / 1e3)}${THIN}µs`;
  if (ns < 1e9) return `${digits(ns / 1e6)}${THIN}ms`;
  if (ns < 120e9) return `${digits(ns / 1e9)}${THIN}s`;
  return `${Math.floor(ns / 60e9)}${THIN}min ${Math.round((ns % 60e9) / 1e9)}${THIN}s`;
}

/** "14:02:31", on the clock of whoever looks. @param {Date} time */
export function clockTime(time) {
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** A size in powers of 1024. @param {number} n bytes */
export function bytes(n) {
  if (n < 1024) return `${n}${THIN}B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = n / 1024;
  let unit = 0;
  while (value >= 1023.5 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${digits(value)}${THIN}${units[unit]}`;
}

/** A probability as percent; what rounds to nothing says that it is more than nothing. @param {number} p 0 … 1 */
export function percent(p) {
  if (!Number.isFinite(p)) return "unknown";
  if (p === 0) return "0%";
  if (p < 0.0001) return "<0.01%";
  if (p > 0.9999 && p < 1) return ">99.99%";
  const value = p * 100;
  // One digit after the point, unless that would round what is less than all up to all.
  return `${value >= 10 && (value < 99.95 || value >= 100) ? value.toFixed(1) : value.toFixed(2)}%`;
}

/** A weight or probability as a plain number with two digits that matter. @param {number} w 0 … 1 */
export function weight(w) {
  if (!Number.isFinite(w)) return "unknown";
  if (w === 0 || w >= 0.995) return w.toFixed(2);
  if (w >= 0.01) return w.toFixed(2);
  if (w >= 0.0001) return w.toFixed(4);
  return w.toExponential(0).replace("e-", "e−");
}

/** A norm or logit: enough digits to compare, no more. @param {number} n */
export function measure(n) {
  if (!Number.isFinite(n)) return Number.isNaN(n) ? "NaN" : n > 0 ? "∞" : "−∞";
  const size = Math.abs(n);
  const text = size >= 1000 ? GROUPED.format(Math.round(size)) : digits(size);
  return n < 0 ? `−${text}` : text;
}

/** Bits. @param {number | null} bits */
export function entropy(bits) {
  return bits === null ? "unknown" : `${bits.toFixed(2)}${THIN}bit`;
}

/** 1 → "1st" @param {number} n */
export function ordinal(n) {
  const tens = n % 100;
  const suffix = tens >= 11 && tens <= 13 ? "th" : (["th", "st", "nd", "rd"][n % 10] ?? "th");
  return `${count(n)}${suffix}`;
}

/** Bytes in hexadecimal. @param {Uint8Array} data */
export function hex(data) {
  return Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** Three digits: 5.37, 53.7, 537 @param {number} n ≥ 0 */
function digits(n) {
  if (n === 0) return "0";
  if (n >= 99.95) return n.toFixed(0);
  if (n >= 9.995) return n.toFixed(1);
  if (n >= 0.0995) return n.toFixed(2);
  return n.toPrecision(2);
}

// --- text that can be seen --------------------------------------------------------------------------------------------

/**
 * A stretch of a token's text. `plain` is shown as it is; `space` and `control` are stand-ins for what cannot be seen.
 * @typedef {{kind: "plain" | "space" | "control", text: string}} Stretch
 */

// Stand-ins that every system font has: a middle dot, an arrow to the right, a return arrow.
/** @type {Record<string, string>} */
const SPACES = { " ": "·", "\n": "↵", "\t": "→" };

/** What draws nothing, or changes how its neighbours are drawn: controls, format characters, odd spaces. */
const UNSEEN = /[\p{Cc}\p{Zl}\p{Zp}\p{Zs}\p{Cn}\p{Co}\p{Cs}]|\p{Cf}/u;

/** Joiner and variation selectors are parts of emoji and of some scripts: alone they are shown, inside they stay. */
const JOINERS = /[\u200c\u200d\ufe0e\ufe0f]|[\u{e0020}-\u{e007f}]/u;

/**
 * @param {string} text
 * @returns {Stretch[]}
 */
export function visible(text) {
  /** @type {Stretch[]} */
  const stretches = [];
  const add = (/** @type {Stretch["kind"]} */ kind, /** @type {string} */ shown) => {
    const last = stretches[stretches.length - 1];
    if (last?.kind === kind) last.text += shown;
    else stretches.push({ kind, text: shown });
  };
  for (const character of text) {
    const before = stretches[stretches.length - 1];
    if (character in SPACES) add("space", SPACES[character]);
    else if (JOINERS.test(character) && before?.kind === "plain") add("plain", character);
    else if (UNSEEN.test(character) || JOINERS.test(character)) add("control", codePoint(character));
    else add("plain", character);
  }
  return stretches;
}

/** The same as one string, for names and tips. @param {string} text */
export function visibleText(text) {
  return visible(text)
    .map((stretch) => stretch.text)
    .join("");
}

/** @param {string} character */
function codePoint(character) {
  const number = /** @type {number} */ (character.codePointAt(0));
  return `⟨${number.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}
