/** The answer's tokens with their chunks, a line each: in segments that the browser lays out only where they are in view. */

import { fill, h, setAttribute } from "../dom.js";
import { term } from "../explain.js";
import { bytes, count, duration, hex, plural } from "../format.js";
import { quoted, tokenWord, word } from "../words.js";
import { delays } from "./wire-data.js";

/** @typedef {import("./wire-data.js").WireRow} WireRow */

const SEGMENT = 100;

/** A line's chunk can be settled by tokens that come a little later: a character in pieces, or a possible stop text. */
const UNSETTLED = 64;

export class WireList {
  /** @param {{onChoose: (position: number) => void, onHover: (position: number | null) => void}} handlers */
  constructor(handlers) {
    this.handlers = handlers;
    /** @type {{element: HTMLElement, key: string, position: number}[]} */
    this.lines = [];
    /** @type {Map<number, number>} */
    this.byPosition = new Map();
    this.subject = "";
    /** @type {HTMLElement | null} */
    this.current = null;
    /** @type {HTMLElement | null} */
    this.pointed = null;
    const heads = ["at", term("wire.list", "token"), "bytes", "released", term("wire.held", "held"), "chunk", "size", term("wire.delay", "queued"), term("wire.delay", "sent"), ""];
    this.body = h("div", { role: "presentation" });
    this.root = h(
      "div",
      { class: "wire-list", role: "table", tabindex: 0, "aria-label": "Tokens on the wire" },
      h("div", { role: "row", class: "head" }, heads.map((name) => h("span", { role: name ? "columnheader" : "cell" }, name))),
      this.body,
    );
    this.body.addEventListener("pointerover", (event) => {
      const line = event.target instanceof Element ? event.target.closest("[data-position]") : null;
      handlers.onHover(line instanceof HTMLElement ? Number(line.dataset.position) : null);
    });
    this.body.addEventListener("pointerleave", () => handlers.onHover(null));
    this.body.addEventListener("click", (event) => {
      const line = event.target instanceof Element ? event.target.closest("[data-position]") : null;
      if (line instanceof HTMLElement) handlers.onChoose(Number(line.dataset.position));
    });
  }

  /** @param {string} subject changes when other lines are to be shown @param {readonly WireRow[]} rows @param {number} scale nanoseconds at the bars' end @param {boolean} whole all lines may have changed */
  draw(subject, rows, scale, whole) {
    if (subject !== this.subject || rows.length < this.lines.length) {
      this.subject = subject;
      this.lines = [];
      this.byPosition.clear();
      this.current = null;
      fill(this.body);
    }
    for (let i = whole ? 0 : Math.max(0, this.lines.length - UNSETTLED); i < rows.length; i += 1) {
      const row = rows[i];
      const line = this.lines[i] ?? this.add(row.token.position);
      const key = `${row.chunk?.seq ?? "-"} ${row.shares} ${row.first} ${row.token.group?.to ?? ""} ${scale}`;
      if (line.key === key) continue;
      line.key = key;
      fill(line.element, ...cells(row, scale));
    }
  }

  /** @param {number} position */
  add(position) {
    if (this.lines.length % SEGMENT === 0) this.body.append(h("div", { class: "segment", role: "rowgroup" }));
    const element = h("div", { role: "row", "data-position": position });
    this.body.lastElementChild?.append(element);
    const line = { element, key: "", position };
    this.byPosition.set(position, this.lines.length);
    this.lines.push(line);
    return line;
  }

  /** @param {number | null | undefined} position that is pointed at anywhere */
  point(position) {
    this.pointed?.classList.remove("pointed");
    this.pointed = position == null ? null : (this.lines[this.byPosition.get(position) ?? -1]?.element ?? null);
    this.pointed?.classList.add("pointed");
  }

  /** @param {number | null} position of the followed token */
  mark(position) {
    const line = position === null ? undefined : this.lines[this.byPosition.get(position) ?? -1];
    const element = line?.element ?? null;
    if (element === this.current) return;
    this.current?.removeAttribute("aria-current");
    this.current = element;
    if (!element) return;
    setAttribute(element, "aria-current", "true");
    element.scrollIntoView({ block: "nearest" });
  }
}

/** @param {WireRow} row @param {number} scale */
function cells(row, scale) {
  const { token, event, chunk, first, shares } = row;
  const delay = delays(row);
  const cell = (/** @type {string} */ name, /** @type {import("../dom.js").Child} */ content) => h("span", { role: "cell", class: name }, content);
  const follow = h("button", { type: "button", class: "plain link", "aria-label": `Follow ${quoted(token)}, position ${token.position}` }, tokenWord(token));
  const released = event.special ? h("span", { class: "muted" }, "control token") : event.text === "" ? h("span", { class: "muted" }, "nothing yet") : word(event.text);
  const share = (/** @type {number} */ ns) => `${Math.max(0, Math.min(100, (100 * ns) / scale))}%`;
  return [
    cell("num muted", count(token.position)),
    cell("token", follow),
    cell("mono muted", token.bytes.length ? hex(token.bytes) : "–"),
    cell("released", released),
    cell("num", event.held_back_bytes ? plural(event.held_back_bytes, "byte") : ""),
    cell("num strong", chunk ? (first ? count(chunk.chunk) : "″") : "–"),
    cell("num", chunk && first ? h("span", { "data-tip": `${bytes(chunk.chunk_bytes)} on the wire, of which ${plural(chunk.text_bytes, "byte")} of text${shares > 1 ? `, of ${plural(shares, "token")}` : ""}` }, bytes(chunk.chunk_bytes)) : ""),
    cell("num", delay ? signed(delay.queued) : ""),
    cell("num strong", delay ? signed(delay.sent) : "not sent"),
    cell("way", delay ? h("span", { class: "bar" }, h("i", { class: "before", style: `inline-size:${share(delay.queued)}` }), h("i", { class: "after", style: `inline-size:${share(delay.sent - Math.max(0, delay.queued))}` })) : null),
  ];
}

/** @param {number} ns */
export function signed(ns) {
  return ns < 0 ? `−${duration(-ns)}` : duration(ns);
}
