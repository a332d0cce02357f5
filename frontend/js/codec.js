// The one encoding of events, as the page reads it. Mirrors engine/codec.py.
//
// A text message is one JSON event. A binary message is one tensor event: u32 little-endian length of the header, the
// header as JSON, zero bytes up to a multiple of 8, raw little-endian data.

/**
 * One event of a run, as it came. `kind`, `seq` and `t_ns` are always there; the rest depends on the kind.
 * @typedef {{kind: string, seq: number, t_ns: number, [field: string]: any}} RunEvent
 */

/** @typedef {Float32Array | Int32Array} Numbers */

export class FrameError extends Error {}

const NON_FINITE = new Map([
  ["NaN", NaN],
  ["Infinity", Infinity],
  ["-Infinity", -Infinity],
]);

const ITEM_BYTES = new Map([
  ["f32", 4],
  ["f16", 2],
  ["u8", 1],
  ["i32", 4],
]);

/**
 * A decoded message. `data` of a tensor event is decoded when it is first asked for, and not kept: float16 rows of a long
 * answer take twice the room as float32.
 */
export class Frame {
  /**
   * @param {RunEvent} event
   * @param {Uint8Array | null} raw the array's bytes, for a tensor event
   * @param {number} [textBytes] length of the event as JSON
   */
  constructor(event, raw, textBytes = 0) {
    this.event = event;
    this.raw = raw;
    this.textBytes = textBytes;
    /** @type {DataView | null} */
    this.view = null;
  }

  /** @returns {Numbers | undefined} all numbers of the array, in C order */
  get data() {
    return this.raw ? this.slice(0, this.length) : undefined;
  }

  /** How many numbers the array has. */
  get length() {
    return this.raw ? this.raw.byteLength / itemBytes(this.event.dtype) : 0;
  }

  /** One number of the flattened array, in place. @param {number} i */
  at(i) {
    const { raw, event } = this;
    if (!raw) throw new FrameError(`${event.kind} carries no array`);
    const scale = event.scale ?? 1;
    if (event.dtype === "u8") return raw[i] * scale;
    this.view ??= new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
    if (event.dtype === "f32") return this.view.getFloat32(4 * i, true) * scale;
    if (event.dtype === "i32") return this.view.getInt32(4 * i, true) * scale;
    halves ??= float16Table();
    return halves[this.view.getUint16(2 * i, true)] * scale;
  }

  /** Decodes the whole array into the beginning of another. @param {Float32Array} out at least as long */
  into(out) {
    const { raw, event } = this;
    if (raw && event.dtype === "f16" && (event.scale ?? 1) === 1) float16(halvesIn(raw, 0, this.length), out);
    else out.set(this.slice(0, this.length));
  }

  /**
   * Numbers `from` ≤ i < `to` of the flattened array, decoding no more than those.
   * @param {number} from
   * @param {number} to
   * @returns {Numbers}
   */
  slice(from, to) {
    if (!this.raw) throw new FrameError(`${this.event.kind} carries no array`);
    return decodeNumbers(this.raw, this.event.dtype, from, to, this.event.scale ?? 1);
  }
}

/**
 * @param {string | ArrayBuffer | Uint8Array} message as a WebSocket or the frames route gives it
 * @returns {Frame}
 * @throws {FrameError} when the message is not what the format says
 */
