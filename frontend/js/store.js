// The page's only mutable state: the run on screen, the selection, and how the page stands to the server.

import { readingIsOut } from "./absent.js";
import { candidates, comparedRequest, formatCompare, parseCompare } from "./compare.js";
import { mostTelling, nearest, newestWhole, requestToShow } from "./insight.js";
import { apply, createRun, isGenerated, isOver, selectedRequest } from "./model.js";

/** @typedef {import("./codec.js").Frame} Frame */
/** @typedef {import("./model.js").Run} Run */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {import("./model.js").Selection} Selection */

/**
 * @typedef {object} Connection to the live server
 * @property {"none" | "connecting" | "open" | "retrying" | "refused"} status
 * @property {number} attempts
 * @property {number | null} retryAt milliseconds, as Date.now()
 * @property {number} dropped events that this page never got
 * @property {string | null} reason
 * @property {boolean} [quiet] a request runs, and nothing has come for a while
 */

/** @typedef {{name: string, received: number, total: number | null}} Loading */
/** What the pointer or the focus is on; every panel shows the same. @typedef {{position?: number | null, positions?: [number, number] | null, layer?: number | null, head?: number | null, block?: number | null, step?: number | null}} Hover  positions: [from, to) of a block or a row */

/**
 * @typedef {object} State
 * @property {Run | null} run the run on screen: the live one or a trace
 * @property {Run | null} liveRun kept up to date even while a trace is looked at
 * @property {Run | null} compareRun the run of the request that is laid beside the followed one: often the same run
 * @property {Loading | null} compareLoading
 * @property {string | null} compareProblem why that run is not here, in words
 * @property {Selection} selection
 * @property {boolean} following true while the newest token is followed as it comes
 * @property {Hover} hover
 * @property {Connection} connection
 * @property {Record<string, any> | null} health what /health said last
 * @property {Record<string, any>[]} traces
 * @property {Loading | null} loading a trace that is on its way
 * @property {string | null} timingRefused why steps that were asked for are not timed
 * @property {string | null} notice a fault to show above the page, in words
 * @property {boolean} playing
 * @property {number} speed
 * @property {"dark" | "light"} theme
 */

/** @typedef {(state: State, changed: Set<string>) => void} Listener */

/** @returns {Selection} */
export function emptySelection() {
  return { run: null, request: null, position: null, act: "chosen", layer: null, head: null, tab: "attention", compare: null };
}

export class Store {
  /** @param {(flush: () => void) => void} schedule calls back once, before the next frame is drawn */
  constructor(schedule) {
    this.schedule = schedule;
    this.scheduled = false;
    /** @type {Set<Listener>} */
    this.listeners = new Set();
    /** @type {Set<string>} */
    this.changed = new Set();
    /** @type {(command: Record<string, any>) => boolean} to the engine; false when there is none to ask */
    this.send = () => false;
    /** Readings that were asked for: "lens:r-1:41". @type {Set<string>} */
    this.asked = new Set();
    /** @type {(run: Run, record: RequestRecord, seqs: number[]) => void} fetches frames that were let go of */
    this.fetchAgain = () => {};
    /** Runs and sequence numbers. @type {Set<string>} */
    this.fetching = new Set();
    /** @type {State} */
    this.state = {
      run: null,
      liveRun: null,
      compareRun: null,
      compareLoading: null,
      compareProblem: null,
      selection: emptySelection(),
      following: false,
      hover: {},
      connection: { status: "none", attempts: 0, retryAt: null, dropped: 0, reason: null },
      health: null,
      traces: [],
      loading: null,
      timingRefused: null,
      notice: null,
      playing: false,
      speed: 1,
      theme: "dark",
    };
  }

  /** @param {Listener} listener called at most once a frame, with the names of what changed @returns {() => void} */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Sets plain fields of the state; each one's name is what changed. @param {Partial<State>} patch */
  set(patch) {
    for (const [key, value] of Object.entries(patch)) {
      if (/** @type {any} */ (this.state)[key] === value) continue;
      /** @type {any} */ (this.state)[key] = value;
      this.mark(key);
    }
  }

  /**
   * Applies one frame to a run. Only what is on screen is reported as changed.
   * @param {Run} run
   * @param {Frame} frame
   */
  apply(run, frame) {
    const what = apply(run, frame);
    if (what === null) return;
    if (run === this.state.run) this.mark(what);
    if (run === this.state.compareRun) this.mark("compare");
    if (run === this.state.liveRun) this.mark("live");
  }

  /** Puts a run on screen. @param {Run} run @param {Partial<Selection>} [selection] */
  show(run, selection = {}) {
    const { tab } = this.state.selection;
    this.state.run = run;
    this.state.selection = { ...emptySelection(), tab, ...selection, run: run.name };
    this.state.following = run === this.state.liveRun && selection.position == null;
    this.state.playing = false;
    this.asked.clear();
    this.fetching.clear();
    for (const what of ["run", "selection", "following", "playing"]) this.mark(what);
  }

