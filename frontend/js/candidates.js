// A token's candidates as a run keeps them: as numbers in arrays that many tokens share. As objects, twenty a token, they are
// more than half of what a long run takes in memory, and few of them are ever looked at.

/** @typedef {{id: number, label: string, logprob: number, logit: number}} Candidate */

/** Numbers of each: which token it is, and its logprob and logit. */
const FIELDS = 3;

/** Numbers an array holds: a hundred tokens' candidates or so. */
const SHARED = 6144;

/** Tokens by id and label, told apart by both: runs may be of different models. @type {{id: number, label: string}[]} */
const names = [];
/** @type {Map<string, number>} */
const known = new Map();
let shared = new Float64Array(0);
let used = 0;

class Packed {
  /** @param {Float64Array} numbers @param {number} from @param {number} length of candidates */
  constructor(numbers, from, length) {
    this.numbers = numbers;
    this.from = from;
    this.length = length;
  }
}

/** Has an event's candidates take little room; such as hold anything else stay as they are. @param {import("./codec.js").RunEvent} event a `token` event */
export function packCandidates(event) {
  const { top } = event;
  if (!Array.isArray(top) || top.length === 0 || !top.every(isPlain)) return;
  const size = top.length * FIELDS;
  if (used + size > shared.length) {
    shared = new Float64Array(Math.max(SHARED, size));
    used = 0;
  }
  top.forEach((candidate, i) => shared.set([nameOf(candidate), candidate.logprob, candidate.logit], used + i * FIELDS));
  event.top = new Packed(shared, used, top.length);
  used += size;
}

/** An event's candidates, the most probable first. @param {Record<string, any>} event a `token` event @returns {Candidate[]} */
export function candidatesOf({ top }) {
  if (!(top instanceof Packed)) return top ?? [];
  return Array.from({ length: top.length }, (_, i) => {
    const [name, logprob, logit] = top.numbers.subarray(top.from + i * FIELDS, top.from + (i + 1) * FIELDS);
    return { ...names[name], logprob, logit };
  });
}

/** @param {any} candidate */
function isPlain(candidate) {
  return typeof candidate?.id === "number" && typeof candidate.label === "string" && typeof candidate.logprob === "number" && typeof candidate.logit === "number" && Object.keys(candidate).length === 4;
}

/** @param {Candidate} candidate @returns {number} */
function nameOf({ id, label }) {
  const key = `${id} ${label}`;
  let index = known.get(key);
  if (index === undefined) {
    index = names.push({ id, label }) - 1;
    known.set(key, index);
  }
  return index;
}
