// The ribbon's chips: what each shows, is called, and tells of its token.

import { css, inkOn, unpack } from "./colour.js";
import { fill, h, setAttribute } from "./dom.js";
import { entropy, hex, percent, plural, weight } from "./format.js";
import { queryPosition } from "./model.js";
import { requestName } from "./requests.js";
import { computedBy } from "./reuse.js";
import { whatIsHere } from "./tensor-words.js";
import { bytesNote, pieceNumber, pieceText, tokenText } from "./token-names.js";
import { quoted, wordNodes } from "./words.js";

/** @typedef {import("./store.js").State} State */
/** @typedef {import("./model.js").RequestRecord} RequestRecord */
/** @typedef {import("./tokens.js").TokenRecord} TokenRecord */

/** Characters that are sure to fit on a line of the narrowest ribbon. */
const LONG = 24;

/** @param {Event} event @returns {number | null} */
export function positionOf(event) {
  const chip = event.target instanceof Element ? event.target.closest(".chip") : null;
  return chip ? Number(/** @type {HTMLElement} */ (chip).dataset.position) : null;
}

/** Gives a chip its text and its name. @param {HTMLElement} chip @param {TokenRecord} token */
export function dress(chip, token) {
  const { group, position } = token;
  const kinds = ["chip"];
  if (token.special || token.role === "template") kinds.push("template");
  if (token.event) kinds.push("answer");
  // To clip a chip costs a layer to compose, with each frame: only what may be wider than its line is clipped.
  if (tokenText(token).length > LONG) kinds.push("long");
  if (group) kinds.push("piece", position === group.from ? "first" : position === group.to ? "last" : "middle");
  chip.className = kinds.join(" ");
  chip.dataset.role = token.role;
  // The character is written once, on its first piece: the chips are read as a text.
  const text = group && position > group.from ? [] : wordNodes(tokenText(token));
  fill(chip, text, group ? h("span", { class: "piece-of" }, pieceNumber(token)) : null);
  const piece = pieceText(token);
  chip.setAttribute("aria-label", `${tokenText(token).trim() || quoted(token)}${piece ? `, ${piece}` : ""}, position ${position}`);
}

/**
 * Gives a chip its colour: a pixel of the ramp, or a tone.
 * @param {HTMLElement} chip
 * @param {number | null} pixel
 * @param {import("./ribbon-colours.js").Tone | null} tone
 */
export function paint(chip, pixel, tone) {
  setAttribute(chip, "data-tone", tone && tone.name);
  setAttribute(chip, "data-hue", tone && tone.hue !== null ? String(tone.hue) : null);
  setAttribute(chip, "data-block", tone && tone.label);
  if (pixel === null) {
    if (chip.style.background) chip.style.cssText = "";
    return;
  }
  chip.style.background = css(pixel);
  chip.style.color = inkOn(unpack(pixel));
}

/** What a chip's tip tells of its token. @param {RequestRecord} record @param {number} position @param {State} state */
export function chipText(record, position, { run, selection }) {
  const token = record.tokens[position];
  if (!token) return "";
  const lines = [`${quoted(token)} · position ${position} · id ${token.id}`];
  lines.push(token.bytes.length ? `${plural(token.bytes.length, "byte")}: ${hex(token.bytes)}` : "control token: no bytes of its own");
  const note = token.group || token.special ? "" : bytesNote(token.label);
  if (note) lines.push(note);
  if (token.event?.logprob != null) {
    lines.push(`probability ${percent(Math.exp(token.event.logprob))} · entropy ${entropy(token.event.entropy_bits)} when chosen`);
  } else lines.push(token.event ? "probability not captured" : `from the prompt (${token.role})`);
  const place = run?.blocks?.placeOf(record.id, position);
  const writer = run && computedBy(run, record, position);
  if (place) lines.push(`KV block ${place.block}, offset ${place.offset}${run && writer && writer !== record.id ? ` · computed by ${requestName(run, writer)}` : ""}`);
  const query = queryPosition(selection);
  const array = query === null ? undefined : record.attention.get(query);
  const mean = array?.overallMean()[position - (array.event.first_key ?? 0)];
  const { layers = 0, heads = 0 } = run?.header?.model ?? {};
  if (mean !== undefined) lines.push(`attention from ${quoted(record.tokens[query ?? 0])}: ${weight(mean)} (mean of ${array ? whatIsHere(array, layers, heads) : ""})`);
  return lines.join("\n");
}
