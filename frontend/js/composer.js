// The composer: a prompt, how to sample, how much to capture, and what that will cost before it is sent.

import { ApiError, cancelRequest, estimateCapture, submitPrompt } from "./api.js";
import { costWords } from "./capture-cost.js";
import { DEFAULTS, LEVELS, MOST_TOKENS, PRESETS, areDefault, recallSettings, rememberSettings } from "./composer-settings.js";
import { fill, h, press, setText } from "./dom.js";
import { phaseOf, selectedRequest } from "./model.js";
import { PromptHistory, askedIn } from "./prompt-history.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./store.js").State} State */

/** A pause in typing before the server is asked what it would cost, in milliseconds. */
const PAUSE_MS = 250;

/** @param {HTMLElement} root @param {Store} store @param {{sent: (request: string) => void}} actions */
export function composer(root, store, actions) {
  const view = new Composer(root, store, actions);
  return { update: view.update.bind(view), focus: () => view.prompt.focus() };
}

class Composer {
  /** @param {HTMLElement} root @param {Store} store @param {{sent: (request: string) => void}} actions */
  constructor(root, store, actions) {
    this.store = store;
    this.actions = actions;
    this.preset = DEFAULTS.preset;
    /** @type {AbortController | null} the answer that this page waits for */
    this.waiting = null;
    this.history = new PromptHistory();
    /** @type {string | null} */
    this.mine = null;
    /** What the cost that is shown, or awaited, is of. */
    this.asked = "";
    /** What was refused, and why is said below it. */
    this.refused = "";
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.pause = undefined;
    this.prompt = h("textarea", { "aria-label": "Prompt", placeholder: "Ask the model something…", rows: 3, oninput: () => this.typed(), onkeydown: /** @type {EventListener} */ ((e) => this.key(/** @type {KeyboardEvent} */ (e))) });
    this.again = h("button", { type: "button", class: "plain again", hidden: "", onclick: () => this.askAgain() }, "Ask what is on screen");
    this.presets = Object.keys(PRESETS).map((name) => h("button", { type: "button", "data-value": name, onclick: () => this.set({ ...this.settings(), preset: name }) }, name));
    this.sampling = h("span", { class: "grow" });
    this.most = h("input", { type: "number", required: "", min: 1, max: MOST_TOKENS, step: 1, "aria-label": "Most tokens to generate", oninput: () => this.changed() });
    this.capture = h("select", { "aria-label": "Capture", onchange: () => this.changed() }, Object.keys(LEVELS).map((level) => h("option", { value: level }, level)));
    this.reset = h("button", { type: "button", class: "plain again", onclick: () => this.set(DEFAULTS, true), "data-tip": settingsWords(DEFAULTS) }, "defaults");
    this.cost = h("p", { class: "cost" });
    this.problem = h("p", { class: "problem", role: "alert" });
    this.send = h("button", { type: "submit", class: "primary", "data-tip": "Ctrl or ⌘ with Enter" }, "Send");
    this.stop = h("button", { type: "button", onclick: () => this.cancel() }, "Stop");
    this.fields = h(
      "form",
      { class: "card", onsubmit: (event) => this.submit(event) },
      this.prompt,
      h("div", { class: "segmented", role: "group", "aria-label": "Preset" }, this.presets),
      h("div", { class: "row" }, this.sampling),
      h("div", { class: "row" }, h("label", { class: "grow" }, "capture", this.capture), this.reset),
      this.cost,
      h("div", { class: "row" }, h("label", { class: "grow", "data-tip": "Most tokens to generate" }, "max", this.most), this.stop, this.send),
      this.problem,
    );
    fill(root, h("div", { class: "heading" }, h("h2", null, "Ask"), this.again), this.fields);
    this.set(recallSettings());
  }

  /** What is chosen now. @returns {import("./composer-settings.js").Settings} */
  settings() {
    return { preset: this.preset, most: this.maxTokens(), capture: this.capture.value };
  }