  /**
   * A choice of the person's. Another request, or none, starts without a position: the default is settled once its tokens
   * are here. Choosing a position stops following the newest token.
   * @param {Partial<Selection>} patch
   */
  select(patch) {
    const before = this.state.selection;
    const after = { ...before, ...patch };
    if (patch.request !== undefined && patch.request !== before.request) {
      if (patch.position === undefined) after.position = null;
      // Whoever picks the one that lies beside changes sides.
      const was = before.run !== null && before.request !== null ? formatCompare(before.run, before.request) : null;
      if (patch.compare === undefined && before.compare === formatCompare(before.run ?? "", patch.request ?? "")) after.compare = was;
    }
    if (after.position !== before.position && patch.act === undefined) after.act = this.actFor(after, before);
    if (sameSelection(before, after)) {
      if (patch.position !== undefined && patch.position !== null) this.set({ following: false });
      return;
    }
    this.state.selection = after;
    this.mark("selection");
    if (patch.position !== undefined && patch.position !== null) this.set({ following: false });
  }

  /** The request that lies beside the followed one is followed, at the same place, and the other lies beside it. */
  changeSides() {
    const { run, compareRun, selection } = this.state;
    const other = comparedRequest(this.state);
    if (!run || !compareRun || !other || selection.request === null) return;
    const position = selection.position === null ? null : Math.min(selection.position, other.tokens.length - 1);
    const compare = formatCompare(run.name, selection.request);
    if (run === compareRun) {
      this.select({ request: other.id, position, compare });
      return;
    }
    this.set({ compareRun: run });
    this.show(compareRun, { ...selection, request: other.id, position, compare });
  }

  /** Follow the newest token of a request from now on. @param {string} [request] */
  follow(request) {
    if (request !== undefined && request !== this.state.selection.request) this.select({ request });
    this.set({ following: true, playing: false });
    this.mark("tokens");
  }

  /** @param {Hover} hover */
  hover(hover) {
    const before = this.state.hover;
    const same = before.positions?.[0] === hover.positions?.[0] && before.positions?.[1] === hover.positions?.[1];
    const fields = /** @type {const} */ (["position", "layer", "head", "block", "step"]);
    if (same && fields.every((field) => before[field] === hover[field])) return;
    this.state.hover = hover;
    this.mark("hover");
  }

  /**
   * Asks the engine for what it reads from residuals at some positions; it comes as ordinary events. In a replay there is
   * nobody to ask.
   * @param {"lens" | "attribution"} what
   * @param {string} request
   * @param {number[]} positions
   * @param {Run | null} [run]
   * @returns {boolean} whether an answer can be expected
   */
  requestReading(what, request, positions, run = this.state.run) {
    const { liveRun } = this.state;
    const record = run?.requests.get(request);
    if (!record || run !== liveRun) return false;
    // A request that is laid beside a longer one has no token where that one is followed.
    const missing = positions.filter((p) => p < record.tokens.length && !record[what].has(p) && !readingIsOut(record, what, p));
    const wanted = missing.filter((p) => !this.asked.has(`${what}:${request}:${p}`));
    if (wanted.length === 0) return missing.length > 0;
    if (!this.send({ kind: what, request, positions: wanted })) return false;
    for (const p of wanted) this.asked.add(`${what}:${request}:${p}`);
    return true;
  }

  /** @param {string} request @param {number[]} positions @param {Run | null} [run] */
  requestLens(request, positions, run) {
    return this.requestReading("lens", request, positions, run);
  }

  /** Gets arrays back that the page let go of to save room, for a position that is looked at. @param {string} request @param {number} position @param {Run | null} [run] */
  requestArrays(request, position, run = this.state.run) {
    const record = run?.requests.get(request);
    const seqs = ["attention", "residual"].flatMap((what) => record?.released.get(`${what}:${position}`) ?? []);
    const wanted = seqs.filter((seq) => !this.fetching.has(`${run?.name}:${seq}`));
    if (!run || !record || wanted.length === 0) return;
    for (const seq of wanted) this.fetching.add(`${run.name}:${seq}`);
    this.fetchAgain(run, record, wanted);
  }

  /**
   * Whether a reading at a position can still come: live, from a model that can be read.
   * @param {string} request @param {number} position @param {"lens" | "attribution"} [what]
   */
  readingComes(request, position, what = "lens") {
    const { run, liveRun } = this.state;
    const record = run?.requests.get(request);
    return record !== undefined && run === liveRun && !record[what].has(position) && !readingIsOut(record, what, position);
  }

  /** @param {string} what */
  mark(what) {
    this.changed.add(what);
    if (this.scheduled) return;
    this.scheduled = true;
    this.schedule(() => this.flush());
  }

  flush() {
    this.scheduled = false;
    this.settle();
    const { changed } = this;
    this.changed = new Set();
    for (const listener of this.listeners) listener(this.state, changed);
  }

