/**
 * A draw, made ready for a table: candidates as rows, the sampler's stages as columns. Pure.
 *
 * Every probability is one that the engine recorded. What is derived is derived from those: the probability that the
 * listed candidates leave to the rest, and the stage at which a candidate went out.
 *
 * @typedef {import("../codec.js").RunEvent} RunEvent
 * @typedef {{name: string, title: string, value: string | null, kept: number, mass: number, removes: boolean,
 *   listed: number, rest: number, restKept: number}} Stage  listed, rest: probability held by the candidates listed, and by all others;
 *   restKept: how many others are still in
 * @typedef {{place: number, id: number, label: string, logit: number | null, logprob: number | null,
 *   probabilities: number[], removedBy: number | null, chosen: boolean}} Candidate  place: rank before any stage, from 1;
 *   removedBy: index of the stage that took it out
 * @typedef {{id: number | null, label: string, low: number, high: number, chosen: boolean}} Segment
 * @typedef {{stages: Stage[], candidates: Candidate[], chosenListed: boolean, listedKept: number}} Sampling
 */

import { candidatesOf } from "../candidates.js";
import { labelOf } from "../token-names.js";

/** @type {Record<string, string>} */
const TITLES = {
  raw: "model",
  logit_bias: "logit bias",
  repetition_penalty: "repetition penalty",
  presence_penalty: "presence penalty",
  frequency_penalty: "frequency penalty",
  temperature: "temperature",
  top_k: "top-k",
  top_p: "top-p",
  min_p: "min-p",
};

/** Stages that change single logits, and with them the order of candidates. */
const REORDERING = new Set(["logit_bias", "repetition_penalty", "presence_penalty", "frequency_penalty"]);

/**
 * @param {RunEvent} event a `token` event
 * @returns {Sampling}
 */
export function sampling(event) {
  const top = candidatesOf(event);
  const recorded = /** @type {any[]} */ (event.stages ?? []);
  const candidates = top.map((candidate, i) => {
    const probabilities = recorded.map((stage) => stage.probabilities[i] ?? 0);
    return {
      place: i + 1,
      id: candidate.id,
      label: labelOf(candidate),
      logit: candidate.logit ?? null,
      logprob: candidate.logprob ?? null,
      probabilities,
      removedBy: removedBy(recorded, probabilities),
      chosen: candidate.id === event.id,
    };
  });
  const stages = recorded.map((stage, s) => {
    const listed = candidates.reduce((sum, c) => sum + c.probabilities[s], 0);
    const stillListed = candidates.filter((c) => c.removedBy === null || c.removedBy > s).length;
    return {
      name: stage.name,
      title: TITLES[stage.name] ?? stage.name,
      value: stage.value === null || stage.value === undefined ? null : plain(stage.value),
      kept: stage.kept,
      mass: stage.mass,
      removes: s > 0 && stage.kept < recorded[s - 1].kept,
      listed,
      rest: Math.max(0, 1 - listed),
      restKept: Math.max(0, stage.kept - stillListed),
    };
  });
  return {
    stages,
    candidates,
    chosenListed: candidates.some((candidate) => candidate.chosen),
    listedKept: candidates.filter((candidate) => candidate.removedBy === null).length,
  };
}

/**
 * The first stage from which on a candidate has no probability, if that stage removed candidates. A probability that
 * is merely too small for a number is not a removal.
 * @param {any[]} stages
 * @param {number[]} probabilities
 */
function removedBy(stages, probabilities) {
  for (let s = 1; s < stages.length; s++) {
    if (probabilities[s] === 0 && stages[s].kept < stages[s - 1].kept) return s;
  }
  return null;
}

/** @param {number} value */
function plain(value) {
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
}

/**
 * The draw as lengths on a line from 0 to 1: candidates in falling order, as the sampler cumulated them.
 *
 * Only the chosen token's interval is recorded. Those before it follow as long as all of them are listed; where an
 * unlisted candidate lies in between, `exact` is false and only the chosen one's interval is given. Those after it follow
 * only while the order is the model's own: once single logits were changed, unlisted candidates may lie among them.
 * @param {RunEvent} event
 * @param {Sampling} view
 * @returns {{segments: Segment[], exact: boolean, cut: boolean} | null} null when nothing was drawn by number; cut: what
 *   follows the chosen one is left out
 */
export function drawSegments(event, view) {
  const { low, high, u } = event.draw ?? {};
  if (typeof low !== "number" || typeof high !== "number" || typeof u !== "number") return null;
  const last = view.stages.length - 1;
  const chosen = view.candidates.find((candidate) => candidate.chosen);
  const label = chosen?.label ?? event.label;
  const own = { id: event.id, label, low, high, chosen: true };
  const falling = view.candidates
    .map((candidate) => ({ candidate, p: candidate.probabilities[last] ?? 0 }))
    .filter(({ p }) => p > 0)
    .sort((a, b) => b.p - a.p || a.candidate.id - b.candidate.id);
  /** @type {Segment[]} */
  const segments = [];
  let at = 0;
  for (const { candidate, p } of falling) {
    segments.push({ id: candidate.id, label: candidate.label, low: at, high: at + p, chosen: candidate.chosen });
    at += p;
  }
  const found = segments.find((segment) => segment.chosen);
  const exact = found ? Math.abs(found.low - low) < 1e-4 && Math.abs(found.high - high) < 1e-4 : low >= at - 1e-4;
  if (!exact) return { segments: [own], exact, cut: false };
  if (found) Object.assign(found, own);
  else segments.push(own);
  const cut = view.stages.some(({ name }) => REORDERING.has(name)) && segments.at(-1)?.chosen === false;
  if (cut) segments.length = segments.findIndex(({ chosen: taken }) => taken) + 1;
  return { segments, exact, cut };
}

/**
 * The token whose choosing the selection is about: the followed one where it was chosen, the one after it where it was
 * used (its pass led to that guess).
 * @param {{position: number | null, act: "chosen" | "used"}} selection
 */
export function drawnPosition({ position, act }) {
  if (position === null) return null;
  return act === "chosen" ? position : position + 1;
}
