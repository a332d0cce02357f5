/** A line of facts: what it is, how much; what it means is one hover or focus away. */

import { fill, h } from "../dom.js";
import { keepingTerm, term } from "../explain.js";

/** @typedef {[name: string, value: string, key: import("../explain.js").Key, note?: string]} Fact  note: what is special about this value */

/**
 * Written only where something differs, so that a tip stays while events come in.
 * @param {HTMLElement} list
 * @param {Fact[]} facts
 */
export function fillFacts(list, facts) {
  const key = JSON.stringify(facts);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  keepingTerm(list, () => fill(list, facts.map(([name, value, of, note]) => h("div", { "data-tip": note }, h("dt", null, term(of, name)), h("dd", null, value)))));
}
