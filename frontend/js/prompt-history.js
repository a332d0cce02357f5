// What was asked before, to be asked again or changed. Pure.

/** @typedef {import("./model.js").RequestRecord} RequestRecord */

/** What the person said last in a request; null where the prompt is no chat, or was not recorded. @param {RequestRecord | null} record @returns {string | null} */
export function askedIn(record) {
  const said = record?.arrived?.messages?.findLast((/** @type {any} */ message) => message.role === "user")?.content;
  return typeof said === "string" && said.trim() !== "" ? said : null;
}

/**
 * Prompts from the oldest to the newest, each once: those of the run, so that a reload loses none, and what this page sent.
 * @param {Iterable<RequestRecord>} requests
 * @param {readonly string[]} sent
 */
export function promptsOf(requests, sent) {
  const all = new Set();
  for (const prompt of [...[...requests].map(askedIn), ...sent]) {
    if (prompt === null) continue;
    all.delete(prompt); // asked again: it is as new as that
    all.add(prompt);
  }
  return /** @type {string[]} */ ([...all]);
}

/** A place in the prompts of before, as a shell's history has it. */
export class PromptHistory {
  constructor() {
    /** @type {string[]} */
    this.sent = [];
    /** @type {string[]} the prompts while one walks through them, the draft last; empty otherwise */
    this.walked = [];
    this.at = 0;
  }

  /** @param {string} prompt */
  add(prompt) {
    this.sent.push(prompt);
    this.walked = [];
  }

  /** Whether the field shows a prompt of before, unchanged. @param {string} value */
  shows(value) {
    return this.walked.length > 0 && this.walked[this.at] === value;
  }

  /**
   * @param {-1 | 1} by −1: an older one
   * @param {string} value of the field
   * @param {Iterable<RequestRecord>} requests
   * @returns {string | null} what the field should say; null where nothing lies that way
   */
  step(by, value, requests) {
    if (!this.shows(value)) {
      this.walked = [...promptsOf(requests, this.sent), value];
      this.at = this.walked.length - 1;
    }
    const to = this.at + by;
    if (to < 0 || to >= this.walked.length) return null;
    this.at = to;
    return this.walked[to];
  }
}
