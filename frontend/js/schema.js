// Generated from engine/events.py by `python -m engine.schema`; changes here are lost.

export const SCHEMA_VERSION = 1;

/** Every kind of event. */
export const KINDS = Object.freeze(/** @type {const} */ ([
  "attention",
  "attention.summary",
  "residual",
  "attention_out",
  "run.header",
  "request.arrived",
  "request.tokenized",
  "request.scheduled",
  "request.preempted",
  "request.finished",
  "request.rejected",
  "slot.assigned",
  "slot.released",
  "step.started",
  "step.finished",
  "block.allocated",
  "block.stored",
  "block.reused",
  "block.ref_changed",
  "block.copied",
  "block.freed",
  "block.evicted",
  "token",
  "lens",
  "attribution",
  "router",
  "kernel",
  "stream.sent",
  "gap",
  "absent",
]));

/** Kinds whose frames are binary. @type {ReadonlySet<string>} */
export const TENSOR_KINDS = new Set(["attention", "attention.summary", "attention_out", "residual"]);

/** What a tensor's elements can be. */
export const DTYPES = Object.freeze(/** @type {const} */ ([
  "f32",
  "f16",
  "u8",
  "i32",
]));

export const FINISH_REASONS = Object.freeze(/** @type {const} */ ([
  "stop",
  "length",
  "cancelled",
  "error",
]));

export const ROLES = Object.freeze(/** @type {const} */ ([
  "system",
  "user",
  "assistant",
  "template",
]));

export const PHASES = Object.freeze(/** @type {const} */ ([
  "prefill",
  "decode",
]));

export const ABSENT_REASONS = Object.freeze(/** @type {const} */ ([
  "prefix_cached",
  "not_captured",
  "over_budget",
  "outside_window",
  "unsupported",
]));

/**
 * Attention probabilities of one query position: `[layers, heads, keys]`, keys 0 … position.
 * @typedef {object} Attention
 * @property {"attention"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number | null} scale value = number × scale; None: the number itself
 * @property {string} request the request's id
 * @property {number} step the step that computed it
 * @property {number} position the query's position
 * @property {number} layer first layer in the array
 * @property {number[] | null} layers the array's layers, where they do not follow on from `layer`
 * @property {number[] | null} heads the array's query heads, where they are not all of the model's
 * @property {number} first_key position of the first key in the array
 * @property {string} source_dtype dtype the probabilities were computed in
 * @property {string | null} omitted what was left out, in words; None when the rows are whole
 * @property {number} omitted_mass largest probability mass left out of any row
 * @property {number} row_sum_error largest |sum of a row − 1|, before any conversion
 * @property {"f32" | "f16" | "u8" | "i32"} dtype type of the array's elements
 * @property {number[]} shape the array's dimensions, slowest first
 * @property {number} byte_length size of the array
 */

/**
 * What is kept of a position's attention beyond the capture budget: `[layers, heads, 2 · kept + 2]` numbers in f32.
 * @typedef {object} AttentionSummary
 * @property {"attention.summary"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number | null} scale value = number × scale; None: the number itself
 * @property {string} request the request's id
 * @property {number} step the step that computed it
 * @property {number} position the query's position
 * @property {number[]} layers the array's layers
 * @property {number[]} heads the array's query heads
 * @property {number} keys how many keys each row has: positions 0 … position
 * @property {number} kept how many weights of each row are listed
 * @property {number} mass mean over the rows of what the listed weights sum to
 * @property {number} least_mass the smallest such sum of any row
 * @property {string} source_dtype dtype the probabilities were computed in
 * @property {number} row_sum_error largest |sum of a row − 1|, before it was summarised
 * @property {"f32" | "f16" | "u8" | "i32"} dtype type of the array's elements
 * @property {number[]} shape the array's dimensions, slowest first
 * @property {number} byte_length size of the array
 */

/**
 * The residual stream of one position, `[layers + 1, hidden]`: row 0 the embedding, row i + 1 after layer i.
 * @typedef {object} Residual
 * @property {"residual"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number | null} scale value = number × scale; None: the number itself
 * @property {string} request the request's id
 * @property {number} step the step that computed it
 * @property {number} position the position
 * @property {string} source_dtype dtype the residual was computed in
 * @property {number[]} norms L2 norm of each row of the array, before any conversion
 * @property {(number | null)[]} attention_norms per layer, L2 norm of what attention added; None if not separable
 * @property {(number | null)[]} mlp_norms per layer, L2 norm of what the MLP added; None if not separable
 * @property {"f32" | "f16" | "u8" | "i32"} dtype type of the array's elements
 * @property {number[]} shape the array's dimensions, slowest first
 * @property {number} byte_length size of the array
 */

/**
 * What attention added to the residual stream of one position, `[layers, hidden]`: for attribution.
 * @typedef {object} AttentionOut
 * @property {"attention_out"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number | null} scale value = number × scale; None: the number itself
 * @property {string} request the request's id
 * @property {number} step the step that computed it
 * @property {number} position the position
 * @property {string} source_dtype dtype it was computed in
 * @property {"f32" | "f16" | "u8" | "i32"} dtype type of the array's elements
 * @property {number[]} shape the array's dimensions, slowest first
 * @property {number} byte_length size of the array
 */

