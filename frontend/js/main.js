// Puts the page together: the store, the views that show it, and what the person can do to it.

import { composer } from "./composer.js";
import { byId, fill, h } from "./dom.js";
import { installExplanations } from "./explain.js";
import { helpDialog } from "./help.js";
import { installKeys } from "./keys.js";
import { requestList, traceList } from "./lists.js";
import { remember } from "./remembered.js";
import { ribbon } from "./ribbon.js";
import { Runs } from "./runs.js";
import { createStore } from "./store.js";
import { tabs } from "./tabs.js";
import { installTips } from "./tip.js";
import { topbar } from "./topbar.js";
import { Tour } from "./tour/tour.js";
import { transport } from "./transport.js";
import { bindAddress, parseHash } from "./url.js";
import { walk } from "./walk.js";

const store = createStore();
const runs = new Runs(store);
const tour = new Tour(byId("tour"), store, runs);
const help = helpDialog(byId("help"), tour);

const composerView = composer(byId("composer"), store, { sent: (request) => sent(request) });
const transportView = transport(byId("transport"), store);
const views = [
  topbar(byId("topbar"), store, { goLive: () => runs.goLive(), retry: () => runs.live?.retry(), reload: () => runs.reload(), help: help.open, tour }),
  ribbon(byId("ribbon"), store),
  composerView,
  requestList(byId("requests"), store),
  traceList(byId("traces"), { open: (name) => runs.open(name), upload: (file) => runs.upload(file) }),
  walk(byId("walk"), store),
  tabs(byId("detail"), store),
  transportView,
  tour,
];

store.set({ theme: document.documentElement.dataset.theme === "light" ? "light" : "dark" });
store.subscribe((state, changed) => {
  if (changed.has("theme")) applyTheme(state.theme);
  if (changed.has("notice")) showNotice(state.notice);
  for (const view of views) view.update(state, changed);
  if (changed.has("selection") || changed.has("run")) document.title = state.run ? `${state.run.name} · Tokenwalk` : "Tokenwalk";
});
// Before anything has come: no control is there, or can be pressed, that could not act yet.
store.mark("run");
store.flush();

installTips();
installExplanations();
installKeys(store, {
  token: transportView.step,
  toStart: transportView.toStart,
  toEnd: transportView.toEnd,
  play: transportView.toggle,
  prompt: composerView.focus,
  help: () => (help.isOpen() ? help.close() : help.open()),
  escape: () => {
    if (document.activeElement instanceof HTMLElement && document.activeElement !== document.body) document.activeElement.blur();
    else tour.end();
  },
});
installDrop();
const wanted = parseHash(location.hash);
bindAddress(store, window, (run, selection) => runs.open(run, selection));
if (wanted.tab) store.select({ tab: wanted.tab });
runs.start(wanted);

/** After sending, the page is live and follows the new request's newest token. @param {string} request */
function sent(request) {
  if (store.state.run !== store.state.liveRun) runs.goLive({ request });
  store.follow(request);
}

/** @param {"dark" | "light"} theme */
function applyTheme(theme) {
  const { dataset } = document.documentElement;
  if (dataset.theme !== theme) remember("theme", theme); // chosen: until then it is the system's
  dataset.theme = theme;
}

/** @param {string | null} text */
function showNotice(text) {
  const element = byId("notice");
  element.hidden = text === null;
  if (text !== null) fill(element, h("span", null, text), h("button", { type: "button", onclick: () => store.set({ notice: null }) }, "Close"));
}

function installDrop() {
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    document.body.dataset.dropping = "";
  });
  for (const name of ["dragleave", "drop"]) document.addEventListener(name, () => delete document.body.dataset.dropping);
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    const file = event.dataTransfer?.files[0];
    if (file) runs.upload(file);
  });
}
