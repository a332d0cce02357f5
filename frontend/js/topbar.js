// The top bar: what runs, on what, how the page stands to it, and how fast it goes.

import { fill, h, setAttribute, setText } from "./dom.js";
import { term } from "./explain.js";
import { bytes, count } from "./format.js";
import { heldBytes } from "./held.js";
import { decodeSpeed } from "./insight.js";
import { phaseOf, selectedRequest } from "./model.js";
import { shareAddress } from "./url.js";
import { partRead } from "./nothing.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./store.js").State} State */

const WATCHED = ["header", "run", "health", "connection", "tokens", "requests", "live", "selection", "theme", "loading", "gaps", "blocks", "tour"];

/**
 * @param {HTMLElement} root
 * @param {Store} store
 * @param {{goLive: () => void, retry: () => void, reload: () => void, help: () => void, tour: import("./tour/tour.js").Tour}} actions
 */
export function topbar(root, store, actions) {
  const machine = h("span", { class: "machine" });
  const state = h("span", { class: "state", role: "status" });
  const goLive = h("button", { type: "button", onclick: actions.goLive }, "Go live");
  const retry = h("button", { type: "button", onclick: actions.retry }, "Try now");
  const figures = {
    speed: term("top.speed"),
    blocks: term("top.blocks"),
    slots: term("top.slots"),
    waiting: term("top.waiting"),
    dropped: h("button", { type: "button", class: "plain", onclick: actions.reload }),
  };
  const { speed, blocks, slots, waiting } = figures;
  for (const each of [speed, blocks, slots, waiting]) each.classList.add("figure");
  const dropped = h("span", { class: "figure" }, term("top.dropped", "dropped"), " ", figures.dropped);
  const share = h("button", { type: "button", onclick: () => copyAddress(store, share), "data-tip": "Copies the address of exactly what is on screen" }, "Share");
  const theme = h("button", { type: "button", "aria-label": "Dark or light", "data-tip": "Dark or light", onclick: () => store.set({ theme: store.state.theme === "dark" ? "light" : "dark" }) }, "◐");
  const tour = h("button", { type: "button", class: "tour", "data-tip": "Ten steps, from text to sent bytes", onclick: () => actions.tour.start() }, "Tour");
  const help = h("button", { type: "button", "aria-label": "Help", "data-tip": "What this page shows, and its keys (?)", onclick: actions.help }, "?");
  fill(root, h("h1", null, "token", h("span", null, "walk")), machine, state, retry, goLive, h("span", { class: "space" }), speed, blocks, slots, waiting, dropped, tour, share, theme, help);

  return {
    /** @param {State} now @param {Set<string>} changed */
    update(now, changed) {
      if (!WATCHED.some((what) => changed.has(what))) return;
      showMachine(machine, now);
      const word = standing(now);
      setText(state, word.text);
      setAttribute(state, "data-state", word.state);
      setAttribute(state, "data-tip", word.tip);
      retry.hidden = word.state !== "lost";
      goLive.hidden = !(now.liveRun && now.run !== now.liveRun);
      showFigures(figures, now);
      tour.classList.toggle("new", actions.tour.isNew());
    },
  };
}

/** @param {HTMLElement} element @param {State} state */
function showMachine(element, { run, health }) {
  const header = run?.header;
  const model = header?.model ?? health?.model;
  if (!model) {
    setText(element, "no model");
    return;
  }
  const machine = header?.machine ?? health?.machine ?? {};
  const stored = model.quantisation && model.quantisation !== model.dtype ? `${model.quantisation} as ${model.dtype}` : model.dtype;
  const where = [String(machine.device ?? "").toUpperCase(), blasName(machine.blas)].filter(Boolean).join(", ");
  fill(element, h("b", null, model.name), [stored, where].filter(Boolean).map((text) => ` · ${text}`));
  const warning = run && health && run.name === health.run ? health.blas_warning ?? health.warning ?? null : null;
  setAttribute(element, "data-slow", warning ? "" : null);
  const size = [model.layers && `${model.layers} layers`, model.heads && `${model.heads} heads`, model.hidden && `${count(model.hidden)} wide`, model.parameters && `${count(model.parameters)} parameters`];
  setAttribute(element, "data-tip", [warning, size.filter(Boolean).join(", "), machine.chip, machine.os, machine.mlx && `MLX ${machine.mlx}`].filter(Boolean).join("\n"));
}

/** @param {unknown} blas a name, or an object with one */
function blasName(blas) {
  return typeof blas === "string" ? blas : /** @type {any} */ (blas)?.name;
}

