// A WebSocket whose own thread reads it: what `LiveSource` needs of a WebSocket, and no more.

/** @typedef {import("./batches.js").FromSocket} FromSocket */

export class WorkerSocket {
  static OPEN = 1;

  /**
   * @param {string} url
   * @param {Worker} [worker]
   */
  constructor(url, worker = new Worker(new URL("./socket-worker.js", import.meta.url), { type: "module", name: "socket" })) {
    this.worker = worker;
    this.readyState = 0;
    /** @type {(() => void) | null} */
    this.onopen = null;
    /** @type {((event: {data: string | ArrayBuffer}) => void) | null} */
    this.onmessage = null;
    /** @type {((event: {reason: string}) => void) | null} */
    this.onclose = null;
    worker.onmessage = ({ data }) => this.heard(data);
    worker.onerror = () => this.closed("");
    worker.postMessage({ open: url });
  }

  /** @param {string} text */
  send(text) {
    this.worker.postMessage({ send: text });
  }

  /** Ends the connection; at once where there is none yet: a worker that has not even been loaded never answers. */
  close() {
    if (this.readyState === 0) this.closed("");
    else this.worker.postMessage({ close: true });
  }

  /** @param {FromSocket} said */
  heard(said) {
    if ("messages" in said) this.handOver(said.messages);
    else if ("closed" in said) this.closed(said.closed);
    else {
      this.readyState = WorkerSocket.OPEN;
      this.onopen?.();
    }
  }

  /** Each message by itself, as a WebSocket does: one that the page fails on takes no other with it. @param {import("./batches.js").Message[]} messages */
  handOver(messages) {
    /** @type {unknown[]} */
    const faults = [];
    for (const data of messages) {
      try {
        this.onmessage?.({ data });
      } catch (fault) {
        faults.push(fault);
      }
    }
    this.worker.postMessage({ taken: true });
    if (faults.length) throw faults[0];
  }

  /** @param {string} reason */
  closed(reason) {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.worker.terminate();
    this.onclose?.({ reason });
  }
}
