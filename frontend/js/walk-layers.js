// The layers of one pass: where their heads looked, what they added, what they would have said, one row each.

import { fill, h, setAttribute, setText } from "./dom.js";
import { keepingTerm, term } from "./explain.js";
import { count, duration, entropy, measure, ordinal, percent, weight } from "./format.js";
import { largest } from "./insight.js";
import { layerUnder } from "./layer-rows.js";
import { absentShort, absentText, standingOf, whyAbsent, whyNoLayers, whyNoReading } from "./absent.js";
import { drawStrips, keyAt, lineAt, linesByHead, placeOfKey } from "./walk-strips.js";
import { headsWord, summaryWords } from "./tensor-words.js";
import { hideTip, showTip, tipsFor } from "./tip.js";
import { bytesNote, candidateName, isWhatCame, labelOf } from "./token-names.js";
import { candidateWord, expertsText, quoted, tokenInSentence } from "./words.js";

/** @typedef {import("./walk.js").Pass} Pass */
/** @typedef {import("./store.js").Store} Store */

/**
 * One row's elements.
 * @typedef {{row: HTMLElement, strip: HTMLElement, attention: HTMLElement, mlp: HTMLElement, guess: HTMLElement, bar: HTMLElement, rank: HTMLElement, time: HTMLElement}} Row
 */

/** Guesses that a row shows where it is tall enough, as with few layers (css/walk.css says how tall). */
const MOST_GUESSES = 5;
const FEW_LAYERS = 16;

/** What a row is made of, from left to right: each may be absent for a reason of its own. */
const COLUMNS = /** @type {const} */ (["attention", "residual", "lens"]);

