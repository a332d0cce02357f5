// Which token playing is at: by the clock, however long the page takes to draw one.

import { momentOf, positionAt } from "./timeline.js";

/** @typedef {import("./model.js").Run} Run */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {{run: Run, record: RequestRecord, position: number, speed: number}} Place what is on screen, and how fast it is played */

/** The longest that playing rests on one token: an idle hour in a recording is not waited for. */
export const LONGEST_REST_MS = 2000;

/**
 * The moment of the run that belongs to a moment of the page's clock. Both are held from where playing began, or was moved
 * by hand: were each rest counted from the last drawn token, every frame's cost would be added to the run's time.
 */
export class Playing {
  constructor() {
    /** @type {Place | null} where playing itself led, or began */
    this.place = null;
    /** Of the page's clock, in milliseconds. */
    this.since = 0;
    /** Of the run's clock, in nanoseconds. */
    this.moment = 0;
  }

  stop() {
    this.place = null;
  }

  /**
   * How long until the next token is due: 0 where it is late.
   * @param {Place} place
   * @param {number} now milliseconds of the page's clock
   * @returns {number} milliseconds
   */
  rest(place, now) {
    const { place: before } = this;
    if (!before || before.run !== place.run || before.record !== place.record || before.position !== place.position || before.speed !== place.speed) this.anchor(place, now);
    const due = this.since + this.passed(place, place.position + 1) / place.speed;
    if (due - now > LONGEST_REST_MS) {
      // As if the run had less to wait for: what is left of it begins when the next token is due.
      this.since = now + LONGEST_REST_MS;
      this.moment = momentOf(place.run, place.record, place.position + 1) ?? 0;
      return LONGEST_REST_MS;
    }
    return Math.max(0, due - now);
  }

  /**
   * The token to go to: at least the next one, and the last that was there by now.
   * @param {Place} place the same as `rest` was asked for
   * @param {number} now milliseconds of the page's clock
   */
  next(place, now) {
    const moment = this.moment + (now - this.since) * 1e6 * place.speed;
    const position = Math.max(place.position + 1, positionAt(place.run, place.record, moment));
    this.place = { ...place, position };
    return position;
  }

  /** @param {Place} place @param {number} now */
  anchor(place, now) {
    this.place = place;
    this.since = now;
    this.moment = momentOf(place.run, place.record, place.position) ?? 0;
  }

  /** From where playing began to a token, at the run's own speed, in milliseconds. @param {Place} place @param {number} position */
  passed({ run, record }, position) {
    return ((momentOf(run, record, position) ?? 0) - this.moment) / 1e6;
  }
}
