// The transport: through the tokens in time, by step, by scrubbing, or following the newest as it comes.

import { fill, h, setAttribute, setText } from "./dom.js";
import { term } from "./explain.js";
import { duration } from "./format.js";
import { isOver, selectedRequest } from "./model.js";
import { Playing } from "./playing.js";
import { drawTimeline, momentOf, positionAt, spanOf } from "./timeline.js";
import { hideTip, showTip } from "./tip.js";
import { quoted } from "./words.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./store.js").State} State */

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 5, 10];

const ICONS = {
  start: "M1 1h2v10H1zM12 1v10L4 6z",
  back: "M10 1v10L2 6z",
  play: "M2 1l9 5-9 5z",
  pause: "M2 1h3v10H2zM7 1h3v10H7z",
  forward: "M2 1l8 5-8 5z",
  end: "M1 1l8 5-8 5zM10 1h2v10h-2z",
};

/** @param {string} path */
function icon(path) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 13 12");
  svg.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
  shape.setAttribute("d", path);
  svg.append(shape);
  return svg;
}

/** @param {HTMLElement} root @param {Store} store */
export function transport(root, store) {
  const view = new Transport(root, store);
  return { update: view.update.bind(view), step: view.step.bind(view), toggle: view.toggle.bind(view), toStart: view.toStart.bind(view), toEnd: view.toEnd.bind(view) };
}

class Transport {
  /** @param {HTMLElement} root @param {Store} store */
  constructor(root, store) {
    this.store = store;
    this.timer = 0;
    this.playing = new Playing();
    const button = (/** @type {string} */ name, /** @type {Node[]} */ content, /** @type {() => void} */ act, /** @type {string} */ tip) =>
      h("button", { type: "button", "aria-label": name, "data-tip": tip, onclick: act }, content);
    const withWord = (/** @type {Node} */ mark, /** @type {string} */ text, first = true) =>
      [h("span", { class: "with-word" }, first ? mark : null, text, first ? null : mark)];
    this.playButton = button("Play", [], () => this.toggle(), "Play or pause (space)");
    this.buttons = [
      button("To the start", [icon(ICONS.start)], () => this.toStart(), "First token (Home)"),
      button("Token back", withWord(icon(ICONS.back), "token"), () => this.step(-1), "Token before (←)"),
      this.playButton,
      button("Token forward", withWord(icon(ICONS.forward), "token", false), () => this.step(1), "Next token (→)"),
      button("To the end", [icon(ICONS.end)], () => this.toEnd(), "Last token; of a running request, follow the newest (End)"),
    ];
    this.speed = h("select", { "aria-label": "Speed", onchange: () => store.set({ speed: Number(this.speed.value) }) }, SPEEDS.map((s) => h("option", { value: s }, `${s}×`)));
    this.speed.value = "1";
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.scrubber = h("div", { class: "scrubber", role: "slider", tabindex: 0, "aria-label": "Time", "aria-valuemin": 0 }, this.canvas);
    /** Of the time line, in CSS pixels. */
    this.size = { width: 0, height: 0 };
    this.clock = term("transport.clock");
    this.clock.classList.add("clock");
    this.follow = h("button", { type: "button", class: "follow", onclick: () => this.toEnd() }, "follow live");
    fill(root, h("div", { class: "buttons" }, this.buttons), this.speed, this.scrubber, this.clock, this.follow);
    this.listen();
  }

  listen() {
    const { scrubber } = this;
    // Asking the canvas for its size in the middle of a frame would have the browser lay everything out once more.
    new ResizeObserver(([{ contentRect }]) => {
      this.size = contentRect;
      this.draw();
    }).observe(scrubber);
    scrubber.addEventListener("pointerdown", (event) => {
      scrubber.setPointerCapture(event.pointerId);
      this.scrub(event);
    });
    scrubber.addEventListener("pointermove", (event) => {
      if (scrubber.hasPointerCapture(event.pointerId)) this.scrub(event);
      this.tip(event);
    });
    scrubber.addEventListener("pointerleave", hideTip);
  }

  /** @param {State} state @param {Set<string>} changed */
  update(state, changed) {
    const watched = ["run", "selection", "steps", "tokens", "requests", "theme", "following", "playing", "speed"];
    if (!watched.some((what) => changed.has(what))) return;
    const record = selectedRequest(state);
    const idle = !record?.tokens.length;
    for (const button of this.buttons) button.disabled = idle;
    const live = state.run !== null && state.run === state.liveRun && record !== null && !isOver(record);
    this.follow.hidden = !live;
    setText(this.follow, state.following ? "● following live" : "follow live");
    setAttribute(this.follow, "aria-pressed", String(state.following));
    setAttribute(this.playButton, "aria-label", state.playing ? "Pause" : "Play");
    fill(this.playButton, icon(state.playing ? ICONS.pause : ICONS.play));
    this.showClock(state);
    this.draw();
    if (changed.has("playing") || changed.has("speed") || (state.playing && changed.has("selection"))) this.schedule();
  }

