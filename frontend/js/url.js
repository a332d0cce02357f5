// The address: its hash holds the selection, so that whoever opens a copied address sees the same.

import { emptySelection } from "./store.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./model.js").Selection} Selection */

/** Browsers stop pages that write the address too often; Safari allows 100 times in 30 seconds. */
const WRITE_INTERVAL_MS = 350;

/**
 * @param {Selection} selection
 * @param {boolean} [following] the newest token is followed: the address then names the request and no position
 * @returns {string} with its "#", or "" when nothing is selected
 */
export function formatHash(selection, following = false) {
  const { run, request, position, act, layer, head, tab, compare } = selection;
  if (run === null) return "";
  /** @type {[string, string | number | null][]} */
  const fields = [
    ["run", run],
    ["request", request],
    ["position", following ? null : position],
    ["act", following || position === null ? null : act],
    ["layer", layer],
    ["head", head],
    ["tab", tab],
    ["compare", compare],
  ];
  const known = fields.filter(([, value]) => value !== null);
  return `#${known.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`).join("&")}`;
}

/**
 * What a hash says; what it does not say, or says wrongly, is left out.
 * @param {string} hash with or without "#"
 * @returns {Partial<Selection>}
 */
export function parseHash(hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, "").replaceAll("+", "%2B"));
  /** @type {Partial<Selection>} */
  const found = {};
  const run = fields.get("run");
  const request = fields.get("request");
  const act = fields.get("act");
  const tab = fields.get("tab");
  const compare = fields.get("compare");
  if (run) found.run = run;
  if (request) found.request = request;
  if (act === "chosen" || act === "used") found.act = act;
  if (tab && /^[a-z]+$/.test(tab)) found.tab = tab;
  if (compare && compare.lastIndexOf("/") > 0) found.compare = compare;
  for (const key of /** @type {const} */ (["position", "layer", "head"])) {
    const text = fields.get(key);
    if (text !== null && /^\d{1,9}$/.test(text)) found[key] = Number(text);
  }
  return found;
}

/**
 * Keeps the address and the selection the same, both ways.
 * @param {Store} store
 * @param {Window} window
 * @param {(run: string, selection: Partial<Selection>) => void} openRun called when an address names another run
 */
export function bindAddress(store, window, openRun) {
  let written = window.location.hash;
  let last = 0;
  let timer = 0;
  const write = () => {
    timer = 0;
    last = Date.now();
    const hash = formatHash(store.state.selection, store.state.following);
    if (hash === "" || hash === written) return;
    written = hash;
    window.history.replaceState(null, "", hash);
  };
  store.subscribe((_, changed) => {
    if (timer || !(changed.has("selection") || changed.has("following"))) return;
    timer = window.setTimeout(write, Math.max(0, last + WRITE_INTERVAL_MS - Date.now()));
  });
  window.addEventListener("hashchange", () => {
    if (window.location.hash === written) return;
    written = window.location.hash;
    const found = parseHash(written);
    if (found.run && found.run !== store.state.run?.name) openRun(found.run, found);
    else store.select({ ...emptySelection(), ...store.state.selection, ...found });
  });
}

/** The address that shows exactly what is on screen now. @param {Store} store @param {Location} location */
export function shareAddress(store, location) {
  return location.href.replace(/#.*$/, "") + formatHash(store.state.selection);
}