/**
 * First event of every run: what runs, on what.
 * @typedef {object} RunHeader
 * @property {"run.header"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} schema_version version of this schema
 * @property {string} epoch random name of this run; changes when the server restarts
 * @property {string} engine_version Tokenwalk's version
 * @property {Record<string, any>} model name, architecture, layers, heads, kv_heads, head_dim, hidden, vocab, dtype (of computation), quantisation (as stored), context, parameters, weights_bytes, eos_ids
 * @property {Record<string, any>} tokenizer kind, vocab, chat_template (whether the model has one)
 * @property {Record<string, any>} machine chip, os, python, mlx, mlx_lm, device (cpu or gpu), blas
 * @property {Record<string, any>} kv store, block_size and blocks (None where the cache is not paged), dtype
 * @property {number} slots how many requests can run at once
 * @property {string} started_at wall-clock time at `t_ns` 0, ISO 8601 with offset
 */

/**
 * `request.arrived`
 * @typedef {object} RequestArrived
 * @property {"request.arrived"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {string} request the request's id
 * @property {string | null} name a name given by the caller
 * @property {string} source where it came from: chat.completions, completions, fork, generate, notebook, bench
 * @property {string | null} text the prompt's text after the chat template; None when prompts are kept private
 * @property {Record<string, any>[] | null} messages the chat messages, when it was a chat
 * @property {Record<string, any>} sampling all sampling parameters as used
 * @property {number} max_tokens most tokens that may be generated
 * @property {Record<string, any>} capture the capture plan: level, dtype, budget_bytes; and positions, layers, heads, tensors, over_budget, kernels where given
 * @property {number} priority larger runs sooner
 * @property {Record<string, any> | null} forked_from request and position where this one branched off
 */

/**
 * `request.tokenized`
 * @typedef {object} RequestTokenized
 * @property {"request.tokenized"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {string} request the request's id
 * @property {Record<string, any>[]} tokens per prompt token: id, bytes_hex, label, start and end (character offsets into the text), role (system, user, assistant, template), special (true for control tokens)
 * @property {number} duration_ns time taken to tokenize
 */

/**
 * `request.scheduled`
 * @typedef {object} RequestScheduled
 * @property {"request.scheduled"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {string} request the request's id
 * @property {number} waited_ns from its arrival until it got its slot: tokenizing, and the queue
 * @property {string} reason why it could start now
 * @property {number} cached_tokens leading positions whose KV was there already, from the prefix cache or shared
 */

/**
 * `request.preempted`
 * @typedef {object} RequestPreempted
 * @property {"request.preempted"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {string} request the request's id
 * @property {string} reason why it had to give way
 */

/**
 * `request.finished`
 * @typedef {object} RequestFinished
 * @property {"request.finished"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {string} request the request's id
 * @property {"stop" | "length" | "cancelled" | "error"} reason stop, length, cancelled or error
 * @property {string | null} detail what stopped it: the token, the stop text, or the error
 * @property {number} prompt_tokens tokens of the prompt
 * @property {number} completion_tokens tokens generated, the end token included
 * @property {Record<string, any>} timings queue_ns, prefill_ns, decode_ns, ttft_ns (time to first token), total_ns
 */

/**
 * `request.rejected`
 * @typedef {object} RequestRejected
 * @property {"request.rejected"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {string} request the request's id
 * @property {string} reason what was given, what was expected
 */

/**
 * `slot.assigned`
 * @typedef {object} SlotAssigned
 * @property {"slot.assigned"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} slot the slot
 * @property {string} request the request that got it
 */

/**
 * `slot.released`
 * @typedef {object} SlotReleased
 * @property {"slot.released"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} slot the slot
 * @property {string} request the request that held it
 */

/**
 * One forward pass. Decode steps are pipelined: step n + 1 may start before step n is reported finished.
 * @typedef {object} StepStarted
 * @property {"step.started"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} step number of the step in the run
 * @property {Record<string, any>[]} rows per batch row: request, slot, phase (prefill or decode), from and to (positions computed: from ≤ p < to)
 * @property {number} tokens positions computed in this step
 * @property {number} token_budget most positions that a step may compute
 */

/**
 * `step.finished`
 * @typedef {object} StepFinished
 * @property {"step.finished"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} step number of the step
 * @property {number} build_ns time to build the graph in Python: not the computation
 * @property {number} eval_ns step wall: from submission, or the end of the step before, until the result was there
 * @property {number} wait_ns how long the engine thread had to wait for the result
 * @property {number} sample_ns time spent choosing tokens and their statistics
 * @property {number} capture_ns time spent copying captured arrays
 * @property {number} unused_rows rows whose result nobody needed: their request had ended when it came (pipelining)
 * @property {string | null} timing barriers: its operations were timed, one after another, which makes it slower than normal; eval_ns then counts from when its graph began to be built, without the pauses between its layers in which attention was told, which are part of capture_ns. gpu_capture: Metal wrote down what the GPU did, which is slower too. None: a normal step
 * @property {number | null} operations_ns for a step with barriers: sum of its kernels' durations
 * @property {number | null} normal_ns for a timed step: median eval_ns of the latest normal steps with as many decoding rows and prompt positions; None when there was none
 * @property {number} normal_steps how many steps that median is of
 * @property {number | null} row_sum_error largest |sum of a row − 1| of the attention captured in this step; None when none was
 * @property {Record<string, any> | null} attention_check in one of 8 passes that capture: one row of one layer, all heads, tested: its weights × the values, against what the kernel gave: request, layer, position, error (largest difference), largest (largest output)
 */

