import assert from "node:assert/strict";
import test from "node:test";

import { LiveSource } from "../../frontend/js/sources/live.js";
import { TraceSource } from "../../frontend/js/sources/trace.js";
import { syntheticRun, websocketFrame } from "./synthetic.mjs";

// --- live -------------------------------------------------------------------------------------------------------------

class FakeSocket {
  static OPEN = 1;
  /** @type {FakeSocket[]} */
  static all = [];

  constructor() {
    this.readyState = 0;
    /** @type {any[]} */
    this.sent = [];
    this.onopen = this.onmessage = this.onclose = /** @type {any} */ (null);
    FakeSocket.all.push(this);
  }

  open() {
    this.readyState = 1;
    this.onopen();
  }

  /** @param {string} text */
  send(text) {
    this.sent.push(JSON.parse(text));
  }

  /** @param {string | Uint8Array} message */
  deliver(message) {
    this.onmessage({ data: typeof message === "string" ? message : message.slice().buffer });
  }

  close(reason = "") {
    this.readyState = 3;
    this.onclose({ reason });
  }
}

function liveSetup() {
  FakeSocket.all = [];
  /** @type {{call: () => void, ms: number}[]} */
  const timers = [];
  /** @type {any[]} */
  const frames = [];
  /** @type {any[]} */
  const states = [];
  const at = { lastSeq: -1, epoch: /** @type {string | null} */ (null) };
  const source = new LiveSource({
    url: "ws://x/ws",
    listener: { frame: (frame) => frames.push(frame.event), status: (status) => states.push(status) },
    position: () => at,
    Socket: /** @type {any} */ (FakeSocket),
    setTimer: (call, ms) => timers.push({ call, ms }) && timers[timers.length - 1],
    clearTimer: (timer) => timers.includes(timer) && timers.splice(timers.indexOf(timer), 1),
  });
  source.start();
  return { source, timers, frames, states, at, socket: () => FakeSocket.all[FakeSocket.all.length - 1] };
}

test("what the server refuses is said where it was asked for, and where there is no such place, of the connection", () => {
  const { source, socket, states } = liveSetup();
  socket().open();
  socket().deliver(header);
  const error = { kind: "error", command: "lens", message: "positions holds 99", request: "r-1", positions: [99] };
  socket().deliver(JSON.stringify(error));
  assert.equal(states.at(-1).reason, "positions holds 99");
  /** @type {any[]} */
  const told = [];
  source.listener.refused = (/** @type {any} */ event) => told.push(event) > 0;
  socket().deliver(JSON.stringify({ ...error, message: "again" }));
  assert.equal(states.at(-1).reason, "positions holds 99", "once is enough");
  assert.deepEqual([told[0].request, told[0].positions, told[0].message], ["r-1", [99], "again"]);
});

const header = '{"kind":"run.header","seq":0,"t_ns":0,"epoch":"e"}';

test("it says hello first, from where it stands, and is open once the header came", () => {
  const { at, socket, states, frames } = liveSetup();
  Object.assign(at, { lastSeq: 41, epoch: "e" });
  socket().open();
  assert.deepEqual(socket().sent, [{ kind: "hello", last_seq: 41, epoch: "e" }]);
  assert.equal(states.at(-1).state, "connecting");
  socket().deliver(header);
  assert.equal(states.at(-1).state, "open");
  assert.equal(frames.length, 1);
});

test("a lost connection is tried again, later each time, and at once after success", () => {
  const { socket, timers, states } = liveSetup();
  const waits = [];
  for (let i = 0; i < 7; i += 1) {
    socket().close();
    assert.equal(states.at(-1).state, "retrying");
    assert.equal(timers.length, 1);
    waits.push(timers[0].ms);
    timers.splice(0)[0].call();
  }
  assert.deepEqual(waits, [500, 1000, 2000, 4000, 8000, 10000, 10000]);
  socket().open();
  socket().deliver(header);
  socket().close();
  assert.equal(timers[0].ms, 500);
});

test("a server that never answers is given up", () => {
  const { socket, timers, states } = liveSetup();
  socket().open();
  timers.splice(0)[0].call();
  assert.equal(socket().readyState, 3);
  assert.equal(states.at(-1).state, "retrying");
});