  /** @param {import("./composer-settings.js").Settings} settings @param {boolean} [pressed] the button that goes away had the focus */
  set({ preset, most, capture }, pressed = false) {
    this.preset = preset;
    this.most.value = String(most);
    this.capture.value = capture;
    press(this.presets, preset);
    setText(this.sampling, samplingWords(preset));
    this.changed();
    if (pressed) this.presets.find((button) => button.dataset.value === preset)?.focus();
  }

  /** By the person's hand, or by what is remembered. */
  changed() {
    // A number that is being written, or was taken out, is nothing to remember: sending asks for one.
    if (this.most.validity.valid) rememberSettings(this.settings());
    this.reset.hidden = this.most.validity.valid && areDefault(this.settings());
    this.showCost();
  }

  /** @param {State} state @param {Set<string>} changed */
  update(state, changed) {
    if (!["health", "connection", "live", "header", "run", "requests", "selection"].some((what) => changed.has(what))) return;
    const closed = closedBecause(state);
    this.prompt.disabled = closed !== null;
    for (const field of [this.most, this.capture, this.reset, ...this.presets]) field.disabled = closed !== null;
    this.send.disabled = closed !== null || this.prompt.value.trim() === "";
    const running = this.running(state);
    this.stop.hidden = running === null;
    this.again.hidden = closed !== null || this.prompt.value !== "" || askedIn(selectedRequest(state)) === null;
    const before = this.history.sent.length > 0 || (state.liveRun?.requests.size ?? 0) > 0;
    this.prompt.placeholder = closed !== null ? "" : `Ask the model something…\nCtrl or ⌘ and Enter sends${before ? "\n↑ brings back the last one" : ""}`;
    if (closed !== null) {
      this.asked = "";
      setText(this.cost, closed);
    } else this.showCost();
  }

  typed() {
    this.again.hidden = this.prompt.value !== "" || askedIn(selectedRequest(this.store.state)) === null;
    this.showCost();
  }

  /** Put the prompt that is on screen into the field: a recording's, to be asked live, or one to be asked in another way. */
  askAgain() {
    this.write(askedIn(selectedRequest(this.store.state)) ?? "");
    this.prompt.focus();
  }

  /** The request that Stop would stop: the one on screen while it runs, or else this page's last. @param {State} state */
  running(state) {
    const shown = state.run === state.liveRun ? selectedRequest(state) : null;
    const mine = this.mine === null ? null : (state.liveRun?.requests.get(this.mine) ?? null);
    const open = [shown, mine].find((record) => record && !["finished", "rejected"].includes(phaseOf(record)));
    return open?.id ?? null;
  }

  showCost() {
    const closed = closedBecause(this.store.state);
    this.send.disabled = closed !== null || this.prompt.value.trim() === "";
    if (closed !== null) return;
    const level = this.capture.value;
    const text = this.prompt.value.trim();
    const asked = JSON.stringify(this.body());
    if (this.refused !== "" && asked !== this.refused) this.sayProblem("");
    // Why it was refused is said once, below; what it would have cost is of no more use.
    if (level === "light" || text === "" || this.refused !== "" || !this.most.validity.valid) {
      this.asked = "";
      clearTimeout(this.pause);
      setText(this.cost, `${LEVELS[level]}.`);
    } else if (asked !== this.asked) {
      this.asked = asked;
      clearTimeout(this.pause);
      this.pause = setTimeout(() => this.askCost(asked), PAUSE_MS);
    }
  }

  /** The server knows how many tokens it is, and what of it fits. @param {string} asked what was in the fields */
  async askCost(asked) {
    const words = LEVELS[this.capture.value];
    const body = this.body();
    if (!body) return;
    let cost;
    try {
      const told = await estimateCapture(body);
      cost = told.refused ? costWords(told) : `${words}: ${costWords(told)}`;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      cost = sentence(error.message);
    }
    if (asked === this.asked) setText(this.cost, cost);
  }

