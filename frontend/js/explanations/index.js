// Every explanation of the page by its key. A key that is misspelt anywhere does not pass the type checker.

import { ATTENTION } from "./attention.js";
import { COMPARE } from "./compare.js";
import { FRAME } from "./frame.js";
import { KERNELS } from "./kernels.js";
import { LENS } from "./lens.js";
import { LOGITS } from "./logits.js";
import { MEMORY } from "./memory.js";
import { SCHEDULER } from "./scheduler.js";
import { WALK } from "./walk.js";
import { WHY } from "./why.js";
import { WIRE } from "./wire.js";

/**
 * @typedef {object} Explanation
 * @property {string} name as one would call it
 * @property {string} what it is
 * @property {string} how the number or picture was obtained
 * @property {string} formula the same as arithmetic; in words where there is none
 * @property {string} careful when it misleads
 */

export const EXPLANATIONS = { ...FRAME, ...WALK, ...ATTENTION, ...LENS, ...LOGITS, ...MEMORY, ...SCHEDULER, ...KERNELS, ...WIRE, ...WHY, ...COMPARE };

/** @typedef {keyof typeof EXPLANATIONS} Key */

/** @param {Key} key @returns {Explanation} */
export function explanation(key) {
  const found = EXPLANATIONS[key];
  if (!found) throw new RangeError(`there is no explanation "${key}"; explanations/ has them by subject`);
  return found;
}