/**
 * `request` got a free block: it alone holds it, and it cannot be found by its content yet.
 * @typedef {object} BlockAllocated
 * @property {"block.allocated"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} block physical block
 * @property {string | null} request the request it concerns
 * @property {number | null} logical index in that request's block table
 * @property {number[] | null} positions [from, to) token positions that it is for
 * @property {string | null} prefix_hash hash chained over the tokens up to the block's end
 * @property {string | null} parent_hash hash of the block before
 * @property {number | null} refs holders after this event
 */

/**
 * The block is full: from now on it can be found by its content.
 * @typedef {object} BlockStored
 * @property {"block.stored"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} block physical block
 * @property {string | null} request the request it concerns
 * @property {number | null} logical index in that request's block table
 * @property {number[] | null} positions [from, to) token positions that it is for
 * @property {string | null} prefix_hash hash chained over the tokens up to the block's end
 * @property {string | null} parent_hash hash of the block before
 * @property {number | null} refs holders after this event
 */

/**
 * `request` found the block by its content, and holds it from now on.
 * @typedef {object} BlockReused
 * @property {"block.reused"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} block physical block
 * @property {string | null} request the request it concerns
 * @property {number | null} logical index in that request's block table
 * @property {number[] | null} positions [from, to) token positions that it is for
 * @property {string | null} prefix_hash hash chained over the tokens up to the block's end
 * @property {string | null} parent_hash hash of the block before
 * @property {number | null} refs holders after this event
 */

/**
 * `request` came to hold the block or, if it held it, gave it back. At 0 refs it stays as cached.
 * @typedef {object} BlockRefChanged
 * @property {"block.ref_changed"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} block physical block
 * @property {string | null} request the request it concerns
 * @property {number | null} logical index in that request's block table
 * @property {number[] | null} positions [from, to) token positions that it is for
 * @property {string | null} prefix_hash hash chained over the tokens up to the block's end
 * @property {string | null} parent_hash hash of the block before
 * @property {number | null} refs holders after this event
 */

/**
 * `request` had to write a block that is not its alone, and got a free one with the same content instead.
 * @typedef {object} BlockCopied
 * @property {"block.copied"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} block physical block
 * @property {string | null} request the request it concerns
 * @property {number | null} logical index in that request's block table
 * @property {number[] | null} positions [from, to) token positions that it is for
 * @property {string | null} prefix_hash hash chained over the tokens up to the block's end
 * @property {string | null} parent_hash hash of the block before
 * @property {number | null} refs holders after this event
 * @property {number} source block copied from
 */

/**
 * Nobody holds the block and nothing in it is kept. The fields say what it was.
 * @typedef {object} BlockFreed
 * @property {"block.freed"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} block physical block
 * @property {string | null} request the request it concerns
 * @property {number | null} logical index in that request's block table
 * @property {number[] | null} positions [from, to) token positions that it is for
 * @property {string | null} prefix_hash hash chained over the tokens up to the block's end
 * @property {string | null} parent_hash hash of the block before
 * @property {number | null} refs holders after this event
 */

/**
 * The block cannot be found any more; it is free, unless `refs` says that it is still held.
 * @typedef {object} BlockEvicted
 * @property {"block.evicted"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} block physical block
 * @property {string | null} request the request it concerns
 * @property {number | null} logical index in that request's block table
 * @property {number[] | null} positions [from, to) token positions that it is for
 * @property {string | null} prefix_hash hash chained over the tokens up to the block's end
 * @property {string | null} parent_hash hash of the block before
 * @property {number | null} refs holders after this event
 * @property {string} reason room (for the blocks of `request`) or distrust (`request` failed, and the KV may be wrong)
 */

/**
 * A generated token. The pass at `position` − 1, in `step`, chose it; its own pass runs in a later step.
 * @typedef {object} Token
 * @property {"token"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {string} request the request's id
 * @property {number} step the step that chose it
 * @property {number} position its place in prompt + answer
 * @property {number} index its place in the answer, from 0
 * @property {number} id token id
 * @property {string} bytes_hex the bytes it stands for; empty for control tokens
 * @property {boolean} special true for control tokens, whose text is not part of the answer
 * @property {string} label the token as the vocabulary writes it, for display
 * @property {string} text text released by this token: may be empty, or hold earlier bytes that now make a character
 * @property {number} text_length characters of the answer released so far, this token's included
 * @property {number} held_back_bytes bytes not released yet: part of a character, or of a possible stop text
 * @property {number | null} logprob log-probability under the model's own distribution, before any sampling filter
 * @property {number | null} entropy_bits entropy of that distribution, in bits
 * @property {number | null} rank rank of the chosen token in that distribution, from 1
 * @property {Record<string, any>[]} top most probable candidates, best first: id, label, logprob, logit
 * @property {Record<string, any>[]} stages the sampler, stage by stage: name, value (its parameter), kept (candidates left), mass (probability kept, of the distribution that entered the stage), probabilities (of each token in `top` after the stage, not renormalised to them; 0 when removed)
 * @property {Record<string, any>} draw method (greedy or inverse_cdf), u (the uniform number drawn), seed, low and high (the chosen token's interval of cumulated probability, candidates in falling order: low ≤ u < high)
 */

