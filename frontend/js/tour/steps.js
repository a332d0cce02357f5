// The ten steps of the tour: what each shows, and words that are true of the trace at hand, because their numbers come from it.

import { candidatesOf } from "../candidates.js";
import { bytes, count, duration, entropy, hex, measure, percent, plural, weight } from "../format.js";
import { appearance, largest, layersText, leadingLayers } from "../insight.js";
import { chunkOf, isGenerated, rowOf } from "../model.js";
import { mostTelling } from "../insight.js";
import { quotedTitle } from "../requests.js";
import { candidateName } from "../token-names.js";
import { quoted } from "../words.js";

/** @typedef {import("../model.js").Run} Run */
/** @typedef {import("../model.js").RequestRecord} RequestRecord */
/** @typedef {import("../model.js").Selection} Selection */

/**
 * @typedef {object} Step
 * @property {string} title
 * @property {string} words
 * @property {Partial<Selection>} selection that shows what the words say
 * @property {string} target CSS selector of what they are about
 */

/**
 * What every step's words are made of: the token whose way is told, and the pass that chose it.
 * @typedef {{run: Run, record: RequestRecord, position: number, query: number, token: import("../tokens.js").TokenRecord,
 *   name: string, before: string, layers: number}} Story
 */

/** The request to tell of: the first that was answered with its arrays kept, else the first that was answered. @param {Run} run @returns {RequestRecord | null} */
export function requestToTell(run) {
  const answered = [...run.requests.values()].filter((record) => record.promptLength > 0 && record.tokens.length > record.promptLength);
  return answered.find((record) => record.attention.size > 0) ?? answered[0] ?? null;
}

/** @param {Run} run @returns {Step[] | null} null where no request has an answer */
export function tourSteps(run) {
  const record = requestToTell(run);
  if (!record) return null;
  const position = mostTelling(record);
  const token = record.tokens[position];
  const query = position - 1;
  /** @type {Story} */
  const story = { run, record, position, query, token, name: quoted(token), before: quoted(record.tokens[query]), layers: run.header?.model.layers ?? 0 };
  return [text, tokens, slot, blocks, layers, attention, lens, logits, sampler, sent].map((step) => {
    const { selection, ...said } = step(story);
    return { ...said, selection: { request: record.id, position, act: "chosen", ...selection } };
  });
}

/** The first token that a person wrote. @param {RequestRecord} record */
function firstWritten(record) {
  const found = record.tokens.findIndex((token, i) => i < record.promptLength && token.role === "user" && !token.special && /\p{L}/u.test(token.label));
  return Math.max(0, found);
}

/** @param {Story} story @returns {Step} */
function text({ record }) {
  const prompt = record.tokens.slice(0, record.promptLength);
  const own = prompt.filter((token) => token.role === "user").length;
  const added = prompt.length - own;
  return {
    title: "It begins as text",
    words: `Somebody asked: ${quotedTitle(record)}. ${added ? `The model reads more than that: of the prompt’s ${plural(prompt.length, "token")}, ${count(added)} are the chat template’s marks and its system message, ${count(own)} the question.` : `The prompt is ${plural(prompt.length, "token")} long.`} The ribbon shows them all, then the answer.`,
    selection: { position: firstWritten(record), act: "used" },
    target: "#ribbon .scroller",
  };
}

/** @param {Story} story @returns {Step} */
function tokens({ run, record }) {
  const token = record.tokens[firstWritten(record)];
  const took = record.tokenized ? ` in ${duration(record.tokenized.duration_ns)}` : "";
  const vocab = run.header?.tokenizer.vocab;
  return {
    title: "Text becomes tokens",
    words: `The tokenizer cut the prompt into ${plural(record.promptLength, "token")}${took}. ${quoted(token)} is ${token.bytes.length ? `${plural(token.bytes.length, "byte")}, ${hex(token.bytes)}, and ` : ""}number ${count(token.id)}${vocab ? ` of ${count(vocab)}` : ""}. From here on the model sees only numbers.`,
    selection: { position: token.position, act: "used" },
    target: "#walk .stations",
  };
}

