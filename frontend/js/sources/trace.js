// A recorded run: the frames route's body, read as it streams in.

import { FrameError, MessageReader, parseFrame } from "../codec.js";
import { problemOf } from "../api.js";

/** @typedef {import("./live.js").SourceListener} SourceListener */

/** How long events are applied before the page gets to draw. */
const SLICE_MS = 10;

export class TraceSource {
  /**
   * @param {object} options
   * @param {string} options.name as in the list of traces
   * @param {SourceListener} options.listener
   * @param {() => number | null} [options.total] the file's size, for the progress, once it is known
   * @param {typeof fetch} [options.request]
   * @param {() => Promise<void>} [options.breathe] lets the page draw
   */
  constructor({ name, listener, total = () => null, request = fetch.bind(globalThis), breathe = nextTask }) {
    this.name = name;
    this.listener = listener;
    this.total = total;
    this.request = request;
    this.breathe = breathe;
    this.controller = new AbortController();
    this.received = 0;
  }

  /** Resolves when the trace is here, was stopped, or failed; what happened is told to the listener. */
  async start() {
    try {
      this.listener.status({ state: "connecting", received: 0, total: this.total() });
      await this.read();
      if (!this.controller.signal.aborted) this.listener.status({ state: "complete", received: this.received, total: this.total() });
    } catch (error) {
      if (this.controller.signal.aborted) return;
      this.listener.status({ state: "failed", reason: this.explain(error) });
    }
  }

  stop() {
    this.controller.abort();
  }

  async read() {
    const response = await this.request(`v1/traces/${encodeURIComponent(this.name)}/frames`, { signal: this.controller.signal });
    if (!response.ok || !response.body) throw new Error(await problemOf(response));
    const stream = response.body.getReader();
    const messages = new MessageReader();
    let sliceEnd = performance.now() + SLICE_MS;
    for (;;) {
      const { done, value } = await stream.read();
      if (done) break;
      this.received += value.byteLength;
      for (const message of messages.push(value)) {
        if (performance.now() > sliceEnd) {
          this.listener.status({ state: "open", received: this.received, total: this.total() });
          await this.breathe();
          sliceEnd = performance.now() + SLICE_MS;
        }
        if (this.controller.signal.aborted) return;
        this.listener.frame(parseFrame(message));
      }
    }
    messages.end();
  }

  /** @param {unknown} error */
  explain(error) {
    if (error instanceof FrameError) return `The trace “${this.name}” is damaged: ${error.message}. What came before it is shown.`;
    if (error instanceof TypeError) return `The server could not be reached while “${this.name}” was being read. What came so far is shown.`;
    return `The trace “${this.name}” could not be opened: ${/** @type {Error} */ (error).message}`;
  }
}

/** @returns {Promise<void>} */
function nextTask() {
  return new Promise((resolve) => {
    setTimeout(resolve, 0);
  });
}
