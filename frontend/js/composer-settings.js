// How the composer asks: chosen once, remembered by the browser, and brought back to what it was with one click.

import { recall, remember } from "./remembered.js";

/** Sampling by name. @type {Record<string, Record<string, number>>} */
export const PRESETS = {
  factual: { temperature: 0 },
  balanced: { temperature: 0.7, top_p: 0.9 },
  creative: { temperature: 1, top_p: 0.95, min_p: 0.05 },
};

/** What is captured, by level. @type {Record<string, string>} */
export const LEVELS = {
  light: "tokens, probabilities and sampler; no arrays",
  follow: "also attention rows and residuals of every position",
  full: "also the lens of every token, computed at once",
};

/** The most that can be typed into the field for it. */
export const MOST_TOKENS = 8192;

/** @typedef {{preset: string, most: number, capture: string}} Settings  most: tokens to generate */

/** @type {Readonly<Settings>} */
export const DEFAULTS = { preset: "factual", most: 64, capture: "follow" };

const MEMORY = "composer";

/** @param {Settings} settings */
export function areDefault(settings) {
  return /** @type {(keyof Settings)[]} */ (Object.keys(DEFAULTS)).every((key) => settings[key] === DEFAULTS[key]);
}

/** What was chosen last; each that is not there, or no longer to be had, as it is by default. @returns {Settings} */
export function recallSettings() {
  let known;
  try {
    known = JSON.parse(recall(MEMORY) ?? "null");
  } catch {
    known = null; // written by another version, or by hand
  }
  const { preset, most, capture } = known ?? {};
  const oneOf = (/** @type {unknown} */ name, /** @type {object} */ all) => typeof name === "string" && Object.hasOwn(all, name);
  return {
    preset: oneOf(preset, PRESETS) ? preset : DEFAULTS.preset,
    most: Number.isInteger(most) && most >= 1 && most <= MOST_TOKENS ? most : DEFAULTS.most,
    capture: oneOf(capture, LEVELS) ? capture : DEFAULTS.capture,
  };
}

/** Defaults are forgotten rather than kept: a later version may have better ones. @param {Settings} settings */
export function rememberSettings(settings) {
  remember(MEMORY, areDefault(settings) ? null : JSON.stringify(settings));
}
