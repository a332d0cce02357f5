/**
 * The why panel: which layers, and which of their two parts, made this token's logit what it was; how its rank rose on the
 * way; and which tokens the pass looked at for it.
 */

import { absentText, standingOf, whyAbsent, whyNoReading } from "../absent.js";
import { fill, h, setText } from "../dom.js";
import { about, term } from "../explain.js";
import { count, measure, weight } from "../format.js";
import { isOver, queryPosition, selectedRequest } from "../model.js";
import { noRequest, noTokens } from "../nothing.js";
import { meanOf } from "../tensor-words.js";
import { saveButton } from "../save/save.js";
import { whyFigure, whyTable } from "../save/why.js";
import { quoted, tokenInSentence, tokenWord } from "../words.js";
import { largestParts, logitParts, lookedAt } from "./why-data.js";
import { PartsByLayer, signed } from "./why-layers.js";

/** @typedef {import("../store.js").Store} Store */
/** @typedef {import("../store.js").State} State */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("../tokens.js").TokenRecord} TokenRecord */

const WATCHED = ["run", "header", "selection", "tokens", "requests", "attention", "residual", "lens", "attribution", "absent", "following", "connection"];

/** Where one stays is asked for, not where one passes by. */
const ASK_DELAY_MS = 150;

const TOKENS = 6;
const HEADS = 3;

