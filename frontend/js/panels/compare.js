/**
 * The compare panel: two requests on one token axis. Where their texts part, how sure each was of every token, and at the
 * followed position the first layer that differs.
 */

import { commonPrefix, comparedRequest, forkBetween, parseCompare, sameVocabulary } from "../compare.js";
import { standingOf } from "../absent.js";
import { fill, h, setText } from "../dom.js";
import { about } from "../explain.js";
import { bytes, count } from "../format.js";
import { isOver, queryPosition, selectedRequest, titleOf } from "../model.js";
import { noRequest, noTokens } from "../nothing.js";
import { quotedTitle, requestMark, requestNumber } from "../requests.js";
import { compareFigure, compareTable } from "../save/compare.js";
import { saveButton } from "../save/save.js";
import { tokenInSentence } from "../words.js";
import { layerPairs } from "./compare-data.js";
import { PairedLayers } from "./compare-layers.js";
import { Picker } from "./compare-picker.js";
import { PairedTokens } from "./compare-tokens.js";
import { missingWords, together, verdict } from "./compare-words.js";

/** @typedef {import("../store.js").Store} Store */
/** @typedef {import("../store.js").State} State */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */

const WATCHED = ["run", "header", "selection", "tokens", "requests", "attention", "residual", "lens", "absent", "compare", "compareRun", "compareLoading", "compareProblem", "traces", "liveRun", "live", "connection", "following"];

/** A lens is asked for only where one stays. */
const LENS_DELAY_MS = 180;

class ComparePanel {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.root = root;
    this.store = store;
    this.timer = 0;
    /** @type {unknown[]} what the layers were drawn from */
    this.drawn = [];
    this.picker = new Picker({ onChoose: (compare) => store.select({ compare }) });
    this.here = h("span", { class: "name" });
    this.sides = h("button", { type: "button", onclick: () => store.changeSides() }, "Change sides");
    this.head = h(
      "dl",
      { class: "sides" },
      h("dt", null, "here"),
      h("dd", null, this.here),
      h("dt", null, "there"),
      h("dd", null, this.picker.root, this.sides),
    );
    this.empty = h("p", { class: "absence" });
    this.offer = h("div", null, h("h3", null, "Of this run"), this.picker.suggestions);
    this.together = h("p", { class: "together" });
    this.jump = h("button", { type: "button", onclick: () => this.toDifference() });
    this.tokens = new PairedTokens({ onChoose: (position) => this.choose(position), onHover: (position) => store.hover(position === null ? {} : { position }) });
    this.layersTitle = h("h2");
    this.verdict = h("p", { class: "verdict" });
    this.missing = h("p", { class: "note" });
    this.layers = new PairedLayers({ onChoose: (layer) => store.select({ layer }), onHover: (layer) => store.hover(layer === null ? {} : { layer }) });
    this.body = h(
      "div",
      { class: "compare-body" },
      h("section", { "aria-label": "Texts" }, h("header", null, h("span", { class: "titled" }, h("h2", null, "Token by token"), about("compare"), saveButton(store, () => this.saves()))), this.together, h("p", { class: "jumps" }, this.jump, " ", this.tokens.fold), this.tokens.root),
      h("section", { "aria-label": "Layers" }, this.layersTitle, this.verdict, this.missing, this.layers.root),
    );
    fill(root, h("div", { class: "compare-panel" }, this.head, this.empty, this.offer, this.body));
  }

  /** @param {State} state @param {Set<string>} changed */
  update(state, changed) {
    if (changed.has("hover")) {
      this.tokens.point(state.hover.position);
      this.layers.point(state.hover.layer);
    }
    if (WATCHED.some((what) => changed.has(what))) this.draw(state);
  }

  /** @param {State} state */
  draw(state) {
    const { run, compareRun } = state;
    const a = selectedRequest(state);
    const b = comparedRequest(state);
    this.head.hidden = !a;
    if (a) {
      fill(this.here, requestMark(a), h("span", { "data-tip": titleOf(a) }, titleOf(a)));
      this.picker.draw(state, a);
    }
    const reason = nothingBeside(state, a, b);
    this.empty.hidden = reason === null;
    setText(this.empty, reason ?? "");
    this.offer.hidden = reason === null || !a || parseCompare(state.selection.compare) !== null || this.picker.suggestions.childElementCount === 0;
    this.body.hidden = reason !== null;
    this.sides.hidden = reason !== null;
    if (reason !== null || !a || !b || !run || !compareRun) return;
    const byId = sameVocabulary(run, compareRun);
    const common = commonPrefix(a, b, byId);
    const fork = forkBetween(run, a, compareRun, b);
    const branched = fork ? ` ${fork.child === "a" ? "This one branched off from the other" : "The other branched off from this one"} at ${count(fork.position)}.` : "";
    const models = byId ? "" : ` Two models, ${run.header?.model.name} and ${compareRun.header?.model.name}: tokens are compared by their bytes.`;
    fill(this.together, ...together(a, b, common), branched, models);
    const differs = common < a.tokens.length;
    this.jump.hidden = !differs;
    this.jump.disabled = state.selection.position === common;
    setText(this.jump, `Go to the first that differs, ${count(common)}`);
    this.tokens.draw({ subject: `${run.name} ${a.id} ${compareRun.name} ${b.id}`, a, b, common, byId, position: state.selection.position });
    this.drawLayers(state, a, b, common, byId);
  }

  /** @param {State} state @param {RequestRecord} a @param {RequestRecord} b @param {number} common @param {boolean} byId */
  drawLayers(state, a, b, common, byId) {
    const { run, compareRun, selection } = state;
    const query = queryPosition(selection);
    const arrays = (/** @type {RequestRecord} */ record) => /** @type {const} */ (["attention", "residual", "lens"]).map((what) => (query === null ? null : record[what].get(query)));
    const inputs = [a, b, query, common, selection.layer, selection.act, a.tokens[selection.position ?? -1], ...arrays(a), ...arrays(b), a.absent.length, b.absent.length, a.refused.size, b.refused.size, a.finished, b.finished, state.connection.status, state.following];
    if (inputs.length === this.drawn.length && inputs.every((input, i) => input === this.drawn[i])) return;
    this.drawn = inputs;
    const token = query === null ? undefined : a.tokens[query];
    fill(this.layersTitle, ...(token ? ["The passes over ", tokenInSentence(token), ` at ${count(query ?? 0)}, layer by layer`] : ["Layer by layer"]));
    const layers = query === null ? 0 : Math.min(run?.header?.model.layers ?? 0, compareRun?.header?.model.layers ?? 0);
    this.layers.root.hidden = layers === 0;
    if (query === null || !layers) {
      fill(this.verdict, query === null ? "Nothing came before the first token, so no pass chose it." : "The runs do not say how many layers their models have.");
      setText(this.missing, "");
      return;
    }
    const compared = layerPairs(a, b, query, layers, byId);
    fill(this.verdict, ...verdict({ a, b, query, common, compared }));
    setText(this.missing, missingWords(a, b, query, [standingOf(state, run), standingOf(state, compareRun)]));
    this.missing.hidden = this.missing.textContent === "";
    this.layers.draw(compared, selection.layer);
    this.ask(state, a, b, query);
  }

  /** @param {State} state @param {RequestRecord} a @param {RequestRecord} b @param {number} query */
  ask({ run, compareRun, following }, a, b, query) {
    clearTimeout(this.timer);
    for (const [record, of] of /** @type {const} */ ([[a, run], [b, compareRun]])) {
      if (!(record.attention.has(query) && record.residual.has(query))) this.store.requestArrays(record.id, query, of);
    }
    // While an answer streams in, the engine has better things to do.
    if (following && !isOver(a)) return;
    this.timer = window.setTimeout(() => {
      this.store.requestLens(a.id, [query], run);
      this.store.requestLens(b.id, [query], compareRun);
    }, LENS_DELAY_MS);
  }

  /** A position that only the other request has is followed there. @param {number} position */
  choose(position) {
    const a = selectedRequest(this.store.state);
    if (a && position >= a.tokens.length) this.store.changeSides();
    this.store.select({ position });
  }

  toDifference() {
    const { state } = this.store;
    const [a, b] = [selectedRequest(state), comparedRequest(state)];
    if (!a || !b || !state.run || !state.compareRun) return;
    this.store.select({ position: commonPrefix(a, b, sameVocabulary(state.run, state.compareRun)) });
  }

  /** @returns {import("../save/save.js").Saveable[]} */
  saves() {
    const { state } = this.store;
    const { run, compareRun, selection } = state;
    const [a, b] = [selectedRequest(state), comparedRequest(state)];
    if (!a || !b || !run || !compareRun || nothingBeside(state, a, b) !== null) return [];
    const byId = sameVocabulary(run, compareRun);
    const query = queryPosition(selection);
    const layers = Math.min(run.header?.model.layers ?? 0, compareRun.header?.model.layers ?? 0);
    const name = (/** @type {import("../model.js").Run} */ of, /** @type {RequestRecord} */ record) => `${requestNumber(record)} ${quotedTitle(record)} of ${of.name}`;
    /** @type {import("../save/compare.js").View} */
    const view = { a, b, names: [name(run, a), name(compareRun, b)], common: commonPrefix(a, b, byId), byId, position: selection.position, query, compared: query === null || !layers ? null : layerPairs(a, b, query, layers, byId) };
    return [{ view: "compare", name: "Side by side", figure: (ink) => compareFigure(view, ink), table: () => compareTable(view) }];
  }

  destroy() {
    clearTimeout(this.timer);
    this.root.replaceChildren();
  }
}

