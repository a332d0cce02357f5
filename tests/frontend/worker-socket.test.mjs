// The live stream on its way from the worker that reads the socket to the page: in order, nothing lost, a batch at a time.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Batches } from "../../frontend/js/sources/batches.js";
import { WorkerSocket } from "../../frontend/js/sources/worker-socket.js";

function batchesSetup() {
  /** @type {any[]} */
  const posted = [];
  const batches = new Batches((said, buffers) => posted.push({ ...said, buffers }));
  return { batches, posted };
}

test("what comes while the page has a batch waits, and comes in order with the next", () => {
  const { batches, posted } = batchesSetup();
  for (const message of ["a", "b", "c"]) batches.add(message);
  assert.deepEqual(posted.map(({ messages }) => messages), [["a"]]);
  batches.taken();
  assert.deepEqual(posted.map(({ messages }) => messages), [["a"], ["b", "c"]]);
  batches.taken();
  batches.add("d");
  assert.deepEqual(posted.at(-1).messages, ["d"]);
});

test("a batch ends at so many messages or bytes, and no message is too large for one", () => {
  const { batches, posted } = batchesSetup();
  batches.add("first");
  for (let i = 0; i < 300; i += 1) batches.add(String(i));
  const large = [new ArrayBuffer(5 * 2 ** 20), new ArrayBuffer(8)];
  for (const buffer of large) batches.add(buffer);
  for (let i = 0; i < 4; i += 1) batches.taken();
  assert.deepEqual(posted.map(({ messages }) => messages.length), [1, 128, 128, 45, 1]);
  assert.deepEqual(posted.slice(1).flatMap(({ messages }) => messages.filter((m) => typeof m === "string")), Array.from({ length: 300 }, (_, i) => String(i)));
  assert.deepEqual(posted[3].buffers, [large[0]]);
  assert.deepEqual(posted[4].messages, [large[1]]);
});

test("the end of the connection is said after all that came before it, once", () => {
  const { batches, posted } = batchesSetup();
  batches.add("a");
  batches.add("b");
  batches.close("restarting");
  assert.deepEqual(posted.map((said) => "closed" in said), [false]);
  batches.taken();
  batches.taken();
  assert.deepEqual(posted.map(({ messages, closed }) => messages ?? closed), [["a"], ["b"], "restarting"]);
});

function socketSetup() {
  const worker = { posted: /** @type {any[]} */ ([]), ended: false, onmessage: /** @type {any} */ (null), onerror: /** @type {any} */ (null), postMessage: (/** @type {any} */ said) => worker.posted.push(said), terminate: () => (worker.ended = true) };
  const socket = new WorkerSocket("ws://x/ws", /** @type {any} */ (worker));
  /** @type {any[]} */
  const heard = [];
  socket.onopen = () => heard.push("open");
  socket.onmessage = ({ data }) => heard.push(data);
  socket.onclose = ({ reason }) => heard.push({ reason });
  return { worker, socket, heard, say: (/** @type {any} */ data) => worker.onmessage({ data }) };
}

test("the page's end behaves as a WebSocket, and asks for more once it has taken a batch", () => {
  const { worker, socket, heard, say } = socketSetup();
  assert.notEqual(socket.readyState, WorkerSocket.OPEN);
  say({ opened: true });
  assert.equal(socket.readyState, WorkerSocket.OPEN);
  socket.send("hello");
  say({ messages: ["a", "b"] });
  assert.deepEqual(worker.posted, [{ open: "ws://x/ws" }, { send: "hello" }, { taken: true }]);
  socket.close();
  assert.deepEqual(worker.posted.at(-1), { close: true });
  say({ closed: "gone" });
  assert.deepEqual(heard, ["open", "a", "b", { reason: "gone" }]);
  assert.notEqual(socket.readyState, WorkerSocket.OPEN);
  assert.ok(worker.ended);
});

test("a message that the page fails on holds nothing up, and takes no other of its batch with it", () => {
  const { worker, socket, heard, say } = socketSetup();
  socket.onmessage = ({ data }) => {
    if (data === "b") throw new Error("a fault of the page's");
    heard.push(data);
  };
  assert.throws(() => say({ messages: ["a", "b", "c"] }), /a fault/);
  assert.deepEqual(heard, ["a", "c"]);
  assert.deepEqual(worker.posted.at(-1), { taken: true });
});

test("a connection that is given up before its worker has answered is closed at once", () => {
  const { worker, socket, heard } = socketSetup();
  socket.close();
  assert.deepEqual(heard, [{ reason: "" }]);
  assert.ok(worker.ended);
});

test("a worker that cannot start is a lost connection", () => {
  const { worker, heard } = socketSetup();
  worker.onerror();
  worker.onerror();
  assert.deepEqual(heard, [{ reason: "" }]);
});
