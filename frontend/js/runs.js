// Which run is on screen and where its events come from: the live one, or a recording.

import { ApiError, fetchFrames, fetchHealth, fetchTraces, traceSize, uploadTrace } from "./api.js";
import { giveUp, stretches } from "./held.js";
import { createRun, endRun, phaseOf, restore } from "./model.js";
import { SCHEMA_VERSION } from "./schema.js";
import { RunBeside } from "./run-beside.js";
import { LiveSource } from "./sources/live.js";
import { TraceSource } from "./sources/trace.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./model.js").Selection} Selection */
/** @typedef {import("./sources/live.js").SourceStatus} SourceStatus */

const HEALTH_INTERVAL_MS = 5000;

/** A running request says something with each step; after so long without a word, the page says that it waits. */
const QUIET_MS = 3000;

export class Runs {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {LiveSource | null} */
    this.live = null;
    /** @type {TraceSource | null} */
    this.trace = null;
    /** @type {string | null} */
    this.healthNotice = null;
    /** When the last frame of the live run came, on `performance.now()`'s clock. */
    this.heard = 0;
    this.beside = new RunBeside(store, (run, frame) => this.take(run, frame));
    store.fetchAgain = (run, record, seqs) => this.fetchAgain(run, record, seqs);
    store.send = (command) => this.live?.send(command) ?? false;
  }

  /** What the server is and has; afterwards the address, or the sample, is opened. @param {Partial<Selection>} wanted */
  async start(wanted) {
    const health = await this.refreshHealth();
    if (!health) {
      setTimeout(() => this.start(wanted), 1500);
      return;
    }
    const listed = this.refreshTraces(); // every trace is looked into for it: nothing on screen waits for that
    if (health.mode === "live") this.connect(health.run ?? health.epoch);
    // Who replays a file wants to see that file; the sample is for a live server that nobody has asked anything yet.
    const first = wanted.run ?? (health.mode === "live" ? health.default_trace : null) ?? health.run;
    if (first) await this.open(first, wanted.run ? wanted : {});
    else this.goLive();
    await listed;
  }

  /** @returns {Promise<Record<string, any> | null>} */
  async refreshHealth() {
    try {
      const health = await fetchHealth();
      this.store.set({ health });
      this.sayHealth(health.status === "error" ? `The model is not running: ${health.reason}` : null);
      return health;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.sayHealth(`The server does not answer: ${error.message}. Trying again.`);
      return null;
    }
  }

  /** A notice about the server's health goes away with its cause; other notices stay. @param {string | null} text */
  sayHealth(text) {
    if (text === null && this.store.state.notice !== this.healthNotice) return;
    this.healthNotice = text;
    this.store.set({ notice: text });
  }

  async refreshTraces() {
    try {
      this.store.set({ traces: await fetchTraces() });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.store.set({ notice: `The list of traces could not be read: ${error.message}.` });
    }
  }

  /** @param {import("./model.js").Run} run @param {import("./codec.js").Frame} frame */
  take(run, frame) {
    this.store.apply(run, frame);
    const { kind, schema_version: version } = frame.event;
    if (kind === "run.header" && version > SCHEMA_VERSION) {
      this.store.set({ notice: `“${run.name}” was written by a newer Tokenwalk (schema ${version}; this page knows ${SCHEMA_VERSION}). What it does not know is left out.` });
    }
  }

  // --- live -----------------------------------------------------------------------------------------------------------

  /** @param {string} name of the live run */
  connect(name) {
    const { store } = this;
    store.set({ liveRun: createRun(name) });
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const url = new URL("ws", location.href);
    this.live = new LiveSource({
      url: `${scheme}//${url.host}${url.pathname}`,
      position: () => ({ lastSeq: store.state.liveRun?.lastSeq ?? -1, epoch: store.state.liveRun?.epoch ?? null }),
      listener: { frame: (frame, bytes) => this.liveFrame(frame, bytes), status: (status) => this.liveStatus(status), refused: (error) => this.liveRefused(error) },
    });
    this.live.start();
    // An engine that died leaves the connection open: only /health tells.
    setInterval(() => {
      if (!document.hidden && store.state.connection.status === "open") this.refreshHealth();
    }, HEALTH_INTERVAL_MS);
    setInterval(() => this.listen(), 1000);
    document.addEventListener("visibilitychange", () => (document.hidden ? this.live?.pause() : this.live?.resume()));
    window.addEventListener("online", () => this.live?.retry());
  }

  /** Tells a silence that means nothing from one in which something was to be expected. */
  listen() {
    const { store } = this;
    const { connection, liveRun } = store.state;
    const expected = [...(liveRun?.requests.values() ?? [])].some((record) => ["prefill", "decode"].includes(phaseOf(record)));
    const quiet = connection.status === "open" && !document.hidden && expected && performance.now() - this.heard > QUIET_MS;
    if (quiet !== Boolean(connection.quiet)) store.set({ connection: { ...connection, quiet } });
  }

  /** @param {import("./codec.js").Frame} frame @param {number} [bytes] of its message */
  liveFrame(frame, bytes = 0) {
    const { store } = this;
    this.heard = performance.now();
    if (store.state.connection.quiet) this.listen();
    const run = store.state.liveRun;
    if (!run) return;
    const { event } = frame;
    if (event.kind === "run.header" && run.epoch !== null && run.epoch !== event.epoch) {
      this.restarted(frame);
      return;
    }
    this.take(run, frame);
    run.readBytes += bytes;
    if (!run.caughtUp && store.state.health && run.lastSeq >= store.state.health.last_seq) {
      run.caughtUp = true;
      store.mark("run");
    }
    if (event.kind === "gap") {
      const dropped = run.gaps.reduce((sum, gap) => sum + gap.to_seq - gap.from_seq + 1, 0);
      store.set({ connection: { ...store.state.connection, dropped } });
    }
  }

  /** Another epoch: the server was restarted, and the run on screen is over. @param {import("./codec.js").Frame} frame */
  async restarted(frame) {
    const { store } = this;
    const was = store.state.liveRun;
    const run = createRun(frame.event.epoch);
    store.set({ liveRun: run, connection: { ...store.state.connection, dropped: 0 } });
    this.take(run, frame);
    if (was) endRun(was);
    const health = await this.refreshHealth();
    if (health?.run) run.name = health.run;
    store.set({ notice: "The server was restarted. What is on screen is from before; “Go live” shows the new run." });
    if (store.state.run === was && was?.requests.size === 0) this.goLive();
    store.mark("run");
    await this.refreshTraces();
  }

  /** @param {SourceStatus} status */
  liveStatus(status) {
    const { store } = this;
    const { dropped } = store.state.connection;
    if (status.state === "open") {
      const wasLost = store.state.connection.attempts > 0;
      store.set({ connection: { status: "open", attempts: 0, retryAt: null, dropped, reason: null } });
      if (status.reason) store.set({ notice: status.reason });
      if (wasLost) this.refreshHealth();
      return;
    }
    const connection = { status: /** @type {"connecting" | "retrying"} */ (status.state), attempts: status.attempts ?? 0, retryAt: status.retryAt ?? null, dropped, reason: "The connection to the server was lost. It is tried again by itself." };
    store.set({ connection });
  }

  /** What the server would not do is said where it was asked for. @param {Record<string, any>} error @returns {boolean} whether there is such a place */
  liveRefused({ command, request, positions, message }) {
    const { store } = this;
    if (command === "time") {
      store.set({ timingRefused: message });
      return true;
    }
    const record = store.state.liveRun?.requests.get(request);
    if (!record || !positions || !["lens", "attribution"].includes(command)) return false;
    for (const position of positions) record.refused.set(`${command}:${position}`, message);
    for (const what of [command, "compare"]) store.mark(what);
    return true;
  }

  /** Everything of the live run once more: what was dropped may be in its recording. */
  reload() {
    const { store } = this;
    const was = store.state.liveRun;
    if (!was || !this.live) return;
    const run = createRun(was.name);
    const shown = store.state.run === was;
    store.set({ liveRun: run, connection: { ...store.state.connection, dropped: 0 } });
    if (shown) store.show(run, store.state.selection);
    this.live.restart();
  }

  /** @param {Partial<Selection>} [selection] */
  goLive(selection = {}) {
    const { liveRun } = this.store.state;
    if (!liveRun) return;
    this.trace?.stop();
    this.store.set({ loading: null, notice: null });
    this.store.show(liveRun, selection);
  }

  // --- recordings -----------------------------------------------------------------------------------------------------

  /** @param {string} name @param {Partial<Selection>} [selection] */
  async open(name, selection = {}) {
    const { store } = this;
    this.trace?.stop();
    if (name === store.state.liveRun?.name) {
      this.goLive(selection);
      return;
    }
    const here = [store.state.run, store.state.compareRun].find((run) => run?.name === name && run.complete);
    if (here) {
      store.show(here, selection);
      return;
    }
    const run = createRun(name);
    const total = () => traceSize(store.state.traces, name);
    const source = new TraceSource({ name, total, listener: { frame: (frame) => this.take(run, frame), status: (status) => this.traceStatus(run, status) } });
    this.trace = source;
    store.set({ loading: { name, received: 0, total: total() }, notice: null });
    store.show(run, selection);
    await source.start();
  }

  /** @param {import("./model.js").Run} run @param {SourceStatus} status */
  traceStatus(run, status) {
    const { store } = this;
    if (status.state === "complete" || status.state === "failed") {
      endRun(run);
      store.set({ loading: null });
      store.mark("run");
      if (status.state === "failed") this.failed(run, status.reason ?? "The trace could not be read.");
    } else store.set({ loading: { name: run.name, received: status.received ?? 0, total: status.total ?? null } });
  }

  /** Nothing came: better the sample than an empty page, and the reason above it. @param {import("./model.js").Run} run @param {string} reason */
  async failed(run, reason) {
    const { health } = this.store.state;
    const other = health?.default_trace ?? health?.run;
    if (run.events === 0 && other && other !== run.name) await this.open(other);
    this.store.set({ notice: reason });
  }

  /** @param {import("./model.js").Run} run @param {import("./model.js").RequestRecord} record @param {number[]} seqs */
  async fetchAgain(run, record, seqs) {
    const { store } = this;
    try {
      for (const [from, to] of stretches(seqs)) {
        for (const frame of await fetchFrames(run.name, from, to, record.id)) {
          if (seqs.includes(frame.event.seq)) restore(run, frame);
        }
      }
      giveUp(record, seqs);
      for (const what of ["attention", "residual", "compare"]) store.mark(what);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      store.set({ notice: `What this page had let go of could not be fetched again: ${error.message}.` });
    } finally {
      for (const seq of seqs) store.fetching.delete(`${run.name}:${seq}`);
    }
  }

  /** @param {File} file */
  async upload(file) {
    const { store } = this;
    store.set({ loading: { name: file.name, received: 0, total: file.size }, notice: null });
    try {
      const { name } = await uploadTrace(file);
      await this.refreshTraces();
      await this.open(name);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      store.set({ loading: null, notice: `“${file.name}” could not be opened: ${error.message}` });
    }
  }
}
