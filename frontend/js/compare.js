// Two requests side by side on the token axis: which one is laid beside the followed one, and where they part.

/** @typedef {import("./model.js").Run} Run */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {import("./model.js").Selection} Selection */
/** @typedef {import("./tokens.js").TokenRecord} TokenRecord */

/** @param {string} run @param {string} request "" for whichever fits best */
export function formatCompare(run, request) {
  return `${run}/${request}`;
}

/** Names of runs may hold a slash, ids of requests do not. @param {string | null} text @returns {{run: string, request: string} | null} */
export function parseCompare(text) {
  const at = text?.lastIndexOf("/") ?? -1;
  return text && at > 0 ? { run: text.slice(0, at), request: text.slice(at + 1) } : null;
}

/** @param {{compareRun: Run | null, selection: Selection}} state @returns {RequestRecord | null} */
export function comparedRequest({ compareRun, selection }) {
  const wanted = parseCompare(selection.compare);
  return (wanted && compareRun?.name === wanted.run && compareRun.requests.get(wanted.request)) || null;
}

/** Whether token ids mean the same in two runs. @param {Run} a @param {Run} b */
export function sameVocabulary(a, b) {
  if (a === b) return true;
  const [one, other] = [a.header?.model, b.header?.model];
  return one !== undefined && one.name === other?.name && one.vocab === other?.vocab;
}

/**
 * Ids are compared where they mean the same; of two models' tokens, the bytes, and of control tokens their names.
 * @param {TokenRecord | undefined} a
 * @param {TokenRecord | undefined} b
 * @param {boolean} byId
 */
export function sameToken(a, b, byId) {
  if (!a || !b) return false;
  if (byId) return a.id === b.id;
  if (a.bytes.length !== b.bytes.length || a.special !== b.special) return false;
  return a.bytes.length === 0 ? a.label === b.label : a.bytes.every((byte, i) => byte === b.bytes[i]);
}

/**
 * How many tokens are the same from the start.
 * @param {RequestRecord} a
 * @param {RequestRecord} b
 * @param {boolean} byId
 */
export function commonPrefix(a, b, byId) {
  const end = Math.min(a.tokens.length, b.tokens.length);
  let n = 0;
  while (n < end && sameToken(a.tokens[n], b.tokens[n], byId)) n += 1;
  return n;
}

/**
 * How one came from the other.
 * @param {Run} runA @param {RequestRecord} a @param {Run} runB @param {RequestRecord} b
 * @returns {{child: "a" | "b", position: number} | null}
 */
export function forkBetween(runA, a, runB, b) {
  if (runA !== runB) return null;
  const from = (/** @type {RequestRecord} */ one, /** @type {RequestRecord} */ other) =>
    one.arrived?.forked_from?.request === other.id ? /** @type {number} */ (one.arrived?.forked_from?.position) : null;
  const [ofA, ofB] = [from(a, b), from(b, a)];
  if (ofA !== null) return { child: "a", position: ofA };
  return ofB === null ? null : { child: "b", position: ofB };
}

/**
 * Requests of a run to lay beside one: what branched off from it or what it branched off from first, then those that begin
 * the same for longest.
 * @param {Run} run
 * @param {Run} otherRun
 * @param {RequestRecord} record of `run`
 * @returns {{record: RequestRecord, common: number, fork: ReturnType<typeof forkBetween>}[]}
 */
export function candidates(run, otherRun, record) {
  const byId = sameVocabulary(run, otherRun);
  return [...otherRun.requests.values()]
    .filter((other) => other !== record && other.tokens.length > 0)
    .map((other) => ({ record: other, common: commonPrefix(record, other, byId), fork: forkBetween(run, record, otherRun, other) }))
    .sort((a, b) => Number(b.fork !== null) - Number(a.fork !== null) || b.common - a.common || b.record.number - a.record.number);
}