class WhyPanel {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.root = root;
    this.store = store;
    this.timer = 0;
    /** @type {unknown[]} */
    this.drawn = [];
    /** @type {{event: import("../codec.js").RunEvent, parts: ReturnType<typeof logitParts>} | null} */
    this.known = null;
    this.empty = h("p", { class: "absence" });
    this.title = h("h2");
    this.verdict = h("p", { class: "verdict" });
    this.missing = h("p", { class: "note", "aria-live": "polite" });
    this.layers = new PartsByLayer({ onChoose: (layer) => store.select({ layer }), onHover: (layer) => store.hover(layer === null ? {} : { layer }) });
    this.lookedTitle = h("h2");
    this.looked = h("ol", { class: "looked", "aria-label": "Looked at most, and by which heads" });
    this.lookedHead = h("div", { class: "looked-head", "aria-hidden": "true" }, ["at", "token", "mean", "", "by layer", "layer · head, and its weight"].map((name) => h("span", null, name)));
    this.sink = h("p", { class: "note" });
    this.body = h(
      "div",
      null,
      h("header", null, h("span", { class: "titled" }, this.title, about("why"), saveButton(store, () => this.saves()))),
      this.verdict,
      this.missing,
      this.layers.root,
      h("header", null, h("span", { class: "titled" }, this.lookedTitle, about("why.looked"))),
      this.lookedHead,
      this.looked,
      this.sink,
    );
    fill(root, h("div", { class: "why-panel" }, this.empty, this.body));
  }

  /** @param {State} state @param {Set<string>} changed */
  update(state, changed) {
    if (changed.has("hover")) {
      this.layers.point(state.hover.layer);
      for (const row of this.looked.children) row.classList.toggle("pointed", state.hover.position != null && /** @type {HTMLElement} */ (row).dataset.position === String(state.hover.position));
    }
    if (WATCHED.some((what) => changed.has(what))) this.draw(state);
  }

  /** @param {State} state */
  draw(state) {
    const { run, selection } = state;
    const record = selectedRequest(state);
    const query = queryPosition(selection);
    const target = query === null ? undefined : record?.tokens[query + 1];
    const reason = nothingToSay(state, record, query, target);
    this.empty.hidden = reason === null;
    this.body.hidden = reason !== null;
    setText(this.empty, reason ?? "");
    if (reason !== null || !run || !record || query === null || !target) return;
    const attribution = record.attribution.get(query) ?? null;
    const lens = record.lens.get(query) ?? null;
    const attention = record.attention.get(query) ?? null;
    const streaming = state.following && !isOver(record);
    const inputs = [run, record, query, target, target.group, selection.act, selection.layer, attribution, lens, attention, attention?.parts, record.absent.length, record.refused.size, record.finished, record.cut, streaming, state.connection.status];
    if (inputs.length === this.drawn.length && inputs.every((input, i) => input === this.drawn[i])) return;
    this.drawn = inputs;
    const name = () => tokenInSentence(target, selection.act === "chosen" ? "followed" : "");
    fill(this.title, ...(selection.act === "chosen" ? ["Why ", name()] : ["Why ", name(), " came next"]));
    if (attribution && this.known?.event !== attribution) this.known = { event: attribution, parts: logitParts(attribution) };
    const parts = attribution && this.known ? this.known.parts : null;
    fill(this.verdict, ...verdict(target, attribution, parts));
    setText(this.missing, this.missingText(record, query, attribution, lens));
    this.missing.hidden = this.missing.textContent === "";
    const { layers = 0, vocab = 2 } = run.header?.model ?? {};
    this.layers.draw({ parts, lens, layers, vocabulary: vocab, logit: attribution?.logit ?? null }, selection.layer);
    this.layers.root.hidden = parts === null && lens === null;
    this.drawLooked(record, query, attention);
    this.ask(record, query, streaming);
  }

  /**
   * @param {RequestRecord} record @param {number} query
   * @param {import("../codec.js").RunEvent | null} attribution @param {import("../codec.js").RunEvent | null} lens
   */
  missingText(record, query, attribution, lens) {
    /** What is missing, by the reason. @type {Map<string, string[]>} */
    const reasons = new Map();
    for (const [what, here, name] of /** @type {const} */ ([["attribution", attribution, "parts of the logit"], ["lens", lens, "ranks"]])) {
      if (here) continue;
      const why = absentText(whyNoReading(record, what, query, standingOf(this.store.state)));
      reasons.set(why, [...(reasons.get(why) ?? []), name]);
    }
    return [...reasons].map(([why, names]) => `No ${names.join(" and no ")}. ${why}.`).join(" ");
  }

  /** @param {RequestRecord} record @param {number} query @param {import("../tensors.js").TensorRecord | null} attention */
  drawLooked(record, query, attention) {
    fill(this.lookedTitle, "The tokens that ", record.tokens[query] ? tokenInSentence(record.tokens[query]) : "it", " looked at most");
    this.looked.hidden = attention === null;
    this.lookedHead.hidden = attention === null;
    if (!attention) {
      setText(this.sink, `${absentText(whyAbsent(record, "attention", query))}.`);
      return;
    }
    const { tokens, sink } = lookedAt(attention, TOKENS, HEADS);
    const most = tokens[0]?.mean ?? 1;
    fill(this.looked, tokens.map((token) => this.lookedRow(record, token, most)));
    const above = sink !== null && sink > most ? "Not listed: token 0, the sink, which held " : "Token 0 held ";
    const { layers = 0, heads = 0 } = this.store.state.run?.header?.model ?? {};
    setText(this.sink, `Means over ${meanOf(attention, layers, heads)}.${sink === null ? "" : ` ${above}${weight(sink)}.`} Looking at a token is not yet being told by it: the parts above say what attention wrote.`);
  }

  /** @param {RequestRecord} record @param {ReturnType<typeof lookedAt>["tokens"][number]} token @param {number} most */
  lookedRow(record, { position, mean, heads, byLayer }, most) {
    const token = record.tokens[position];
    const top = Math.max(...byLayer.filter(Number.isFinite), 1e-9);
    return h(
      "li",
      { "data-position": position, onpointerenter: () => this.store.hover({ position }), onpointerleave: () => this.store.hover({}) },
      h("span", { class: "num muted" }, count(position)),
      h("button", { type: "button", class: "plain link", "aria-label": `Follow ${quoted(token)}, position ${position}`, onclick: () => this.store.select({ position }) }, token ? tokenWord(token) : count(position)),
      h("span", { class: "track" }, h("i", { style: `inline-size:${(100 * mean) / most}%` })),
      h("span", { class: "num strong" }, weight(mean)),
      h("span", { class: "by-layers", "aria-hidden": "true", "data-tip": `Mean of each layer’s heads, layer 0 at the left; the tallest is ${weight(top)}, in layer ${byLayer.indexOf(top)}` }, byLayer.map((value) => h("i", { style: `block-size:${Number.isFinite(value) ? Math.round((100 * value) / top) : 0}%` }))),
      h(
        "span",
        { class: "heads" },
        heads.map(({ layer, head, weight: w }) =>
          h("button", { type: "button", class: "plain link", "data-tip": `Layer ${layer}, head ${head} spent ${weight(w)} of its attention on this token. Opens it in Attention.`, "aria-label": `Layer ${layer}, head ${head}: ${weight(w)}`, onclick: () => this.store.select({ layer, head, tab: "attention" }), onpointerenter: () => this.store.hover({ position, layer, head }) }, `${layer}·${head}`, h("span", { class: "muted" }, ` ${weight(w)}`)),
        ),
      ),
    );
  }

  /** @param {RequestRecord} record @param {number} query @param {boolean} streaming */
  ask(record, query, streaming) {
    clearTimeout(this.timer);
    if (!(record.attention.has(query) && record.residual.has(query))) this.store.requestArrays(record.id, query);
    if (streaming) return;
    this.timer = window.setTimeout(() => {
      this.store.requestReading("attribution", record.id, [query]);
      this.store.requestLens(record.id, [query]);
    }, ASK_DELAY_MS);
  }

  /** @returns {import("../save/save.js").Saveable[]} */
  saves() {
    const { run, selection } = this.store.state;
    const record = selectedRequest(this.store.state);
    const query = queryPosition(selection);
    const { layers, vocab } = run?.header?.model ?? {};
    if (!record || query === null || !record.tokens[query + 1] || !layers) return [];
    const event = record.attribution.get(query) ?? null;
    const view = { record, query, parts: event && logitParts(event), logit: event?.logit ?? null, lens: record.lens.get(query) ?? null, attention: record.attention.get(query) ?? null, layers, vocabulary: vocab ?? 2 };
    return [{ view: "why", name: "Logit by layer, and ranks", figure: (ink) => whyFigure(view, ink), table: () => whyTable(view) }];
  }

  destroy() {
    clearTimeout(this.timer);
    this.root.replaceChildren();
  }
}