export function parseFrame(message) {
  if (typeof message === "string") return new Frame(parseEvent(message), null, message.length);
  const bytes = message instanceof Uint8Array ? message : new Uint8Array(message);
  if (bytes.byteLength < 4) throw new FrameError(`a tensor frame of ${bytes.byteLength} bytes has no header`);
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  if (4 + length > bytes.byteLength) {
    throw new FrameError(`a tensor frame of ${bytes.byteLength} bytes claims a header of ${length}`);
  }
  const event = parseEvent(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const start = Math.ceil((4 + length) / 8) * 8;
  const raw = bytes.subarray(Math.min(start, bytes.byteLength));
  const shape = Array.isArray(event.shape) ? event.shape : [];
  const count = shape.reduce((product, n) => product * n, 1);
  const expected = count * itemBytes(event.dtype);
  if (raw.byteLength !== expected || event.byte_length !== expected) {
    throw new FrameError(`${event.kind}: ${raw.byteLength} bytes of data for shape [${shape}] of ${event.dtype}`);
  }
  return new Frame(event, raw);
}

/** @param {string} text @returns {RunEvent} */
function parseEvent(text) {
  /** @type {any} */
  let event;
  try {
    event = text.includes('"$float"') ? JSON.parse(text, restoreFloat) : JSON.parse(text);
  } catch (error) {
    throw new FrameError(`a frame is not JSON: ${/** @type {Error} */ (error).message}`);
  }
  if (event === null || typeof event !== "object" || typeof event.kind !== "string") {
    throw new FrameError("a frame is not an event: it has no kind");
  }
  return event;
}

/** @param {string} _key @param {any} value */
function restoreFloat(_key, value) {
  if (value === null || typeof value !== "object" || !("$float" in value) || Object.keys(value).length !== 1) return value;
  return NON_FINITE.get(value.$float) ?? value;
}

/** @param {string} dtype */
function itemBytes(dtype) {
  const bytes = ITEM_BYTES.get(dtype);
  if (!bytes) throw new FrameError(`unknown dtype ${dtype}; expected ${[...ITEM_BYTES.keys()].join(", ")}`);
  return bytes;
}

/**
 * @param {Uint8Array} raw
 * @param {string} dtype
 * @param {number} from
 * @param {number} to
 * @param {number} scale
 * @returns {Numbers}
 */
function decodeNumbers(raw, dtype, from, to, scale) {
  const size = itemBytes(dtype);
  const read = () => {
    if (dtype === "f16") return float16(halvesIn(raw, from, to), new Float32Array(to - from));
    // A copy, because a frame cut out of a stream need not lie at a multiple of the item's size.
    const bytes = raw.slice(from * size, to * size);
    return dtype === "f32" ? new Float32Array(bytes.buffer) : new Int32Array(bytes.buffer);
  };
  if (dtype === "u8") return Float32Array.from(raw.subarray(from, to), (byte) => byte * scale);
  const numbers = read();
  return scale === 1 ? numbers : Float32Array.from(numbers, (number) => number * scale);
}

/** @type {Float32Array | null} */
let halves = null;

/** The bits of float16 numbers, in place where they lie at a multiple of their size. @param {Uint8Array} raw @param {number} from @param {number} to */
function halvesIn(raw, from, to) {
  const start = raw.byteOffset + 2 * from;
  if (start % 2 === 0) return new Uint16Array(raw.buffer, start, to - from);
  return new Uint16Array(raw.slice(2 * from, 2 * to).buffer);
}

/** @param {Uint16Array} bits @param {Float32Array} numbers at least as long @returns {Float32Array} `numbers` */
function float16(bits, numbers) {
  const table = (halves ??= float16Table());
  for (let i = 0; i < bits.length; i += 1) numbers[i] = table[bits[i]];
  return numbers;
}

/** Every float16 there is, by its bits: one look-up a number is less than half of what Float16Array takes, where there is one. */
function float16Table() {
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits += 1) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 0x1f;
    const fraction = bits & 0x3ff;
    if (exponent === 31) table[bits] = fraction ? NaN : sign * Infinity;
    else if (exponent === 0) table[bits] = sign * fraction * 2 ** -24;
    else table[bits] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
  }
  return table;
}

const LARGEST_MESSAGE = 2 ** 30;

/**
 * Cuts a byte stream into WebSocket messages (RFC 6455, server to client: unmasked, no extensions), however the network
 * split it.
 */
