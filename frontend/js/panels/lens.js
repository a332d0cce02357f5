/**
 * The lens panel: after each layer, at each position, the word that the model would say next. Columns are made only for
 * what is in view, and the lens of live requests is asked for only there.
 */

import { readPalette } from "../canvas.js";
import { Legend } from "../colour-legend.js";
import { softRamp } from "../colour.js";
import { fill, h, setText } from "../dom.js";
import { about, keepingTerm } from "../explain.js";
import { count, plural } from "../format.js";
import { absentText, standingOf, whyAbsent, whyNoReading } from "../absent.js";
import { queryPosition, selectedRequest } from "../model.js";
import { noRequest, noTokens } from "../nothing.js";
import { lensFigure, lensTable } from "../save/lens.js";
import { saveButton } from "../save/save.js";
import { choice } from "./attention-controls.js";
import { describeCell, describeColumn } from "./lens-words.js";
import { LensTable } from "./lens-table.js";
import { byLayer, lensCell, lensWanted, selectionFor } from "./lens-grid.js";

/** @typedef {import("../store.js").Store} Store */
/** @typedef {import("../store.js").State} State */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("./lens-grid.js").Shade} Shade */

/** A pause in scrolling before the engine is asked, in milliseconds: each answer costs it a matrix product a layer. */
const ASK_AFTER = 180;