/**
 * Logit lens at one position: final norm and output head applied to the residual after each layer.
 * @typedef {object} Lens
 * @property {"lens"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {string} request the request's id
 * @property {number} position the position whose residual was read: its guesses are for position + 1
 * @property {number | null} target id of the token that really came next; None when there is none
 * @property {Record<string, any>[]} layers per layer: layer, top (best candidates: id, label, logprob), rank and logprob of the target, entropy_bits
 * @property {string} residual_dtype dtype of the residual that was read
 * @property {string} how live (computed by the engine on request) or baked (added to the trace afterwards)
 */

/**
 * Direct logit attribution: what each part of the model added to one token's logit, read through the final norm.
 * @typedef {object} Attribution
 * @property {"attribution"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {string} request the request's id
 * @property {number} position the position whose pass chose the target
 * @property {number} target token id: the token that really came next
 * @property {number} logit the target's logit, by the model's own norm and head; before the soft cap, where it has one
 * @property {Record<string, any>[]} components in the order of the model: layer (None outside the layers), component (embedding; attention and mlp, or layer where the two cannot be told apart; bias: what norm and head add whatever they are given), value (part of the logit); of attention, where it was asked for and can be told, also heads (one value a head) and rest (what its projection adds whatever the heads give)
 * @property {string | null} heads_absent why heads were asked for and are not there in some or all layers
 * @property {number} sum sum of the components' values
 * @property {number} error |sum − logit|: rounding, and nothing else
 * @property {number | null} soft_cap the model says soft_cap · tanh(logit / soft_cap); None: no cap
 * @property {number | null} said_logit the logit that the model says: after the soft cap
 * @property {string} residual_dtype dtype of the residual that was read
 * @property {string} how live (computed by the engine) or baked (added to the trace afterwards)
 */

/**
 * Which experts the mixture-of-experts layers sent one position to.
 * @typedef {object} Router
 * @property {"router"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {string} request the request's id
 * @property {number} step the step that computed it
 * @property {number} position the position
 * @property {Record<string, any>[]} layers per layer with experts: layer, experts (numbers of the chosen ones, in the model's order), weights (what each one's output was multiplied by; None where that could not be confirmed), of (how many experts the layer has)
 */

/**
 * How long one operation of a timed step took, with everything before it done and nothing begun after it.
 * @typedef {object} Kernel
 * @property {"kernel"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} step the step
 * @property {number | null} layer the layer; None outside the layers
 * @property {string} operation embedding, norm, qkv_projection, rope, kv_write, attention (with the gathering of its keys), output_projection, mlp, mixer (what mixes tokens without the attention kernel), linear (a matrix product whose part in the layer could not be told), head, choice (of tokens, on the device), capture (of what is recorded), other (the rest of its scope: residual adds, reshapes, gathering)
 * @property {string | null} module where it is in the layer, or in the model outside the layers, by the model's own names, such as self_attn.q_proj; the rest of a module carries the module's name; None for what is no module's
 * @property {string | null} request the request whose own pass it was in; None where the step's rows share one pass
 * @property {number} start_ns start, on the run's clock; for what is in pieces (the rest of a scope, capture after each layer), where the scope or the first piece began
 * @property {number} duration_ns duration, without what was timed inside it
 * @property {string} timing how it was timed: barriers (slower than normal)
 */

/**
 * `stream.sent`
 * @typedef {object} StreamSent
 * @property {"stream.sent"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {string} request the request's id
 * @property {number} chunk number of the chunk, from 0
 * @property {number | null} position last token whose text it carries; None when it carries none
 * @property {number} chunk_bytes size of the chunk as sent, framing included
 * @property {number} text_bytes bytes of answer text in it
 * @property {number} held_back_bytes bytes of text still held back
 * @property {number} queued_ns when it was queued, on the run's clock
 * @property {number} sent_ns when it was handed to the socket, on the run's clock
 * @property {string} to sse, json or stdout
 */

/**
 * Frames that this client or file lacks. Its `seq` is the last one missing; it is not part of the run itself.
 * @typedef {object} Gap
 * @property {"gap"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {number} from_seq first missing
 * @property {number} to_seq last missing
 * @property {string} reason slow_client, paused, not_kept, damaged_file, not_encodable
 */

/**
 * Says what was not computed, so that nobody takes a hole for a zero.
 * @typedef {object} Absent
 * @property {"absent"} kind the kind of event
 * @property {number} seq place in the run, strictly increasing
 * @property {number} t_ns nanoseconds since the run's start, monotonic
 * @property {string} what the kind that is missing: attention, residual, attention_out, lens, attribution, router
 * @property {"prefix_cached" | "not_captured" | "over_budget" | "outside_window" | "unsupported"} reason prefix_cached, not_captured, over_budget, outside_window or unsupported
 * @property {string} request the request's id
 * @property {number[] | null} positions [from, to) positions; None for all
 * @property {number[] | null} layers layers; None for all
 * @property {number[] | null} heads query heads; None for all
 * @property {string | null} detail more in words, such as the bytes needed and the budget
 * @property {string | null} instead for over_budget: the kind of frame that these positions have in its place: attention.summary; None for none
 * @property {Record<string, any>[] | null} computed_by for prefix_cached: whose pass computed these positions: request and positions [from, to), where its own rows are; a position that nobody is remembered for is missing
 */

