// Why there is no request on screen, or nothing of it, in words.

/** @typedef {import("./model.js").Run} Run */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {import("./model.js").Selection} Selection */
/** @typedef {import("./store.js").State} State */

/**
 * How much of a live run has come of what had happened when the page joined it: until all has, no figure is today's.
 * @param {Pick<State, "run" | "liveRun" | "health">} state
 * @returns {number | null} 0 to 1; null where nothing of the kind is awaited
 */
export function partRead({ run, liveRun, health }) {
  if (!run || run !== liveRun || run.caughtUp) return null;
  // In bytes, which is what takes the time: a step can be one token without arrays, or a long prompt captured whole.
  return health?.steps ? Math.min(1, run.readBytes / Math.max(1, health.readable_bytes)) : null;
}

/**
 * Why no request is shown. Call it only when none is.
 * @param {Pick<State, "run" | "liveRun" | "health" | "loading"> & {selection: Pick<Selection, "request">}} state
 */
export function noRequest(state) {
  const { run, liveRun, selection, loading } = state;
  if (loading) return `“${loading.name}” is being read. What it holds appears as it comes.`;
  if (partRead(state) !== null) return "What has happened on this server so far is being read. What the address names appears when it comes.";
  if (selection.request !== null && run?.header) return `This run has no request ${selection.request}. Pick one from the list of requests, or send a prompt.`;
  if (run && run === liveRun && run.requests.size === 0) return "No request has been sent yet. Write a prompt, or send one to this server’s API.";
  if (run && run === liveRun && [...run.requests.values()].every(({ rejected }) => rejected)) return "Every request so far was refused. Pick one from the list to see why, or send a prompt.";
  return "No request is selected. Send a prompt, or open a trace.";
}

/**
 * Why a request has no tokens. Call it only when it has none.
 * @param {Pick<RequestRecord, "rejected" | "finished">} record
 * @param {string} [which] of two
 */
export function noTokens({ rejected, finished }, which = "This request") {
  if (rejected) return `${which} was refused: nothing of it was computed.`;
  return finished ? `${which} ended before it had tokens.` : `${which} has no tokens yet.`;
}
