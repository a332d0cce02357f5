/** What the memory panel says of blocks, in words and numbers. */

import { count, plural, visibleText } from "../format.js";
import { requestName } from "../requests.js";
import { tokenText } from "../token-names.js";
import { exactWeight } from "./attention-words.js";

/** @typedef {import("../model.js").Run} Run */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("../blocks.js").Block} Block */
/** @typedef {import("../codec.js").RunEvent} RunEvent */

/**
 * The text of a block's tokens, as its holder (or the request that computed it) has them.
 * @param {RequestRecord | undefined} record
 * @param {[number, number] | null} positions
 * @param {number} [most] characters
 */
export function blockText(record, positions, most = 80) {
  if (!record || !positions) return "";
  const text = visibleText(record.tokens.slice(positions[0], positions[1]).map((token) => token.group ? (token.position === token.group.from ? tokenText(token) : "") : tokenText(token)).join(""));
  const characters = Array.from(text);
  return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : text;
}

/** "0–15" @param {[number, number] | null} positions */
export function positionsText(positions) {
  return positions ? `${count(positions[0])}–${count(positions[1] - 1)}` : "–";
}

/**
 * A block in lines of text.
 * @param {Run} run
 * @param {Block} block
 * @param {{mass: number | undefined, what: string, computed: number}} more attention on it and whose; how many of its positions are computed
 */
export function describeBlock(run, block, { mass, what, computed }) {
  const size = run.blocks?.size ?? 0;
  if (block.state === "free") return `Block ${block.block}: free`;
  const names = block.holders.map((id) => requestName(run, id));
  const head =
    block.state === "cached"
      ? `Block ${block.block}: cached. Nobody holds it; a request that begins the same can find it, and it goes when room is needed`
      : block.refs > 1
        ? `Block ${block.block}: held by ${block.refs} requests, and computed once`
        : `Block ${block.block}: held by one request`;
  const lines = [head];
  for (const name of names.slice(0, 6)) lines.push(`  ${name}`);
  if (names.length > 6) lines.push(`  and ${plural(names.length - 6, "other")}`);
  lines.push(`positions ${positionsText(block.positions)} of the sequence${block.state === "held" && computed < size ? `, ${computed} of ${size} written` : ""}`);
  if (block.writer && !(names.length === 1 && block.holders[0] === block.writer)) lines.push(`computed by ${requestName(run, block.writer)}`);
  if (block.copiedFrom) lines.push(`begun as a copy of a block of ${requestName(run, block.copiedFrom)}`);
  const text = blockText(run.requests.get(block.writer ?? block.holders[0]), block.positions);
  if (text) lines.push(text);
  lines.push(block.prefix_hash ? `hash ${block.prefix_hash.slice(0, 12)}… over all tokens up to its end` : "no hash yet: it cannot be found by its content until it is full");
  if (block.parent_hash) lines.push(`after ${block.parent_hash.slice(0, 12)}…`);
  if (mass !== undefined) lines.push(`${what}: ${exactWeight(mass)}`);
  return lines.join("\n");
}

/** What an event did, after its block's number. @type {Record<string, (event: RunEvent, name: string) => string>} */
const DID = {
  "block.allocated": (event, name) => `given to ${name} for positions ${positionsText(event.positions)}`,
  "block.stored": () => "full: can be found by its content from now on",
  "block.reused": (event, name) => `found in the prefix cache by ${name}; ${plural(event.refs, "holder")} now`,
  "block.ref_changed": (event, name) => (event.refs === 0 ? `given back by ${name}, and kept in the cache` : `${plural(event.refs, "holder")} after ${name}`),
  "block.copied": (event, name) => `copied from ${event.source} for ${name}, which may not write the shared one`,
  "block.freed": (_, name) => `freed by ${name}`,
  "block.evicted": (event, name) => (event.reason === "room" ? `evicted to make room for ${name}` : `evicted: ${name} failed, and it may be wrong`),
};

/** @param {Run} run @param {RunEvent} event */
export function eventText(run, event) {
  return (DID[event.kind] ?? (() => event.kind))(event, requestName(run, event.request));
}
