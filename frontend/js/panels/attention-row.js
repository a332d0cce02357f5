/** The followed token's row: what it sums to, where it looked most, or why it is not here. */

import { fill, h, setText } from "../dom.js";
import { absentText, whyAbsent } from "../absent.js";
import { keepingTerm, term } from "../explain.js";
import { summaryWords } from "../tensor-words.js";
import { tokenInSentence } from "../words.js";
import { chosenRow } from "./attention-data.js";
import { LookedAt } from "./attention-list.js";
import { fillFacts } from "./facts.js";
import { firstKey, rowStatistics } from "./attention-pool.js";
import { rowFacts } from "./attention-words.js";

/** @typedef {import("../model.js").RequestRecord} RequestRecord */

/**
 * @typedef {object} RowState
 * @property {RequestRecord} record
 * @property {number | null} query
 * @property {readonly import("./attention-pool.js").Head[]} chosen
 * @property {import("./attention-controls.js").Look} look
 * @property {import("../colour.js").Scale} scale
 * @property {import("../canvas.js").Palette} palette
 * @property {number | null} hover a key that is pointed at
 */

export class RowView {
  /** @param {ConstructorParameters<typeof LookedAt>[1]} handlers */
  constructor(handlers) {
    this.facts = h("dl", { class: "facts" });
    this.absence = h("p", { class: "absence" });
    this.title = h("h3", null);
    this.listRoot = h("div", null);
    this.list = new LookedAt(this.listRoot, handlers);
    this.elements = [this.facts, this.absence, this.title, this.listRoot];
  }

  /** @param {RowState} state */
  draw(state) {
    const { record, query, chosen, look } = state;
    const rows = query === null ? undefined : record.attention.get(query);
    const row = rows ? chosenRow(rows, chosen, look.combine) : null;
    const here = query !== null && rows !== undefined && row !== null;
    for (const element of [this.facts, this.title, this.listRoot]) element.hidden = !here;
    this.absence.hidden = here;
    if (here) this.drawNumbers(state, query, rows, row instanceof Float32Array ? row : Float32Array.from(row));
    else setText(this.absence, whyNot(record, query, chosen, rows));
  }

  /** @param {RowState} state @param {number} query @param {import("../tensors.js").TensorRecord} rows @param {Float32Array} row */
  drawNumbers({ record, chosen, look, scale, palette, hover }, query, rows, row) {
    const first = firstKey(rows);
    const statistics = rowStatistics(row, first);
    if (rows.summary) {
      // The row holds what is listed and 0 elsewhere; its entropy was measured while it was whole.
      statistics.order = statistics.order.filter((position) => row[position - first] > 0);
      statistics.entropyBits = chosen.length === 1 ? (rows.entropyBits(chosen[0].layer, chosen[0].head) ?? NaN) : NaN;
    }
    const key = JSON.stringify([record.id, query, chosen, look.combine, look.hideSink, scale, palette.theme]);
    const token = (/** @type {number} */ position) => record.tokens[position];
    fillFacts(this.facts, rowFacts(rows.about(chosen.map(({ layer }) => layer)), statistics, chosen, look.combine, summaryWords(rows)));
    const from = token(query);
    keepingTerm(this.title, () => fill(this.title, "From ", from ? tokenInSentence(from) : "", ` at ${query}, `, term("attention.looked", "looked at most")));
    const { order } = statistics;
    this.list.draw({ key, row, first, order, scale, hideSink: look.hideSink, palette, token });
    this.list.hover(hover);
  }
}

/** @param {RequestRecord} record @param {number | null} query @param {readonly import("./attention-pool.js").Head[]} chosen @param {import("../tensors.js").TensorRecord | undefined} rows */
function whyNot(record, query, chosen, rows) {
  if (chosen.length === 0) return "No head is selected: click heads on the wall.";
  const missing = rows && chosen.find(({ layer, head }) => !rows.has(layer, head));
  const why = absentText(whyAbsent(record, "attention", query, missing));
  if (missing) return `Layer ${missing.layer}, head ${missing.head} is not here. ${why}.`;
  return query === null ? `${why}.` : `No row for position ${query}. ${why}.`;
}