/** @param {Story} story @returns {Step} */
function slot({ record }) {
  const [prefill, decode] = ["prefill", "decode"].map((phase) => record.rows.filter((row) => row.phase === phase).length);
  const waited = record.scheduled ? `It was in slot ${record.slot}, ${duration(record.scheduled.waited_ns)} after it arrived, tokenizing included. ` : "";
  return {
    title: "It waits for a slot",
    words: `${waited}The scheduler ran ${plural(prefill, "step")} over the prompt (prefill: many tokens at once) and ${plural(decode, "step")} for the answer (decode: one token each). The first row is its way through the slots, step by step.`,
    selection: { tab: "scheduler" },
    target: "#panel-scheduler .chart",
  };
}

/** @param {Story} story @returns {Step} */
function blocks({ run, record, query, before, layers: count_ }) {
  const place = run.blocks?.placeOf(record.id, query);
  const held = run.blocks?.tables.get(record.id)?.length;
  return {
    title: "Keys and values go to memory",
    words: place && run.blocks
      ? `Each pass leaves keys and values for later tokens to look at. Those of ${before} went to block ${place.block}, offset ${place.offset}, in all ${count_} layers. A block holds ${run.blocks.size} positions; this request came to hold ${plural(held ?? 0, "block")}.`
      : "Each pass leaves keys and values for later tokens to look at. This run did not keep them in blocks.",
    selection: { tab: "memory" },
    target: "#panel-memory .map-frame",
  };
}

/** @param {Story} story @returns {Step} */
function layers({ run, record, query, name, before, layers: n }) {
  const event = record.residual.get(query)?.event;
  const most = (/** @type {(number | null)[]} */ norms) => norms.reduce((/** @type {number} */ best, norm, i) => ((norm ?? 0) > (norms[best] ?? 0) ? i : best), 0);
  return {
    title: "Through the layers",
    words: event
      ? `${name} was chosen by the pass over ${before}, the token before it: ${count(run.header?.model.hidden ?? 0)} numbers of length ${measure(event.norms[0])} go in at the top and leave after ${n} layers with length ${measure(event.norms.at(-1))}. Attention added most in layer ${most(event.attention_norms)}, the MLP in layer ${most(event.mlp_norms)}.`
      : `${name} was chosen by the pass over ${before}, through ${n} layers. What each of them added was not kept in this recording.`,
    selection: event ? { layer: most(event.attention_norms) } : {},
    target: "#walk .layers-frame",
  };
}

/** @param {Story} story @returns {Step} */
function attention({ record, query, before, layers: n }) {
  const array = record.attention.get(query);
  const mean = array?.overallMean();
  const first = array?.event.first_key ?? 0;
  const [most] = mean ? largest(mean, 1, first) : [];
  const selection = { tab: "attention" };
  const target = "#panel-attention .attn-wall";
  if (!array || !mean || !most) return { title: "Looking back", words: "Attention is how a pass looks at the tokens before it. This recording does not have it.", selection, target };
  let best = { layer: 0, head: 0, weight: -1 };
  for (let layer = array.firstLayer; layer < array.firstLayer + array.layers; layer += 1) {
    for (let head = 0; head < array.heads; head += 1) {
      const value = array.row(layer, head)?.[most.position - first] ?? 0;
      if (value > best.weight) best = { layer, head, weight: value };
    }
  }
  const sink = first === 0 ? `Token 0 took ${weight(mean[0])} of it, as a place for what heads do not need. ` : "";
  return {
    title: "Looking back",
    words: `In each layer ${array.headNumbers.length} heads looked back from ${before}: ${count(array.layerNumbers.length * array.headNumbers.length)} little pictures. ${sink}Off it, most went to ${quoted(record.tokens[most.position])}, and nobody looked there harder than layer ${best.layer}, head ${best.head}: ${weight(best.weight)} of its attention.`,
    selection: { ...selection, layer: best.layer, head: best.head },
    target,
  };
}

