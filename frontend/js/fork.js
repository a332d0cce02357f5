// What if it had said something else? The same request once more, branched off at a position with another token or text.

import { ApiError, forkRequest } from "./api.js";
import { formatCompare } from "./compare.js";
import { h } from "./dom.js";
import { bytesNote, candidateName, labelOf } from "./token-names.js";
import { word } from "./words.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./store.js").State} State */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */

/** Why nothing can branch off from what is on screen, or null. @param {Pick<State, "run" | "liveRun" | "health" | "connection">} state */
export function forkClosed({ run, liveRun, health, connection }) {
  if (health?.mode === "replay") return "This server replays a recording: there is no model to go on with another word. “tokenwalk serve” starts one with a model.";
  if (run === null || run !== liveRun) return "This is a recording: what if it had said something else can be asked of live requests only. Send the prompt again, and pick the word there.";
  if (health?.status === "error") return `The model is not running: ${health.reason}`;
  if (connection.status !== "open") return "The connection to the server is lost. It is tried again by itself.";
  return null;
}

/**
 * Branches off and lays the first one beside it. It stays where the two part, which is what was asked about, while the answer
 * comes in the ribbon. What goes wrong is said above the page.
 * @param {Store} store
 * @param {RequestRecord} parent
 * @param {number} position first one that differs
 * @param {{token: number} | {text: string}} instead
 * @returns {Promise<boolean>} whether there is a new request
 */
export async function branchOff(store, parent, position, instead) {
  const { state } = store;
  const closed = forkClosed(state);
  if (closed !== null || state.run === null) {
    store.set({ notice: closed });
    return false;
  }
  // Detached: a reload of this page must not end what it asked for.
  const tokenwalk = { capture: parent.arrived?.capture?.level ?? "follow", detached: true };
  try {
    const { id, done } = await forkRequest(parent.id, { position, ...instead, stream: true, tokenwalk });
    done.catch(() => {}); // the event stream tells how the request ended
    store.select({ request: id, position, compare: formatCompare(state.run.name, parent.id), tab: "compare" });
    // The candidate that was pressed goes away with its panel, and would take the focus with it.
    document.getElementById("tab-compare")?.focus();
    return true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    store.set({ notice: `Nothing branched off: ${error.message}.` });
    return false;
  }
}

/**
 * A candidate that was not chosen, to try. Where nothing can branch off it stays where it is and says why.
 * @param {Store} store
 * @param {RequestRecord} parent
 * @param {number} position
 * @param {import("./token-names.js").Candidate} candidate
 * @param {string} [more] for the tip
 */
export function whatIf(store, parent, position, candidate, more = "") {
  const closed = forkClosed(store.state);
  const name = candidateName(candidate, null);
  const note = bytesNote(labelOf(candidate));
  return h(
    "button",
    {
      type: "button",
      class: closed === null ? "plain link what-if" : "plain what-if",
      "aria-label": `What if it had said ${name}`,
      "aria-disabled": closed === null ? null : "true",
      "data-tip": `${[more, note].filter(Boolean).map((line) => `${line}\n`).join("")}${closed ?? `What if it had said “${name}” here? Another request branches off and shares the full blocks before it.`}`,
      onclick: () => branchOff(store, parent, position, { token: candidate.id }),
    },
    word(labelOf(candidate)),
  );
}