class LensPanel {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.root = root;
    this.store = store;
    /** @type {Shade} */
    this.shade = "probability";
    /** @type {State | null} */
    this.state = null;
    /** @type {import("../canvas.js").Palette | null} */
    this.palette = null;
    this.soft = new Uint32Array(256);
    this.timer = 0;
    /** What the timer will ask for. */
    this.waiting = "";
    this.frame = 0;
    this.shades = choice(
      "Colour by",
      [
        ["probability", "probability", "How sure the layer is of its best guess"],
        ["rank", "rank of what came", "How high the layer ranks the token that really came next"],
      ],
      (value) => {
        this.shade = /** @type {Shade} */ (value);
        this.draw();
      },
    );
    this.empty = h("p", { class: "absence" });
    this.title = h("h2", null, "Best guess after each layer");
    this.legend = new Legend();
    this.missing = h("p", { class: "note" });
    this.detail = h("div", { class: "lens-detail", "aria-live": "polite" });
    this.table = new LensTable({
      onChoose: (position, layer) => this.choose(position, layer),
      onStep: (columns, rows) => this.step(columns, rows),
      onHover: (position, layer) => this.store.hover(position === null ? {} : { position, layer }),
      onScroll: () => this.schedule(),
      describe: (position, layer) => this.describe(position, layer),
    });
    this.body = h(
      "div",
      null,
      h("header", null, h("span", { class: "titled" }, this.title, about("lens"), saveButton(store, () => this.saves())), h("span", { class: "titled" }, this.shades.root, about("lens.shade"))),
      this.table.root,
      this.missing,
      this.legend.root,
      this.detail,
    );
    fill(root, h("div", { class: "lens-panel" }, this.empty, this.body));
    this.resized = new ResizeObserver(() => this.schedule());
    this.resized.observe(root);
  }

  /** @param {State} state @param {Set<string>} changed */
  update(state, changed) {
    const drawn = this.state !== null;
    this.state = state;
    if (this.palette?.theme !== state.theme) {
      this.palette = readPalette(state.theme);
      this.soft = softRamp(this.palette.ramp, state.theme);
    }
    if (changed.has("hover")) this.table.point(state.hover.position, state.hover.layer);
    if (drawn && changed.size === 1 && changed.has("hover")) return;
    this.draw();
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.root.isConnected && this.root.offsetParent !== null) this.draw();
    });
  }

  draw() {
    const { state, palette } = this;
    if (!state || !palette) return;
    const record = selectedRequest(state);
    const model = state.run?.header?.model;
    const reason = !record
      ? noRequest(state)
      : record.tokens.length === 0
        ? noTokens(record)
        : !model?.layers
          ? "The run's header does not say how many layers the model has."
          : null;
    this.empty.hidden = reason === null;
    this.body.hidden = reason !== null;
    setText(this.empty, reason ?? "");
    if (reason !== null || !record) return;
    this.shades.press(this.shade);
    const query = queryPosition(state.selection);
    const view = this.table.draw({
      record,
      query,
      layers: model.layers,
      layer: state.selection.layer ?? 0,
      shade: this.shade,
      vocabulary: model.vocab ?? 50_000,
      ramp: this.soft,
      followed: state.selection.position,
    });
    this.legend.draw(this.legendTicks(model.vocab ?? 50_000), this.soft);
    this.drawMissing(record, view.visibleFrom, view.visibleTo);
    keepingTerm(this.detail, () => fill(this.detail, describeColumn(record, query, state.selection.layer ?? 0)));
    this.ask(record, view.visibleFrom, view.visibleTo);
  }

  /** @returns {import("../save/save.js").Saveable[]} */
  saves() {
    const { state } = this;
    const record = state && selectedRequest(state);
    const model = state?.run?.header?.model;
    if (!state || !record?.tokens.length || !model?.layers) return [];
    const view = { query: queryPosition(state.selection), layer: state.selection.layer ?? 0, layers: model.layers, shade: this.shade, vocabulary: model.vocab ?? 50_000 };
    return [{ view: "lens", name: "Lens", figure: (ink) => lensFigure(record, view, ink), table: () => lensTable(record) }];
  }

  /** @param {number} vocabulary @returns {import("../colour-legend.js").LegendTick[]} */
  legendTicks(vocabulary) {
    if (this.shade === "probability") return [0, 0.25, 0.5, 0.75, 1].map((at) => ({ at, text: String(at) }));
    const at = (/** @type {number} */ rank) => 1 - Math.log(rank) / Math.log(vocabulary);
    return [1000, 100, 10]
      .map((rank) => ({ at: at(rank), text: count(rank) }))
      .concat([
        { at: 0, text: `rank ${count(vocabulary)}` },
        { at: 1, text: "1st" },
      ]);
  }

  /** Say why columns in view are empty. @param {RequestRecord} record @param {number} from @param {number} to */
  drawMissing(record, from, to) {
    /** @type {Map<string, number>} */
    const reasons = new Map();
    for (let position = from; position < to; position++) {
      if (record.lens.has(position)) continue;
      const text = this.whyNot(record, position);
      reasons.set(text, (reasons.get(text) ?? 0) + 1);
    }
    const text = [...reasons].map(([why, n]) => `${plural(n, "column")} hatched. ${why}.`).join(" ");
    setText(this.missing, text);
    this.missing.hidden = text === "";
  }

  /** @param {RequestRecord} record @param {number} position */
  whyNot(record, position) {
    if (!this.state) return "";
    // What is in view is asked for whether the answer is complete or not.
    const why = whyNoReading(record, "lens", position, { ...standingOf(this.state), streaming: false });
    if (why.reason === "not_recorded")
      return `There is no residual to read. ${absentText(whyAbsent(record, "residual", position))}`;
    return absentText(why);
  }

  /** @param {RequestRecord} record @param {number} from @param {number} to */
  ask(record, from, to) {
    const live = this.state?.run === this.state?.liveRun;
    const wanted = live ? lensWanted(record, from, to) : [];
    const key = `${record.id} ${wanted}`;
    // Drawing again for another reason must not put off what is being waited for.
    if (key === this.waiting) return;
    this.waiting = key;
    clearTimeout(this.timer);
    if (wanted.length === 0) return;
    this.timer = setTimeout(() => {
      this.waiting = "";
      if (this.store.requestLens(record.id, wanted)) this.schedule();
    }, ASK_AFTER);
  }

  /** @param {number} position @param {number} layer */
  choose(position, layer) {
    const record = this.state && selectedRequest(this.state);
    if (!this.state || !record) return;
    this.store.select({ ...selectionFor(position, this.state.selection.act, record.tokens.length), layer });
  }

  /** @param {number} columns @param {number} rows */
  step(columns, rows) {
    const record = this.state && selectedRequest(this.state);
    const layers = this.state?.run?.header?.model?.layers ?? 0;
    if (!this.state || !record) return;
    const within = (/** @type {number} */ value, /** @type {number} */ limit) =>
      Math.min(limit - 1, Math.max(0, value));
    const position = within((queryPosition(this.state.selection) ?? 0) + columns, record.tokens.length);
    this.choose(position, within((this.state.selection.layer ?? 0) + rows, layers));
  }

  /** @param {number} position @param {number} layer @returns {string} */
  describe(position, layer) {
    const record = this.state && selectedRequest(this.state);
    if (!record) return "";
    const event = record.lens.get(position);
    if (!event) return `${this.whyNot(record, position)}.`;
    const cell = lensCell(byLayer(event).get(layer));
    return cell ? describeCell(record, position, layer, cell) : `The lens says nothing of layer ${layer}.`;
  }

  destroy() {
    clearTimeout(this.timer);
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
export function lensPanel(root, store) {
  return new LensPanel(root, store);
}
