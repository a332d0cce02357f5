// Why something is not here, in words.

import { bytes } from "./format.js";
import { hasOwnRow, isOver, rowOf, selectedRequest } from "./model.js";

/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {import("./codec.js").RunEvent} RunEvent */
/** @typedef {{layer?: number, head?: number}} Place a layer, a head, or both */

/**
 * @typedef {{reason: string, detail: string | null}} Why
 */

/** What is read from residuals, whenever somebody asks. @param {string} what */
function isReading(what) {
  return what === "lens" || what === "attribution";
}

/**
 * Whether a position's pass has no place in the run: the answer ended with it. (Steps overlap, so a pass over it may have
 * begun before the end was known; nobody needed its result.)
 * @param {RequestRecord} record
 * @param {number} position
 */
export function endedWith(record, position) {
  return record.finished !== null && record.rows.length > 0 && position >= record.promptLength && position === record.tokens.length - 1;
}

/**
 * The event that says that something of a position is not there, if one did.
 * @param {RequestRecord} record
 * @param {string} what
 * @param {number} position
 */
export function saidAbsent(record, what, position) {
  const said = (/** @type {RunEvent} */ event) => event.what === what && (!event.positions || (event.positions[0] <= position && position < event.positions[1]));
  // What is said of some layers or heads says it of the whole only where nothing else does.
  return record.absent.findLast((event) => said(event) && !event.layers && !event.heads) ?? record.absent.findLast((event) => said(event) && !event.heads);
}

/**
 * The same of one layer or head.
 * @param {RequestRecord} record
 * @param {Place} place
 */
function saidOfPlace(record, { layer, head }) {
  return record.absent.findLast((event) => event.what === "attention" && ((layer !== undefined && event.layers?.includes(layer)) || (head !== undefined && event.heads?.includes(head))));
}

/**
 * How many layers of a position's attention lack, though others are here, and nothing says why: its pass was cut off.
 * @param {RequestRecord} record
 * @param {number} position
 * @param {number} layers of the model
 */
export function layersLost(record, position, layers) {
  const here = new Set(record.attention.get(position)?.layerNumbers);
  if (here.size === 0) return 0;
  let lost = 0;
  for (let layer = 0; layer < layers; layer += 1) if (!here.has(layer) && !saidOfPlace(record, { layer })) lost += 1;
  return lost;
}

/**
 * The same, and of a reading rather what was said of the residual that it would be read from, where no pass left one:
 * whoever is asked for the reading knows only that there is none.
 * @param {RequestRecord} record
 * @param {string} what
 * @param {number} position
 */
function whatWasSaid(record, what, position) {
  const own = saidAbsent(record, what, position);
  if (!isReading(what) || record.residual.has(position) || (own && own.reason !== "not_captured")) return own;
  return saidAbsent(record, "residual", position) ?? own;
}

/**
 * Why nothing of any layer of a request is here, where that was so from the start.
 * @param {RequestRecord} record
 * @returns {Why | null} null where something is here, or may still come
 */
export function whyNoLayers(record) {
  if (record.attention.size + record.residual.size + record.lens.size + record.released.size > 0) return null;
  const ofAll = (/** @type {string} */ what) => record.absent.find((event) => event.what === what && !event.positions && !event.layers && !event.heads);
  const [attention, residual] = [ofAll("attention"), ofAll("residual")];
  return attention && residual ? { reason: residual.reason, detail: residual.detail ?? null } : null;
}

/** Whether there is no use in asking for a reading of a position. @param {RequestRecord} record @param {"lens" | "attribution"} what @param {number} position */
export function readingIsOut(record, what, position) {
  // A residual that was not sent may still be in the server's memory: only one that no pass left is given up unasked.
  return endedWith(record, position) || record.refused.has(`${what}:${position}`) || saidAbsent(record, what, position) !== undefined || saidAbsent(record, "residual", position)?.reason === "prefix_cached";
}

/**
 * Why something is not here. Call it only when it is not.
 * @param {RequestRecord} record
 * @param {"attention" | "residual" | "lens" | "attribution"} what
 * @param {number | null} position
 * @param {Place} [place] of attention: the layer or head that is not here, though others of the position may be
 * @returns {Why}
 */
