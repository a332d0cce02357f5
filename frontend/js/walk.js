// The walk: the followed token's stations, top to bottom, in the act that is chosen.

import { fill, h, press, setAttribute } from "./dom.js";
import { about, keepingTerm } from "./explain.js";
import { count, plural, weight } from "./format.js";
import { appearance, largest, layersText, leadingLayers } from "./insight.js";
import { chunkOf, isGenerated, isOver, queryPosition, rowOf, selectedRequest } from "./model.js";
import { LayerTable } from "./walk-layers.js";
import { saveButton } from "./save/save.js";
import { walkFigure, walkTable } from "./save/walk.js";
import { summaryWords, whatIsHere } from "./tensor-words.js";
import { stationsAfter, stationsBefore } from "./walk-stations.js";
import { shareWords, tokenInSentence } from "./words.js";
import { noRequest, partRead } from "./nothing.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./store.js").State} State */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {import("./tokens.js").TokenRecord} TokenRecord */

/**
 * One pass, as every part of the walk sees it. `input` is the token that went in at `query`; `target` the one that came
 * next, which in the first act is the followed token itself.
 * @typedef {object} Pass
 * @property {import("./model.js").Run} run
 * @property {RequestRecord} record
 * @property {"chosen" | "used"} act
 * @property {TokenRecord} token the followed one
 * @property {number | null} query
 * @property {TokenRecord | null} input
 * @property {TokenRecord | null} target
 * @property {import("./tensors.js").TensorRecord | null} attention
 * @property {import("./tensors.js").TensorRecord | null} residual
 * @property {import("./codec.js").RunEvent | null} lens
 * @property {boolean} lensComes whether it can still come, asked for already or not
 * @property {boolean} streaming whether the newest token is followed as the answer streams in
 * @property {import("./model.js").StepRow | null} row
 */

/** Arrow keys run through tokens faster than lenses are computed: only where one stays is asked for. */
const LENS_DELAY_MS = 120;

/** From this mean weight on, position 0 is called a sink. */
const SINK = 0.2;

const WATCHED = new Set([
  "run", "selection", "tokens", "requests", "blocks", "attention", "residual", "lens", "steps", "sent", "absent", "header", "theme", "loading", "following", "connection",
]);

/** @param {HTMLElement} root @param {Store} store */
export function walk(root, store) {
  const acts = /** @type {const} */ ([
    ["chosen", "how it was chosen"],
    ["used", "what it did next"],
  ]).map(([act, label]) => h("button", { type: "button", "data-value": act, onclick: () => store.select({ act }) }, label));
  const title = h("h2", null);
  const actGroup = h("div", { class: "segmented", role: "group", "aria-label": "Act" }, acts);
  const verdict = h("p", { class: "verdict", "aria-live": "off" });
  const before = h("dl", { class: "stations" });
  const after = h("dl", { class: "stations" });
  const layers = new LayerTable(store);
  const body = h("div", { class: "body" }, verdict, before, layers.frame, after);
  const empty = h("div", { class: "empty-walk" });
  const saves = () => {
    const pass = passOf(store.state, store);
    if (!pass) return [];
    const said = (/** @type {HTMLElement} */ list) => [...list.children].map((one) => ({ name: one.querySelector("dt")?.textContent ?? "", text: one.querySelector("dd")?.textContent ?? "" }));
    const words = { verdict: verdict.textContent.replace(/\?$/, ""), before: said(before), after: said(after) };
    return [{ view: "walk", name: "Walk", figure: (/** @type {import("./save/figure.js").Ink} */ ink) => walkFigure(pass, words, store.state.selection.layer, ink), table: () => walkTable(pass, [...words.before, ...words.after]) }];
  };
  fill(root, h("div", { class: "head" }, h("span", { class: "titled" }, title, about("walk"), saveButton(store, saves)), actGroup), body, empty);

  /** @type {unknown[]} */
  let drawn = [];
  let lensTimer = 0;
  const askForMissing = (/** @type {Pass} */ pass) => {
    clearTimeout(lensTimer);
    const { query, record } = pass;
    if (query !== null && !(pass.attention && pass.residual)) store.requestArrays(record.id, query);
    // A lens takes the engine as long as a token on a CPU: while tokens stream by, none is asked for.
    if (query === null || pass.lens || pass.streaming) return;
    lensTimer = window.setTimeout(() => {
      if (store.requestLens(record.id, [query])) store.mark("lens");
    }, LENS_DELAY_MS);
  };

  return {
    /** @param {State} state @param {Set<string>} changed */
    update(state, changed) {
      if (changed.has("hover")) layers.point(state.hover);
      if (![...changed].some((what) => WATCHED.has(what))) return;
      const pass = passOf(state, store);
      const inputs = pass ? inputsOf(pass, state) : [emptyText(state)];
      if (inputs.length === drawn.length && inputs.every((input, i) => input === drawn[i])) return;
      drawn = inputs;
      announce(root, pass);
      body.hidden = pass === null;
      actGroup.hidden = pass === null;
      empty.hidden = pass !== null;
      if (!pass) {
        fill(title, "The walk");
        fill(empty, emptyText(state));
        return;
      }
      fill(empty);
      fill(title, "The walk of ", tokenInSentence(pass.token, "followed"));
      press(acts, pass.act);
      setAttribute(acts[0], "disabled", isGenerated(pass.record, pass.token.position) ? null : "");
      acts[0].title = isGenerated(pass.record, pass.token.position) ? "" : "A prompt token was given, not chosen";
      const verdictWords = verdictOf(pass, store);
      keepingTerm(verdict, () => fill(verdict, verdictWords, verdictWords.length ? about("walk.verdict") : null));
      keepingTerm(before, () => fill(before, stationsBefore(pass, store)));
      layers.update(pass, state.selection.layer);
      keepingTerm(after, () => fill(after, stationsAfter(pass, store)));
      askForMissing(pass);
    },
  };
}