export class LayerTable {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {Pass | null} */
    this.pass = null;
    /** @type {Row[]} */
    this.rows = [];
    /** Null until they are measured. @type {ReturnType<LayerTable["measure"]> | null} */
    this.places = null;
    /** For each column the last of those that its note speaks of. @type {number[]} */
    this.spans = [];
    this.heads = {
      strip: h("span", { role: "columnheader" }),
      added: h("span", { role: "columnheader", class: "added-head" }),
      guess: h("span", { role: "columnheader" }),
      rank: h("span", { role: "columnheader" }),
      time: h("span", { role: "columnheader", class: "time" }, term("walk.time", "time")),
    };
    this.head = h(
      "div",
      { role: "row", class: "layer-head" },
      h("span", { role: "columnheader", class: "number" }, term("walk.layer", "layer")),
      this.heads.strip,
      this.heads.added,
      this.heads.guess,
      this.heads.rank,
      this.heads.time,
    );
    this.canvas = h("canvas", { class: "strips", "aria-hidden": "true" });
    this.keyMark = h("i", { class: "key-mark", "aria-hidden": "true", hidden: true });
    // What is not here says so where it would be: the rows keep their place.
    this.notes = { attention: h("p", { class: "absent" }), residual: h("p", { class: "absent" }), lens: h("p", { class: "absent" }) };
    this.element = h("div", { class: "layers", role: "grid", "aria-label": "Layers" }, this.head, this.canvas);
    this.why = h("dd", null);
    this.none = h("dl", { class: "stations", hidden: true }, h("div", { class: "station" }, h("dt", null, term("walk.layer", "layers")), this.why));
    this.frame = h("div", { class: "layers-frame" }, this.element, this.none, ...Object.values(this.notes));
    this.resized = new ResizeObserver(() => {
      this.places = this.measure();
      this.draw();
    });
    this.resized.observe(this.element);
    this.listen();
  }

  listen() {
    const { canvas, element, store } = this;
    canvas.addEventListener("pointermove", (event) => this.pointAt(event));
    canvas.addEventListener("pointerleave", () => {
      hideTip();
      store.hover({});
    });
    canvas.addEventListener("click", (event) => {
      const { layer, head } = this.lineUnder(event);
      store.select(head === null ? { layer } : { layer, head });
    });
    canvas.addEventListener("dblclick", (event) => {
      const key = this.keyUnder(event);
      if (key !== null) store.select({ position: key });
    });
    element.addEventListener("click", (event) => {
      const layer = layerUnder(event);
      if (layer !== null) store.select({ layer });
    });
    tipsFor(element, "[data-what]", (cell) => this.describe(cell));
  }

  /**
   * The columns have moved: they are measured once the page is laid out, and drawn then, in this same frame. Measured now, while
   * the stations around them are still the old ones, the strips could come to lie beside other layers' rows; and if the table
   * ends up as high as it was before, nothing would say that it had been another height in between.
   */
  remeasure() {
    this.places = null;
    this.resized.unobserve(this.element);
    this.resized.observe(this.element);
  }

  /** @param {number} layers */
  build(layers) {
    this.rows = Array.from({ length: layers }, (_, layer) => {
      const strip = h("span", { role: "gridcell", class: "strip" });
      const attention = h("i", { class: "by-attention" });
      const mlp = h("i", { class: "by-mlp" });
      const guess = h("span", { role: "gridcell", class: "guess", "data-what": "guess" });
      const bar = h("i", { class: "rank-bar" });
      const rank = h("b", null);
      const time = h("span", { role: "gridcell", class: "time" });
      const row = h(
        "div",
        { role: "row", "aria-label": `Layer ${layer}`, "data-layer": layer, tabindex: -1, class: "layer" },
        h("span", { role: "rowheader", class: "number" }, layer),
        strip,
        h("span", { role: "gridcell", class: "added", "data-what": "added" }, attention, mlp),
        guess,
        h("span", { role: "gridcell", class: "rank", "data-what": "rank" }, bar, rank),
        time,
      );
      return { row, strip, attention, mlp, guess, bar, rank, time };
    });
    fill(this.element, this.head, ...this.rows.map((row) => row.row), this.canvas, this.keyMark);
    this.frame.style.setProperty("--layers", String(layers));
    this.frame.classList.toggle("few", layers <= FEW_LAYERS);
    this.remeasure();
  }

  /** @param {Pass} pass @param {number | null} selected */
  update(pass, selected) {
    this.pass = pass;
    const times = pass.row ? pass.run.layerTimes.get(pass.row.step) : undefined;
    // Said once, in place of as many empty rows as there are layers.
    const none = times === undefined ? whyNoLayers(pass.record) : null;
    this.element.hidden = none !== null;
    this.none.hidden = none === null;
    this.frame.classList.toggle("none", none !== null);
    if (none) {
      for (const note of Object.values(this.notes)) note.hidden = true;
      setText(this.why, `${absentText(none)}.${none.reason === "not_captured" ? " At level follow or full each has a row here." : ""}`);
      return;
    }
    const layers = pass.run.header?.model.layers ?? 0;
    if (layers !== this.rows.length) this.build(layers);
    this.frame.style.setProperty("--heads", String(pass.run.header?.model.heads ?? 1));
    this.updateHeads();
    const added = norms(pass);
    const largestNorm = Math.max(...added.map(([a, m]) => Math.max(a ?? 0, m ?? 0)), 0);
    const vocab = pass.run.header?.model.vocab ?? 2;
    const hadFocus = this.rows.some(({ row }) => row === document.activeElement);
    const moved = this.frame.classList.contains("timed") !== (times !== undefined);
    this.frame.classList.toggle("timed", times !== undefined);
    if (moved) this.remeasure();
    const here = pass.attention && new Set(pass.attention.layerNumbers);
    this.rows.forEach((row, layer) => {
      row.strip.classList.toggle("hatch", here !== null && !here.has(layer));
      const time = times?.get(layer);
      setText(row.time, time === undefined ? "" : duration(time));
      setAttribute(row.row, "aria-selected", String(layer === selected));
      row.row.tabIndex = layer === selected ? 0 : -1;
      const [a, m] = added[layer] ?? [null, null];
      row.attention.style.width = `${share(a, largestNorm)}%`;
      row.mlp.style.width = `${share(m, largestNorm)}%`;
      this.updateGuess(row, pass.lens?.layers[layer], pass.target, vocab);
      setAttribute(row.strip, "aria-label", this.stripName(layer));
    });
    if (hadFocus && selected !== null) this.rows[selected]?.row.focus({ preventScroll: true });
    this.updateNotes();
    this.draw();
  }

  updateNotes() {
    const { pass, notes } = this;
    if (!pass) return;
    const { record, query } = pass;
    const said = COLUMNS.map((what) => {
      if (pass[what] !== null) return "";
      const why = what === "lens" ? whyNoReading(record, what, query, standingOf(this.store.state)) : whyAbsent(record, what, query);
      return `${absentShort(why)}.`;
    });
    COLUMNS.forEach((what, i) => {
      // Neighbours that lack the same thing say so once, across them all: a narrow column has no room for a sentence.
      notes[what].hidden = said[i] === "" || said[i] === said[i - 1];
      setText(notes[what], notes[what].hidden ? "" : said[i]);
    });
    this.spans = COLUMNS.map((_, i) => said.findLastIndex((words, last) => last >= i && said.slice(i, last).every((one) => one === words)));
    this.frame.classList.toggle("no-residual", pass.residual === null);
  }

  /** Puts the notes over the columns that they speak of. @param {NonNullable<LayerTable["places"]>} places */
  placeNotes(places) {
    COLUMNS.forEach((what, i) => {
      const { left } = places[what];
      const last = places[COLUMNS[this.spans[i] ?? i]];
      const { top, height } = places.attention;
      Object.assign(this.notes[what].style, { left: `${left}px`, width: `${last.left + last.width - left}px`, top: `${top}px`, height: `${height}px` });
    });
  }

  updateHeads() {
    const { pass } = this;
    if (!pass) return;
    const { attention, query, target, act } = pass;
    const range = `${attention?.event.first_key ?? 0}–${query}${attention?.summary ? ", summarised" : ""}`;
    const layers = attention?.layerNumbers.length ?? 0;
    const room = (/** @type {string} */ words) => h("span", { class: "where-there-is-room" }, words);
    // The column can be narrow, and what is usual needs no words: that all heads are here.
    const some = attention && attention.headNumbers.length < (pass.run.header?.model.heads ?? 0);
    const who = attention && some ? headsWord(attention) : "heads";
    const looked = layers < this.rows.length ? [room(`${who} looked at tokens `), `${range}, in ${layers} of ${this.rows.length} layers`] : [`${who} looked at `, room("tokens "), range];
    keepingTerm(this.head, () => {
      fill(this.heads.strip, term("walk.looked", attention ? looked : "where its heads looked", h("span", { class: "a-line-each" }, ", a line each")));
      fill(this.heads.added, term("walk.added", h("span", { class: "by-attention-text" }, "attention"), h("span", { class: "by-mlp-text" }, "MLP")));
      fill(this.heads.guess, term("walk.guess", "best guess here"));
      fill(this.heads.rank, term("walk.rank", ...(target ? ["rank of ", tokenInSentence(target, act === "chosen" ? "followed" : "")] : ["rank"])));
    });
  }

  /** @param {Row} row @param {any} lens of this layer @param {Pass["target"]} target @param {number} vocab */
  updateGuess(row, lens, target, vocab) {
    const best = lens?.top?.[0];
    if (!best) {
      fill(row.guess);
      setText(row.rank, "");
      row.bar.style.width = "0";
      row.row.classList.remove("leads");
      return;
    }
    const rank = lens.rank;
    row.row.classList.toggle("leads", rank === 1);
    const shown = lens.top.slice(0, this.rows.length <= FEW_LAYERS ? MOST_GUESSES : 1);
    fill(row.guess, shown.map((/** @type {any} */ c) => h("span", { class: isWhatCame(c, target) ? "line came" : "line" }, candidateWord(c, target), h("span", { class: "p" }, weight(Math.exp(c.logprob))))));
    setText(row.rank, typeof rank === "number" ? count(rank) : "");
    // The first place fills the bar, the last leaves it empty; in between by the rank's logarithm.
    const part = typeof rank === "number" ? 1 - Math.log(rank) / Math.log(Math.max(2, vocab)) : 0;
    row.bar.style.width = `${Math.max(0, part) * 100}%`;
  }

  draw() {
    const { pass, canvas, rows, places } = this;
    if (!pass || !places) return;
    this.placeNotes(places);
    const { height } = places.attention;
    this.frame.classList.toggle("by-head", pass.attention !== null && linesByHead(height, rows.length, pass.attention.heads));
    drawStrips(canvas, places.attention, pass.attention, rows.length);
  }

  /** Where the columns are: the strips' canvas is put there. It stays so until something is resized; null without layers. */
  measure() {
    const { canvas, rows } = this;
    if (rows.length === 0) return null;
    const [first, last] = [rows[0].strip, rows[rows.length - 1].strip];
    const box = { left: first.offsetLeft, top: first.offsetTop, width: first.offsetWidth, height: last.offsetTop + last.offsetHeight - first.offsetTop };
    Object.assign(canvas.style, { left: `${box.left}px`, top: `${box.top}px`, width: `${box.width}px`, height: `${box.height}px` });
    const cell = (/** @type {HTMLElement} */ e) => ({ left: e.offsetLeft, width: e.offsetWidth });
    const [added, guess, rank] = [rows[0].mlp.parentElement ?? first, rows[0].guess, rows[0].rank.parentElement ?? first].map(cell);
    const places = { attention: box, residual: added, lens: { left: guess.left, width: rank.left + rank.width - guess.left } };
    return places;
  }

  /** @param {import("./store.js").Hover} hover */
  point(hover) {
    this.rows.forEach((row, layer) => row.row.classList.toggle("pointed", hover.layer === layer));
    const { canvas, keyMark } = this;
    const place = this.pass?.attention ? placeOfKey(this.pass.attention, hover.position, canvas.offsetWidth) : null;
    keyMark.hidden = place === null;
    if (place) Object.assign(keyMark.style, { left: `${canvas.offsetLeft + place.left}px`, width: `${Math.max(3, place.width)}px`, top: `${canvas.offsetTop}px`, height: `${canvas.offsetHeight}px` });
  }

  /** @param {MouseEvent} event */
  lineUnder(event) {
    const box = this.canvas.getBoundingClientRect();
    return lineAt(event.clientY - box.top, box.height, this.rows.length, this.pass?.attention?.heads ?? 1);
  }

  /** @param {MouseEvent} event @returns {number | null} */
  keyUnder(event) {
    const array = this.pass?.attention;
    if (!array) return null;
    const box = this.canvas.getBoundingClientRect();
    return keyAt(array, event.clientX - box.left, box.width);
  }

  /** @param {PointerEvent} event */
  pointAt(event) {
    const { pass } = this;
    const key = this.keyUnder(event);
    if (!pass?.attention || key === null) return;
    const { layer, head } = this.lineUnder(event);
    this.store.hover({ layer, position: key });
    const { keys, firstLayer, summary } = pass.attention;
    const place = key - (pass.attention.event.first_key ?? 0);
    const row = head === null ? null : pass.attention.row(layer, head);
    const value = row ? row[place] : pass.attention.headMeans()[(layer - firstLayer) * keys + place];
    const known = head === null ? pass.attention.layerNumbers.includes(layer) : row !== null;
    const whose = head === null ? `Layer ${layer}` : `Layer ${layer}, head ${head},`;
    const how = head === null ? `mean of ${headsWord(pass.attention)}, ` : "";
    const least = summary ? "at least " : "";
    const box = this.canvas.getBoundingClientRect();
    const middle = box.top + ((layer + 0.5) / this.rows.length) * box.height;
    showTip(
      known
        ? `${whose} looked at ${quoted(pass.record.tokens[key])}, token ${key}: ${least}${weight(value)}\n${how}${pass.attention.event.source_dtype}.${summary ? ` ${summaryWords(pass.attention)}.` : ""} Double-click follows that token.`
        : `Layer ${layer}\n${absentText(whyAbsent(pass.record, "attention", pass.query, { layer }))}`,
      event.clientX, middle - 8, middle + 8,
    );
  }

  /** @param {number} layer */
  stripName(layer) {
    const array = this.pass?.attention;
    if (!array || !this.pass) return "attention is not here";
    if (!array.layerNumbers.includes(layer)) return `attention is not here. ${absentText(whyAbsent(this.pass.record, "attention", this.pass.query, { layer }))}`;
    const { keys, firstLayer } = array;
    const row = array.headMeans().subarray((layer - firstLayer) * keys, (layer - firstLayer + 1) * keys);
    const [most] = largest(row, 1, array.event.first_key ?? 0);
    return most ? `looked most at ${quoted(this.pass.record.tokens[most.position])}, token ${most.position}: ${weight(most.weight)}` : "looked at token 0 alone";
  }

  /** @param {HTMLElement} cell */
  describe(cell) {
    const layer = Number(/** @type {HTMLElement} */ (cell.parentElement).dataset.layer);
    const { residual, lens, target, record, query } = this.pass ?? {};
    const at = lens?.layers[layer];
    if (cell.dataset.what === "added") {
      if (!residual) return "";
      const { attention_norms: a, mlp_norms: m, norms: all } = residual.event;
      const norm = (/** @type {number | null} */ n) => (n === null ? "not separable" : measure(n));
      const routed = query == null ? undefined : record?.router.get(query)?.layers.find((/** @type {any} */ at) => at.layer === layer);
      return `Layer ${layer}: attention added ${norm(a[layer])}, the MLP ${norm(m[layer])}\nresidual afterwards ${measure(all[layer + 1])} (L2 norms, ${residual.event.source_dtype})${routed ? `\n${expertsText(routed)}` : ""}`;
    }
    if (!at) return "";
    if (cell.dataset.what === "rank") {
      return target && at.rank ? `Layer ${layer}: ${quoted(target)} is ${ordinal(at.rank)}, with ${percent(Math.exp(at.logprob))}` : "";
    }
    const list = at.top.map((/** @type {any} */ c) => `${candidateName(c, target)}  ${percent(Math.exp(c.logprob))}`);
    const notes = at.top.map((/** @type {any} */ c) => (isWhatCame(c, target) ? "" : bytesNote(labelOf(c)))).filter(Boolean);
    return `If layer ${layer} were the last, the best guesses would be:\n${list.join("\n")}\nentropy ${entropy(at.entropy_bits ?? null)}; logit lens, ${lens?.how}${notes.map((/** @type {string} */ note) => `\n${note}`).join("")}`;
  }
}

/** Per layer, norms of what attention and the MLP added. @param {Pass} pass @returns {[number | null, number | null][]} */
function norms({ residual }) {
  if (!residual) return [];
  return residual.event.attention_norms.map((/** @type {number | null} */ a, /** @type {number} */ i) => [a, residual.event.mlp_norms[i]]);
}

/** @param {number | null | undefined} part @param {number} whole */
function share(part, whole) {
  return part && whole ? (part / whole) * 50 : 0;
}