  /** @param {State} state */
  showClock({ run, selection }) {
    const record = selectedRequest(this.store.state);
    const moment = run && record && selection.position !== null ? momentOf(run, record, selection.position) : null;
    if (!run || !record || moment === null) {
      fill(this.clock);
      return;
    }
    const span = spanOf(run, record);
    fill(this.clock, h("b", null, duration(moment - span.from)), ` of ${duration(span.to - span.from)}`);
    setAttribute(this.scrubber, "aria-valuemax", String(record.tokens.length - 1));
    setAttribute(this.scrubber, "aria-valuenow", String(selection.position));
    setAttribute(this.scrubber, "aria-valuetext", `token ${selection.position}, ${duration(moment - span.from)} after arrival`);
  }

  draw() {
    const { run, selection } = this.store.state;
    const record = selectedRequest(this.store.state);
    if (!run || !record) {
      this.canvas.getContext("2d")?.clearRect(0, 0, this.canvas.width, this.canvas.height);
      return;
    }
    drawTimeline(this.canvas, this.size, run, record, selection.position === null ? null : momentOf(run, record, selection.position));
  }

  /** @param {PointerEvent} event @returns {number | null} the position at that place in time */
  under(event) {
    const { run } = this.store.state;
    const record = selectedRequest(this.store.state);
    if (!run || !record?.tokens.length) return null;
    const box = this.scrubber.getBoundingClientRect();
    const span = spanOf(run, record);
    // The outermost pixels are the ends: between the last token and the request's end there is often less than a pixel.
    const part = Math.max(0, Math.min(1, (event.clientX - box.left - 1) / (box.width - 3)));
    return positionAt(run, record, span.from + part * (span.to - span.from));
  }

  /** @param {PointerEvent} event */
  scrub(event) {
    const position = this.under(event);
    if (position !== null) this.store.select({ position });
  }

  /** @param {PointerEvent} event */
  tip(event) {
    const position = this.under(event);
    const { run } = this.store.state;
    const record = selectedRequest(this.store.state);
    if (position === null || !run || !record) return;
    const box = this.scrubber.getBoundingClientRect();
    const moment = momentOf(run, record, position) ?? 0;
    showTip(`${quoted(record.tokens[position])}, token ${position}: ${duration(moment - spanOf(run, record).from)} after arrival`, event.clientX, box.top, box.bottom);
  }

  /** @param {number} by tokens */
  step(by) {
    const record = selectedRequest(this.store.state);
    const { position } = this.store.state.selection;
    if (!record?.tokens.length) return;
    const to = Math.max(0, Math.min(record.tokens.length - 1, (position ?? 0) + by));
    this.store.select({ position: to });
  }

  toStart() {
    this.store.select({ position: 0 });
  }

  toEnd() {
    const { run, liveRun } = this.store.state;
    const record = selectedRequest(this.store.state);
    if (!record?.tokens.length) return;
    if (run === liveRun && !isOver(record)) this.store.follow();
    else this.store.select({ position: record.tokens.length - 1 });
  }

  toggle() {
    const { playing, selection } = this.store.state;
    const record = selectedRequest(this.store.state);
    if (!record?.tokens.length) return;
    if (!playing && selection.position === record.tokens.length - 1) this.store.select({ position: 0 });
    this.store.set({ playing: !playing, following: false });
  }

  /** Plays on when the next token is due at the chosen speed, past those that fell between two drawn frames. */
  schedule() {
    clearTimeout(this.timer);
    const place = this.place();
    if (!place) {
      this.playing.stop();
      return;
    }
    if (place.position + 1 >= place.record.tokens.length) {
      this.store.set({ playing: false });
      return;
    }
    const rest = this.playing.rest(place, performance.now());
    this.timer = window.setTimeout(() => this.store.select({ position: this.playing.next(place, performance.now()) }), rest);
  }

  /** What is being played, and where it is. @returns {import("./playing.js").Place | null} */
  place() {
    const { playing, run, selection, speed } = this.store.state;
    const record = selectedRequest(this.store.state);
    return playing && run && record && selection.position !== null ? { run, record, position: selection.position, speed } : null;
  }
}