export function whyAbsent(record, what, position, place) {
  if (position === null) return { reason: "no_pass", detail: "nothing came before the first token, so no pass chose it" };
  if (endedWith(record, position)) {
    return hasOwnRow(record, position)
      ? { reason: "no_pass", detail: "the answer ended with this token; a pass over it had begun before that was known, and its result was not used" }
      : { reason: "no_pass", detail: "the answer ended with this token, so no pass of its own was run" };
  }
  if (record.finished !== null && position >= record.tokens.length && record.tokens.length > 0) return { reason: "no_pass", detail: "the request has no such token" };
  const said = (place && saidOfPlace(record, place)) ?? whatWasSaid(record, what, position);
  // The detail names requests by their ids; the walk's KV cache station names the one that computed this very position.
  // Of what is read from residuals, what was said is that they are gone, or were never there.
  const unread = isReading(what) && said?.what === what && said.reason === "not_captured";
  if (said) return { reason: unread ? "not_computed" : said.reason, detail: said.reason === "prefix_cached" ? null : (said.detail ?? null) };
  const refused = record.refused.get(`${what}:${position}`);
  if (refused !== undefined) return { reason: "refused", detail: refused };
  if (record.released.has(`${what}:${position}`)) {
    return { reason: "released", detail: `this page had ${bytes(record.room)} for arrays and let older ones go; the recording still has them` };
  }
  const computed = rowOf(record, position);
  const partly = what === "attention" && record.attention.has(position);
  const ended = record.finished !== null || record.rejected !== null;
  if (ended && !computed && position >= record.tokens.length - 1 && record.rows.length > 0) {
    return { reason: "no_pass", detail: "the request ended before a pass over this token was run" };
  }
  if (!ended && !isReading(what)) {
    if (record.cut) return { reason: "not_recorded", detail: partly ? "it ends within this pass" : "it ends before the request does" };
    if (partly) return { reason: "pending", detail: "its step is timed, and each layer comes when it has finished" };
    return { reason: "pending", detail: computed ? "what its pass left is on its way" : "its pass has not been run yet" };
  }
  if (isReading(what) && record.residual.has(position)) {
    return { reason: "not_computed", detail: "the residuals are here; `tokenwalk trace bake FILE` adds to a recording what is read from them" };
  }
  return { reason: "not_recorded", detail: partly ? "other layers of this pass are here; it broke off, or this one was lost" : null };
}

/** Whether somebody can be asked for a reading, and is. @typedef {{live: boolean, connected: boolean, streaming: boolean}} Standing  streaming: no reading is asked for while the answer comes */

/** @param {import("./store.js").State} state @param {import("./model.js").Run | null} [run] the one that it would be a reading of @returns {Standing} */
export function standingOf(state, run = state.run) {
  const shown = selectedRequest(state);
  return { live: run !== null && run === state.liveRun, connected: state.connection.status === "open", streaming: state.following && shown !== null && !isOver(shown) };
}

/**
 * Why a reading is not here, or not yet: the same words wherever it would be. Call it only when it is not.
 * @param {RequestRecord} record
 * @param {"lens" | "attribution"} what
 * @param {number | null} position
 * @param {Standing} standing
 * @returns {Why}
 */
export function whyNoReading(record, what, position, { live, connected, streaming }) {
  if (!live || position === null || readingIsOut(record, what, position)) return whyAbsent(record, what, position);
  if (!connected) return { reason: "pending", detail: "the engine is asked for it once the connection is back" };
  // The followed answer is what is waited for; one that lies beside it can be complete itself.
  if (streaming) return { reason: "pending", detail: `it is computed when you pick a token, or the ${isOver(record) ? "followed answer" : "answer"} is complete` };
  return { reason: "pending", detail: "the engine has been asked for it" };
}

/** @type {Record<string, string>} */
const WHY = {
  prefix_cached: "Reused from the prefix cache, so no pass was run for it here",
  not_captured: "Not captured",
  over_budget: "Left out: the capture budget was spent",
  outside_window: "Outside the attention window",
  unsupported: "This model's attention cannot be seen",
  released: "No longer in this page's memory",
  no_pass: "No pass",
  pending: "Not yet",
  not_computed: "Not computed",
  not_recorded: "Not in this recording",
  refused: "The server refused",
};

/** What is still to come, or would have been. @param {Pick<RequestRecord, "cut">} record @param {string} words */
export function toCome({ cut }, words) {
  return cut ? `${WHY.not_recorded.toLowerCase()}, which ends before` : words;
}

/** The same where there is little room: without the numbers. @param {Why} why @returns {string} */
export function absentShort(why) {
  return why.reason === "over_budget" ? WHY.over_budget : absentText(why);
}

/** @param {Why} why @returns {string} in words */
export function absentText(why) {
  const head = WHY[why.reason] ?? why.reason;
  return why.detail ? `${head}: ${why.detail}` : head;
}
