// Who computed a reused position, and where its row is.

import { hasOwnRow, isCached } from "./model.js";

/**
 * Who computed the keys and values of a position: the request itself or, where they were found in the cache or shared,
 * another one. Null when it cannot be told, or nobody has yet.
 * @param {import("./model.js").Run} run
 * @param {import("./model.js").RequestRecord} record
 * @param {number} position
 * @returns {string | null}
 */
export function computedBy(run, record, position) {
  if (hasOwnRow(record, position)) return record.id;
  const place = run.blocks?.placeOf(record.id, position);
  if (!place || !isCached(record, position)) return null;
  return place.how === "copied" ? place.copiedFrom : place.writer;
}

/**
 * The request whose pass over a position is recorded here in another's place: the one that computed what was reused. It
 * may have reused it too: then whoever that had it from. Null when it is not in this run, or has no pass of its own there.
 * @param {import("./model.js").Run} run
 * @param {import("./model.js").RequestRecord} record
 * @param {number} position
 * @returns {import("./model.js").RequestRecord | null}
 */
export function rowElsewhere(run, record, position) {
  const seen = new Set([record.id]);
  for (let at = record; !hasOwnRow(at, position); ) {
    const writer = toldWriter(at, position) ?? computedBy(run, at, position);
    const next = writer === null ? undefined : run.requests.get(writer);
    if (!next || seen.has(next.id)) return null;
    seen.add(next.id);
    at = next;
  }
  return seen.size > 1 ? (run.requests.get(/** @type {string} */ ([...seen].at(-1))) ?? null) : null;
}

/** Who computed a position, as the engine said when it was reused. @param {import("./model.js").RequestRecord} record @param {number} position @returns {string | null} */
function toldWriter(record, position) {
  for (const { computed_by: spans } of record.absent) {
    const span = spans?.find((/** @type {{request: string, positions: [number, number]}} */ { positions: [from, to] }) => from <= position && position < to);
    if (span) return span.request;
  }
  return null;
}
