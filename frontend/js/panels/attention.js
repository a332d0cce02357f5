/**
 * The attention panel: the wall of all heads, the chosen head (or a mean or sum of heads) as a matrix, the followed
 * token's row in numbers, and the tokens it looked at most.
 */

import { readPalette } from "../canvas.js";
import { makeScale, weightTable } from "../colour.js";
import { fill, h, setText } from "../dom.js";
import { about, term } from "../explain.js";
import { count } from "../format.js";
import { absentText } from "../absent.js";
import { queryPosition, selectedRequest } from "../model.js";
import { noRequest, noTokens } from "../nothing.js";
import { headFigure, headTable, labelsOf, wallFigure, wallTable } from "../save/attention.js";
import { saveButton } from "../save/save.js";
import { hideTip, showTip } from "../tip.js";
import { tokenName } from "../token-names.js";
import { RowCensus } from "./attention-census.js";
import { Controls, defaultLook } from "./attention-controls.js";
import { AttentionData } from "./attention-data.js";
import { matrixTip, wallTip } from "./attention-hover.js";
import { HeadPlot } from "./attention-plot.js";
import { largestOffSink } from "./attention-pool.js";
import { RowView } from "./attention-row.js";
import { chooseHeads, chosenHeads, toggleHeads } from "./attention-selection.js";
import { WallView } from "./attention-wall-view.js";
import { wallLayout } from "./attention-wall.js";
import { headsTitle, largestPossible } from "./attention-words.js";

/** @typedef {import("../store.js").Store} Store */
/** @typedef {import("../store.js").State} State */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("./attention-pool.js").Head} Head */

/** Milliseconds of a frame that folding rows may take. */
const FOLD_BUDGET = 8;

/** While tokens stream in, the wall takes in their rows so often, in milliseconds: to paint all heads anew with each would take every frame. */
const WALL_EVERY = 200;

/** From this many heads on, the wall takes the panel's whole width. */
const WIDE_HEADS = 17;

/** The panel's margins, the wall's title and the lines under it, CSS pixels. */
const AROUND_WALL = 96;

