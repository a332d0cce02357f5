/**
 * The logits panel: from raw logits through every stage of the sampler to the draw. Candidates are rows and stages are
 * columns; what a stage removed stays in the table, struck out.
 */

import { fill, h, setText } from "../dom.js";
import { about, term } from "../explain.js";
import { entropy, measure, ordinal, percent } from "../format.js";
import { selectedRequest } from "../model.js";
import { branchOff, forkClosed, whatIf } from "../fork.js";
import { noRequest, noTokens } from "../nothing.js";
import { candidateWord, quoted, tokenInSentence } from "../words.js";
import { logitsFigure, logitsTable } from "../save/logits.js";
import { saveButton } from "../save/save.js";
import { fillFacts } from "./facts.js";
import { drawSection, listedInWords } from "./logits-draw.js";
import { drawnPosition, sampling } from "./logits-stages.js";
import { stageTable } from "./logits-table.js";

/** @typedef {import("../store.js").Store} Store */
/** @typedef {import("../store.js").State} State */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */

class LogitsPanel {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.root = root;
    this.store = store;
    /** @type {import("../codec.js").RunEvent | null} what is drawn */
    this.drawn = null;
    /** @type {string | null | undefined} why nothing can branch off */
    this.closed = undefined;
    this.empty = h("p", { class: "absence" });
    this.title = h("h2");
    this.facts = h("dl", { class: "facts" });
    this.table = h("div", {
      class: "logits-scroll",
      tabindex: 0,
      role: "region",
      "aria-label": "Candidates by sampler stage",
    });
    this.listed = h("p", { class: "note" });
    this.draw = h("div", { class: "draw" });
    this.instead = h("input", { type: "text", "aria-label": "What it says instead", placeholder: "or write what it says from here on", autocomplete: "off" });
    this.branch = h("button", { type: "submit" }, "Branch off");
    this.why = h("p", { class: "note" });
    this.form = h("form", { class: "instead", onsubmit: (event) => this.submit(event) }, this.instead, this.branch);
    this.body = h(
      "div",
      null,
      h("header", null, h("span", { class: "titled" }, this.title, about("logits"), saveButton(store, () => this.saves()))),
      this.facts,
      this.why,
      this.table,
      this.listed,
      h("section", { class: "what-if-it", "aria-label": "What if it had said something else" }, this.form),
      h("h2", null, term("logits.draw", "The draw")),
      this.draw,
    );
    fill(root, h("div", { class: "logits-panel" }, this.empty, this.body));
  }

  /** @param {State} state @param {Set<string>} _changed */
  update(state, _changed) {
    const record = selectedRequest(state);
    const position = drawnPosition(state.selection);
    const token = position === null ? undefined : record?.tokens[position];
    const event = token?.event ?? null;
    this.empty.hidden = event !== null;
    this.body.hidden = event === null;
    if (!event || !token) {
      setText(this.empty, nothingDrawn(state, record, position));
      this.drawn = null;
      return;
    }
    const used = state.selection.act === "used" ? record?.tokens[token.position - 1] : undefined;
    fill(
      this.title,
      used ? ["After ", tokenInSentence(used), ", it chose "] : "How ",
      tokenInSentence(token, "followed"),
      used ? "" : " was chosen",
    );
    const closed = forkClosed(state);
    if (event === this.drawn && closed === this.closed) return;
    if (event !== this.drawn) this.instead.value = "";
    this.drawn = event;
    this.closed = closed;
    this.form.hidden = closed !== null;
    setText(this.why, closed ?? "What if it had said something else? Pick a candidate, or write your own below: another request branches off here, sharing the full blocks before it.");
    const view = sampling(event);
    fillFacts(this.facts, facts(event));
    fill(
      this.table,
      view.stages.length
        ? stageTable(view, token, (candidate) => (candidate.chosen || !record ? candidateWord(candidate, token) : whatIf(this.store, record, token.position, candidate)))
        : h("p", { class: "absence" }, "The sampler's stages are not in the recording."),
    );
    setText(this.listed, listedInWords(view));
    fill(this.draw, drawSection(token, event, view));
  }

  /** @param {Event} event */
  async submit(event) {
    event.preventDefault();
    const { state } = this.store;
    const record = selectedRequest(state);
    const position = drawnPosition(state.selection);
    if (!record || position === null || this.instead.value === "") return;
    this.branch.disabled = true;
    await branchOff(this.store, record, position, { text: this.instead.value });
    this.branch.disabled = false;
  }

  /** @returns {import("../save/save.js").Saveable[]} */
  saves() {
    const event = this.drawn;
    const token = selectedRequest(this.store.state)?.tokens[event?.position];
    if (!event || !token) return [];
    return [{ view: "logits", name: "Logits and sampling", figure: (ink) => logitsFigure(token, event, sampling(event), ink), table: () => logitsTable(event, sampling(event)) }];
  }

  destroy() {
    this.root.replaceChildren();
  }
}

/**
 * @param {State} state
 * @param {RequestRecord | null} record
 * @param {number | null} position
 */
function nothingDrawn(state, record, position) {
  if (!record) return noRequest(state);
  if (record.tokens.length === 0) return noTokens(record);
  if (position === null) return "No token is followed yet.";
  if (position >= record.tokens.length) {
    return record.finished
      ? "This is the last token: nothing was chosen after it."
      : "What comes after this token has not been chosen yet.";
  }
  const name = quoted(record.tokens[position]);
  if (state.selection.act === "used")
    return `The next token, ${name} at ${position}, was in the prompt: nothing was drawn. The lens says what the model would have guessed.`;
  return `${name} at ${position} was in the prompt: it was given, not drawn. The first drawn token is at ${record.promptLength}.`;
}

/** @param {import("../codec.js").RunEvent} event @returns {import("./facts.js").Fact[]} */
function facts(event) {
  const p = typeof event.logprob === "number" ? Math.exp(event.logprob) : NaN;
  return [
    ["probability", percent(p), "logits.probability"],
    ["logprob", typeof event.logprob === "number" ? measure(event.logprob) : "unknown", "logits.logprob"],
    ["rank", event.rank ? ordinal(event.rank) : "unknown", "logits.rank"],
    ["entropy", entropy(event.entropy_bits ?? null), "logits.entropy"],
    ["chosen in", `step ${event.step}`, "logits.step"],
    ...drawFact(event.draw ?? {}),
  ];
}

/** What came of it, in sight without going down past the candidates. @param {Record<string, any>} draw @returns {import("./facts.js").Fact[]} */
function drawFact({ method, u, low, high }) {
  if (method === "greedy") return [["drew", "nothing: greedy", "logits.draw"]];
  if (![u, low, high].every((each) => typeof each === "number")) return [];
  return [["drew", `${u.toFixed(4)} in ${low.toFixed(4)}–${high.toFixed(4)}`, "logits.draw"]];
}

/**
 * @param {HTMLElement} root
 * @param {Store} store
 * @returns {{update(state: State, changed: Set<string>): void, destroy(): void}}
 */
export function logitsPanel(root, store) {
  return new LogitsPanel(root, store);
}
