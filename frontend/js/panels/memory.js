/**
 * The memory panel: the KV blocks at the moment that is followed: who holds each, what is kept for whoever begins the
 * same, what was thrown out, and how much of its attention the followed pass spent on each.
 */

import { absentText, whyAbsent } from "../absent.js";
import { readPalette } from "../canvas.js";
import { Legend } from "../colour-legend.js";
import { makeScale, scaleTicks } from "../colour.js";
import { fill, h, setText } from "../dom.js";
import { about, term } from "../explain.js";
import { bytes, count, duration, percent, plural } from "../format.js";
import { queryPosition, selectedRequest } from "../model.js";
import { noRequest, noTokens } from "../nothing.js";
import { whatIsHere } from "../tensor-words.js";
import { hideTip, showTip } from "../tip.js";
import { memoryFigure, memoryTable } from "../save/memory.js";
import { saveButton } from "../save/save.js";
import { quoted } from "../words.js";
import { choice } from "./attention-controls.js";
import { fillFacts } from "./facts.js";
import { attentionOf, blockBytes, computedTo, massByBlock, memoryMoment, prefixChain, tableOf, waste } from "./memory-data.js";
import { Holders } from "./memory-holders.js";
import { mapLayout, shownBlocks } from "./memory-map.js";
import { BlockTable } from "./memory-table.js";
import { MapView } from "./memory-view.js";
import { describeBlock, eventText } from "./memory-words.js";

/** @typedef {import("../store.js").Store} Store */
/** @typedef {import("../store.js").State} State */
/** @typedef {import("../blocks.js").Block} Block */
/** @typedef {import("../model.js").Run} Run */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */

/** Changes that are listed; how many more there were is said. */
const MOST_CHANGES = 8;

const WATCHED = ["run", "header", "selection", "blocks", "attention", "absent", "steps", "tokens", "theme", "requests"];

/** Attention on a block: by its square root, so that the sink does not hide all others. */
const SCALE = makeScale("root", 1);

