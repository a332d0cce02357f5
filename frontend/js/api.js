// The server's HTTP routes, as far as the page uses them. Paths are relative: the page works behind a prefix too.

import { MessageReader, parseFrame } from "./codec.js";

/** An answer that was not what was asked for; `status` 0 means that there was no answer. */
export class ApiError extends Error {
  /** @param {string} message @param {number} status */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** What went wrong, in the server's words where it has some. @param {Response} response */
export async function problemOf(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    if (typeof error?.message === "string") return error.message;
  } catch {
    // Not our server's JSON: the status has to do.
  }
  return `the server answered ${response.status} ${response.statusText}`.trim();
}

/** @param {string} path @param {RequestInit} [init] @returns {Promise<Response>} @throws {ApiError} */
async function ask(path, init) {
  let response;
  try {
    response = await fetch(path, init);
  } catch {
    throw new ApiError("the server cannot be reached", 0);
  }
  if (!response.ok) throw new ApiError(await problemOf(response), response.status);
  return response;
}

/** /health answers 503 with the same JSON when something is wrong. @returns {Promise<Record<string, any>>} @throws {ApiError} */
export async function fetchHealth() {
  let response;
  try {
    response = await fetch("health", { cache: "no-store" });
  } catch {
    throw new ApiError("the server cannot be reached", 0);
  }
  if (!response.ok && response.status !== 503) throw new ApiError(await problemOf(response), response.status);
  return response.json();
}

/** @returns {Promise<Record<string, any>[]>} @throws {ApiError} */
export async function fetchTraces() {
  const answer = await (await ask("v1/traces", { cache: "no-store" })).json();
  return Array.isArray(answer) ? answer : (answer.data ?? answer.traces ?? []);
}

/** Bytes of a trace; null where the list that tells is not here. @param {Record<string, any>[]} traces @param {string} name @returns {number | null} */
export function traceSize(traces, name) {
  return traces.find((trace) => trace.name === name)?.size_bytes ?? null;
}

/**
 * A few tensor frames of a run.
 * @param {string} run
 * @param {number} from first seq
 * @param {number} to last seq
 * @param {string} request
 * @returns {Promise<import("./codec.js").Frame[]>}
 * @throws {ApiError}
 */
export async function fetchFrames(run, from, to, request) {
  const query = new URLSearchParams({ from: String(from), to: String(to), kinds: "attention,attention.summary,residual", request });
  const response = await ask(`v1/traces/${encodeURIComponent(run)}/frames?${query}`);
  return new MessageReader().push(new Uint8Array(await response.arrayBuffer())).map(parseFrame);
}

/**
 * What the capture of a request would cost.
 * @param {Record<string, any>} body as it would be sent
 * @returns {Promise<import("./capture-cost.js").Estimate>}
 * @throws {ApiError}
 */
export async function estimateCapture(body) {
  const init = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return (await ask("v1/capture/estimate", init)).json();
}

/** @param {File} file @returns {Promise<Record<string, any>>} what the trace is called here @throws {ApiError} */
export async function uploadTrace(file) {
  const name = encodeURIComponent(file.name);
  const response = await ask(`v1/traces?name=${name}`, {
    method: "POST",
    headers: { "content-type": "application/octet-stream" },
    body: file,
  });
  return response.json();
}

/**
 * @typedef {object} Submission
 * @property {string} id the request's
 * @property {Promise<void>} done settled when the answer ended
 */

/**
 * Sends a prompt. The page watches the answer on the event stream; this response only has to be kept open.
 * @param {Record<string, any>} body
 * @param {{chat: boolean, signal: AbortSignal}} options
 * @returns {Promise<Submission>}
 * @throws {ApiError}
 */
export async function submitPrompt(body, { chat, signal }) {
  return submit(chat ? "v1/chat/completions" : "v1/completions", body, signal);
}

/**
 * Another request that goes on from a position of a running or recent one.
 * @param {string} request
 * @param {Record<string, any>} body position, and token or text
 * @returns {Promise<Submission>}
 * @throws {ApiError}
 */
export async function forkRequest(request, body) {
  return submit(`v1/requests/${encodeURIComponent(request)}/fork`, body, null);
}

/** @param {string} path @param {Record<string, any>} body @param {AbortSignal | null} signal @returns {Promise<Submission>} */
async function submit(path, body, signal) {
  const response = await ask(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  const id = response.headers.get("x-tokenwalk-request");
  if (!id) throw new ApiError("the answer did not name its request", response.status);
  return { id, done: drain(response) };
}

/** @param {Response} response */
async function drain(response) {
  const reader = response.body?.getReader();
  for (;;) {
    const chunk = await reader?.read();
    if (!chunk || chunk.done) return;
  }
}

/** @param {string} request */
export async function cancelRequest(request) {
  await ask(`v1/requests/${encodeURIComponent(request)}/cancel`, { method: "POST" });
}