  /** Fills in what the person did not choose, once the events that allow it are here. */
  settle() {
    const { run, selection } = this.state;
    if (!run) return;
    this.settleCompared(run);
    const first = selection.request === null ? requestToShow(run, run === this.state.liveRun) : null;
    if (first) {
      this.state.selection = { ...selection, request: first.id };
      this.changed.add("selection");
    }
    const record = selectedRequest(this.state);
    if (!record) return;
    if (record.tokens.length > 0) {
      this.settlePosition(run, record);
      this.settleAct(record);
      this.settleLayer(run, record);
    }
    // The end has come, or it was refused: from here on the address names the position again.
    if (this.state.following && isOver(record)) {
      this.state.following = false;
      this.changed.add("following");
    }
  }

  /** A run laid beside without naming a request: the one that fits best, once it is here. @param {Run} run */
  settleCompared(run) {
    const { compareRun } = this.state;
    const record = selectedRequest(this.state);
    const wanted = parseCompare(this.state.selection.compare);
    if (!record || !wanted || wanted.request !== "" || compareRun?.name !== wanted.run) return;
    if (!compareRun.complete && compareRun !== this.state.liveRun) return;
    const [best] = candidates(run, compareRun, record);
    if (!best) return;
    this.state.selection = { ...this.state.selection, compare: formatCompare(wanted.run, best.record.id) };
    this.changed.add("selection");
  }

  /** @param {Run} run @param {RequestRecord} record */
  settlePosition(run, record) {
    const before = this.state.selection;
    const live = run === this.state.liveRun;
    const follows = this.state.following;
    let { position } = before;
    if (follows) position = newestWhole(run, record);
    else if (position === null) {
      if (!live && !run.complete) return;
      position = live ? record.tokens.length - 1 : mostTelling(record);
    }
    if (position === null || position === before.position) return;
    const after = { ...before, position };
    if (follows || before.position === null) after.act = isGenerated(record, position) ? "chosen" : "used";
    this.state.selection = after;
    this.changed.add("selection");
  }

  /** Nothing chose a token of the prompt: whoever asks for that (an address can) gets its own pass. @param {RequestRecord} record */
  settleAct(record) {
    const { position, act } = this.state.selection;
    if (position === null || act !== "chosen" || record.promptLength === 0 || isGenerated(record, position)) return;
    this.state.selection = { ...this.state.selection, act: "used" };
    this.changed.add("selection");
  }

  /** @param {Run} run @param {RequestRecord} record */
  settleLayer(run, record) {
    const { layers, heads } = run.header?.model ?? {};
    const { layer, head } = this.state.selection;
    if (!layers || (layer !== null && head !== null)) return;
    // Late layers are where answers appear; which head is as good as any other. Of a request that is captured in part, one
    // that there is something to see of.
    const plan = record.arrived?.capture;
    this.state.selection = {
      ...this.state.selection,
      layer: layer ?? nearest(plan?.layers, Math.floor(layers * 0.8)),
      head: head ?? nearest(plan?.heads, Math.floor((heads ?? 0) / 3)),
    };
    this.changed.add("selection");
  }

  /**
   * The act to show at a position that was reached without naming one: a prompt token has only the second; between
   * generated tokens the person's choice stays.
   * @param {Selection} after
   * @param {Selection} before
   */
  actFor(after, before) {
    const record = selectedRequest({ run: this.state.run, selection: after });
    if (!record || after.position === null || record.promptLength === 0) return after.act;
    if (!isGenerated(record, after.position)) return "used";
    const wasGenerated = before.position !== null && before.request === after.request && isGenerated(record, before.position);
    return wasGenerated ? before.act : "chosen";
  }
}

/** @param {Selection} a @param {Selection} b */
function sameSelection(a, b) {
  return /** @type {(keyof Selection)[]} */ (Object.keys(b)).every((key) => a[key] === b[key]);
}

/** The longest that drawing is put off for the sake of events that wait. */
const LONGEST_PAUSE_MS = 250;

/**
 * A store that draws with the browser's frames, and still flushes in a tab that is not shown, where no frames are drawn.
 * After a frame that was dear to draw it leaves the page as long again for the events that came meanwhile: otherwise a busy
 * run would be drawn ever anew while its events queue up.
 */
export function createStore() {
  let cost = 0;
  let end = 0;
  const page = globalThis.document.documentElement;
  const draw = (/** @type {() => void} */ flush) => {
    const start = performance.now();
    delete page.dataset.stale;
    flush();
    // Behind this frame's layout and painting, which are part of what it costs.
    setTimeout(() => {
      end = performance.now();
      cost = end - start;
    }, 0);
  };
  return new Store((flush) => {
    // Says to whoever looks from outside (a test, a script that takes pictures) that what is on screen is behind the state.
    page.dataset.stale = "";
    if (document.hidden) {
      setTimeout(() => draw(flush), LONGEST_PAUSE_MS);
      return;
    }
    const rest = end + Math.min(cost, LONGEST_PAUSE_MS) - performance.now();
    if (rest > 4) setTimeout(() => requestAnimationFrame(() => draw(flush)), rest);
    else requestAnimationFrame(() => draw(flush));
  });
}

export { createRun };
