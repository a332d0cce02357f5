// The run of the request that is laid beside the followed one: the run on screen, the live one, or a recording of its own.

import { traceSize } from "./api.js";
import { parseCompare } from "./compare.js";
import { createRun } from "./model.js";
import { TraceSource } from "./sources/trace.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./model.js").Run} Run */

const CAUSES = ["selection", "run", "liveRun", "traces"];

export class RunBeside {
  /** @param {Store} store @param {(run: Run, frame: import("./codec.js").Frame) => void} take */
  constructor(store, take) {
    this.store = store;
    this.take = take;
    /** @type {TraceSource | null} */
    this.source = null;
    store.subscribe((_, changed) => {
      if (CAUSES.some((what) => changed.has(what))) this.settle();
    });
  }

  /** Has the run ready that the selection names. */
  settle() {
    const { store } = this;
    const { run, liveRun, compareRun, selection, health } = store.state;
    const wanted = parseCompare(selection.compare);
    if (!wanted) {
      this.stop();
      store.set({ compareRun: null, compareProblem: null });
      return;
    }
    const here = [run, liveRun, compareRun].find((known) => known?.name === wanted.run);
    if (here) {
      if (this.source?.name !== wanted.run) this.stop();
      store.set({ compareRun: here });
    } else if (health) this.open(wanted.run);
  }

  /** @param {string} name */
  open(name) {
    const { store } = this;
    this.stop();
    const run = createRun(name);
    const total = () => traceSize(store.state.traces, name);
    store.set({ compareRun: run, compareLoading: { name, received: 0, total: total() }, compareProblem: null });
    this.source = new TraceSource({ name, total, listener: { frame: (frame) => this.take(run, frame), status: (status) => this.status(run, status) } });
    this.source.start();
  }

  /** @param {Run} run @param {import("./sources/live.js").SourceStatus} status */
  status(run, status) {
    const { store } = this;
    if (status.state === "complete" || status.state === "failed") {
      run.complete = true;
      store.set({ compareLoading: null, compareProblem: status.state === "failed" ? (status.reason ?? "The trace could not be read.") : null });
      store.mark("compare");
    } else store.set({ compareLoading: { name: run.name, received: status.received ?? 0, total: status.total ?? null } });
  }

  stop() {
    this.source?.stop();
    this.source = null;
    this.store.set({ compareLoading: null });
  }
}