/** @param {State} state @param {RequestRecord | null} a @param {RequestRecord | null} b @returns {string | null} */
function nothingBeside(state, a, b) {
  const { selection, compareRun, compareLoading, compareProblem, run } = state;
  if (!a) return noRequest(state);
  const wanted = parseCompare(selection.compare);
  if (!wanted) {
    const alone = (run?.requests.size ?? 0) < 2 ? " This run has one request only: choose another recording, or branch off with another word in Logits." : "";
    return `Choose a request to lay beside this one, of this run or of any recording: where their texts part is marked, and the first layer that differs.${alone}`;
  }
  if (compareLoading) return `“${compareLoading.name}” is being read: ${bytes(compareLoading.received)}${compareLoading.total ? ` of ${bytes(compareLoading.total)}` : ""}.`;
  if (compareProblem) return compareProblem;
  if (b === a) return "This is the followed request itself. Choose another one.";
  if (!b) {
    const others = [...(compareRun?.requests.values() ?? [])].filter((other) => other !== a).length;
    if (wanted.request === "") return others ? "Choose one of its requests." : "There is no other request in it.";
    return `There is no request ${wanted.request} in “${wanted.run}”${compareRun?.complete ? "" : " yet"}.`;
  }
  if (a.tokens.length === 0) return noTokens(a);
  if (b.tokens.length === 0) return noTokens(b, "The other request");
  return null;
}

/**
 * @param {HTMLElement} root
 * @param {Store} store
 * @returns {{update(state: State, changed: Set<string>): void, destroy(): void}}
 */
export function comparePanel(root, store) {
  return new ComparePanel(root, store);
}