/** @param {Story} story @returns {Step} */
function lens({ record, query, name, layers: n }) {
  const event = record.lens.get(query);
  const selection = { tab: "lens" };
  const target = "#panel-lens .lens-scroll";
  if (!event) return { title: "Where the answer appears", words: "The logit lens reads after each layer what the model would say if it ended there. This recording does not have it.", selection, target };
  const { leads, topTen } = appearance(event);
  const middle = event.layers[Math.floor(n / 2)];
  const early = topTen !== null && topTen !== leads ? `From layer ${topTen} on ${name} is among the ten best. ` : "";
  const led = leadingLayers(event);
  const before = led.length ? `It leads after ${layersText(led)}. ` : "";
  const end = leads === null ? `${before}After the last layer it does not lead: there it ranks ${event.layers.at(-1)?.rank}.` : `From layer ${leads} on it leads.`;
  return {
    title: "Where the answer appears",
    words: `The logit lens reads after each layer what the model would say if it ended there. After layer ${middle.layer}, ${name} ranks ${count(middle.rank)}. ${early}${end}`,
    selection: { ...selection, layer: leads ?? n - 1 },
    target,
  };
}

/** @param {Story} story @returns {Step} */
function logits({ run, token, name }) {
  const bits = token.event?.entropy_bits ?? null;
  const top = token.event ? candidatesOf(token.event) : [];
  const own = top.find((/** @type {any} */ c) => c.id === token.id);
  const other = top.find((/** @type {any} */ c) => c.id !== token.id);
  const given = own ? `${name} got ${measure(own.logit)}, which makes ${percent(Math.exp(own.logprob))}` : `${name} got ${percent(Math.exp(token.event?.logprob ?? NaN))}`;
  return {
    title: "A number for every token",
    words: `The output head gives each of the ${count(run.header?.model.vocab ?? 0)} tokens a logit. ${given}${other ? `; the best of the others, ${`“${candidateName(other, null)}”`}, ${percent(Math.exp(other.logprob))}` : ""}. ${bits === null ? "" : `Entropy ${entropy(bits)}: ${bits < 1 ? "less unsure than a coin" : `as unsure as an even choice of about ${count(Math.round(2 ** bits))}`}.`}`,
    selection: { tab: "logits" },
    target: "#panel-logits .logits-scroll",
  };
}

/** @param {Story} story @returns {Step} */
function sampler({ token, name }) {
  const { draw, stages = [] } = /** @type {Record<string, any>} */ (token.event ?? {});
  const filters = stages.length - 1;
  const words = !draw
    ? "How it was drawn is not in this recording."
    : draw.method === "greedy"
      ? `This request asked for the largest logit, always: greedy. So ${name} was taken, and no number was drawn. With a temperature, the candidates would be laid end to end here and a random number would fall into one.`
      : `The number ${Number(draw.u).toFixed(4)} was drawn from the request’s seed. It fell into ${name}, which holds ${Number(draw.low).toFixed(4)} to ${Number(draw.high).toFixed(4)}${filters > 0 ? `, after ${plural(filters, "stage")} of the sampler` : ""}.`;
  return { title: "One is taken", words, selection: { tab: "logits" }, target: "#panel-logits .draw" };
}

/** @param {Story} story @returns {Step} */
function sent({ record, position, token, name }) {
  const chunk = chunkOf(record, position);
  const left = chunk && token.event ? `It left in chunk ${count(chunk.chunk)}, ${bytes(chunk.chunk_bytes)}, ${duration(Math.max(0, chunk.sent_ns - token.event.t_ns))} after it was chosen.` : "No chunk of its own was recorded.";
  const next = isGenerated(record, position) && rowOf(record, position) && record.tokens[position + 1] ? ` Then ${name} went in again, one position on, and led to ${quoted(record.tokens[position + 1])}: “what it did next” shows that pass.` : "";
  return {
    title: "Bytes leave",
    words: `${name} is ${plural(token.bytes.length, "byte")}: ${hex(token.bytes)}. ${left}${next}`,
    selection: { tab: "wire" },
    target: "#panel-wire .flow",
  };
}
