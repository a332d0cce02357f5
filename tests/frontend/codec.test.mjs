import assert from "node:assert/strict";
import test from "node:test";

import { FrameError, MessageReader, parseFrame } from "../../frontend/js/codec.js";
import { random, syntheticRun, tensorMessage, websocketFrame } from "./synthetic.mjs";

const attention = { kind: "attention", seq: 3, t_ns: 9, request: "r", position: 1, layer: 0 };

test("a text message is its event", () => {
  const { event, data } = parseFrame('{"kind":"slot.assigned","seq":1,"t_ns":2,"slot":0,"request":"r"}');
  assert.equal(event.kind, "slot.assigned");
  assert.equal(event.slot, 0);
  assert.equal(data, undefined);
});

test("numbers that JSON cannot write come back as numbers, however deep", () => {
  const { event } = parseFrame(
    '{"kind":"token","seq":1,"t_ns":2,"top":[{"logprob":{"$float":"-Infinity"}},{"logprob":{"$float":"NaN"}},{"logprob":{"$float":"Infinity"}}]}',
  );
  assert.deepEqual(event.top.map((/** @type {any} */ c) => c.logprob), [-Infinity, NaN, Infinity]);
});

test("a token whose text is NaN stays text", () => {
  assert.equal(parseFrame('{"kind":"token","seq":1,"t_ns":2,"label":"NaN","text":"$float"}').event.label, "NaN");
});

test("an object that merely has a $float field among others is left alone", () => {
  const { event } = parseFrame('{"kind":"x","seq":1,"t_ns":2,"v":{"$float":"NaN","other":1}}');
  assert.deepEqual(event.v, { $float: "NaN", other: 1 });
});

test("float32, int32 and scaled bytes are decoded", () => {
  const f32 = parseFrame(tensorMessage(attention, new Float32Array([0.25, -1.5, 3e8]), "f32", [1, 1, 3]));
  assert.deepEqual([...(f32.data ?? [])], [0.25, -1.5, 3e8]);
  const i32 = parseFrame(tensorMessage(attention, new Int32Array([-1, 70000]), "i32", [2]));
  assert.deepEqual([...(i32.data ?? [])], [-1, 70000]);
  const u8 = parseFrame(tensorMessage({ ...attention, scale: 0.5 }, new Uint8Array([0, 3, 255]), "u8", [3]));
  assert.deepEqual([...(u8.data ?? [])], [0, 1.5, 127.5]);
});

test("float16 keeps zeros, subnormals, the largest number, infinities and NaN", () => {
  const bits = new Uint16Array([0x0000, 0x8000, 0x0001, 0x3c00, 0xc000, 0x3555, 0x7bff, 0x7c00, 0xfc00, 0x7e00]);
  const numbers = parseFrame(tensorMessage(attention, bits, "f16", [10])).data;
  assert.deepEqual([...(numbers ?? [])], [0, -0, 2 ** -24, 1, -2, 0.333251953125, 65504, Infinity, -Infinity, NaN]);
});

test("a slice decodes only the numbers asked for", () => {
  const frame = parseFrame(tensorMessage(attention, new Float32Array([1, 2, 3, 4, 5]), "f32", [5]));
  assert.deepEqual([...frame.slice(1, 3)], [2, 3]);
});

test("a message at an odd offset of a larger buffer is decoded", () => {
  const message = tensorMessage(attention, new Float32Array([7, 8]), "f32", [2]);
  const shifted = new Uint8Array(message.length + 3);
  shifted.set(message, 3);
  assert.deepEqual([...(parseFrame(shifted.subarray(3)).data ?? [])], [7, 8]);
});

for (const [name, message] of /** @type {[string, string | Uint8Array][]} */ ([
  ["text that is no JSON", "{kind"],
  ["JSON that is no event", "[1]"],
  ["an event without a kind", '{"seq":1}'],
  ["a binary message of two bytes", new Uint8Array(2)],
  ["a header longer than the message", new Uint8Array([255, 0, 0, 0, 123, 125])],
  ["an unknown dtype", tensorMessage(attention, new Float32Array(1), "f64", [1])],
  ["data cut short", tensorMessage(attention, new Float32Array(4), "f32", [4]).subarray(0, -4)],
  ["a shape that does not fit the data", tensorMessage(attention, new Float32Array(4), "f32", [5])],
])) {
  test(`${name} is a FrameError, not a crash`, () => assert.throws(() => parseFrame(message), FrameError));
}

test("a stream is cut into the same messages wherever the network split it", () => {
  const messages = [...syntheticRun(), "x".repeat(70000), "", new Uint8Array(0)];
  const stream = Buffer.concat(messages.map((message) => websocketFrame(message)));
  const next = random(3);
  for (const largest of [1, 2, 7, 1000, 1e9]) {
    const reader = new MessageReader();
    const found = [];
    for (let at = 0; at < stream.length; ) {
      const size = 1 + Math.floor(next() * largest);
      found.push(...reader.push(new Uint8Array(stream.subarray(at, at + size))));
      at += size;
    }
    reader.end();
    assert.equal(found.length, messages.length);
    found.forEach((message, i) => assert.deepEqual(message, messages[i]));
  }
});

test("fragments are joined, and control frames between them carry nothing", () => {
  const reader = new MessageReader();
  const stream = Buffer.concat([
    websocketFrame("he", { fin: false }),
    websocketFrame("", { opcode: 9 }),
    websocketFrame("llo", { opcode: 0 }),
  ]);
  assert.deepEqual(reader.push(stream), ["hello"]);
});

test("a stream that ends inside a frame says so", () => {
  const reader = new MessageReader();
  reader.push(websocketFrame("hello").subarray(0, 4));
  assert.throws(() => reader.end(), /ended inside a frame/);
});

test("a masked frame, reserved bits and an absurd length are refused", () => {
  assert.throws(() => new MessageReader().push(new Uint8Array([0x81, 0x85, 0, 0, 0, 0])), /masked/);
  assert.throws(() => new MessageReader().push(new Uint8Array([0xf1, 0x01, 0])), /reserved/);
  assert.throws(() => new MessageReader().push(new Uint8Array([0x82, 127, 255, 0, 0, 0, 0, 0, 0, 0])), /at most/);
});