  /** What would be sent; null before the server has said what it runs. @returns {Record<string, any> | null} */
  body() {
    const header = this.store.state.liveRun?.header;
    if (!header) return null;
    const text = this.prompt.value.trim();
    return {
      model: header.model.name,
      ...(header.tokenizer.chat_template === false ? { prompt: text } : { messages: [{ role: "user", content: text }] }),
      ...PRESETS[this.preset],
      max_tokens: this.maxTokens(),
      stream: true,
      // Detached: a reload of this page must not end what it asked for.
      tokenwalk: { capture: this.capture.value, detached: true },
    };
  }

  /** Meant only where the field is valid: the browser asks for a number from 1 on before anything is sent. */
  maxTokens() {
    return Number(this.most.value);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.fields.requestSubmit(this.send);
    if (event.shiftKey || event.ctrlKey || event.metaKey || event.altKey || !["ArrowUp", "ArrowDown"].includes(event.key)) return;
    // In a text of one's own the arrows move the caret.
    if (this.prompt.value !== "" && !this.history.shows(this.prompt.value)) return;
    const found = this.history.step(event.key === "ArrowUp" ? -1 : 1, this.prompt.value, this.store.state.liveRun?.requests.values() ?? []);
    event.preventDefault();
    if (found !== null) this.write(found);
  }

  /** @param {string} text */
  write(text) {
    this.prompt.value = text;
    this.prompt.setSelectionRange(text.length, text.length);
    this.typed();
  }

  /** @param {Event} event */
  async submit(event) {
    event.preventDefault();
    const body = this.body();
    if (!body || this.prompt.value.trim() === "" || this.send.disabled) return;
    this.sayProblem("");
    const chat = "messages" in body;
    const text = this.prompt.value;
    this.waiting = new AbortController();
    this.send.disabled = true;
    try {
      const { id, done } = await submitPrompt(body, { chat, signal: this.waiting.signal });
      this.mine = id;
      this.history.add(text.trim());
      // It is on its way, and in the list: the field is free for the next one. What was typed meanwhile stays.
      if (this.prompt.value === text) this.write("");
      this.actions.sent(id);
      done.catch(() => {}); // the event stream tells how the request ended
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.sayProblem(error.message, this.prompt.value === text ? JSON.stringify(body) : "");
    } finally {
      this.showCost();
    }
  }

  /** @param {string} problem "" for none @param {string} [refused] what it is about, which it goes away with */
  sayProblem(problem, refused = "") {
    this.refused = refused;
    setText(this.problem, problem && sentence(problem));
  }

  async cancel() {
    const id = this.running(this.store.state);
    if (id === null) return;
    try {
      await cancelRequest(id);
    } catch (error) {
      // Leaving is a cancellation too, of what this page itself asked for.
      if (id === this.mine) this.waiting?.abort();
      else this.sayProblem(/** @type {Error} */ (error).message);
    }
  }
}

/** @param {string} preset */
function samplingWords(preset) {
  const values = Object.entries(PRESETS[preset]).map(([key, value]) => `${key.replace("_", "-")} ${value}`);
  return values.join(" · ") + (PRESETS[preset].temperature === 0 ? " (greedy)" : "");
}

/** @param {import("./composer-settings.js").Settings} settings */
function settingsWords({ preset, most, capture }) {
  return `Back to ${preset}, capture ${capture}, at most ${most} tokens`;
}

/** Why nothing can be sent, or null. @param {State} state */
function closedBecause({ health, liveRun, connection }) {
  if (health?.mode === "replay") return "This server replays a recording: there is no model to ask. “tokenwalk serve” starts one with a model.";
  if (!health) return "The server has not answered yet.";
  if (health.status === "error") return `The model is not running: ${health.reason}`;
  if (connection.status === "retrying") return "The connection to the server is lost. It is tried again by itself.";
  return liveRun?.header ? null : "The server is starting.";
}

/** @param {string} message */
function sentence(message) {
  const text = message.charAt(0).toUpperCase() + message.slice(1);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}
