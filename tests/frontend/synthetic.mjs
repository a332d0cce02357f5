// Made-up events in the real schema and the real encoding, for tests of the page without an engine.

/** @param {object} event @param {Float32Array | Uint16Array | Uint8Array | Int32Array} array @param {string} dtype @param {number[]} shape */
export function tensorMessage(event, array, dtype, shape) {
  const head = new TextEncoder().encode(JSON.stringify({ ...event, dtype, shape, byte_length: array.byteLength }));
  const start = Math.ceil((4 + head.length) / 8) * 8;
  const message = new Uint8Array(start + array.byteLength);
  new DataView(message.buffer).setUint32(0, head.length, true);
  message.set(head, 4);
  message.set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength), start);
  return message;
}

/** A server-to-client WebSocket frame. @param {string | Uint8Array} message @param {{fin?: boolean, opcode?: number}} [options] */
export function websocketFrame(message, { fin = true, opcode } = {}) {
  const payload = typeof message === "string" ? new TextEncoder().encode(message) : message;
  const size = payload.length;
  const head = size < 126 ? 2 : size < 65536 ? 4 : 10;
  const frame = new Uint8Array(head + size);
  const view = new DataView(frame.buffer);
  frame[0] = (fin ? 0x80 : 0) | (opcode ?? (typeof message === "string" ? 1 : 2));
  if (size < 126) frame[1] = size;
  else if (size < 65536) {
    frame[1] = 126;
    view.setUint16(2, size);
  } else {
    frame[1] = 127;
    view.setBigUint64(2, BigInt(size));
  }
  frame.set(payload, head);
  return frame;
}

/** Deterministic numbers in [0, 1). @param {number} seed */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state * 1664525 + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const hex = (/** @type {string | Uint8Array} */ text) =>
  Array.from(typeof text === "string" ? new TextEncoder().encode(text) : text, (b) => b.toString(16).padStart(2, "0")).join("");

/**
 * @param {object} options
 * @param {(string | Uint8Array)[]} [options.prompt] tokens of the prompt; "<|…|>" ones are control tokens
 * @param {(string | Uint8Array)[]} [options.answer]
 * @returns {(string | Uint8Array)[]} the messages of a whole run of one request
 */
