// The live run over a WebSocket: as lossless as the server can make it, and honest where it is not.

import { FrameError, parseFrame } from "../codec.js";
import { WorkerSocket } from "./worker-socket.js";

/**
 * What every source of events tells its owner. Live and replay differ in nothing else.
 * @typedef {object} SourceListener
 * @property {(frame: import("../codec.js").Frame, bytes?: number) => void} frame bytes: of its message, where one came
 * @property {(status: SourceStatus) => void} status
 * @property {(error: Record<string, any>) => boolean} [refused] what was asked of a live run and not done; whether it is said where it was asked for
 */

/**
 * @typedef {object} SourceStatus
 * @property {"connecting" | "open" | "retrying" | "complete" | "failed"} state
 * @property {number} [attempts]
 * @property {number | null} [retryAt] milliseconds, as Date.now()
 * @property {string | null} [reason] in words
 * @property {number} [received] bytes
 * @property {number | null} [total] bytes, where known
 */

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 10_000;

/** The server holds at most 8 MiB or 1,000 frames back for an answer; answering at a fraction of it keeps frames flowing. */
const ACK_BYTES = 2 ** 20;
const ACK_FRAMES = 100;

/** A server that accepts a connection and then says nothing, not even its header, is not there. */
const HEADER_TIMEOUT_MS = 15_000;

export class LiveSource {
  /**
   * @param {object} options
   * @param {string} options.url of the WebSocket
   * @param {SourceListener} options.listener
   * @param {() => {lastSeq: number, epoch: string | null}} options.position what is already here; asked at each connection
   * @param {typeof WorkerSocket} [options.Socket]
   * @param {(call: () => void, ms: number) => any} [options.setTimer]
   * @param {(timer: any) => void} [options.clearTimer]
   */
  constructor({ url, listener, position, Socket = WorkerSocket, setTimer, clearTimer }) {
    this.url = url;
    this.listener = listener;
    this.position = position;
    this.Socket = Socket;
    this.setTimer = setTimer ?? ((call, ms) => setTimeout(call, ms));
    this.clearTimer = clearTimer ?? ((timer) => clearTimeout(timer));
    /** @type {WorkerSocket | null} */
    this.socket = null;
    this.attempts = 0;
    this.timer = null;
    this.running = false;
    this.paused = false;
    this.unacked = { frames: 0, bytes: 0 };
  }

  start() {
    this.running = true;
    this.connect();
  }

  stop() {
    this.running = false;
    this.clearTimer(this.timer);
    this.socket?.close();
    this.socket = null;
  }

  /** Try again at once instead of waiting. */
  retry() {
    if (!this.running || this.socket) return;
    this.clearTimer(this.timer);
    this.connect();
  }

  /** While the page is not seen nothing need be sent: browsers queue messages of hidden tabs without bound. */
  pause() {
    if (!this.paused) this.send({ kind: "pause" });
    this.paused = true;
  }

  resume() {
    if (this.paused) this.send({ kind: "resume" });
    this.paused = false;
    this.retry();
  }

  /** Everything once more, from the first event: what was dropped may be in the server's recording. */
  restart() {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.clearTimer(this.timer);
    this.attempts = 0;
    this.connect();
  }

  /** @param {Record<string, any>} command @returns {boolean} whether there was a connection to send it on */
  send(command) {
    if (this.socket?.readyState !== this.Socket.OPEN) return false;
    this.socket.send(JSON.stringify(command));
    return true;
  }

  connect() {
    this.listener.status({ state: "connecting", attempts: this.attempts });
    const socket = new this.Socket(this.url);
    this.socket = socket;
    this.timer = this.setTimer(() => socket.close(), HEADER_TIMEOUT_MS);
    socket.onopen = () => {
      const { lastSeq, epoch } = this.position();
      this.unacked = { frames: 0, bytes: 0 };
      this.send({ kind: "hello", last_seq: lastSeq, epoch });
      if (this.paused) this.send({ kind: "pause" });
    };
    socket.onmessage = ({ data }) => {
      if (socket === this.socket) this.receive(data);
    };
    socket.onclose = ({ reason }) => {
      if (socket === this.socket) this.closed(reason);
    };
  }

  /** @param {string | ArrayBuffer} data */
  receive(data) {
    let frame;
    try {
      frame = parseFrame(data);
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      this.listener.status({ state: "open", reason: `A frame could not be read: ${error.message}` });
      return;
    }
    if (frame.event.kind === "error") {
      if (!this.listener.refused?.(frame.event)) this.listener.status({ state: "open", reason: frame.event.message });
      return;
    }
    if (frame.event.kind === "run.header") {
      this.clearTimer(this.timer);
      this.attempts = 0;
      this.listener.status({ state: "open" });
    }
    const size = typeof data === "string" ? data.length : data.byteLength;
    this.listener.frame(frame, size);
    this.acknowledge(frame.event.seq, size);
  }

  /** @param {number} seq @param {number} size */
  acknowledge(seq, size) {
    this.unacked.frames += 1;
    this.unacked.bytes += size;
    if (this.unacked.frames < ACK_FRAMES && this.unacked.bytes < ACK_BYTES) return;
    this.unacked = { frames: 0, bytes: 0 };
    this.send({ kind: "ack", seq });
  }

  /** @param {string} reason */
  closed(reason) {
    this.socket = null;
    this.clearTimer(this.timer);
    if (!this.running) return;
    const wait = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.attempts);
    this.attempts += 1;
    this.listener.status({ state: "retrying", attempts: this.attempts, retryAt: Date.now() + wait, reason: reason || null });
    this.timer = this.setTimer(() => this.connect(), wait);
  }
}