class AttentionPanel {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.root = root;
    this.store = store;
    this.look = defaultLook();
    this.data = new AttentionData();
    /** @type {import("../canvas.js").Palette | null} */
    this.palette = null;
    /** @type {Map<string, Uint32Array>} */
    this.tables = new Map();
    this.census = new RowCensus();
    /** What the wall was drawn of, but for its rows, and when. */
    this.wallSeen = "";
    this.wallAt = -Infinity;
    this.wallTimer = 0;
    this.frame = 0;
    /** Whether the pointer is on the matrix itself, which needs no second mark there. */
    this.pointing = false;
    /** @type {State | null} */
    this.state = null;
    this.empty = h("p", { class: "absence" });
    this.wallTitle = h("h3", null);
    this.wallRows = h("summary");
    this.wallNote = h("span");
    this.title = h("h2", { "aria-live": "polite" });
    this.controls = new Controls(this.look, (what, value) => {
      if (what === "heads") chooseHeads(this.look, value ?? "", this.current().layer, this.size());
      this.schedule();
    });
    this.hint = h("p", { class: "note hint" });
    this.row = new RowView({
      onChoose: (position) => this.store.select({ position }),
      onHover: (position) => this.store.hover({ position }),
    });
    const plotRoot = h("div", { class: "attn-plot" });
    const wallSide = h("div", { class: "attn-side" }, h("span", { class: "titled" }, this.wallTitle, about("attention")));
    this.wall = new WallView(wallSide, {
      onCurrent: (head) => this.store.select(head),
      onToggle: (which) => {
        toggleHeads(this.look, which, this.size());
        this.schedule();
      },
      onHover: (cell) => this.hoverWall(cell),
    });
    wallSide.append(h("p", { class: "note" }, term("attention.wall", "queries down, keys across")), h("details", { class: "note" }, this.wallRows, this.wallNote));
    const { combine, picks, scale, legend } = this.controls;
    this.body = h(
      "div",
      { class: "attn-body" },
      wallSide,
      h(
        "div",
        { class: "attn-main" },
        h("header", null, h("span", { class: "titled" }, this.title, about("attention.head"), saveButton(store, () => this.saves())), h("span", { class: "titled" }, scale.root, about("attention.scale"))),
        h("div", { class: "row" }, combine.root, picks),
        plotRoot,
        legend.root,
        this.hint,
        ...this.row.elements,
      ),
    );
    this.inner = h("div", { class: "attention-panel" }, this.empty, this.body);
    fill(root, this.inner);
    this.plot = new HeadPlot(plotRoot, {
      onPoint: (point) => this.hoverMatrix(point),
      onReady: () => this.schedule(),
      onChoose: (query) => this.store.select({ position: this.state?.selection.act === "chosen" ? query + 1 : query }),
    });
    /** The panel's width, the window's height and the panel's, CSS pixels; null until they are asked for again. @type {{width: number, tall: number, high: number} | null} */
    this.room = null;
    this.resized = new ResizeObserver(() => {
      this.room = null;
      this.schedule();
    });
    this.resized.observe(root);
  }

  /** @param {State} state @param {Set<string>} changed */
  update(state, changed) {
    if (!this.palette || changed.has("theme") || this.palette.theme !== state.theme)
      this.palette = readPalette(state.theme);
    this.state = state;
    this.draw();
  }

  /** Draw before the next frame, unless the panel is not shown. */
  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.state && this.root.isConnected && this.root.offsetParent !== null) this.draw();
    });
  }

  /** @returns {Head} */
  current() {
    const { layer, head } = this.state?.selection ?? { layer: 0, head: 0 };
    const size = this.size();
    const within = (/** @type {number | null} */ value, /** @type {number} */ limit) =>
      Math.min(Math.max(0, value ?? 0), Math.max(0, limit - 1));
    return { layer: within(layer, size.layers), head: within(head, size.heads) };
  }

  size() {
    const model = this.state?.run?.header?.model;
    return { layers: model?.layers ?? 0, heads: model?.heads ?? 0 };
  }

  draw() {
    const { state, palette } = this;
    if (!state || !palette) return;
    const record = selectedRequest(state);
    const { layers, heads } = this.size();
    const reason = this.nothing(record, layers, heads);
    this.empty.hidden = reason === null;
    this.body.hidden = reason !== null;
    if (reason !== null || !record) {
      setText(this.empty, reason ?? "");
      return;
    }
    const chosen = chosenHeads(this.look, this.current());
    const places = this.arrange(layers, heads);
    const ratio = Math.max(1, devicePixelRatio || 1);
    this.data.want(record, {
      layers,
      heads,
      chosen,
      combine: this.look.combine,
      wallSide: Math.round(places.layout.cell * ratio),
      headSide: Math.round(places.side * ratio),
    });
    const complete = this.data.fold(performance.now() + FOLD_BUDGET);
    this.drawWall(record, places.layout, complete);
    this.drawHead(record, chosen, places.side);
    if (!complete) this.schedule();
  }

  /** @param {RequestRecord | null} record @param {number} layers @param {number} heads @returns {string | null} why there is nothing to draw */
  nothing(record, layers, heads) {
    if (!record) return noRequest(this.store.state);
    if (record.tokens.length === 0) return noTokens(record);
    if (layers * heads === 0) return "The run's header does not say how many layers and heads the model has.";
    const said = record.absent.find((event) => event.what === "attention" && !event.positions);
    if (record.attention.size === 0 && said) {
      const advice =
        said.reason === "not_captured" ? " Choose “follow” or “full” before sending to record attention." : "";
      return `No attention to show. ${absentText({ reason: said.reason, detail: said.detail ?? null })}.${advice}`;
    }
    return null;
  }

  /** Share out the space. @param {number} layers @param {number} heads */
  arrange(layers, heads) {
    // Asked for anew only when something was resized: in the middle of a frame the answer costs a layout.
    this.room ??= { width: this.inner.clientWidth, tall: innerHeight, high: this.root.clientHeight };
    const { width, tall, high } = this.room;
    const wide = heads >= WIDE_HEADS || width < 420;
    this.body.classList.toggle("stacked", wide);
    // Beside the head, the wall leaves room for what is said under it: a ribbon of many lines takes some of the panel's.
    const layout = wide ? wallLayout(layers, heads, width - 4, tall * 0.7) : wallLayout(layers, heads, Math.min(300, width * 0.36), Math.min(tall * 0.7, high - AROUND_WALL));
    const side = Math.floor(
      Math.max(200, Math.min(720, tall * 0.72, wide ? width - 4 : width - layout.width - 28)),
    );
    return { layout, side };
  }

  /** @param {RequestRecord} record @param {import("./attention-wall.js").WallLayout} layout @param {boolean} complete */
  drawWall(record, layout, complete) {
    const { palette, state, look, data } = this;
    if (!palette || !state) return;
    const seen = JSON.stringify([record.id, layout, look.hideSink, palette.theme, this.current(), state.hover, look.combine === "one" ? null : [...look.heads]]);
    const now = performance.now();
    if (record.finished === null && seen === this.wallSeen && now - this.wallAt < WALL_EVERY) {
      // The last row of a stall must not wait for the one after it.
      clearTimeout(this.wallTimer);
      this.wallTimer = setTimeout(() => this.schedule(), WALL_EVERY);
      return;
    }
    Object.assign(this, { wallSeen: seen, wallAt: now });
    // Pooled maxima on a log scale are bright everywhere; a square root keeps both the sinks and the fine lines.
    const table = this.tableFor(makeScale("root", 1), palette);
    this.wall.draw({
      layout,
      matrices: data.wall.into,
      tokens: record.tokens.length,
      palette,
      key: `${data.wallVersion} ${record.tokens.length} ${look.hideSink} ${palette.theme}`,
      paint: { table, absent: palette.absent, future: 0, hideSink: look.hideSink },
      current: this.current(),
      selected: look.combine === "one" ? null : look.heads,
      hover: state.hover,
    });
    setText(this.wallTitle, `${layout.layers} layers × ${layout.heads} heads`);
    const { size, span } = data.wall.into;
    const pooled = span > size ? `A pixel is the largest of about ${across(span / size)} weights. ` : "";
    const rows = this.census.words(record, layout.layers, data.wall.counted);
    setText(this.wallRows, complete ? this.census.brief : `drawing ${data.wall.counted.size} of ${record.attention.size} rows`);
    setText(this.wallNote, `Colour by the square root of the weight, to 1. ${pooled}${rows}`);
  }

  /** @param {RequestRecord} record @param {readonly Head[]} chosen @param {number} side */
  drawHead(record, chosen, side) {
    const { palette, state, look, data } = this;
    if (!palette || !state) return;
    const { layers, heads } = this.size();
    const query = queryPosition(state.selection);
    const matrix = data.head.into;
    const scale = makeScale(look.scale, look.hideSink ? largestOffSink(matrix) : largestPossible(chosen, look.combine));
    const title = headsTitle(chosen, look.combine, layers, heads);
    setText(this.title, title);
    this.controls.draw(scale, palette);
    const label = (/** @type {number} */ position) => {
      const token = record.tokens[position];
      return token ? tokenName(token) : "";
    };
    this.plot.draw({
      matrix,
      version: data.headVersion,
      tokens: record.tokens.length,
      query,
      scale,
      palette,
      side,
      label,
      streaming: record.finished === null && state.run === state.liveRun,
      hover: this.pointing ? null : (state.hover.position ?? null),
      table: this.tableFor(scale, palette),
      hideSink: look.hideSink,
      subject: record.id,
      description: `${title}: attention of each token (down) to the tokens before it (across), ${matrix.span} tokens. The followed row is listed below.`,
    });
    const pooled =
      matrix.span > matrix.size
        ? `${count(matrix.span)} tokens: a pixel is the largest of about ${across(matrix.span / matrix.size)} weights.`
        : "";
    setText(this.hint, this.plot.fault ?? (this.plot.zooms ? "Drag to zoom in, double-click to see all." : pooled));
    this.row.draw({ record, query, chosen, look, scale, palette, hover: state.hover.position ?? null });
  }

  /** @returns {import("../save/save.js").Saveable[]} */
  saves() {
    const { state, look, data } = this;
    const record = state && selectedRequest(state);
    const { layers, heads } = this.size();
    if (!state || !record || this.nothing(record, layers, heads) !== null) return [];
    const chosen = chosenHeads(look, this.current());
    const top = look.hideSink ? largestOffSink(data.head.into) : largestPossible(chosen, look.combine);
    const common = { tokens: record.tokens.length, hideSink: look.hideSink };
    const head = { ...common, matrices: data.head.into, scale: makeScale(look.scale, top) };
    const wall = { ...common, matrices: data.wall.into, scale: makeScale("root", 1) };
    const what = { title: headsTitle(chosen, look.combine, layers, heads), query: queryPosition(state.selection), label: labelsOf(record), facts: this.row.facts.hidden ? "" : [...this.row.facts.children].map((fact) => [...fact.children].map((part) => part.textContent).join(" ")).join(" · ") };
    return [
      { view: "attention-head", name: what.title, figure: (ink) => headFigure(head, what, ink), table: () => headTable(record, chosen, look.combine) },
      { view: "attention-wall", name: "Wall of all heads", figure: (ink) => wallFigure(wall, { layers, heads, ...this.current() }, this.census.words(record, layers, this.data.wall.counted), ink), table: () => wallTable(record) },
    ];
  }

  /** The look-up table of a scale: 32,768 logarithms or roots, kept. @param {import("../colour.js").Scale} scale @param {import("../canvas.js").Palette} palette */
  tableFor(scale, palette) {
    const key = `${JSON.stringify(scale)} ${palette.theme}`;
    let table = this.tables.get(key);
    if (!table) {
      if (this.tables.size > 7) this.tables.clear();
      table = weightTable(palette.ramp, scale);
      this.tables.set(key, table);
    }
    return table;
  }

  /** @param {import("./attention-hover.js").WallPoint | null} cell */
  hoverWall(cell) {
    const record = this.state && selectedRequest(this.state);
    if (!cell || !record) hideTip();
    else showTip(wallTip(record, this.data.wall.into, cell), cell.x, cell.y - 8, cell.y + 12);
    this.store.hover(cell ? { layer: cell.layer, head: cell.head } : {});
  }

  /** @param {import("./attention-plot.js").MatrixPoint | null} point */
  hoverMatrix(point) {
    const record = this.state && selectedRequest(this.state);
    const there = point && record && point.key <= point.query;
    this.pointing = Boolean(there);
    if (!there) hideTip();
    else
      showTip(
        matrixTip(record, chosenHeads(this.look, this.current()), this.look.combine, point),
        point.x,
        point.y - 8,
        point.y + 12,
      );
    this.store.hover(there ? { position: point.key } : {});
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.wallTimer);
    this.resized.disconnect();
    this.plot.destroy();
    this.root.replaceChildren();
  }
}

/** @param {number} n tokens in a pixel @returns {string} "4 × 4" */
function across(n) {
  const side = n < 3 ? n.toFixed(1) : String(Math.round(n));
  return `${side} × ${side}`;
}

/**
 * @param {HTMLElement} root
 * @param {Store} store
 * @returns {{update(state: State, changed: Set<string>): void, destroy(): void}}
 */
export function attentionPanel(root, store) {
  return new AttentionPanel(root, store);
}
