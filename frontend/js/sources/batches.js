// Messages on their way from the socket's thread to the page's: one batch at a time, the next when the last has been taken.
// What waits meanwhile is bounded by the server, which sends no more than its window until the page acknowledges.

/** @typedef {string | ArrayBuffer} Message */
/** @typedef {{opened: true} | {messages: Message[]} | {closed: string}} FromSocket */

/** So much is taken in a few milliseconds, and the page can draw in between. */
const MOST_MESSAGES = 128;
const MOST_BYTES = 4 * 2 ** 20;

export class Batches {
  /** @param {(said: FromSocket, buffers: ArrayBuffer[]) => void} post `buffers` of the messages can be handed over, not copied */
  constructor(post) {
    this.post = post;
    /** @type {Message[]} */
    this.waiting = [];
    /** Whether the page has a batch that it has not answered. */
    this.out = false;
    /** Why the connection ended, once it has. @type {string | null} */
    this.reason = null;
  }

  /** @param {Message} message */
  add(message) {
    this.waiting.push(message);
    this.next();
  }

  /** The page has taken its batch in. */
  taken() {
    this.out = false;
    this.next();
  }

  /** Nothing more will come; said once all that came has been taken. @param {string} reason */
  close(reason) {
    this.reason ??= reason;
    this.next();
  }

  next() {
    if (this.out) return;
    if (this.waiting.length === 0) {
      if (this.reason !== null) this.post({ closed: this.reason }, []);
      return;
    }
    let size = 0;
    let count = 0;
    while (count < this.waiting.length && count < MOST_MESSAGES && size < MOST_BYTES) {
      const message = this.waiting[count];
      size += typeof message === "string" ? message.length : message.byteLength;
      count += 1;
    }
    const messages = this.waiting.splice(0, count);
    this.out = true;
    this.post({ messages }, messages.filter((message) => message instanceof ArrayBuffer));
  }
}