/** @param {State} state @param {RequestRecord | null} record @param {number | null} query @param {TokenRecord | undefined} target */
function nothingToSay(state, record, query, target) {
  const { act } = state.selection;
  if (!record) return noRequest(state);
  if (record.tokens.length === 0) return noTokens(record);
  if (query === null) return "Nothing came before the first token, so nothing chose it.";
  if (target) return null;
  if (record.finished) return act === "used" ? "This is the last token: nothing was chosen after it. “How it was chosen” says why it came itself." : "This request has no such token.";
  return "What comes next has not been chosen yet.";
}

/**
 * The largest parts in a sentence.
 * @param {TokenRecord} target
 * @param {import("../codec.js").RunEvent | null} event
 * @param {ReturnType<typeof logitParts> | null} parts
 * @returns {import("../dom.js").Child[]}
 */
function verdict(target, event, parts) {
  if (!event || !parts) return [];
  const largest = largestParts(parts.layers, 12);
  const list = (/** @type {typeof largest} */ some) => some.flatMap(({ part, layer, value }, i) => [i ? ", " : "", h("b", { class: part === "attention" ? "by-attention-text" : part === "MLP" ? "by-mlp-text" : null }, `${part === "all" ? "layer" : part} ${layer}`), ` ${signed(value)}`]);
  const [up, down] = [largest.filter(({ value }) => value > 0).slice(0, 3), largest.filter(({ value }) => value < 0).slice(0, 2)];
  const capped = event.soft_cap == null ? "" : ` (the model then caps it, at ${measure(event.soft_cap)}, to ${measure(event.said_logit)})`;
  const given = target.event ? "" : " The prompt gave this token; these are the parts of what the model would have said.";
  return [
    "Its ", term("why.logit", "logit"), ", ", h("b", null, measure(event.logit)), `${capped}, is a sum. `,
    ...(up.length ? ["Most for it: ", ...list(up), ". "] : []),
    ...(down.length ? ["Most against it: ", ...list(down), "."] : []),
    given,
  ];
}

/**
 * @param {HTMLElement} root
 * @param {Store} store
 * @returns {{update(state: State, changed: Set<string>): void, destroy(): void}}
 */
export function whyPanel(root, store) {
  return new WhyPanel(root, store);
}