test("frames are acknowledged well before the server would hold back", () => {
  const { socket } = liveSetup();
  socket().open();
  socket().deliver(header);
  for (let seq = 1; seq < 250; seq += 1) socket().deliver(`{"kind":"slot.released","seq":${seq},"t_ns":0}`);
  assert.deepEqual(socket().sent.filter((c) => c.kind === "ack").map((c) => c.seq), [99, 199]);
  socket().deliver(JSON.stringify({ kind: "x", seq: 300, t_ns: 0, pad: "x".repeat(2 ** 20) }));
  assert.equal(socket().sent.at(-1).seq, 300);
});

test("hidden it pauses, seen again it resumes, and pauses anew on a connection made meanwhile", () => {
  const { source, socket, timers } = liveSetup();
  socket().open();
  source.pause();
  source.pause();
  assert.deepEqual(socket().sent.map((c) => c.kind), ["hello", "pause"]);
  socket().close();
  timers.splice(0)[0].call();
  socket().open();
  assert.deepEqual(socket().sent.map((c) => c.kind), ["hello", "pause"]);
  source.resume();
  assert.equal(socket().sent.at(-1).kind, "resume");
});

test("a frame that cannot be read is reported, and the next one is taken", () => {
  const { socket, states, frames } = liveSetup();
  socket().open();
  socket().deliver(header);
  socket().deliver(new Uint8Array([255, 255, 255, 255, 0]));
  assert.match(states.at(-1).reason, /could not be read/);
  socket().deliver('{"kind":"token","seq":5,"t_ns":0}');
  assert.equal(frames.length, 2);
});

test("what a socket that was left still says is not listened to", () => {
  const { source, socket, frames } = liveSetup();
  const old = socket();
  old.open();
  source.restart();
  assert.notEqual(socket(), old);
  old.deliver(header);
  assert.equal(frames.length, 0);
});

// --- traces -----------------------------------------------------------------------------------------------------------

/** @param {Response | Error} answer @param {string} [name] */
function traceSetup(answer, name = "a b") {
  /** @type {any[]} */
  const frames = [];
  /** @type {any[]} */
  const states = [];
  /** @type {string[]} */
  const asked = [];
  const source = new TraceSource({
    name,
    listener: { frame: (frame) => frames.push(frame.event), status: (status) => states.push(status) },
    request: /** @type {any} */ (async (/** @type {string} */ url) => {
      asked.push(url);
      if (answer instanceof Error) throw answer;
      return answer;
    }),
    breathe: async () => {},
  });
  return { source, frames, states, asked };
}

const body = () => Buffer.concat(syntheticRun().map((message) => websocketFrame(message)));

test("a trace is read whole, under its encoded name", async () => {
  const { source, frames, states, asked } = traceSetup(new Response(body()));
  await source.start();
  assert.deepEqual(asked, ["v1/traces/a%20b/frames"]);
  assert.equal(frames.length, syntheticRun().length);
  assert.equal(states.at(-1).state, "complete");
  assert.equal(states.at(-1).received, body().length);
});

test("a trace that breaks off keeps what came, and says so", async () => {
  const { source, frames, states } = traceSetup(new Response(body().subarray(0, 5000)));
  await source.start();
  assert.ok(frames.length > 2);
  assert.equal(states.at(-1).state, "failed");
  assert.match(states.at(-1).reason, /damaged.*ended inside a frame/);
});

test("a trace that is not there gives the server's words", async () => {
  const { source, states } = traceSetup(Response.json({ error: { message: "no trace of that name" } }, { status: 404 }));
  await source.start();
  assert.deepEqual(states.at(-1), { state: "failed", reason: "The trace “a b” could not be opened: no trace of that name" });
});

test("a server that is gone is told apart from a damaged trace", async () => {
  const { source, states } = traceSetup(new TypeError("fetch failed"));
  await source.start();
  assert.match(states.at(-1).reason, /could not be reached/);
});

test("a source that was stopped says nothing more", async () => {
  const { source, states } = traceSetup(new Response(body()));
  const started = source.start();
  source.stop();
  await started;
  assert.ok(!states.some((status) => ["complete", "failed"].includes(status.state)));
});