/**
 * Which pass the walk shows, and whether more of it is on its way: a screen reader waits for the lens, and so can a test.
 * @param {HTMLElement} root
 * @param {Pass | null} pass
 */
function announce(root, pass) {
  setAttribute(root, "data-position", pass && String(pass.token.position));
  setAttribute(root, "data-act", pass && pass.act);
  const waits = pass !== null && pass.query !== null && !pass.lens && pass.lensComes;
  setAttribute(root, "aria-busy", waits ? "true" : null);
}

/** @param {State} state @param {Store} store @returns {Pass | null} */
function passOf(state, store) {
  const { run, selection } = state;
  const record = selectedRequest(state);
  const token = selection.position === null ? null : record?.tokens[selection.position];
  if (!run || !record || !token) return null;
  const act = isGenerated(record, token.position) ? selection.act : "used";
  const query = queryPosition({ ...selection, act });
  return {
    run,
    record,
    act,
    token,
    query,
    input: query === null ? null : (record.tokens[query] ?? null),
    target: query === null ? null : (record.tokens[query + 1] ?? null),
    attention: (query !== null && record.attention.get(query)) || null,
    residual: (query !== null && record.residual.get(query)) || null,
    lens: (query !== null && record.lens.get(query)) || null,
    lensComes: query !== null && store.readingComes(record.id, query),
    streaming: state.following && !isOver(record),
    row: query === null ? null : rowOf(record, query),
  };
}

/**
 * Everything that the walk shows depends on these. While an answer streams in, most frames change none of them for the
 * token that is followed, and then nothing is drawn.
 * @param {Pass} pass
 * @param {State} state
 */
function inputsOf(pass, { selection, theme, connection }) {
  const { run, record, query, target, act, token, row } = pass;
  const later = act === "used" ? record.attention.size : 0;
  const chunk = target ? chunkOf(record, target.position) : null;
  const placed = query === null ? null : run.blocks?.tables.get(record.id)?.[Math.floor(query / run.blocks.size)]?.length;
  const step = row ? run.steps.get(row.step)?.finished : null;
  const kernels = row ? run.kernels.get(row.step)?.length : 0;
  return [...Object.values(pass), target?.event, token.group, target?.group, run.header, record.finished, record.cut, record.scheduled, placed, record.absent.length, chunk, step, kernels, later, record.refused.size, connection.status, selection.layer, theme];
}

/** The glance: at which layer the answer appeared, and which tokens it came from. @param {Pass} pass @param {Store} store */
function verdictOf(pass, store) {
  const { attention, record } = pass;
  /** @type {(Node | string)[]} */
  const words = [...appearanceWords(pass)];
  if (attention) {
    const mean = attention.overallMean();
    const firstKey = attention.event.first_key ?? 0;
    const shares = largest(mean, 3, firstKey);
    const { layers: all = 0, heads = 0 } = pass.run.header?.model ?? {};
    const here = attention.layerNumbers.length;
    const where = here < all ? `In the ${plural(here, "layer")} of ${count(all)} that ${here === 1 ? "is" : "are"} here, ` : "";
    const who = pass.act === "used" ? "It looked most at " : "The pass looked most at ";
    if (shares.length) words.push(where ? `${where}${who[0].toLowerCase()}${who.slice(1)}` : who, ...shareWords(shares, record, store, whatIsHere(attention, all, heads)));
    if (firstKey === 0) {
      const name = mean[0] > SINK ? "the sink, token 0," : "token 0";
      words.push(shares.length ? `; ${name} held ` : "All attention was on token 0: ", h("b", null, weight(mean[0])));
    }
    words.push(". ");
    if (attention.summary) words.push(`${summaryWords(attention)}. `);
  }
  return words;
}

/** @param {Pass} pass @returns {(Node | string)[]} */
function appearanceWords({ lens, target, act }) {
  if (!lens || !target) return [];
  const { leads, topTen, layers } = appearance(lens);
  const name = tokenInSentence(target, act === "chosen" ? "followed" : "");
  const next = act === "used" ? ["The token that came next, ", name, ","] : [name];
  if (leads === null) {
    const last = lens.layers[layers - 1]?.rank;
    const led = leadingLayers(lens);
    const before = led.length ? [" was the best guess after ", h("b", null, layersText(led)), ", but not after the last: there it ranked "] : [" never became the best guess: after the last layer it ranked "];
    return [...next, ...before, h("b", null, String(last ?? "?")), ". "];
  }
  const early = topTen !== null && topTen < leads ? [" (ten best: from ", h("b", null, String(topTen)), ")"] : [];
  return [...next, " leads from ", h("b", null, `layer ${leads}`), ` of ${layers} on`, ...early, ". "];
}

/** @param {State} state */
function emptyText(state) {
  if (state.loading) return "The recording is being read. Its walk appears as soon as it is here.";
  const record = selectedRequest(state);
  if (record?.rejected) return `This request was refused: ${record.rejected.reason}`;
  if (record && state.selection.position !== null && record.tokens.length > 0) {
    return record.finished
      ? `This request has no token ${state.selection.position}: its last is ${record.tokens.length - 1}.`
      : `Token ${state.selection.position} has not been generated yet.`;
  }
  if (record && !record.tokens.length) return "This request waits. Its walk begins when it has been tokenized.";
  if (state.run && !record && (state.selection.request !== null || partRead(state) !== null)) return noRequest(state);
  if (state.run && state.run === state.liveRun) return "Send a prompt, and each token of the answer can be followed from here through every layer.";
  if (state.run?.complete) return "There is no request in this recording.";
  return "Nothing is open yet.";
}