export class MessageReader {
  constructor() {
    /** @type {Uint8Array} */
    this.rest = new Uint8Array(0);
    /** @type {Uint8Array[]} pieces that came after `rest`, not yet joined to it */
    this.waiting = [];
    this.waitingBytes = 0;
    /** How many bytes are needed before a message can be whole: saves joining again and again. */
    this.needed = 2;
    /** @type {{opcode: number, parts: Uint8Array[]} | null} */
    this.fragments = null;
  }

  /**
   * @param {Uint8Array} chunk
   * @returns {(string | Uint8Array)[]} the messages that are whole now
   * @throws {FrameError}
   */
  push(chunk) {
    this.waiting.push(chunk);
    this.waitingBytes += chunk.byteLength;
    if (this.rest.byteLength + this.waitingBytes < this.needed) return [];
    this.rest = concatenate([this.rest, ...this.waiting]);
    this.waiting = [];
    this.waitingBytes = 0;
    const messages = [];
    let offset = 0;
    for (;;) {
      const frame = readHead(this.rest, offset);
      if (!frame || frame.end > this.rest.byteLength) {
        this.needed = (frame ? frame.end : this.rest.byteLength + 1) - offset;
        break;
      }
      const message = this.accept(frame, this.rest.subarray(frame.start, frame.end));
      if (message !== null) messages.push(message);
      offset = frame.end;
    }
    this.rest = this.rest.subarray(offset);
    return messages;
  }

  /** @throws {FrameError} when the stream ended inside a message */
  end() {
    const left = this.rest.byteLength + this.waitingBytes;
    if (left || this.fragments) throw new FrameError(`the stream ended inside a frame, ${left} bytes into it`);
  }

  /**
   * @param {{opcode: number, final: boolean}} head
   * @param {Uint8Array} payload
   * @returns {string | Uint8Array | null}
   */
  accept(head, payload) {
    if (head.opcode >= 8) return null; // close, ping and pong carry no event
    if (head.opcode !== 0) this.fragments = { opcode: head.opcode, parts: [] };
    if (!this.fragments) throw new FrameError("a continuation frame continues nothing");
    this.fragments.parts.push(payload);
    if (!head.final) return null;
    const { opcode, parts } = this.fragments;
    this.fragments = null;
    // Copied: a message that is kept must not keep the whole download alive with it.
    const whole = parts.length === 1 ? parts[0].slice() : concatenate(parts);
    if (opcode === 1) return new TextDecoder().decode(whole);
    if (opcode === 2) return whole;
    throw new FrameError(`opcode ${opcode}; expected 1 (text) or 2 (binary)`);
  }
}

/**
 * @param {Uint8Array} bytes
 * @param {number} at
 * @returns {{opcode: number, final: boolean, start: number, end: number} | null} null while the head is not whole
 */
function readHead(bytes, at) {
  const available = bytes.byteLength - at;
  if (available < 2) return null;
  const [first, second] = [bytes[at], bytes[at + 1]];
  if (first & 0x70) throw new FrameError("reserved bits are set: not a stream of plain WebSocket frames");
  if (second & 0x80) throw new FrameError("a masked frame; servers send unmasked ones");
  let length = second & 0x7f;
  let start = at + 2;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (length === 126) {
    if (available < 4) return null;
    length = view.getUint16(at + 2);
    start = at + 4;
  } else if (length === 127) {
    if (available < 10) return null;
    length = Number(view.getBigUint64(at + 2));
    start = at + 10;
  }
  if (length > LARGEST_MESSAGE) throw new FrameError(`a frame of ${length} bytes; at most ${LARGEST_MESSAGE} are read`);
  return { opcode: first & 0x0f, final: (first & 0x80) !== 0, start, end: start + length };
}

/** @param {Uint8Array[]} parts */
function concatenate(parts) {
  const filled = parts.filter((part) => part.byteLength > 0);
  if (filled.length === 1) return filled[0];
  const whole = new Uint8Array(filled.reduce((sum, part) => sum + part.byteLength, 0));
  let offset = 0;
  for (const part of filled) {
    whole.set(part, offset);
    offset += part.byteLength;
  }
  return whole;
}