class MemoryPanel {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.root = root;
    this.store = store;
    /** @type {"head" | "mean" | "off"} */
    this.which = "head";
    this.all = false;
    this.now = false;
    this.frame = 0;
    /** @type {import("../canvas.js").Palette | null} */
    this.palette = null;
    /** Block events of the stretch of time that is looked at. @type {import("../codec.js").RunEvent[]} */
    this.lately = [];
    /** What is drawn. @type {{run: Run, record: RequestRecord, blocks: readonly Block[], mass: number[] | null, moment: number} | null} */
    this.view = null;
    /** @type {number | null} */
    this.pointed = null;
    /** The request whose blocks are outlined. @type {string | null} */
    this.pointedRequest = null;
    this.holders = new Holders({
      onPoint: (request) => {
        if (this.pointedRequest === request) return;
        this.pointedRequest = request;
        this.drawMap();
      },
      onChoose: (request) => this.store.select({ request }),
    });
    const redraw = () => this.draw();
    this.moments = choice("Moment", [["then", "at this token", "The blocks when the followed pass had ended"], ["now", "at the end", "The blocks after the newest event"]], (value) => {
      this.now = value === "now";
      redraw();
    });
    this.heads = choice("Attention on blocks", [["head", "this head", "How much of its attention the chosen layer's head spent on each block"], ["mean", "mean", "The mean over all layers and heads"], ["off", "off", "Only who holds what"]], (value) => {
      this.which = /** @type {"head" | "mean" | "off"} */ (value);
      redraw();
    });
    this.empty = h("p", { class: "absence" });
    this.title = h("h2");
    this.facts = h("dl", { class: "facts", "aria-label": "Block counts" });
    this.map = new MapView({ onPoint: (block, x, top, bottom) => this.point(block, { x, top, bottom }), onChoose: (block) => this.choose(block) });
    this.mapFrame = h("div", { class: "map-frame" }, this.map.canvas);
    this.rest = h("p", { class: "note rest" });
    this.key = h("div", { class: "map-key", "aria-hidden": "true" });
    this.legend = new Legend();
    this.read = h("span", { id: "block-read" });
    this.reading = h("p", { class: "note" }, this.read, " ", about("memory.attention"));
    this.detail = h("p", { id: "block-detail", class: "visually-hidden", "aria-live": "polite" });
    this.changes = h("ol", { class: "changes" });
    this.changesTitle = term("memory.changes");
    this.table = new BlockTable({ onPoint: (block) => this.point(block, null), onChoose: (block) => this.choose(block.block) });
    this.tableTitle = h("h3");
    this.body = h(
      "div",
      null,
      h("header", null, h("span", { class: "titled" }, this.title, about("memory"), saveButton(store, () => this.saves())), h("span", { class: "choices" }, this.moments.root, this.heads.root)),
      this.facts,
      this.mapFrame,
      this.rest,
      this.key,
      this.holders.root,
      this.reading,
      this.legend.root,
      this.detail,
      h("section", { class: "split" }, h("div", null, this.tableTitle, this.table.root), h("div", null, h("h3", null, this.changesTitle), this.changes)),
    );
    for (const [kind, text] of [["own", "this request"], ["held", "another"], ["shared", "shared: a dot a holder"], ["cached", "cached"], ["free", "free"], ["new", "given out in this step"], ["evicted", "evicted in this step"]])
      this.key.append(h("span", { class: "key-entry" }, h("i", { "data-kind": kind }), text));
    fill(this.root, h("div", { class: "memory-panel" }, this.empty, this.body));
    this.resized = new ResizeObserver(() => this.schedule());
    this.resized.observe(root);
  }

  /** @param {State} state @param {Set<string>} changed */
  update(state, changed) {
    if (this.palette?.theme !== state.theme) this.palette = readPalette(state.theme);
    if (changed.has("hover")) this.hovered(state);
    if (WATCHED.some((what) => changed.has(what))) this.draw();
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.root.isConnected && this.root.offsetParent !== null) this.draw();
    });
  }

  draw() {
    const { state } = this.store;
    const { run } = state;
    const record = selectedRequest(state);
    const history = run?.blocks ?? null;
    const span = run && record ? memoryMoment(run, record, state.selection) : null;
    const reason = !run?.header || !record
      ? noRequest(state)
      : !history
        ? `This run kept its keys and values in the store “${run.header.kv?.store ?? "unknown"}”, which has no blocks. Go live, or open a recording of a run with the paged store.`
        : !span
          ? noTokens(record)
          : null;
    this.empty.hidden = reason === null;
    this.body.hidden = reason !== null;
    setText(this.empty, reason ?? "");
    this.view = null;
    if (!run?.header || !record || !history || !span) return;
    const moment = this.now ? Infinity : span.to;
    const blocks = history.after(this.now ? history.events.length : history.countAt(moment)).state;
    const attention = this.now ? null : attentionOf(record, state.selection, this.which);
    const mass = attention && massByBlock(attention.row, attention.firstKey, history.size);
    this.view = { run, record, blocks, mass, moment };
    this.lately = this.now ? [] : history.events.slice(history.countAt(span.from), history.countAt(span.to));
    this.moments.press(this.now ? "now" : "then");
    this.heads.press(this.which);
    setText(this.title, this.now ? (state.run === state.liveRun ? "KV blocks now" : "KV blocks at the end") : `KV blocks ${duration(span.to - (record.arrived?.t_ns ?? 0))} after arrival`);
    this.drawFacts(run, blocks, moment);
    this.holders.draw(run, blocks, record.id);
    this.drawMap();
    this.drawRead(run, record, mass);
    this.drawChanges(run, this.now ? null : span);
    this.drawTable(run, record, blocks, mass);
  }

  /** @param {Run} run @param {readonly Block[]} blocks @param {number} moment */
  drawFacts(run, blocks, moment) {
    const counts = { free: 0, cached: 0, held: 0, shared: 0 };
    for (const { state, refs } of blocks) {
      counts[state] += 1;
      if (refs > 1) counts.shared += 1;
    }
    const history = /** @type {import("../blocks.js").BlockHistory} */ (run.blocks);
    const { empty, held } = waste(run, blocks, history.size, moment);
    const size = run.header && blockBytes(run.header);
    const inBytes = (/** @type {number} */ n) => (size ? ` (${bytes(n * size)})` : "");
    /** @type {import("./facts.js").Fact[]} */
    const facts = [
      ["held", `${count(counts.held)}${inBytes(counts.held)}`, "memory.held", `of ${count(history.blocks)} blocks`],
      ["shared", count(counts.shared), "memory.shared"],
      ["cached", `${count(counts.cached)}${inBytes(counts.cached)}`, "memory.cached"],
      ["free", count(counts.free), "memory.free"],
      ["waste", held ? `${count(empty)} of ${count(held)} positions (${percent(empty / held)})` : "none", "memory.waste"],
    ];
    if (history.contradictions) facts.push(["does not add up", plural(history.contradictions, "event"), "memory.contradictions", "Events of this run are missing here (see “dropped” above): what is drawn follows the ones that came"]);
    this.facts.classList.toggle("alarm", history.contradictions > 0);
    fillFacts(this.facts, facts);
  }

  drawMap() {
    const { view, palette } = this;
    const history = view?.run.blocks;
    if (!view || !palette || !history) return;
    const shown = this.all ? history.blocks : shownBlocks(history.blocks, history.highest);
    const width = Math.max(120, this.mapFrame.clientWidth - 4);
    const layout = mapLayout(shown, width, Math.max(180, innerHeight * 0.34));
    const counts = `${view.blocks.filter((b) => b.state === "held").length} held, ${view.blocks.filter((b) => b.state === "cached").length} cached`;
    this.map.draw({
      layout,
      blocks: view.blocks,
      run: view.run,
      request: view.record.id,
      mass: view.mass,
      scale: SCALE,
      current: this.currentBlock(),
      changed: this.changedBlocks(),
      chain: new Set(this.outlined(view.blocks)),
      palette,
      label: `Block map: ${history.blocks} blocks, ${counts}`,
    });
    const hidden = history.blocks - shown;
    const toggle = hidden || (this.all && shown > shownBlocks(history.blocks, history.highest))
      ? h("button", { type: "button", class: "quiet", onclick: () => {
        this.all = !this.all;
        this.draw();
      } }, this.all ? "show only those in use" : "show all")
      : null;
    const key = `${hidden} ${this.all} ${history.blocks}`;
    if (this.rest.dataset.key !== key) {
      this.rest.dataset.key = key;
      fill(this.rest, hidden ? `${count(hidden)} more blocks, never used so far, are not drawn. ` : `All ${count(history.blocks)} blocks. `, toggle);
    }
  }

  /** The prefix of the block that is pointed at, or all blocks of the request that is. @param {readonly Block[]} blocks @returns {number[]} */
  outlined(blocks) {
    const { pointed, pointedRequest: id } = this;
    if (pointed !== null) return prefixChain(blocks, pointed).map(({ block }) => block);
    if (id === null) return [];
    return blocks.filter(({ state, holders, writer }) => (state === "held" ? holders.includes(id) : state === "cached" && writer === id)).map(({ block }) => block);
  }

  /** @returns {import("../save/save.js").Saveable[]} */
  saves() {
    const { view } = this;
    const history = view?.run.blocks;
    if (!view || !history) return [];
    const shown = this.all ? history.blocks : shownBlocks(history.blocks, history.highest);
    const seen = { ...view, shown, current: this.currentBlock(), title: this.title.textContent ?? "", scale: SCALE };
    return [{ view: "memory", name: "KV blocks", figure: (ink) => memoryFigure(seen, ink), table: () => memoryTable(view) }];
  }

  /** The block that the followed pass writes. */
  currentBlock() {
    const query = queryPosition(this.store.state.selection);
    const { view } = this;
    if (query === null || !view || this.now) return null;
    return view.run.blocks?.placeOf(view.record.id, query, view.moment)?.block ?? null;
  }

  changedBlocks() {
    /** @type {Map<number, "new" | "evicted">} */
    const changed = new Map();
    for (const event of this.lately) {
      if (event.kind === "block.evicted") changed.set(event.block, "evicted");
      else if (event.kind === "block.allocated" || event.kind === "block.copied") changed.set(event.block, "new");
    }
    return changed;
  }

  /** @param {Run} run @param {RequestRecord} record @param {number[] | null} mass */
  drawRead(run, record, mass) {
    const { selection } = this.store.state;
    const query = queryPosition(selection);
    // A token whose attention is not here keeps the scale's place: nothing below moves from token to token.
    this.legend.root.hidden = this.now || this.which === "off";
    this.legend.root.style.visibility = mass === null ? "hidden" : "";
    this.key.classList.toggle("with-mass", mass !== null);
    if (mass && this.palette) {
      this.legend.draw(scaleTicks(SCALE).map(({ weight: w, at }) => ({ at, text: String(w) })), this.palette.ramp);
      const sum = mass.reduce((a, b) => a + b, 0);
      const array = query === null ? undefined : record.attention.get(query);
      const { layers = 0, heads = 0 } = run.header?.model ?? {};
      const who = this.which === "mean" ? `${array ? whatIsHere(array, layers, heads) : "all heads"}, in the mean,` : `layer ${selection.layer}, head ${selection.head}`;
      setText(this.read, `Shade: how much of its attention ${who} spent on each block in the pass at ${quoted(record.tokens[query ?? 0])} (${query}). The blocks' shares sum to ${sum.toFixed(4)}.`);
    } else if (this.now) setText(this.read, "Attention belongs to a token's pass: it is shown at the token.");
    else setText(this.read, this.which === "off" ? "" : `No attention to show. ${absentText(whyAbsent(record, "attention", query, this.headMissing(record, query)))}.`);
    this.reading.toggleAttribute("hidden", this.read.textContent === "");
  }

  /** The chosen head's place, where others of the pass are here and it is not. @param {RequestRecord} record @param {number | null} query */
  headMissing(record, query) {
    const { layer, head } = this.store.state.selection;
    const others = this.which === "head" && query !== null && record.attention.has(query);
    return others ? { layer: layer ?? 0, head: head ?? 0 } : undefined;
  }

  /** @param {Run} run @param {{from: number, to: number} | null} span null: at the end */
  drawChanges(run, span) {
    const all = run.blocks?.events ?? [];
    const events = span ? this.lately : all.slice(-MOST_CHANGES);
    const total = span ? events.length : all.length;
    setText(this.changesTitle, span ? "What changed since the token before" : "What changed last");
    const listed = events.slice(-MOST_CHANGES).reverse();
    const key = `${run.name} ${total} ${listed.map(({ seq }) => seq)}`;
    if (this.changes.dataset.key === key) return;
    this.changes.dataset.key = key;
    fill(
      this.changes,
      listed.map((event) => h("li", { onpointerenter: () => this.point(event.block, null), onpointerleave: () => this.point(null, null) }, h("b", null, String(event.block)), ` ${eventText(run, event)}`)),
      total > listed.length ? h("li", { class: "more" }, `and ${plural(total - listed.length, "earlier change")}`) : null,
      total === 0 ? h("li", { class: "more" }, "nothing") : null,
    );
  }

  /** @param {Run} run @param {RequestRecord} record @param {readonly Block[]} blocks @param {number[] | null} mass */
  drawTable(run, record, blocks, mass) {
    const table = tableOf(blocks, record.id);
    const query = queryPosition(this.store.state.selection);
    const held = table.filter(Boolean).length;
    setText(this.tableTitle, held ? `This request's ${plural(held, "block")}, in the order of its tokens` : "This request holds no block at this moment");
    this.table.root.toggleAttribute("hidden", held === 0);
    this.table.draw({ run, record, table, mass, current: query === null || this.now ? null : Math.floor(query / (run.blocks?.size ?? 1)), scale: SCALE });
  }

  /** @param {number | null} block @param {{x: number, top: number, bottom: number} | null} place null: not on the map, so no tip */
  point(block, place) {
    const { view } = this;
    if (block === null || !view) {
      this.pointed = null;
      if (place) hideTip();
      this.store.hover({});
      this.map.pointed = null;
      this.drawMap();
      return;
    }
    this.pointed = block;
    this.map.pointed = block;
    const text = this.describe(view, view.blocks[block]);
    setText(this.detail, text);
    if (place) showTip(text, place.x, place.top, place.bottom);
    const { positions, holders } = view.blocks[block];
    this.store.hover(positions && holders.includes(view.record.id) ? { positions, block } : { block });
    this.drawMap();
  }

  /** @param {{run: Run, record: RequestRecord, mass: number[] | null, moment: number}} view @param {Block} block */
  describe({ run, record, mass, moment }, block) {
    const { layer, head } = this.store.state.selection;
    const own = block.holders.includes(record.id) && block.logical !== null;
    let computed = 0;
    for (const id of block.holders) {
      const holder = run.requests.get(id);
      if (holder && block.positions) computed = Math.max(computed, Math.min(block.positions[1], computedTo(run, holder, moment)) - block.positions[0]);
    }
    const what = this.which === "mean" ? "mean attention on it" : `attention of layer ${layer}, head ${head} on it`;
    return describeBlock(run, block, { mass: own && mass ? (mass[block.logical ?? -1] ?? 0) : undefined, what, computed: Math.max(0, computed) });
  }

  /** A token pointed at elsewhere lies in a block here. @param {State} state */
  hovered({ hover }) {
    const { view } = this;
    if (!view || this.pointed !== null) return;
    const position = hover.position ?? hover.positions?.[0] ?? null;
    const block = hover.block ?? (position === null ? null : (view.run.blocks?.placeOf(view.record.id, position, view.moment)?.block ?? null));
    if (this.map.pointed === block) return;
    this.map.pointed = block;
    this.drawMap();
  }

  /** Follow the block's first token: of this request if it holds it, else of the first that does. @param {number} block */
  choose(block) {
    const state = this.view?.blocks[block];
    if (!state?.positions || !this.view) return;
    const own = state.holders.includes(this.view.record.id);
    const request = own ? this.view.record.id : (state.holders[0] ?? state.writer);
    if (request && this.view.run.requests.has(request)) this.store.select({ request, position: state.positions[0] });
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    this.resized.disconnect();
    this.root.replaceChildren();
  }
}

/**
 * @param {HTMLElement} root
 * @param {Store} store
 * @returns {{update(state: State, changed: Set<string>): void, destroy(): void}}
 */
export function memoryPanel(root, store) {
  return new MemoryPanel(root, store);
}
