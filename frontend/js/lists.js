// The lists of the left column: requests of the run on screen, and recordings to open.

import { fill, h, setAttribute, setText } from "./dom.js";
import { bytes, clockTime, count, plural } from "./format.js";
import { isOver, phaseOf, titleOf } from "./model.js";
import { requestMark, requestNumber } from "./requests.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./store.js").State} State */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {import("./model.js").Run} Run */

/** @param {HTMLElement} root @param {Store} store */
export function requestList(root, store) {
  const note = h("span", { class: "more" });
  const list = h("ul", { class: "entries", "aria-label": "Requests" });
  const empty = h("p", { class: "empty" });
  fill(root, h("h2", null, "Requests", note), h("div", { class: "card" }, empty, list));
  /** @type {Map<string, {button: HTMLElement, name: HTMLElement, time: HTMLElement, what: HTMLElement}>} */
  const entries = new Map();
  /** @type {import("./model.js").Run | null} */
  let shown = null;

  const add = (/** @type {RequestRecord} */ record) => {
    const name = h("span");
    const time = h("small");
    const what = h("span", { class: "what" });
    const button = h("button", { type: "button", class: "entry numbered", "data-request": record.id, onclick: () => pick(store, record) }, requestMark(record), h("span", { class: "name" }, name, " ", time), what);
    list.prepend(h("li", null, button)); // the newest first: it is what one looks for
    entries.set(record.id, { button, name, time, what });
  };

  return {
    /** @param {State} state @param {Set<string>} changed */
    update(state, changed) {
      if (!["run", "requests", "tokens", "selection", "steps"].some((what) => changed.has(what))) return;
      if (state.run !== shown) {
        shown = state.run;
        entries.clear();
        fill(list);
      }
      const asked = new Map();
      for (const record of shown?.requests.values() ?? []) asked.set(titleOf(record), (asked.get(titleOf(record)) ?? 0) + 1);
      for (const record of shown?.requests.values() ?? []) {
        if (!entries.has(record.id)) add(record);
        const entry = entries.get(record.id);
        if (!entry) continue;
        const title = titleOf(record).replace(/\s+/g, " ");
        const arrival = arrivalOf(shown, record);
        // Equal prompts are told apart by the time; elsewhere the prompt has the room.
        setText(entry.time, (asked.get(titleOf(record)) ?? 0) > 1 ? arrival : "");
        setText(entry.name, title.length > 120 ? `${title.slice(0, 119)}…` : title);
        setText(entry.what, whatOf(record));
        setAttribute(entry.button, "aria-current", record.id === state.selection.request ? "true" : null);
        setAttribute(entry.button, "title", [`${requestNumber(record)} ${title}`, arrival && `arrived ${arrival}`, record.id].filter(Boolean).join("\n"));
      }
      empty.hidden = entries.size > 0;
      list.hidden = entries.size === 0;
      setText(empty, shown === state.liveRun ? "None yet." : "None in this recording.");
      setText(note, entries.size > 1 ? count(entries.size) : "");
    },
  };
}

/** @param {Store} store @param {RequestRecord} record */
function pick(store, record) {
  if (record.id === store.state.selection.request) return;
  store.select({ request: record.id });
  if (!isOver(record) && store.state.run === store.state.liveRun) store.follow(record.id);
  else store.set({ following: false });
}

/** When it arrived, on this person's clock: equal prompts are told apart by it. @param {Run | null} run @param {RequestRecord} record */
function arrivalOf(run, record) {
  const start = Date.parse(run?.header?.started_at ?? "");
  return record.arrived && Number.isFinite(start) ? clockTime(new Date(start + record.arrived.t_ns / 1e6)) : "";
}

/** @param {RequestRecord} record */
function whatOf(record) {
  const phase = phaseOf(record);
  const answer = record.tokens.length - record.promptLength;
  const most = record.arrived?.max_tokens;
  const slot = record.slot === null ? "" : `slot ${record.slot} · `;
  // Where the reason is what it is known by, it is not said twice.
  if (phase === "rejected") return titleOf(record).startsWith("refused: ") ? "no tokens" : `refused: ${record.rejected?.reason}`;
  if (record.cut) return `${plural(record.promptLength, "token")} → ${count(answer)}, cut off`;
  if (phase === "waiting") return "waiting";
  if (phase === "prefill") {
    const done = record.rows.reduce((most_, row) => Math.max(most_, row.to), 0);
    return `${slot}prefill ${count(done)} / ${count(record.promptLength)}`;
  }
  if (phase === "decode") return `${slot}decode ${count(answer)}${most ? ` / ${count(most)}` : ""}`;
  return `${plural(record.promptLength, "token")} → ${count(answer)}, ${ENDINGS[record.finished?.reason] ?? record.finished?.reason}`;
}

/** @type {Record<string, string>} */
const ENDINGS = { stop: "ended", length: "at its limit", cancelled: "stopped", error: "failed" };

/**
 * @param {HTMLElement} root
 * @param {{open: (name: string) => void, upload: (file: File) => void}} actions
 */
export function traceList(root, actions) {
  const list = h("ul", { class: "entries", "aria-label": "Traces" });
  const file = h("input", { type: "file", accept: ".mcap", hidden: true, "aria-label": "Trace file", onchange: () => {
    if (file.files?.[0]) actions.upload(file.files[0]);
    file.value = "";
  } });
  const choose = h("button", { type: "button", class: "plain", onclick: () => file.click() }, "Open a file");
  fill(root, h("h2", null, "Traces"), h("div", { class: "card" }, list, h("p", { class: "open" }, choose, " or drop one on the page", file)));
  return {
    /** @param {State} state @param {Set<string>} changed */
    update(state, changed) {
      if (!["traces", "run", "loading", "health"].some((what) => changed.has(what))) return;
      const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.name : undefined;
      fill(list, inOrder(state.traces).map((trace) => traceEntry(trace, state, actions.open)));
      if (focused) for (const entry of list.querySelectorAll("button")) if (entry.dataset.name === focused) entry.focus();
      list.hidden = state.traces.length === 0;
    },
  };
}

/** The live run, then what came with the product, then what was recorded here. @param {Record<string, any>[]} traces */
function inOrder(traces) {
  const place = (/** @type {Record<string, any>} */ t) => (t.live ? 0 : t.bundled ? 1 : 2);
  return [...traces].sort((a, b) => place(a) - place(b));
}

/** @param {Record<string, any>} trace @param {State} state @param {(name: string) => void} open */
function traceEntry(trace, state, open) {
  const current = state.run?.name === trace.name;
  const size = trace.bytes ?? trace.size_bytes ?? trace.size;
  const live = trace.recording ? "live, being recorded" : trace.error ? "live, recording has stopped" : "live, not recorded";
  const kind = trace.live ? live : trace.bundled ? "sample" : "recorded";
  const loading = state.loading?.name === trace.name ? "reading…" : kind;
  const what = [loading, typeof size === "number" && size > 0 && !trace.live ? bytes(size) : "", trace.complete === false && !trace.live ? "cut off" : ""].filter(Boolean).join(" · ");
  const button = h(
    "button",
    { type: "button", class: "entry", "data-name": trace.name, "aria-current": current ? "true" : null, title: trace.name, onclick: () => open(trace.name) },
    h("span", { class: "name" }, trace.title ?? trace.name),
    h("span", { class: "what" }, what),
  );
  return h("li", null, button);
}
