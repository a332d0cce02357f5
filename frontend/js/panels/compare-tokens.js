/** Two requests' tokens, position by position: in segments that the browser lays out only where they are in view. */

import { fill, h, setAttribute, setText } from "../dom.js";
import { count, entropy, percent } from "../format.js";
import { isGenerated } from "../model.js";
import { quoted, tokenWord } from "../words.js";
import { sameToken } from "../compare.js";

/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("../tokens.js").TokenRecord} TokenRecord */

const SEGMENT = 100;

/** Tokens before the first difference that are shown for the context. */
const CONTEXT = 3;

/** @typedef {{subject: string, a: RequestRecord, b: RequestRecord, common: number, byId: boolean, position: number | null}} TokensView */

export class PairedTokens {
  /** @param {{onChoose: (position: number) => void, onHover: (position: number | null) => void}} handlers */
  constructor(handlers) {
    this.whole = false;
    this.subject = "";
    /** @type {{element: HTMLElement, key: string}[]} from position `from` on */
    this.lines = [];
    this.from = 0;
    /** @type {TokensView | null} */
    this.view = null;
    /** @type {HTMLElement | null} */
    this.current = null;
    /** @type {HTMLElement | null} */
    this.pointed = null;
    this.fold = h("button", { type: "button", class: "quiet", onclick: () => this.toggle() });
    this.body = h("div", { role: "presentation" });
    const heads = ["at", "here", "p", "entropy", "there", "p", "entropy"];
    this.root = h(
      "div",
      { class: "paired", role: "table", tabindex: 0, "aria-label": "Tokens side by side" },
      h("div", { role: "row", class: "head" }, heads.map((name) => h("span", { role: "columnheader" }, name))),
      this.body,
    );
    const under = (/** @type {Event} */ event) => {
      const line = event.target instanceof Element ? event.target.closest("[data-position]") : null;
      return line instanceof HTMLElement ? Number(line.dataset.position) : null;
    };
    this.body.addEventListener("click", (event) => {
      const position = under(event);
      if (position !== null) handlers.onChoose(position);
    });
    this.body.addEventListener("pointerover", (event) => handlers.onHover(under(event)));
    this.body.addEventListener("pointerleave", () => handlers.onHover(null));
  }

  toggle() {
    this.whole = !this.whole;
    if (this.view) this.draw(this.view);
  }

  /** @param {TokensView} view */
  draw(view) {
    this.view = view;
    const { a, b, common, byId, position } = view;
    const folded = Math.max(0, common - CONTEXT);
    const from = this.whole ? 0 : folded;
    const end = Math.max(a.tokens.length, b.tokens.length);
    if (view.subject !== this.subject || from !== this.from || end - from < this.lines.length) {
      Object.assign(this, { subject: view.subject, from, lines: [], current: null, pointed: null });
      fill(this.body);
    }
    this.fold.hidden = folded === 0;
    setText(this.fold, this.whole ? "only from the difference on" : `show the ${count(folded)} before`);
    for (let p = from; p < end; p += 1) {
      const line = this.lines[p - from] ?? this.add(p);
      const key = `${a.tokens[p]?.id} ${a.tokens[p]?.group?.to} ${b.tokens[p]?.id} ${b.tokens[p]?.group?.to} ${p === common} ${isGenerated(a, p)} ${isGenerated(b, p)} ${a.finished !== null} ${b.finished !== null}`;
      if (line.key === key) continue;
      line.key = key;
      const same = sameToken(a.tokens[p], b.tokens[p], byId);
      setAttribute(line.element, "class", p === common ? "first differs" : same ? null : "differs");
      fill(line.element, h("span", { role: "cell", class: "num muted" }, count(p)), side(a, p, true), side(b, p, false));
      if (p === common) setAttribute(line.element, "aria-label", `Position ${p}: first that differs`);
    }
    this.mark(position);
  }

  /** @param {number} position */
  add(position) {
    if (this.lines.length % SEGMENT === 0) this.body.append(h("div", { class: "segment", role: "rowgroup" }));
    const element = h("div", { role: "row", "data-position": position });
    this.body.lastElementChild?.append(element);
    const line = { element, key: "" };
    this.lines.push(line);
    return line;
  }

  /** @param {number | null} position of the followed token */
  mark(position) {
    const element = position === null ? null : (this.lines[position - this.from]?.element ?? null);
    if (element === this.current) return;
    this.current?.removeAttribute("aria-current");
    this.current = element;
    if (!element) return;
    setAttribute(element, "aria-current", "true");
    // Within the list alone: the panel around it keeps its place.
    const [box, view] = [element.getBoundingClientRect(), this.root.getBoundingClientRect()];
    const head = element.offsetHeight;
    const { scrollTop } = this.root;
    // By whole lines: one that is cut in two under the head is none.
    if (box.top < view.top + head) this.root.scrollTop = Math.floor((scrollTop - (view.top + 2 * head - box.top)) / head) * head;
    else if (box.bottom > view.bottom) this.root.scrollTop = Math.ceil((scrollTop + box.bottom - view.bottom + head) / head) * head;
  }

  /** @param {number | null | undefined} position that is pointed at elsewhere */
  point(position) {
    const element = position == null ? null : (this.lines[position - this.from]?.element ?? null);
    this.pointed?.classList.remove("pointed");
    element?.classList.add("pointed");
    this.pointed = element;
  }
}

/** @param {RequestRecord} record @param {number} position @param {boolean} followed whether its tokens can be followed without changing sides */
function side(record, position, followed) {
  const token = record.tokens[position];
  const cell = (/** @type {string} */ name, /** @type {import("../dom.js").Child} */ content, /** @type {string} */ tip = "") => h("span", { role: "cell", class: name, "data-tip": tip || null }, content);
  if (!token) return [cell("token muted", record.finished ? "ended" : "…"), cell("num", ""), cell("num entropy", "")];
  const shown = followed ? h("button", { type: "button", class: "plain link", "aria-label": `Follow ${quoted(token)}, position ${position}` }, tokenWord(token)) : tokenWord(token);
  const { event } = token;
  if (!event) return [cell("token", shown), cell("num faint", "prompt", "Given by the prompt: nothing chose it"), cell("num entropy", "")];
  const p = event.logprob == null ? null : Math.exp(event.logprob);
  const bar = h("i", { class: "bar", style: `inline-size:${100 * (p ?? 0)}%` });
  return [cell("token", shown), cell("num p", p === null ? "" : [bar, h("span", null, percent(p))], "Under the model's own distribution, before any sampler stage"), cell("num entropy", event.entropy_bits === null ? "" : entropy(event.entropy_bits))];
}
