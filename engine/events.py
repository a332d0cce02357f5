"""The one schema: everything that Tokenwalk says about a run.

An event is a flat record. The WebSocket, the trace file and the frames route all carry these records in one encoding
(`engine.codec`); the page's constants (`frontend/js/schema.js`) and the page on the format (`traces/FORMAT.md`) are
generated from this file by `python -m engine.schema`.

This module imports neither MLX nor anything of the project that does, so a trace can be read where no model can run.

Conventions: `*_ns` is nanoseconds (`t_ns` counts from the run's start on one monotonic clock), `*_bytes` is a size,
`logprob` is a natural logarithm, `entropy_bits` is in bits, `bytes_hex` is lower-case hexadecimal. A token's
`position` counts from 0 over prompt and answer. Positions, layers and heads start at 0; ranks start at 1.
A field that is None was not known or does not apply.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from engine.apart import Apart

SCHEMA_VERSION = 1

FinishReason = Literal["stop", "length", "cancelled", "error"]
Role = Literal["system", "user", "assistant", "template"]
Phase = Literal["prefill", "decode"]
AbsentReason = Literal["prefix_cached", "not_captured", "over_budget", "outside_window", "unsupported"]


def doc(text: str, **kwargs: Any) -> Any:
    """A dataclass field with its meaning, which the generated format page shows."""
    return dataclasses.field(metadata={"doc": text}, **kwargs)


@dataclass(slots=True, kw_only=True)
class Event:
    """What all events have. `seq` and `t_ns` are set by the event bus when the event is emitted."""

    kind: ClassVar[str] = ""

    seq: int = doc("place in the run, strictly increasing", default=0)
    t_ns: int = doc("nanoseconds since the run's start, monotonic", default=0)


@dataclass(slots=True, kw_only=True)
class TensorEvent(Event):
    """An event whose frame ends in raw array data. `dtype`, `shape` and `byte_length` describe it in the header."""

    data: np.ndarray | Apart = doc("the array; travels as raw little-endian bytes after the header")
    scale: float | None = doc("value = number × scale; None: the number itself", default=None)


# --- the run ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class RunHeader(Event):
    """First event of every run: what runs, on what."""

    kind: ClassVar[str] = "run.header"

    schema_version: int = doc("version of this schema", default=SCHEMA_VERSION)
    epoch: str = doc("random name of this run; changes when the server restarts")
    engine_version: str = doc("Tokenwalk's version")
    model: dict[str, Any] = doc(
        "name, architecture, layers, heads, kv_heads, head_dim, hidden, vocab, dtype (of computation), quantisation "
        "(as stored), context, parameters, weights_bytes, eos_ids"
    )
    tokenizer: dict[str, Any] = doc("kind, vocab, chat_template (whether the model has one)")
    machine: dict[str, Any] = doc("chip, os, python, mlx, mlx_lm, device (cpu or gpu), blas")
    kv: dict[str, Any] = doc("store, block_size and blocks (None where the cache is not paged), dtype")
    slots: int = doc("how many requests can run at once")
    started_at: str = doc("wall-clock time at `t_ns` 0, ISO 8601 with offset")


# --- a request --------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class RequestArrived(Event):
    kind: ClassVar[str] = "request.arrived"

    request: str = doc("the request's id")
    name: str | None = doc("a name given by the caller", default=None)
    source: str = doc("where it came from: chat.completions, completions, fork, generate, notebook, bench")
    text: str | None = doc("the prompt's text after the chat template; None when prompts are kept private")
    messages: list[dict[str, Any]] | None = doc("the chat messages, when it was a chat", default=None)
    sampling: dict[str, Any] = doc("all sampling parameters as used")
    max_tokens: int = doc("most tokens that may be generated")
    capture: dict[str, Any] = doc(
        "the capture plan: level, dtype, budget_bytes; and positions, layers, heads, tensors, over_budget, kernels "
        "where given"
    )
    priority: int = doc("larger runs sooner", default=0)
    forked_from: dict[str, Any] | None = doc("request and position where this one branched off", default=None)


@dataclass(slots=True, kw_only=True)
class RequestTokenized(Event):
    kind: ClassVar[str] = "request.tokenized"

    request: str = doc("the request's id")
    tokens: list[dict[str, Any]] = doc(
        "per prompt token: id, bytes_hex, label, start and end (character offsets into the text), role (system, user, "
        "assistant, template), special (true for control tokens)"
    )
    duration_ns: int = doc("time taken to tokenize")


@dataclass(slots=True, kw_only=True)
class RequestScheduled(Event):
    kind: ClassVar[str] = "request.scheduled"

    request: str = doc("the request's id")
    waited_ns: int = doc("from its arrival until it got its slot: tokenizing, and the queue")
    reason: str = doc("why it could start now")
    cached_tokens: int = doc("leading positions whose KV was there already, from the prefix cache or shared", default=0)


@dataclass(slots=True, kw_only=True)
class RequestPreempted(Event):
    kind: ClassVar[str] = "request.preempted"

    request: str = doc("the request's id")
    reason: str = doc("why it had to give way")


@dataclass(slots=True, kw_only=True)
class RequestFinished(Event):
    kind: ClassVar[str] = "request.finished"

    request: str = doc("the request's id")
    reason: FinishReason = doc("stop, length, cancelled or error")
    detail: str | None = doc("what stopped it: the token, the stop text, or the error", default=None)
    prompt_tokens: int = doc("tokens of the prompt")
    completion_tokens: int = doc("tokens generated, the end token included")
    timings: dict[str, Any] = doc("queue_ns, prefill_ns, decode_ns, ttft_ns (time to first token), total_ns")


@dataclass(slots=True, kw_only=True)
class RequestRejected(Event):
    kind: ClassVar[str] = "request.rejected"

    request: str = doc("the request's id")
    reason: str = doc("what was given, what was expected")


# --- scheduler --------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class SlotAssigned(Event):
    kind: ClassVar[str] = "slot.assigned"

    slot: int = doc("the slot")
    request: str = doc("the request that got it")


@dataclass(slots=True, kw_only=True)
class SlotReleased(Event):
    kind: ClassVar[str] = "slot.released"

    slot: int = doc("the slot")
    request: str = doc("the request that held it")


@dataclass(slots=True, kw_only=True)
class StepStarted(Event):
    """One forward pass. Decode steps are pipelined: step n + 1 may start before step n is reported finished."""

    kind: ClassVar[str] = "step.started"

    step: int = doc("number of the step in the run")
    rows: list[dict[str, Any]] = doc(
        "per batch row: request, slot, phase (prefill or decode), from and to (positions computed: from ≤ p < to)"
    )
    tokens: int = doc("positions computed in this step")
    token_budget: int = doc("most positions that a step may compute")


@dataclass(slots=True, kw_only=True)
class StepFinished(Event):
    kind: ClassVar[str] = "step.finished"

    step: int = doc("number of the step")
    build_ns: int = doc("time to build the graph in Python: not the computation")
    eval_ns: int = doc("step wall: from submission, or the end of the step before, until the result was there")
    wait_ns: int = doc("how long the engine thread had to wait for the result")
    sample_ns: int = doc("time spent choosing tokens and their statistics", default=0)
    capture_ns: int = doc("time spent copying captured arrays", default=0)
    unused_rows: int = doc(
        "rows whose result nobody needed: their request had ended when it came (pipelining)", default=0
    )
    timing: str | None = doc(
        "barriers: its operations were timed, one after another, which makes it slower than normal; eval_ns then "
        "counts from when its graph began to be built, without the pauses between its layers in which attention was "
        "told, which are part of capture_ns. gpu_capture: Metal wrote down what the GPU did, which is slower "
        "too. None: a normal step",
        default=None,
    )
    operations_ns: int | None = doc("for a step with barriers: sum of its kernels' durations", default=None)
    normal_ns: int | None = doc(
        "for a timed step: median eval_ns of the latest normal steps with as many decoding rows and prompt positions; "
        "None when there was none",
        default=None,
    )
    normal_steps: int = doc("how many steps that median is of", default=0)
    row_sum_error: float | None = doc(
        "largest |sum of a row − 1| of the attention captured in this step; None when none was", default=None
    )
    attention_check: dict[str, Any] | None = doc(
        "in one of 8 passes that capture: one row of one layer, all heads, tested: its weights × the values, against "
        "what the kernel gave: request, layer, position, error (largest difference), largest (largest output)",
        default=None,
    )


# --- KV blocks --------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class BlockEvent(Event):
    """What all block events carry: the block as it is after the event, where nothing else is said."""

    block: int = doc("physical block")
    request: str | None = doc("the request it concerns", default=None)
    logical: int | None = doc("index in that request's block table", default=None)
    positions: list[int] | None = doc("[from, to) token positions that it is for", default=None)
    prefix_hash: str | None = doc("hash chained over the tokens up to the block's end", default=None)
    parent_hash: str | None = doc("hash of the block before", default=None)
    refs: int | None = doc("holders after this event", default=None)


@dataclass(slots=True, kw_only=True)
class BlockAllocated(BlockEvent):
    """`request` got a free block: it alone holds it, and it cannot be found by its content yet."""

    kind: ClassVar[str] = "block.allocated"


@dataclass(slots=True, kw_only=True)
class BlockStored(BlockEvent):
    """The block is full: from now on it can be found by its content."""

    kind: ClassVar[str] = "block.stored"


@dataclass(slots=True, kw_only=True)
class BlockReused(BlockEvent):
    """`request` found the block by its content, and holds it from now on."""

    kind: ClassVar[str] = "block.reused"


@dataclass(slots=True, kw_only=True)
class BlockRefChanged(BlockEvent):
    """`request` came to hold the block or, if it held it, gave it back. At 0 refs it stays as cached."""

    kind: ClassVar[str] = "block.ref_changed"


@dataclass(slots=True, kw_only=True)
class BlockCopied(BlockEvent):
    """`request` had to write a block that is not its alone, and got a free one with the same content instead."""

    kind: ClassVar[str] = "block.copied"

    source: int = doc("block copied from", default=0)


@dataclass(slots=True, kw_only=True)
class BlockFreed(BlockEvent):
    """Nobody holds the block and nothing in it is kept. The fields say what it was."""

    kind: ClassVar[str] = "block.freed"


@dataclass(slots=True, kw_only=True)
class BlockEvicted(BlockEvent):
    """The block cannot be found any more; it is free, unless `refs` says that it is still held.

    The fields say what it was.
    """

    kind: ClassVar[str] = "block.evicted"

    reason: str = doc(
        "room (for the blocks of `request`) or distrust (`request` failed, and the KV may be wrong)", default="room"
    )


# --- tokens -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Token(Event):
    """A generated token. The pass at `position` − 1, in `step`, chose it; its own pass runs in a later step."""

    kind: ClassVar[str] = "token"

    request: str = doc("the request's id")
    step: int = doc("the step that chose it")
    position: int = doc("its place in prompt + answer")
    index: int = doc("its place in the answer, from 0")
    id: int = doc("token id")
    bytes_hex: str = doc("the bytes it stands for; empty for control tokens")
    special: bool = doc("true for control tokens, whose text is not part of the answer")
    label: str = doc("the token as the vocabulary writes it, for display")
    text: str = doc("text released by this token: may be empty, or hold earlier bytes that now make a character")
    text_length: int = doc("characters of the answer released so far, this token's included")
    held_back_bytes: int = doc("bytes not released yet: part of a character, or of a possible stop text")
    logprob: float | None = doc("log-probability under the model's own distribution, before any sampling filter")
    entropy_bits: float | None = doc("entropy of that distribution, in bits")
    rank: int | None = doc("rank of the chosen token in that distribution, from 1")
    top: list[dict[str, Any]] = doc("most probable candidates, best first: id, label, logprob, logit")
    stages: list[dict[str, Any]] = doc(
        "the sampler, stage by stage: name, value (its parameter), kept (candidates left), mass (probability kept, of "
        "the distribution that entered the stage), probabilities (of each token in `top` after the stage, not "
        "renormalised to them; 0 when removed)"
    )
    draw: dict[str, Any] = doc(
        "method (greedy or inverse_cdf), u (the uniform number drawn), seed, low and high (the chosen token's interval "
        "of cumulated probability, candidates in falling order: low ≤ u < high)"
    )


# --- inside the model -------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Attention(TensorEvent):
    """Attention probabilities of one query position: `[layers, heads, keys]`, keys 0 … position.

    One frame a position; of a step that is timed with barriers, one a layer, sent as the layer finishes.
    """

    kind: ClassVar[str] = "attention"

    request: str = doc("the request's id")
    step: int = doc("the step that computed it")
    position: int = doc("the query's position")
    layer: int = doc("first layer in the array", default=0)
    layers: list[int] | None = doc("the array's layers, where they do not follow on from `layer`", default=None)
    heads: list[int] | None = doc("the array's query heads, where they are not all of the model's", default=None)
    first_key: int = doc("position of the first key in the array", default=0)
    source_dtype: str = doc("dtype the probabilities were computed in")
    omitted: str | None = doc("what was left out, in words; None when the rows are whole", default=None)
    omitted_mass: float = doc("largest probability mass left out of any row", default=0.0)
    row_sum_error: float = doc("largest |sum of a row − 1|, before any conversion", default=0.0)


@dataclass(slots=True, kw_only=True)
class AttentionSummary(TensorEvent):
    """What is kept of a position's attention beyond the capture budget: `[layers, heads, 2 · kept + 2]` numbers in f32.

    Of each row: the positions of its `kept` largest weights, largest first (whole numbers); those weights; the sum of
    all other weights; and the entropy of the whole row, in bits. The weights are as computed, not renormalised.

    One frame a position, or one a layer, as of `attention`.
    """

    kind: ClassVar[str] = "attention.summary"

    request: str = doc("the request's id")
    step: int = doc("the step that computed it")
    position: int = doc("the query's position")
    layers: list[int] = doc("the array's layers")
    heads: list[int] = doc("the array's query heads")
    keys: int = doc("how many keys each row has: positions 0 … position")
    kept: int = doc("how many weights of each row are listed")
    mass: float = doc("mean over the rows of what the listed weights sum to")
    least_mass: float = doc("the smallest such sum of any row")
    source_dtype: str = doc("dtype the probabilities were computed in")
    row_sum_error: float = doc("largest |sum of a row − 1|, before it was summarised", default=0.0)


@dataclass(slots=True, kw_only=True)
class Residual(TensorEvent):
    """The residual stream of one position, `[layers + 1, hidden]`: row 0 the embedding, row i + 1 after layer i."""

    kind: ClassVar[str] = "residual"

    request: str = doc("the request's id")
    step: int = doc("the step that computed it")
    position: int = doc("the position")
    source_dtype: str = doc("dtype the residual was computed in")
    norms: list[float] = doc("L2 norm of each row of the array, before any conversion")
    attention_norms: list[float | None] = doc("per layer, L2 norm of what attention added; None if not separable")
    mlp_norms: list[float | None] = doc("per layer, L2 norm of what the MLP added; None if not separable")


@dataclass(slots=True, kw_only=True)
class Lens(Event):
    """Logit lens at one position: final norm and output head applied to the residual after each layer."""

    kind: ClassVar[str] = "lens"

    request: str = doc("the request's id")
    position: int = doc("the position whose residual was read: its guesses are for position + 1")
    target: int | None = doc("id of the token that really came next; None when there is none")
    layers: list[dict[str, Any]] = doc(
        "per layer: layer, top (best candidates: id, label, logprob), rank and logprob of the target, entropy_bits"
    )
    residual_dtype: str = doc("dtype of the residual that was read")
    how: str = doc("live (computed by the engine on request) or baked (added to the trace afterwards)")


@dataclass(slots=True, kw_only=True)
class AttentionOut(TensorEvent):
    """What attention added to the residual stream of one position, `[layers, hidden]`: for attribution."""

    kind: ClassVar[str] = "attention_out"

    request: str = doc("the request's id")
    step: int = doc("the step that computed it")
    position: int = doc("the position")
    source_dtype: str = doc("dtype it was computed in")


@dataclass(slots=True, kw_only=True)
class Attribution(Event):
    """Direct logit attribution: what each part of the model added to one token's logit, read through the final norm.

    The norm's scale is the one it had at this position, held fixed, so that the parts add up; what a part did to later
    layers is theirs.
    """

    kind: ClassVar[str] = "attribution"

    request: str = doc("the request's id")
    position: int = doc("the position whose pass chose the target")
    target: int = doc("token id: the token that really came next")
    logit: float = doc("the target's logit, by the model's own norm and head; before the soft cap, where it has one")
    components: list[dict[str, Any]] = doc(
        "in the order of the model: layer (None outside the layers), component (embedding; attention and mlp, or layer "
        "where the two cannot be told apart; bias: what norm and head add whatever they are given), value (part of the "
        "logit); of attention, where it was asked for and can be told, also heads (one value a head) and rest (what "
        "its projection adds whatever the heads give)"
    )
    heads_absent: str | None = doc("why heads were asked for and are not there in some or all layers", default=None)
    sum: float = doc("sum of the components' values", default=0.0)
    error: float = doc("|sum − logit|: rounding, and nothing else", default=0.0)
    soft_cap: float | None = doc("the model says soft_cap · tanh(logit / soft_cap); None: no cap", default=None)
    said_logit: float | None = doc("the logit that the model says: after the soft cap", default=None)
    residual_dtype: str = doc("dtype of the residual that was read", default="f32")
    how: str = doc("live (computed by the engine) or baked (added to the trace afterwards)", default="live")


@dataclass(slots=True, kw_only=True)
class Router(Event):
    """Which experts the mixture-of-experts layers sent one position to."""

    kind: ClassVar[str] = "router"

    request: str = doc("the request's id")
    step: int = doc("the step that computed it")
    position: int = doc("the position")
    layers: list[dict[str, Any]] = doc(
        "per layer with experts: layer, experts (numbers of the chosen ones, in the model's order), weights (what each "
        "one's output was multiplied by; None where that could not be confirmed), of (how many experts the layer has)"
    )


@dataclass(slots=True, kw_only=True)
class Kernel(Event):
    """How long one operation of a timed step took, with everything before it done and nothing begun after it.

    Durations are exclusive: what is timed inside another operation is not part of it again, so the durations of a step
    may be added up, and make `step.finished.operations_ns`.
    """

    kind: ClassVar[str] = "kernel"

    step: int = doc("the step")
    layer: int | None = doc("the layer; None outside the layers", default=None)
    operation: str = doc(
        "embedding, norm, qkv_projection, rope, kv_write, attention (with the gathering of its keys), "
        "output_projection, mlp, mixer (what mixes tokens without the attention kernel), linear (a matrix product "
        "whose part in the layer could not be told), head, choice (of tokens, on the device), capture (of what is "
        "recorded), other (the rest of its scope: residual adds, reshapes, gathering)"
    )
    module: str | None = doc(
        "where it is in the layer, or in the model outside the layers, by the model's own names, such as "
        "self_attn.q_proj; the rest of a module carries the module's name; None for what is no module's",
        default=None,
    )
    request: str | None = doc(
        "the request whose own pass it was in; None where the step's rows share one pass", default=None
    )
    start_ns: int = doc(
        "start, on the run's clock; for what is in pieces (the rest of a scope, capture after each layer), where the "
        "scope or the first piece began"
    )
    duration_ns: int = doc("duration, without what was timed inside it")
    timing: str = doc("how it was timed: barriers (slower than normal)")


# --- on the way out ---------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class StreamSent(Event):
    kind: ClassVar[str] = "stream.sent"

    request: str = doc("the request's id")
    chunk: int = doc("number of the chunk, from 0")
    position: int | None = doc("last token whose text it carries; None when it carries none", default=None)
    chunk_bytes: int = doc("size of the chunk as sent, framing included")
    text_bytes: int = doc("bytes of answer text in it")
    held_back_bytes: int = doc("bytes of text still held back")
    queued_ns: int = doc("when it was queued, on the run's clock")
    sent_ns: int = doc("when it was handed to the socket, on the run's clock")
    to: str = doc("sse, json or stdout")


@dataclass(slots=True, kw_only=True)
class Gap(Event):
    """Frames that this client or file lacks. Its `seq` is the last one missing; it is not part of the run itself."""

    kind: ClassVar[str] = "gap"

    from_seq: int = doc("first missing")
    to_seq: int = doc("last missing")
    reason: str = doc("slow_client, paused, not_kept, damaged_file, not_encodable")


@dataclass(slots=True, kw_only=True)
class Absent(Event):
    """Says what was not computed, so that nobody takes a hole for a zero."""

    kind: ClassVar[str] = "absent"

    what: str = doc("the kind that is missing: attention, residual, attention_out, lens, attribution, router")
    reason: AbsentReason = doc("prefix_cached, not_captured, over_budget, outside_window or unsupported")
    request: str = doc("the request's id")
    positions: list[int] | None = doc("[from, to) positions; None for all", default=None)
    layers: list[int] | None = doc("layers; None for all", default=None)
    heads: list[int] | None = doc("query heads; None for all", default=None)
    detail: str | None = doc("more in words, such as the bytes needed and the budget", default=None)
    instead: str | None = doc(
        "for over_budget: the kind of frame that these positions have in its place: attention.summary; None for none",
        default=None,
    )
    computed_by: list[dict[str, Any]] | None = doc(
        "for prefix_cached: whose pass computed these positions: request and positions [from, to), where its own rows "
        "are; a position that nobody is remembered for is missing",
        default=None,
    )


def _leaves(cls: type[Event]) -> list[type[Event]]:
    below = cls.__subclasses__()
    own = [cls] if cls.kind else []
    return own + [leaf for sub in below for leaf in _leaves(sub)]


KINDS: dict[str, type[Event]] = {cls.kind: cls for cls in _leaves(Event)}
"""Every kind of event by its name."""

TENSOR_KINDS = frozenset(kind for kind, cls in KINDS.items() if issubclass(cls, TensorEvent))
"""The kinds whose frames are binary."""
