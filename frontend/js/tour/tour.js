// The guided tour: a card beside the page that goes through ten steps. The page itself is shown by selecting, as a person
// would; at the end everything is selected as it was before.

import { fill, h, setText } from "../dom.js";
import { recall, remember } from "../remembered.js";
import { tourSteps } from "./steps.js";

/** @typedef {import("../store.js").Store} Store */
/** @typedef {import("../store.js").State} State */
/** @typedef {import("./steps.js").Step} Step */
/** @typedef {{open: (name: string, selection?: Partial<import("../model.js").Selection>) => Promise<void>, goLive: (selection?: Partial<import("../model.js").Selection>) => void}} Runs */

export const STEPS = 10;

/** Where this browser remembers how far one came: a step's index, or "done". */
const MEMORY = "tour";

export class Tour {
  /** @param {HTMLElement} root @param {Store} store @param {Runs} runs */
  constructor(root, store, runs) {
    this.root = root;
    this.store = store;
    this.runs = runs;
    this.index = 0;
    /** @type {Step[] | null} */
    this.steps = null;
    /** What was on screen when it began. @type {{selection: import("../model.js").Selection, following: boolean, focus: Element | null} | null} */
    this.before = null;
    /** @type {Element | null} */
    this.marked = null;
    this.title = h("h2", { id: "tour-title" });
    this.place = h("p", { class: "place" });
    this.words = h("p", { id: "tour-words" });
    this.bar = h("progress", { max: STEPS, "aria-label": "Tour" });
    this.back = h("button", { type: "button", onclick: () => this.go(this.index - 1) }, "Back");
    this.next = h("button", { type: "button", class: "primary", onclick: () => this.forward() }, "Next");
    this.leave = h("button", { type: "button", class: "plain", "aria-label": "End the tour", onclick: () => this.end() }, "End");
    root.addEventListener("keydown", (event) => this.key(event));
    fill(root, h("div", { class: "head" }, this.place, this.leave), this.bar, h("div", { "aria-live": "polite", "aria-atomic": "true" }, this.title, this.words), h("div", { class: "foot" }, this.back, this.next));
  }

  isOpen() {
    return this.before !== null;
  }

  /** How the button that starts it is called: it goes on where one left. */
  label() {
    const at = recall(MEMORY);
    if (at === null) return "Take the tour";
    return at === "done" ? "Take the tour again" : `Go on with the tour, ${Number(at) + 1}/${STEPS}`;
  }

  /** Whether nobody has taken it, or begun to, in this browser. */
  isNew() {
    return recall(MEMORY) === null;
  }

  async start() {
    const { store } = this;
    if (this.isOpen()) {
      this.next.focus();
      return;
    }
    await this.ready();
    if (this.isOpen()) return;
    const { run, selection, following, health } = store.state;
    this.before = { selection: { ...selection }, following, focus: document.activeElement };
    const at = Number(recall(MEMORY) ?? 0);
    // Who replays a file is told of that file.
    const sample = run && health?.mode === "replay" && tourSteps(run) ? run.name : (health?.default_trace ?? null);
    if (sample !== null && run?.name !== sample) await this.runs.open(sample);
    if (!this.isOpen()) return;
    this.steps = store.state.run ? tourSteps(store.state.run) : null;
    if (!this.steps) {
      this.before = null;
      store.set({ notice: "There is no recording with an answer here to give the tour on. Open one, or ask something first." });
      return;
    }
    this.root.hidden = false;
    document.body.classList.add("on-tour");
    this.go(Number.isInteger(at) && at < STEPS ? at : 0);
    this.next.focus();
  }

  /** Until it is known which recording it is about, and while that is being read, there is nothing to tell. @returns {Promise<void>} */
  ready() {
    const { store } = this;
    const known = () => {
      const { health, loading } = store.state;
      return health !== null && (loading === null || (health.mode === "live" && loading.name !== health.default_trace));
    };
    if (known()) return Promise.resolve();
    return new Promise((resolve) => {
      const leave = store.subscribe(() => {
        if (!known()) return;
        leave();
        resolve();
      });
    });
  }

  /** @param {number} index */
  go(index) {
    const step = this.steps?.[index];
    if (!step) return;
    this.index = index;
    remember(MEMORY, String(index));
    setText(this.place, `Tour ${index + 1}/${STEPS}`);
    setText(this.title, step.title);
    setText(this.words, step.words);
    this.bar.value = index + 1;
    // A button that becomes disabled would lose the focus to nowhere.
    if (index === 0 && document.activeElement === this.back) this.next.focus();
    this.back.disabled = index === 0;
    setText(this.next, index === STEPS - 1 ? "Done" : "Next");
    this.store.set({ following: false, playing: false });
    this.store.select(step.selection);
    this.mark();
  }

  forward() {
    if (this.index < STEPS - 1) this.go(this.index + 1);
    else {
      remember(MEMORY, "done");
      this.end();
    }
  }

  /** Everything as it was. */
  end() {
    const { before, store } = this;
    if (!before) return;
    this.before = null;
    this.steps = null;
    this.root.hidden = true;
    document.body.classList.remove("on-tour");
    this.unmark();
    const { selection, following, focus } = before;
    const { run, liveRun } = store.state;
    const back = () => following && store.follow(selection.request ?? undefined);
    if (selection.run !== null && selection.run !== run?.name) {
      if (selection.run === liveRun?.name) this.runs.goLive(selection);
      else this.runs.open(selection.run, selection).then(back);
      if (selection.run === liveRun?.name) back();
    } else {
      store.select(selection);
      back();
    }
    // The way of starting it may be gone (a dialog that was closed): then the page itself.
    if (focus instanceof HTMLElement && focus.isConnected && focus.offsetParent !== null) focus.focus();
    else document.getElementById("walk")?.focus();
    store.mark("tour");
  }

  /** Panels are made when they are first shown: the target may come later. */
  update() {
    if (this.isOpen() && this.steps) this.mark();
  }

  mark() {
    const target = document.querySelector(this.steps?.[this.index]?.target ?? "#none");
    if (target === this.marked) return;
    this.unmark();
    this.marked = target;
    target?.classList.add("toured");
    target?.scrollIntoView({ block: "nearest" });
  }

  unmark() {
    this.marked?.classList.remove("toured");
    this.marked = null;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowRight") this.forward();
    else if (event.key === "ArrowLeft") this.go(this.index - 1);
    else if (event.key === "Escape") this.end();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
