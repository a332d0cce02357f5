/** Where a step's time went: its operations by layer, their sums, and how much slower timing made it. Pure. */

import { count } from "../format.js";

/** @typedef {import("../codec.js").RunEvent} RunEvent */
/** @typedef {import("../model.js").Run} Run */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */

/** Operations in the order of the model; others come after, as they came. */
const ORDER = ["embedding", "norm", "qkv_projection", "rope", "kv_write", "attention", "output_projection", "mixer", "mlp", "linear", "head", "choice", "capture", "other"];

/** Which part of a layer an operation belongs to: gives it its colour. @type {Record<string, "attention" | "mlp">} */
const PARTS = { qkv_projection: "attention", rope: "attention", kv_write: "attention", attention: "attention", output_projection: "attention", mixer: "attention", mlp: "mlp" };

/**
 * @typedef {object} StepTimes
 * @property {string[]} operations inside the layers, in order
 * @property {number[][]} cells `[layers][operations]` nanoseconds
 * @property {number} largest cell
 * @property {{operation: string, ns: number, calls: number, inside: boolean}[]} totals most time first
 * @property {number} inside nanoseconds in the layers
 * @property {number} sum nanoseconds of all that is shown
 * @property {number} others kernels of other requests' own passes, which are left out
 */

/**
 * The kernels of a step as a table.
 * @param {readonly RunEvent[]} kernels
 * @param {number} layers
 * @param {string | null} request where requests had passes of their own, this one's are shown
 * @returns {StepTimes}
 */
export function stepTimes(kernels, layers, request) {
  const own = kernels.filter((kernel) => (kernel.request ?? null) === null || kernel.request === request);
  const operations = inOrder(new Set(own.filter(({ layer }) => layer !== null).map(({ operation }) => operation)));
  const cells = Array.from({ length: layers }, () => new Array(operations.length).fill(0));
  /** @type {Map<string, {operation: string, ns: number, calls: number, inside: boolean}>} */
  const totals = new Map();
  let [inside, sum, largest] = [0, 0, 0];
  for (const { layer, operation, duration_ns: ns } of own) {
    const known = totals.get(operation) ?? { operation, ns: 0, calls: 0, inside: false };
    totals.set(operation, known);
    known.ns += ns;
    known.calls += 1;
    sum += ns;
    if (layer === null || !cells[layer]) continue;
    known.inside = true;
    inside += ns;
    const at = operations.indexOf(operation);
    cells[layer][at] += ns;
    largest = Math.max(largest, cells[layer][at]);
  }
  return { operations, cells, largest, totals: [...totals.values()].sort((a, b) => b.ns - a.ns), inside, sum, others: kernels.length - own.length };
}

/** @param {Iterable<string>} operations */
function inOrder(operations) {
  const place = (/** @type {string} */ operation) => (ORDER.indexOf(operation) + ORDER.length + 1) % (ORDER.length + 1);
  return [...operations].sort((a, b) => place(a) - place(b));
}

/** @param {string} operation @returns {"attention" | "mlp" | "none"} */
export function partOf(operation) {
  return PARTS[operation] ?? "none";
}

/** "qkv_projection" → "qkv projection". What is captured is worked on in two places. @param {string} operation */
export function operationName(operation) {
  if (operation === "capture") return "capture, on the device";
  return operation.replaceAll("_", " ");
}

/**
 * How much slower a timed step was than it would have been.
 * @param {RunEvent | null | undefined} finished a `step.finished` event
 * @returns {number | null} null where no like step was measured
 */
export function slowdown(finished) {
  return finished?.normal_ns ? finished.eval_ns / finished.normal_ns : null;
}

/**
 * The timed step that lies nearest, of the request first: there, a token of it can be followed.
 * @param {Run} run
 * @param {RequestRecord} record
 * @param {number | null} step the followed one
 * @returns {{step: number, request: string, row: import("./scheduler-data.js").Row} | null}
 */
export function nearestTimed(run, record, step) {
  // Where no step is followed, the latest is the nearest.
  const to = step ?? Number.MAX_SAFE_INTEGER;
  const near = (/** @type {number[]} */ steps) => steps.sort((a, b) => Math.abs(a - to) - Math.abs(b - to))[0];
  const own = record.rows.filter((row) => run.kernels.has(row.step));
  const at = near(own.map((row) => row.step)) ?? near([...run.kernels.keys()]);
  if (at === undefined) return null;
  const rows = /** @type {import("./scheduler-data.js").Row[]} */ (run.steps.get(at)?.started?.rows ?? []);
  const row = rows.find(({ request }) => request === record.id) ?? rows[0];
  return row ? { step: at, request: row.request, row } : null;
}

/** That there are timed steps, and which is the nearest. @param {number} step @param {number} all */
export function timedWords(step, all) {
  return all === 1 ? `Step ${count(step)} was timed.` : `Step ${count(step)} was timed, the nearest of ${count(all)} that were.`;
}

/**
 * What step.finished says of any step, timed or not: parts that overlap with others, so they do not add up.
 * @param {RunEvent} finished
 * @returns {{name: string, ns: number, key: "kernels.wall" | "kernels.wait" | "kernels.build" | "kernels.sample" | "kernels.capture"}[]}
 */
export function split(finished) {
  // A timed step is built and waited for operation by operation: neither is a phase of it.
  const phases = /** @type {const} */ ([{ name: "waiting", ns: finished.wait_ns, key: "kernels.wait" }, { name: "build", ns: finished.build_ns, key: "kernels.build" }]);
  return [
    { name: "step wall", ns: finished.eval_ns, key: "kernels.wall" },
    ...(finished.timing ? [] : phases),
    { name: "sampling", ns: finished.sample_ns, key: "kernels.sample" },
    { name: "capture, on the host", ns: finished.capture_ns, key: "kernels.capture" },
  ];
}
