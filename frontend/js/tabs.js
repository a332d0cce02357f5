// The right column: one panel at a time, made when it is first looked at.

import { fill, h, setAttribute } from "./dom.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./store.js").State} State */
/** @typedef {{update(state: State, changed: Set<string>): void, destroy(): void}} Panel */

/** @type {{id: string, name: string, load: () => Promise<(root: HTMLElement, store: Store) => Panel>}[]} */
export const TABS = [
  { id: "attention", name: "Attention", load: async () => (await import("./panels/attention.js")).attentionPanel },
  { id: "lens", name: "Lens", load: async () => (await import("./panels/lens.js")).lensPanel },
  { id: "logits", name: "Logits", load: async () => (await import("./panels/logits.js")).logitsPanel },
  { id: "why", name: "Why", load: async () => (await import("./panels/why.js")).whyPanel },
  { id: "memory", name: "Memory", load: async () => (await import("./panels/memory.js")).memoryPanel },
  { id: "scheduler", name: "Scheduler", load: async () => (await import("./panels/scheduler.js")).schedulerPanel },
  { id: "kernels", name: "Kernels", load: async () => (await import("./panels/kernels.js")).kernelsPanel },
  { id: "wire", name: "Wire", load: async () => (await import("./panels/wire.js")).wirePanel },
  { id: "compare", name: "Compare", load: async () => (await import("./panels/compare.js")).comparePanel },
];

/** @param {HTMLElement} root @param {Store} store */
export function tabs(root, store) {
  const buttons = TABS.map(({ id, name }, i) =>
    h("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, "data-id": id, "data-tip": `${name} (${i + 1})`, onclick: () => store.select({ tab: id }) }, name),
  );
  const panels = TABS.map(({ id }) => h("div", { role: "tabpanel", id: `panel-${id}`, "aria-labelledby": `tab-${id}`, tabindex: 0, hidden: true }));
  const list = h("div", { role: "tablist", "aria-label": "Panels", onkeydown: /** @type {EventListener} */ ((e) => move(/** @type {KeyboardEvent} */ (e), store)) }, buttons);
  fill(root, list, ...panels);
  /** @type {Map<string, Panel | "loading">} */
  const made = new Map();
  /** What a hidden panel has missed. @type {Map<string, Set<string>>} */
  const missed = new Map();

  const make = async (/** @type {number} */ i) => {
    const { id, load } = TABS[i];
    made.set(id, "loading");
    const create = await load();
    const panel = create(panels[i], store);
    made.set(id, panel);
    panel.update(store.state, everything());
    store.mark("panel"); // who waits for something in it may look again
  };

  return {
    /** @param {State} state @param {Set<string>} changed */
    update(state, changed) {
      const shown = Math.max(0, TABS.findIndex(({ id }) => id === state.selection.tab));
      // Before the shown one is drawn: it measures the room that it has, which is all of it.
      panels.forEach((panel, i) => (panel.hidden = i !== shown));
      TABS.forEach(({ id }, i) => {
        const selected = i === shown;
        // Only where it changes: to set the focused tab's index anew has the browser lay out the page in the middle of a frame.
        setAttribute(buttons[i], "aria-selected", String(selected));
        setAttribute(buttons[i], "tabindex", selected ? "0" : "-1");
        const panel = made.get(id);
        if (!selected) {
          const waiting = missed.get(id) ?? new Set();
          for (const what of changed) waiting.add(what);
          missed.set(id, waiting);
        } else if (panel === undefined) make(i);
        else if (panel !== "loading") {
          const all = new Set([...(missed.get(id) ?? []), ...changed]);
          missed.delete(id);
          panel.update(state, all);
        }
      });
    },
  };
}

function everything() {
  return new Set(["run", "header", "selection", "requests", "tokens", "attention", "residual", "lens", "attribution", "compare", "steps", "blocks", "sent", "absent", "theme", "hover"]);
}

/** Arrow keys within the tab list. @param {KeyboardEvent} event @param {Store} store */
function move(event, store) {
  const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  if (!by) return;
  event.stopPropagation();
  event.preventDefault();
  const at = TABS.findIndex(({ id }) => id === store.state.selection.tab);
  const { id } = TABS[(at + by + TABS.length) % TABS.length];
  store.select({ tab: id });
  document.getElementById(`tab-${id}`)?.focus();
}
