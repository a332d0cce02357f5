/**
 * The wire panel: how the answer left. A token's bytes are released as text, or held back while they may be part of a
 * character or of a stop text; text goes out in chunks, each queued and then handed to the socket.
 */

import { fill, h, setText } from "../dom.js";
import { about } from "../explain.js";
import { bytes, count, duration, hex, plural } from "../format.js";
import { isGenerated, selectedRequest } from "../model.js";
import { noRequest } from "../nothing.js";
import { saveButton } from "../save/save.js";
import { wireFigure, wireTable } from "../save/wire.js";
import { quoted, tokenInSentence, word } from "../words.js";
import { fillFacts } from "./facts.js";
import { delays, wireRows, wireSummary } from "./wire-data.js";
import { WireList, signed } from "./wire-list.js";

/** @typedef {import("../store.js").Store} Store */
/** @typedef {import("../store.js").State} State */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("./wire-data.js").WireRow} WireRow */

const WATCHED = ["run", "header", "selection", "tokens", "sent", "requests"];

/** @type {Record<string, string>} */
const WAYS = { sse: "an event stream", json: "one JSON answer", stdout: "standard output" };

class WirePanel {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.root = root;
    this.store = store;
    this.empty = h("p", { class: "absence" });
    this.title = h("h2");
    this.facts = h("dl", { class: "facts", "aria-label": "The answer on the wire" });
    this.flow = h("ol", { class: "flow", "aria-label": "The followed token’s way out" });
    this.note = h("p", { class: "note" });
    this.list = new WireList({ onChoose: (position) => store.select({ position }), onHover: (position) => store.hover(position === null ? {} : { position }) });
    this.closing = h("ul", { class: "closing", "aria-label": "Chunks without text" });
    this.body = h("div", { class: "wire-body" }, h("header", null, h("span", { class: "titled" }, this.title, about("wire"), saveButton(store, () => this.saves()))), this.flow, this.facts, this.note, this.list.root, this.closing);
    fill(root, h("div", { class: "wire-panel" }, this.empty, this.body));
  }

  /** @param {State} state @param {Set<string>} changed */
  update(state, changed) {
    if (changed.has("hover")) this.list.point(state.hover.position);
    if (!WATCHED.some((what) => changed.has(what))) return;
    const record = selectedRequest(state);
    const { rows, closing } = record ? wireRows(record) : { rows: [], closing: [] };
    const reason = !record ? noRequest(state) : rows.length === 0 ? (record.rejected ? "This request was refused: nothing was generated." : record.finished ? "No token was generated: nothing was sent." : "No token has been generated yet.") : null;
    this.empty.hidden = reason === null;
    this.body.hidden = reason !== null;
    setText(this.empty, reason ?? "");
    if (reason !== null || !record) return;
    const all = wireSummary(record, rows);
    this.drawFacts(all);
    const { position } = state.selection;
    const row = rows.find(({ token }) => token.position === position) ?? null;
    this.drawFlow(record, position, row, rows);
    const to = record.sent[0]?.to;
    setText(this.note, `${to ? `Sent as ${WAYS[to] ?? to}. ` : ""}Times count from the moment each token was chosen; ″: in the same chunk. Bars end at ${all.longest === null ? "the longest" : duration(niceScale(all.longest))}: until queued, then until the socket had it.`);
    this.list.draw(`${state.run?.name} ${record.id}`, rows, niceScale(all.longest ?? 1), changed.has("run") || record.finished !== null);
    fill(
      this.closing,
      closing.map((chunk) => h("li", null, "chunk ", h("b", null, count(chunk.chunk)), `: no text, ${bytes(chunk.chunk_bytes)}, sent ${duration(chunk.sent_ns - chunk.queued_ns)} after it was queued`)),
    );
    // Last: a line that comes below the list takes its room, and what was scrolled to before would be out of sight.
    this.list.mark(position);
  }

  /** @param {ReturnType<typeof wireSummary>} all */
  drawFacts(all) {
    /** @type {import("./facts.js").Fact[]} */
    const facts = [
      ["tokens", count(all.tokens), "wire.tokens"],
      ["chunks", count(all.chunks), "wire.chunks"],
      ["on the wire", bytes(all.bytes), "wire.bytes"],
      ["text", `${bytes(all.text)}${all.text ? ` (${(all.bytes / all.text).toFixed(1)} sent per byte)` : ""}`, "wire.text"],
      ["most held back", all.mostHeld ? plural(all.mostHeld, "byte") : "nothing", "wire.held"],
      ["chosen → sent", all.median === null ? "unknown" : `${signed(all.median)} median, ${signed(all.longest ?? 0)} longest`, "wire.delay"],
    ];
    if (all.unsent) facts.push(["not sent", plural(all.unsent, "token"), "wire.unsent", "No chunk of this recording reaches up to them: control tokens at the end, text that a stop cut off, or chunks still to come"]);
    fillFacts(this.facts, facts);
  }

  /** @param {RequestRecord} record @param {number | null} position @param {WireRow | null} row @param {readonly WireRow[]} rows */
  drawFlow(record, position, row, rows) {
    const token = position === null ? undefined : record.tokens[position];
    const key = JSON.stringify([record.id, position, token?.group?.to, row?.chunk?.seq, row?.shares, record.finished !== null]);
    if (this.flow.dataset.key === key) return;
    this.flow.dataset.key = key;
    fill(this.title, ...(token ? ["How ", tokenInSentence(token, "followed"), isGenerated(record, token.position) ? " left" : " came"] : ["How the answer left"]));
    if (!row) {
      fill(this.flow, h("li", { class: "wide" }, h("b", null, "not sent"), h("span", null, `${quoted(token)} is part of the prompt: it came in with the request. The answer begins at ${count(rows[0].token.position)}.`)));
      return;
    }
    const { event, chunk, shares } = row;
    const delay = delays(row);
    const stage = (/** @type {string} */ name, /** @type {import("../dom.js").Child} */ value, /** @type {string} */ detail) => h("li", null, h("span", { class: "stage" }, name), h("b", null, value), h("span", { class: "muted" }, detail));
    const held = event.held_back_bytes;
    fill(
      this.flow,
      stage("chosen", `step ${count(event.step)}`, `token ${count(event.position)}, id ${count(event.id)}`),
      stage("bytes", row.token.bytes.length ? h("span", { class: "mono", "data-tip": hex(row.token.bytes) }, hex(row.token.bytes)) : "none", event.special ? "a control token" : plural(row.token.bytes.length, "byte")),
      stage("text", event.text === "" ? (event.special ? "none" : "none yet") : word(event.text), held ? `${plural(held, "byte")} held back` : "nothing held back"),
      stage("queued", delay ? signed(delay.queued) : "–", chunk ? `chunk ${count(chunk.chunk)}${shares > 1 ? `, ${plural(shares, "token")}` : ""}` : record.finished ? "in no chunk" : "not yet"),
      stage("sent", delay ? signed(delay.sent) : record.finished ? "never" : "not yet", chunk ? `${bytes(chunk.chunk_bytes)}, ${plural(chunk.text_bytes, "byte")} of text` : record.finished ? "no chunk carries it" : ""),
    );
  }

  /** @returns {import("../save/save.js").Saveable[]} */
  saves() {
    const record = selectedRequest(this.store.state);
    const { rows } = record ? wireRows(record) : { rows: [] };
    if (!record || !rows.length) return [];
    const scale = niceScale(wireSummary(record, rows).longest ?? 1);
    return [{ view: "wire", name: "Tokens on the wire", figure: (ink) => wireFigure(rows, this.store.state.selection.position, scale, ink), table: () => wireTable(rows) }];
  }

  destroy() {
    this.root.replaceChildren();
  }
}

/** The next of 1, 2, 5 × a power of ten: bars do not change with every token. @param {number} ns */
export function niceScale(ns) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, ns)));
  return ([1, 2, 5].find((n) => n * power >= ns) ?? 10) * power;
}

/**
 * @param {HTMLElement} root
 * @param {Store} store
 * @returns {{update(state: State, changed: Set<string>): void, destroy(): void}}
 */
export function wirePanel(root, store) {
  return new WirePanel(root, store);
}
