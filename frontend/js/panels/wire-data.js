/** How an answer's tokens left: which bytes were released when, which were held back, and in which chunk they went out. */

/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("../codec.js").RunEvent} RunEvent */

/**
 * One token on its way out.
 * @typedef {object} WireRow
 * @property {import("../tokens.js").TokenRecord} token
 * @property {RunEvent} event the `token` event
 * @property {RunEvent | null} chunk the first chunk sent that reaches up to it; null while (or where) there is none
 * @property {number} shares how many tokens that chunk carries
 * @property {boolean} first whether it is the first of them
 */

/**
 * The answer's tokens in order with their chunks, and the chunks that carried none (the end of the stream).
 * @param {RequestRecord} record
 * @returns {{rows: WireRow[], closing: RunEvent[]}}
 */
export function wireRows(record) {
  const chunks = record.sent.filter((sent) => sent.position !== null);
  /** @type {WireRow[]} */
  const rows = [];
  let at = 0;
  let start = 0;
  for (let position = record.promptLength; position < record.tokens.length; position += 1) {
    const token = record.tokens[position];
    if (!token?.event) continue;
    if (at < chunks.length && chunks[at].position < position) {
      while (at < chunks.length && chunks[at].position < position) at += 1;
      start = rows.length;
    }
    const chunk = chunks[at] ?? null;
    rows.push({ token, event: token.event, chunk, shares: 1, first: rows.length === start });
  }
  for (let from = 0; from < rows.length; ) {
    let to = from + 1;
    while (to < rows.length && rows[to].chunk !== null && rows[to].chunk === rows[from].chunk) to += 1;
    for (let i = from; i < to; i += 1) rows[i].shares = to - from;
    from = to;
  }
  return { rows, closing: record.sent.filter((sent) => sent.position === null) };
}

/** Nanoseconds from a token's choice until its chunk was queued, and handed to the socket. @param {WireRow} row */
export function delays({ event, chunk }) {
  return chunk ? { queued: chunk.queued_ns - event.t_ns, sent: chunk.sent_ns - event.t_ns } : null;
}

/**
 * The answer on the wire, in numbers.
 * @param {RequestRecord} record
 * @param {readonly WireRow[]} rows
 */
export function wireSummary(record, rows) {
  const times = new Float64Array(rows.length);
  let n = 0;
  for (const { event, chunk } of rows) if (chunk) times[n++] = chunk.sent_ns - event.t_ns;
  const sent = times.subarray(0, n).sort();
  let bytes = 0;
  let text = 0;
  let held = 0;
  for (const chunk of record.sent) {
    bytes += chunk.chunk_bytes;
    text += chunk.text_bytes;
  }
  for (const { event } of rows) held = Math.max(held, event.held_back_bytes);
  return {
    tokens: rows.length,
    chunks: record.sent.length,
    bytes,
    text,
    mostHeld: held,
    median: sent.length ? sent[Math.floor((sent.length - 1) / 2)] : null,
    longest: sent.at(-1) ?? null,
    unsent: rows.length - sent.length,
  };
}
