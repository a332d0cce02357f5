// Tokens of a request as the page shows them: bytes, text, and which pieces make up one character together.

import { packCandidates } from "./candidates.js";

/** @typedef {import("./codec.js").RunEvent} RunEvent */

/**
 * Tokens whose bytes only together are characters: positions `from` … `to`, both included.
 * @typedef {{from: number, to: number, text: string}} PieceGroup
 */

/**
 * @typedef {object} TokenRecord
 * @property {number} position its place in prompt + answer
 * @property {number} id
 * @property {Uint8Array} bytes
 * @property {string | null} text its own bytes as text; null when they are no whole character
 * @property {string} label for display: the text, a control token's name, or its bytes as <0xE6>
 * @property {string} role system, user, assistant or template
 * @property {boolean} special true for control tokens
 * @property {number | null} start first character in the prompt's text (code points)
 * @property {number | null} end
 * @property {RunEvent | null} event the `token` event, for generated tokens
 * @property {PieceGroup | null} group
 */

/**
 * Pieces of a character that is not whole yet.
 * @typedef {{from: number, bytes: Uint8Array}} OpenPieces
 */

/**
 * Adds a token to the list, and settles which text it carries, alone or with those before it.
 * @param {TokenRecord[]} tokens
 * @param {TokenRecord} token
 * @param {OpenPieces | null} open what the token before left unfinished
 * @returns {OpenPieces | null} what this one leaves unfinished
 */
export function appendToken(tokens, token, open) {
  tokens[token.position] = token;
  if (token.special || token.bytes.length === 0) {
    token.text = token.label;
    return null;
  }
  if (open && open.from + 8 > token.position) {
    const bytes = new Uint8Array([...open.bytes, ...token.bytes]);
    const text = decodeUtf8(bytes);
    if (text === "partial") {
      token.label = byteLabel(token.bytes);
      return { from: open.from, bytes };
    }
    if (text !== "broken") {
      const group = { from: open.from, to: token.position, text: text.whole };
      for (let p = group.from; p <= group.to; p += 1) if (tokens[p]) tokens[p].group = group;
      token.label = byteLabel(token.bytes);
      return null;
    }
  }
  const text = decodeUtf8(token.bytes);
  if (typeof text === "object") {
    token.text = text.whole;
    token.label = text.whole;
    return null;
  }
  token.label = byteLabel(token.bytes);
  return text === "partial" ? { from: token.position, bytes: token.bytes } : null;
}

/**
 * @param {RunEvent} tokenized a `request.tokenized` event
 * @param {string | null} promptText
 * @returns {{tokens: TokenRecord[], open: OpenPieces | null}}
 */
export function promptTokens(tokenized, promptText) {
  const characters = promptText === null ? null : sliceByCodePoint(promptText);
  /** @type {TokenRecord[]} */
  const tokens = [];
  /** @type {OpenPieces | null} */
  let open = null;
  tokenized.tokens.forEach((/** @type {any} */ given, /** @type {number} */ position) => {
    const written = characters?.(given.start, given.end) ?? "";
    const token = {
      position,
      id: given.id,
      bytes: bytesOfHex(given.bytes_hex ?? ""),
      text: null,
      label: given.label ?? (written || `#${given.id}`),
      role: given.role,
      special: Boolean(given.special),
      start: given.start ?? null,
      end: given.end ?? null,
      event: null,
      group: null,
    };
    open = appendToken(tokens, token, open);
  });
  return { tokens, open };
}

/** @param {RunEvent} event a `token` event @returns {TokenRecord} */
export function generatedToken(event) {
  packCandidates(event);
  return {
    position: event.position,
    id: event.id,
    bytes: bytesOfHex(event.bytes_hex),
    text: null,
    label: event.label,
    role: "assistant",
    special: event.special,
    start: null,
    end: null,
    event,
    group: null,
  };
}

/**
 * Offsets in events count code points, as Python does; JavaScript's strings count UTF-16 units.
 * @param {string} text
 * @returns {(start: number, end: number) => string}
 */
export function sliceByCodePoint(text) {
  if (!/[\ud800-\udbff]/.test(text)) return (start, end) => text.slice(start, end);
  const characters = Array.from(text);
  return (start, end) => characters.slice(start, end).join("");
}

/** @param {string} hex */
export function bytesOfHex(hex) {
  const bytes = new Uint8Array(hex.length >> 1);
  for (let i = 0; i < bytes.length; i += 1) bytes[i] = parseInt(hex.slice(2 * i, 2 * i + 2), 16);
  return bytes;
}

/** @param {Uint8Array} bytes */
export function byteLabel(bytes) {
  return Array.from(bytes, (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`).join("");
}

/** @param {Uint8Array} bytes @returns {{whole: string} | "partial" | "broken"} */
function decodeUtf8(bytes) {
  try {
    return { whole: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes) };
  } catch {
    // Not whole. Is it the beginning of something whole?
  }
  try {
    new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes, { stream: true });
    return "partial";
  } catch {
    return "broken";
  }
}
