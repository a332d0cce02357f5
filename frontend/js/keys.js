// The keyboard: one table, which the page obeys and the help shows.

import { TABS } from "./tabs.js";

/** @typedef {import("./store.js").Store} Store */

/**
 * @typedef {object} Actions
 * @property {(by: number) => void} token
 * @property {() => void} toStart
 * @property {() => void} toEnd
 * @property {() => void} play
 * @property {() => void} prompt
 * @property {() => void} help
 * @property {() => void} escape
 */

/**
 * `pair`: the opposite of the key before it.
 * @type {{keys: string[], shown: string, does: string, pair?: boolean, act: (store: Store, actions: Actions) => void}[]}
 */
export const KEYS = [
  { keys: ["ArrowLeft"], shown: "←", does: "token before", act: (_, a) => a.token(-1) },
  { keys: ["ArrowRight"], shown: "→", does: "next token", pair: true, act: (_, a) => a.token(1) },
  { keys: ["Home"], shown: "Home", does: "first token", act: (_, a) => a.toStart() },
  { keys: ["End"], shown: "End", does: "last token, or follow the newest", pair: true, act: (_, a) => a.toEnd() },
  { keys: ["ArrowUp"], shown: "↑", does: "layer above", act: (s) => moveLayer(s, -1) },
  { keys: ["ArrowDown"], shown: "↓", does: "layer below", pair: true, act: (s) => moveLayer(s, 1) },
  { keys: ["["], shown: "[", does: "head before", act: (s) => moveHead(s, -1) },
  { keys: ["]"], shown: "]", does: "next head", pair: true, act: (s) => moveHead(s, 1) },
  { keys: ["a"], shown: "a", does: "the other act: chosen, or used", act: (s) => s.select({ act: s.state.selection.act === "chosen" ? "used" : "chosen" }) },
  { keys: [" "], shown: "space", does: "play or pause", act: (_, a) => a.play() },
  { keys: ["/"], shown: "/", does: "write a prompt", act: (_, a) => a.prompt() },
  { keys: ["?"], shown: "?", does: "this help", act: (_, a) => a.help() },
  { keys: ["Escape"], shown: "Esc", does: "close, or leave a field", act: (_, a) => a.escape() },
];

/** @param {Store} store @param {Actions} actions */
export function installKeys(store, actions) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" ? document.querySelector(":popover-open") : ownsKey(event.target, event.key)) return;
    const digit = /^[1-9]$/.test(event.key) ? TABS[Number(event.key) - 1] : undefined;
    const entry = KEYS.find(({ keys }) => keys.includes(event.key));
    if (digit) store.select({ tab: digit.id });
    else if (entry) entry.act(store, actions);
    else return;
    if (event.key !== "Escape") event.preventDefault();
  });
}

/** Whether the element that has the focus uses this key itself. @param {EventTarget | null} target @param {string} key */
function ownsKey(target, key) {
  if (!(target instanceof HTMLElement)) return false;
  if (target.closest("dialog")) return true;
  if (target.matches("textarea, input, select, [contenteditable]")) return true;
  if (key === " " && target.matches("button, summary, a")) return true;
  return ["ArrowUp", "ArrowDown"].includes(key) && target.matches("[role=radio], [role=tab]");
}

/** @param {Store} store @param {number} by */
function moveLayer(store, by) {
  const layers = store.state.run?.header?.model.layers ?? 0;
  const { layer } = store.state.selection;
  if (layers) store.select({ layer: Math.max(0, Math.min(layers - 1, (layer ?? 0) + by)) });
}

/** @param {Store} store @param {number} by */
function moveHead(store, by) {
  const heads = store.state.run?.header?.model.heads ?? 0;
  const { head } = store.state.selection;
  if (heads) store.select({ head: Math.max(0, Math.min(heads - 1, (head ?? 0) + by)) });
}