/** @param {State} state @returns {{text: string, state: string, tip: string | null}} */
function standing({ run, liveRun, connection, loading, health }) {
  if (run && run === liveRun) {
    if (connection.status === "open" && connection.quiet) return { text: "LIVE, waiting", state: "waiting", tip: "A request is running, and nothing has come from the server for more than 3 s: a long step, or the network. Nothing is lost by it." };
    const read = connection.status === "open" ? partRead({ run, liveRun, health }) : null;
    if (read !== null) return { text: `catching up ${Math.min(99, Math.floor(read * 100))}%`, state: "waiting", tip: "What happened on this server before the page joined is being read, oldest first: so much of its bytes has come. Figures are of the moment that it has come to." };
    if (connection.status === "open") return { text: "LIVE", state: "live", tip: `Events arrive as they happen. ${heldWords(run)}` };
    if (connection.status === "retrying") return { text: "DISCONNECTED", state: "lost", tip: connection.reason };
    return { text: "connecting…", state: "waiting", tip: null };
  }
  if (loading) {
    const part = loading.total ? ` ${Math.min(99, Math.floor((loading.received / loading.total) * 100))}%` : "";
    return { text: `reading${part}`, state: "waiting", tip: null };
  }
  if (run) return { text: "REPLAY", state: "replay", tip: `${run.name}: recorded, replayed from its events. ${heldWords(run)}` };
  return { text: health ? "nothing open" : "connecting…", state: "waiting", tip: null };
}

/** What grows as a run goes on. @param {import("./model.js").Run} run */
function heldWords(run) {
  const { events, arrays } = heldBytes(run);
  return `This page keeps all that came, about ${bytes(events)}, and of its arrays the newest, ${bytes(arrays)}.`;
}

/** @param {Record<string, HTMLElement>} figures @param {State} state */
function showFigures(figures, state) {
  const run = state.run;
  const records = run ? [...run.requests.values()] : [];
  const running = records.filter((record) => ["prefill", "decode"].includes(phaseOf(record)));
  const speeds = running.map((record) => decodeSpeed(record)).filter((speed) => speed !== null);
  const selected = selectedRequest(state);
  const speed = speeds.length ? speeds.reduce((a, b) => a + b, 0) : selected && decodeSpeed(selected, Infinity);
  figure(figures.speed, "", speed ? (speed < 1000 ? speed.toFixed(1) : count(Math.round(speed))) : "–", " tok/s");
  const counts = run?.blocks?.newest.counts();
  figures.blocks.hidden = !counts;
  if (counts) figure(figures.blocks, "KV ", count(counts.held), `/${count(counts.free + counts.cached + counts.held)}`);
  const waiting = records.filter((record) => phaseOf(record) === "waiting").length;
  figure(figures.slots, "slots ", String(running.length), `/${run?.header?.slots ?? "–"}`);
  figure(figures.waiting, "waiting ", String(waiting));
  const dropped = run === state.liveRun ? state.connection.dropped : missing(run);
  figure(figures.dropped, "", count(dropped));
  setAttribute(figures.dropped, "data-alarm", dropped ? "" : null);
  const live = run !== null && run === state.liveRun;
  setAttribute(figures.dropped, "data-tip", dropped ? `Events that are not here: ${[...new Set(run?.gaps.map((gap) => gap.reason.replaceAll("_", " ")))].join(", ")}.${live ? " Click to ask for them again." : ""}` : "No event is missing");
  /** @type {HTMLButtonElement} */ (figures.dropped).disabled = !(dropped && live);
}

/** Rewritten only where it differs: this is called with every token. @param {HTMLElement} element @param {string} before @param {string} value @param {string} [after] */
function figure(element, before, value, after = "") {
  if (element.textContent !== before + value + after) fill(element, before, h("b", null, value), after);
}

/** @param {import("./model.js").Run | null} run */
function missing(run) {
  return run?.gaps.reduce((sum, gap) => sum + gap.to_seq - gap.from_seq + 1, 0) ?? 0;
}

/** @param {Store} store @param {HTMLElement} button */
async function copyAddress(store, button) {
  const address = shareAddress(store, location);
  history.replaceState(null, "", address);
  try {
    await navigator.clipboard.writeText(address);
    setText(button, "Copied");
  } catch {
    // Only pages on localhost or https may write the clipboard; the address bar has it in any case.
    setText(button, "See address bar");
  }
  setTimeout(() => setText(button, "Share"), 1600);
}