export function syntheticRun({
  prompt = ["<|im_start|>", "user", "\n", "Where", " is", " Paris", "?", "<|im_end|>"],
  answer = ["In", " France", ".", "<|im_end|>"],
  layers = 4,
  heads = 3,
  hidden = 8,
  request = "req-1",
  epoch = "epoch-1",
  finished = true,
  lens = true,
  timedSteps = /** @type {number[]} */ ([]),
} = {}) {
  const next = random(7);
  let seq = -1;
  let now = 0;
  const messages = [];
  const stamp = (/** @type {string} */ kind, /** @type {object} */ fields) => ({ kind, seq: (seq += 1), t_ns: (now += 1000), ...fields });
  const emit = (/** @type {string} */ kind, /** @type {object} */ fields) => messages.push(JSON.stringify(stamp(kind, fields)));
  const special = (/** @type {string | Uint8Array} */ t) => typeof t === "string" && t.startsWith("<|") && t.endsWith("|>");
  const written = (/** @type {string | Uint8Array} */ t) => (typeof t === "string" ? t : "");

  emit("run.header", {
    schema_version: 1, epoch, engine_version: "0.0", started_at: "2026-01-01T00:00:00+00:00", slots: 1,
    model: { name: "synthetic", architecture: "llama", layers, heads, kv_heads: 1, head_dim: 4, hidden, vocab: 256, dtype: "float32", quantisation: null, context: 512, parameters: 1000, weights_bytes: 4000, eos_ids: [1] },
    tokenizer: { kind: "bytes", vocab: 256, chat_template: true },
    machine: { chip: "x", os: "Linux", python: "3", mlx: "0", mlx_lm: "0", device: "cpu", blas: "MKL" },
    kv: { store: "contiguous", block_size: null, blocks: null, dtype: "float32" },
  });
  emit("request.arrived", {
    request, name: null, source: "chat.completions", text: prompt.map(written).join(""),
    messages: [{ role: "user", content: "Where is Paris?" }],
    sampling: { temperature: 0, top_p: 1, top_k: 0, min_p: 0, seed: null }, max_tokens: 16,
    capture: { level: "follow", dtype: "f32", budget_bytes: 1000000 }, priority: 0,
  });
  let offset = 0;
  const promptTokens = prompt.map((text, i) => {
    const start = offset;
    offset += Array.from(written(text)).length;
    return { id: 100 + i, bytes_hex: special(text) ? "" : hex(text), start, end: offset, role: special(text) ? "template" : "user", special: special(text) };
  });
  emit("request.tokenized", { request, tokens: promptTokens, duration_ns: 5000 });
  emit("slot.assigned", { slot: 0, request });
  emit("request.scheduled", { request, waited_ns: 3000, reason: "a slot was free" });

  const arrays = (/** @type {number} */ position, /** @type {number} */ step) => {
    const keys = position + 1;
    const attention = new Float32Array(layers * heads * keys);
    for (let row = 0; row < layers * heads; row += 1) {
      const weights = Array.from({ length: keys }, next);
      const sum = weights.reduce((a, b) => a + b, 0);
      weights.forEach((w, k) => (attention[row * keys + k] = w / sum));
    }
    const timed = timedSteps.includes(step);
    for (let layer = 0; layer < (timed ? layers : 1); layer += 1) {
      const [from, count] = timed ? [layer, 1] : [0, layers];
      messages.push(tensorMessage(stamp("attention", { request, step, position, layer: from, first_key: 0, source_dtype: "float32", omitted: null, omitted_mass: 0, row_sum_error: timed ? layer / 1e7 : 0, scale: null }), attention.slice(from * heads * keys, (from + count) * heads * keys), "f32", [count, heads, keys]));
    }
    const residual = Float32Array.from({ length: (layers + 1) * hidden }, next);
    const norms = Array.from({ length: layers + 1 }, (_, i) => 1 + i);
    messages.push(tensorMessage(stamp("residual", { request, step, position, source_dtype: "float32", norms, attention_norms: norms.slice(1), mlp_norms: norms.slice(1), scale: null }), residual, "f32", [layers + 1, hidden]));
  };

  const n = prompt.length;
  emit("step.started", { step: 0, rows: [{ request, slot: 0, phase: "prefill", from: 0, to: n }], tokens: n, token_budget: 256 });
  emit("step.finished", { step: 0, build_ns: 100, eval_ns: 90000, wait_ns: 80000, sample_ns: 10, capture_ns: 10 });
  for (let p = 0; p < n; p += 1) arrays(p, 0);
  let length = 0;
  answer.forEach((text, index) => {
    const position = n + index;
    if (index > 0) {
      emit("step.started", { step: index, rows: [{ request, slot: 0, phase: "decode", from: position - 1, to: position }], tokens: 1, token_budget: 256 });
      emit("step.finished", { step: index, build_ns: 100, eval_ns: 50000, wait_ns: 40000, sample_ns: 10, capture_ns: 10 });
      arrays(position - 1, index);
    }
    if (!special(text)) length += written(text).length;
    const top = [{ id: 200 + index, label: written(text), logprob: -0.1, logit: 9 }, { id: 7, label: " other", logprob: -3, logit: 6 }, { id: 8, label: "!", logprob: { $float: "-Infinity" }, logit: { $float: "-Infinity" } }];
    emit("token", {
      request, step: index, position, index, id: 200 + index, bytes_hex: special(text) ? "" : hex(text), special: special(text), label: written(text),
      text: special(text) ? "" : written(text), text_length: length, held_back_bytes: 0, logprob: -0.1, entropy_bits: 0.7, rank: 1, top,
      stages: [{ name: "temperature", value: 0, kept: 1, mass: 1, probabilities: [1, 0, 0] }], draw: { method: "greedy", u: null, seed: null, low: 0, high: 1 },
    });
    emit("stream.sent", { request, chunk: index, position, chunk_bytes: 200, text_bytes: written(text).length, held_back_bytes: 0, queued_ns: now, sent_ns: now + 500, to: "sse" });
    if (lens) {
      emit("lens", {
        request, position: position - 1, target: 200 + index, residual_dtype: "float32", how: "live",
        layers: Array.from({ length: layers }, (_, layer) => ({ layer, top: layer < layers - 1 ? [{ id: 9, label: " guess", logprob: -1 }, top[0]] : top.slice(0, 2), rank: layer < layers - 1 ? 40 - layer : 1, logprob: -4 + layer, entropy_bits: 5 - layer })),
      });
    }
  });
  if (finished) {
    emit("request.finished", { request, reason: "stop", detail: "<|im_end|>", prompt_tokens: n, completion_tokens: answer.length, timings: { queue_ns: 3000, prefill_ns: 90000, decode_ns: 150000, ttft_ns: 93000, total_ns: 243000 } });
    emit("slot.released", { slot: 0, request });
  }
  return messages;
}