/**
 * Any event, told apart by its `kind`.
 * @typedef {Attention | AttentionSummary | Residual | AttentionOut | RunHeader | RequestArrived | RequestTokenized | RequestScheduled | RequestPreempted | RequestFinished | RequestRejected | SlotAssigned | SlotReleased | StepStarted | StepFinished | BlockAllocated | BlockStored | BlockReused | BlockRefChanged | BlockCopied | BlockFreed | BlockEvicted | Token | Lens | Attribution | Router | Kernel | StreamSent | Gap | Absent} RunEvent
 */

/**
 * Unit (or null) and meaning of each field, by kind: what the page says when somebody asks what a number is.
 * @type {Readonly<Record<string, Readonly<Record<string, {unit: string | null, meaning: string}>>>>}
 */
export const FIELDS = Object.freeze({
  "attention": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    scale: { unit: null, meaning: "value = number × scale; None: the number itself" },
    request: { unit: null, meaning: "the request's id" },
    step: { unit: null, meaning: "the step that computed it" },
    position: { unit: null, meaning: "the query's position" },
    layer: { unit: null, meaning: "first layer in the array" },
    layers: { unit: null, meaning: "the array's layers, where they do not follow on from `layer`" },
    heads: { unit: null, meaning: "the array's query heads, where they are not all of the model's" },
    first_key: { unit: null, meaning: "position of the first key in the array" },
    source_dtype: { unit: null, meaning: "dtype the probabilities were computed in" },
    omitted: { unit: null, meaning: "what was left out, in words; None when the rows are whole" },
    omitted_mass: { unit: null, meaning: "largest probability mass left out of any row" },
    row_sum_error: { unit: null, meaning: "largest |sum of a row − 1|, before any conversion" },
    dtype: { unit: null, meaning: "type of the array's elements" },
    shape: { unit: null, meaning: "the array's dimensions, slowest first" },
    byte_length: { unit: "bytes", meaning: "size of the array" },
  }),
  "attention.summary": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    scale: { unit: null, meaning: "value = number × scale; None: the number itself" },
    request: { unit: null, meaning: "the request's id" },
    step: { unit: null, meaning: "the step that computed it" },
    position: { unit: null, meaning: "the query's position" },
    layers: { unit: null, meaning: "the array's layers" },
    heads: { unit: null, meaning: "the array's query heads" },
    keys: { unit: null, meaning: "how many keys each row has: positions 0 … position" },
    kept: { unit: null, meaning: "how many weights of each row are listed" },
    mass: { unit: null, meaning: "mean over the rows of what the listed weights sum to" },
    least_mass: { unit: null, meaning: "the smallest such sum of any row" },
    source_dtype: { unit: null, meaning: "dtype the probabilities were computed in" },
    row_sum_error: { unit: null, meaning: "largest |sum of a row − 1|, before it was summarised" },
    dtype: { unit: null, meaning: "type of the array's elements" },
    shape: { unit: null, meaning: "the array's dimensions, slowest first" },
    byte_length: { unit: "bytes", meaning: "size of the array" },
  }),
  "residual": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    scale: { unit: null, meaning: "value = number × scale; None: the number itself" },
    request: { unit: null, meaning: "the request's id" },
    step: { unit: null, meaning: "the step that computed it" },
    position: { unit: null, meaning: "the position" },
    source_dtype: { unit: null, meaning: "dtype the residual was computed in" },
    norms: { unit: null, meaning: "L2 norm of each row of the array, before any conversion" },
    attention_norms: { unit: null, meaning: "per layer, L2 norm of what attention added; None if not separable" },
    mlp_norms: { unit: null, meaning: "per layer, L2 norm of what the MLP added; None if not separable" },
    dtype: { unit: null, meaning: "type of the array's elements" },
    shape: { unit: null, meaning: "the array's dimensions, slowest first" },
    byte_length: { unit: "bytes", meaning: "size of the array" },
  }),
  "attention_out": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    scale: { unit: null, meaning: "value = number × scale; None: the number itself" },
    request: { unit: null, meaning: "the request's id" },
    step: { unit: null, meaning: "the step that computed it" },
    position: { unit: null, meaning: "the position" },
    source_dtype: { unit: null, meaning: "dtype it was computed in" },
    dtype: { unit: null, meaning: "type of the array's elements" },
    shape: { unit: null, meaning: "the array's dimensions, slowest first" },
    byte_length: { unit: "bytes", meaning: "size of the array" },
  }),
  "run.header": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    schema_version: { unit: null, meaning: "version of this schema" },
    epoch: { unit: null, meaning: "random name of this run; changes when the server restarts" },
    engine_version: { unit: null, meaning: "Tokenwalk's version" },
    model: { unit: null, meaning: "name, architecture, layers, heads, kv_heads, head_dim, hidden, vocab, dtype (of computation), quantisation (as stored), context, parameters, weights_bytes, eos_ids" },
    tokenizer: { unit: null, meaning: "kind, vocab, chat_template (whether the model has one)" },
    machine: { unit: null, meaning: "chip, os, python, mlx, mlx_lm, device (cpu or gpu), blas" },
    kv: { unit: null, meaning: "store, block_size and blocks (None where the cache is not paged), dtype" },
    slots: { unit: null, meaning: "how many requests can run at once" },
    started_at: { unit: null, meaning: "wall-clock time at `t_ns` 0, ISO 8601 with offset" },
  }),
  "request.arrived": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    request: { unit: null, meaning: "the request's id" },
    name: { unit: null, meaning: "a name given by the caller" },
    source: { unit: null, meaning: "where it came from: chat.completions, completions, fork, generate, notebook, bench" },
    text: { unit: null, meaning: "the prompt's text after the chat template; None when prompts are kept private" },
    messages: { unit: null, meaning: "the chat messages, when it was a chat" },
    sampling: { unit: null, meaning: "all sampling parameters as used" },
    max_tokens: { unit: null, meaning: "most tokens that may be generated" },
    capture: { unit: null, meaning: "the capture plan: level, dtype, budget_bytes; and positions, layers, heads, tensors, over_budget, kernels where given" },
    priority: { unit: null, meaning: "larger runs sooner" },
    forked_from: { unit: null, meaning: "request and position where this one branched off" },
  }),
  "request.tokenized": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    request: { unit: null, meaning: "the request's id" },
    tokens: { unit: null, meaning: "per prompt token: id, bytes_hex, label, start and end (character offsets into the text), role (system, user, assistant, template), special (true for control tokens)" },
    duration_ns: { unit: "ns", meaning: "time taken to tokenize" },
  }),
  "request.scheduled": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    request: { unit: null, meaning: "the request's id" },
    waited_ns: { unit: "ns", meaning: "from its arrival until it got its slot: tokenizing, and the queue" },
    reason: { unit: null, meaning: "why it could start now" },
    cached_tokens: { unit: null, meaning: "leading positions whose KV was there already, from the prefix cache or shared" },
  }),
  "request.preempted": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    request: { unit: null, meaning: "the request's id" },
    reason: { unit: null, meaning: "why it had to give way" },
  }),
  "request.finished": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    request: { unit: null, meaning: "the request's id" },
    reason: { unit: null, meaning: "stop, length, cancelled or error" },
    detail: { unit: null, meaning: "what stopped it: the token, the stop text, or the error" },
    prompt_tokens: { unit: null, meaning: "tokens of the prompt" },
    completion_tokens: { unit: null, meaning: "tokens generated, the end token included" },
    timings: { unit: null, meaning: "queue_ns, prefill_ns, decode_ns, ttft_ns (time to first token), total_ns" },
  }),
  "request.rejected": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    request: { unit: null, meaning: "the request's id" },
    reason: { unit: null, meaning: "what was given, what was expected" },
  }),
  "slot.assigned": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    slot: { unit: null, meaning: "the slot" },
    request: { unit: null, meaning: "the request that got it" },
  }),
  "slot.released": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    slot: { unit: null, meaning: "the slot" },
    request: { unit: null, meaning: "the request that held it" },
  }),
  "step.started": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    step: { unit: null, meaning: "number of the step in the run" },
    rows: { unit: null, meaning: "per batch row: request, slot, phase (prefill or decode), from and to (positions computed: from ≤ p < to)" },
    tokens: { unit: null, meaning: "positions computed in this step" },
    token_budget: { unit: null, meaning: "most positions that a step may compute" },
  }),
  "step.finished": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    step: { unit: null, meaning: "number of the step" },
    build_ns: { unit: "ns", meaning: "time to build the graph in Python: not the computation" },
    eval_ns: { unit: "ns", meaning: "step wall: from submission, or the end of the step before, until the result was there" },
    wait_ns: { unit: "ns", meaning: "how long the engine thread had to wait for the result" },
    sample_ns: { unit: "ns", meaning: "time spent choosing tokens and their statistics" },
    capture_ns: { unit: "ns", meaning: "time spent copying captured arrays" },
    unused_rows: { unit: null, meaning: "rows whose result nobody needed: their request had ended when it came (pipelining)" },
    timing: { unit: null, meaning: "barriers: its operations were timed, one after another, which makes it slower than normal; eval_ns then counts from when its graph began to be built, without the pauses between its layers in which attention was told, which are part of capture_ns. gpu_capture: Metal wrote down what the GPU did, which is slower too. None: a normal step" },
    operations_ns: { unit: "ns", meaning: "for a step with barriers: sum of its kernels' durations" },
    normal_ns: { unit: "ns", meaning: "for a timed step: median eval_ns of the latest normal steps with as many decoding rows and prompt positions; None when there was none" },
    normal_steps: { unit: null, meaning: "how many steps that median is of" },
    row_sum_error: { unit: null, meaning: "largest |sum of a row − 1| of the attention captured in this step; None when none was" },
    attention_check: { unit: null, meaning: "in one of 8 passes that capture: one row of one layer, all heads, tested: its weights × the values, against what the kernel gave: request, layer, position, error (largest difference), largest (largest output)" },
  }),
  "block.allocated": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    block: { unit: null, meaning: "physical block" },
    request: { unit: null, meaning: "the request it concerns" },
    logical: { unit: null, meaning: "index in that request's block table" },
    positions: { unit: null, meaning: "[from, to) token positions that it is for" },
    prefix_hash: { unit: null, meaning: "hash chained over the tokens up to the block's end" },
    parent_hash: { unit: null, meaning: "hash of the block before" },
    refs: { unit: null, meaning: "holders after this event" },
  }),
  "block.stored": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    block: { unit: null, meaning: "physical block" },
    request: { unit: null, meaning: "the request it concerns" },
    logical: { unit: null, meaning: "index in that request's block table" },
    positions: { unit: null, meaning: "[from, to) token positions that it is for" },
    prefix_hash: { unit: null, meaning: "hash chained over the tokens up to the block's end" },
    parent_hash: { unit: null, meaning: "hash of the block before" },
    refs: { unit: null, meaning: "holders after this event" },
  }),
  "block.reused": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    block: { unit: null, meaning: "physical block" },
    request: { unit: null, meaning: "the request it concerns" },
    logical: { unit: null, meaning: "index in that request's block table" },
    positions: { unit: null, meaning: "[from, to) token positions that it is for" },
    prefix_hash: { unit: null, meaning: "hash chained over the tokens up to the block's end" },
    parent_hash: { unit: null, meaning: "hash of the block before" },
    refs: { unit: null, meaning: "holders after this event" },
  }),
  "block.ref_changed": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    block: { unit: null, meaning: "physical block" },
    request: { unit: null, meaning: "the request it concerns" },
    logical: { unit: null, meaning: "index in that request's block table" },
    positions: { unit: null, meaning: "[from, to) token positions that it is for" },
    prefix_hash: { unit: null, meaning: "hash chained over the tokens up to the block's end" },
    parent_hash: { unit: null, meaning: "hash of the block before" },
    refs: { unit: null, meaning: "holders after this event" },
  }),
  "block.copied": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    block: { unit: null, meaning: "physical block" },
    request: { unit: null, meaning: "the request it concerns" },
    logical: { unit: null, meaning: "index in that request's block table" },
    positions: { unit: null, meaning: "[from, to) token positions that it is for" },
    prefix_hash: { unit: null, meaning: "hash chained over the tokens up to the block's end" },
    parent_hash: { unit: null, meaning: "hash of the block before" },
    refs: { unit: null, meaning: "holders after this event" },
    source: { unit: null, meaning: "block copied from" },
  }),
  "block.freed": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    block: { unit: null, meaning: "physical block" },
    request: { unit: null, meaning: "the request it concerns" },
    logical: { unit: null, meaning: "index in that request's block table" },
    positions: { unit: null, meaning: "[from, to) token positions that it is for" },
    prefix_hash: { unit: null, meaning: "hash chained over the tokens up to the block's end" },
    parent_hash: { unit: null, meaning: "hash of the block before" },
    refs: { unit: null, meaning: "holders after this event" },
  }),
  "block.evicted": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    block: { unit: null, meaning: "physical block" },
    request: { unit: null, meaning: "the request it concerns" },
    logical: { unit: null, meaning: "index in that request's block table" },
    positions: { unit: null, meaning: "[from, to) token positions that it is for" },
    prefix_hash: { unit: null, meaning: "hash chained over the tokens up to the block's end" },
    parent_hash: { unit: null, meaning: "hash of the block before" },
    refs: { unit: null, meaning: "holders after this event" },
    reason: { unit: null, meaning: "room (for the blocks of `request`) or distrust (`request` failed, and the KV may be wrong)" },
  }),
  "token": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    request: { unit: null, meaning: "the request's id" },
    step: { unit: null, meaning: "the step that chose it" },
    position: { unit: null, meaning: "its place in prompt + answer" },
    index: { unit: null, meaning: "its place in the answer, from 0" },
    id: { unit: null, meaning: "token id" },
    bytes_hex: { unit: null, meaning: "the bytes it stands for; empty for control tokens" },
    special: { unit: null, meaning: "true for control tokens, whose text is not part of the answer" },
    label: { unit: null, meaning: "the token as the vocabulary writes it, for display" },
    text: { unit: null, meaning: "text released by this token: may be empty, or hold earlier bytes that now make a character" },
    text_length: { unit: null, meaning: "characters of the answer released so far, this token's included" },
    held_back_bytes: { unit: "bytes", meaning: "bytes not released yet: part of a character, or of a possible stop text" },
    logprob: { unit: "nats", meaning: "log-probability under the model's own distribution, before any sampling filter" },
    entropy_bits: { unit: "bits", meaning: "entropy of that distribution, in bits" },
    rank: { unit: null, meaning: "rank of the chosen token in that distribution, from 1" },
    top: { unit: null, meaning: "most probable candidates, best first: id, label, logprob, logit" },
    stages: { unit: null, meaning: "the sampler, stage by stage: name, value (its parameter), kept (candidates left), mass (probability kept, of the distribution that entered the stage), probabilities (of each token in `top` after the stage, not renormalised to them; 0 when removed)" },
    draw: { unit: null, meaning: "method (greedy or inverse_cdf), u (the uniform number drawn), seed, low and high (the chosen token's interval of cumulated probability, candidates in falling order: low ≤ u < high)" },
  }),
  "lens": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    request: { unit: null, meaning: "the request's id" },
    position: { unit: null, meaning: "the position whose residual was read: its guesses are for position + 1" },
    target: { unit: null, meaning: "id of the token that really came next; None when there is none" },
    layers: { unit: null, meaning: "per layer: layer, top (best candidates: id, label, logprob), rank and logprob of the target, entropy_bits" },
    residual_dtype: { unit: null, meaning: "dtype of the residual that was read" },
    how: { unit: null, meaning: "live (computed by the engine on request) or baked (added to the trace afterwards)" },
  }),
  "attribution": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    request: { unit: null, meaning: "the request's id" },
    position: { unit: null, meaning: "the position whose pass chose the target" },
    target: { unit: null, meaning: "token id: the token that really came next" },
    logit: { unit: null, meaning: "the target's logit, by the model's own norm and head; before the soft cap, where it has one" },
    components: { unit: null, meaning: "in the order of the model: layer (None outside the layers), component (embedding; attention and mlp, or layer where the two cannot be told apart; bias: what norm and head add whatever they are given), value (part of the logit); of attention, where it was asked for and can be told, also heads (one value a head) and rest (what its projection adds whatever the heads give)" },
    heads_absent: { unit: null, meaning: "why heads were asked for and are not there in some or all layers" },
    sum: { unit: null, meaning: "sum of the components' values" },
    error: { unit: null, meaning: "|sum − logit|: rounding, and nothing else" },
    soft_cap: { unit: null, meaning: "the model says soft_cap · tanh(logit / soft_cap); None: no cap" },
    said_logit: { unit: null, meaning: "the logit that the model says: after the soft cap" },
    residual_dtype: { unit: null, meaning: "dtype of the residual that was read" },
    how: { unit: null, meaning: "live (computed by the engine) or baked (added to the trace afterwards)" },
  }),
  "router": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    request: { unit: null, meaning: "the request's id" },
    step: { unit: null, meaning: "the step that computed it" },
    position: { unit: null, meaning: "the position" },
    layers: { unit: null, meaning: "per layer with experts: layer, experts (numbers of the chosen ones, in the model's order), weights (what each one's output was multiplied by; None where that could not be confirmed), of (how many experts the layer has)" },
  }),
  "kernel": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    step: { unit: null, meaning: "the step" },
    layer: { unit: null, meaning: "the layer; None outside the layers" },
    operation: { unit: null, meaning: "embedding, norm, qkv_projection, rope, kv_write, attention (with the gathering of its keys), output_projection, mlp, mixer (what mixes tokens without the attention kernel), linear (a matrix product whose part in the layer could not be told), head, choice (of tokens, on the device), capture (of what is recorded), other (the rest of its scope: residual adds, reshapes, gathering)" },
    module: { unit: null, meaning: "where it is in the layer, or in the model outside the layers, by the model's own names, such as self_attn.q_proj; the rest of a module carries the module's name; None for what is no module's" },
    request: { unit: null, meaning: "the request whose own pass it was in; None where the step's rows share one pass" },
    start_ns: { unit: "ns", meaning: "start, on the run's clock; for what is in pieces (the rest of a scope, capture after each layer), where the scope or the first piece began" },
    duration_ns: { unit: "ns", meaning: "duration, without what was timed inside it" },
    timing: { unit: null, meaning: "how it was timed: barriers (slower than normal)" },
  }),
  "stream.sent": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    request: { unit: null, meaning: "the request's id" },
    chunk: { unit: null, meaning: "number of the chunk, from 0" },
    position: { unit: null, meaning: "last token whose text it carries; None when it carries none" },
    chunk_bytes: { unit: "bytes", meaning: "size of the chunk as sent, framing included" },
    text_bytes: { unit: "bytes", meaning: "bytes of answer text in it" },
    held_back_bytes: { unit: "bytes", meaning: "bytes of text still held back" },
    queued_ns: { unit: "ns", meaning: "when it was queued, on the run's clock" },
    sent_ns: { unit: "ns", meaning: "when it was handed to the socket, on the run's clock" },
    to: { unit: null, meaning: "sse, json or stdout" },
  }),
  "gap": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    from_seq: { unit: null, meaning: "first missing" },
    to_seq: { unit: null, meaning: "last missing" },
    reason: { unit: null, meaning: "slow_client, paused, not_kept, damaged_file, not_encodable" },
  }),
  "absent": Object.freeze({
    kind: { unit: null, meaning: "the kind of event" },
    seq: { unit: null, meaning: "place in the run, strictly increasing" },
    t_ns: { unit: "ns", meaning: "nanoseconds since the run's start, monotonic" },
    what: { unit: null, meaning: "the kind that is missing: attention, residual, attention_out, lens, attribution, router" },
    reason: { unit: null, meaning: "prefix_cached, not_captured, over_budget, outside_window or unsupported" },
    request: { unit: null, meaning: "the request's id" },
    positions: { unit: null, meaning: "[from, to) positions; None for all" },
    layers: { unit: null, meaning: "layers; None for all" },
    heads: { unit: null, meaning: "query heads; None for all" },
    detail: { unit: null, meaning: "more in words, such as the bytes needed and the budget" },
    instead: { unit: null, meaning: "for over_budget: the kind of frame that these positions have in its place: attention.summary; None for none" },
    computed_by: { unit: null, meaning: "for prefix_cached: whose pass computed these positions: request and positions [from, to), where its own rows are; a position that nobody is remembered for is missing" },
  }),
});
