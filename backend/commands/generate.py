"""`tokenwalk generate`: one request in this process, its text written as it comes."""

from __future__ import annotations

import queue
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from backend.commands import options
from backend.ending import SILENT_S, WAITS, end_at_once
from engine.bus import EventBus
from engine.capture import CapturePlan
from engine.config import EngineConfig
from engine.errors import ModelError, RequestError, TraceError
from engine.events import RequestFinished, StreamSent, Token
from engine.request import GenerationRequest, SamplingParams
from engine.trace import Recorder

if TYPE_CHECKING:
    from engine.engine import Engine

Outputs = queue.SimpleQueue[tuple[Token | RequestFinished, int]]

Prompt = Annotated[str, typer.Argument(metavar="PROMPT", help="The prompt; - reads it from stdin.", show_default=False)]
TraceFile = Annotated[
    Path | None, typer.Option(help="Record to this file.", envvar="TOKENWALK_TRACE", show_default=False)
]
System = Annotated[str | None, typer.Option(help="A system message.", envvar="TOKENWALK_SYSTEM", show_default=False)]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw",
        "--no-chat",
        help="Continue the text as it is, without the chat template.",
        envvar="TOKENWALK_RAW",
        show_default=False,
    ),
]
MaxTokens = Annotated[int, typer.Option(help="Most tokens to generate.", min=1, envvar="TOKENWALK_MAX_TOKENS")]
Temperature = Annotated[float, typer.Option(help="0 takes the most probable token.", envvar="TOKENWALK_TEMPERATURE")]
TopP = Annotated[float, typer.Option(help="Nucleus sampling; 1 keeps all.", envvar="TOKENWALK_TOP_P")]
TopK = Annotated[int, typer.Option(help="Keep this many candidates; 0 keeps all.", envvar="TOKENWALK_TOP_K")]
MinP = Annotated[
    float, typer.Option(help="Drop what is less probable than this share of the best.", envvar="TOKENWALK_MIN_P")
]
Seed = Annotated[int | None, typer.Option(help="Same seed, same text.", envvar="TOKENWALK_SEED", show_default=False)]
Stop = Annotated[
    list[str] | None,
    typer.Option(help="End before this text. May be repeated.", envvar="TOKENWALK_STOP", show_default=False),
]
GpuTrace = Annotated[
    Path | None,
    typer.Option(
        help="Have Metal write the GPU's work of the first decode step to this .gputrace file, for Xcode.",
        envvar="TOKENWALK_GPUTRACE",
        show_default=False,
    ),
]
Capture = Annotated[
    str | None,
    typer.Option(
        help="off, light, follow, full, or a plan in JSON. Default: follow with --trace, else off.",
        envvar="TOKENWALK_CAPTURE",
        show_default=False,
    ),
]


def generate(
    prompt: Prompt,
    model: options.Model = "smollm2",
    system: System = None,
    raw: Raw = False,
    max_tokens: MaxTokens = 256,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    min_p: MinP = 0.0,
    seed: Seed = None,
    stop: Stop = None,
    trace: TraceFile = None,
    capture: Capture = None,
    kv_memory: options.KvMemory = options.DEFAULTS.kv_memory,
    block_size: options.BlockSize = options.DEFAULTS.block_size,
    prefill_budget: options.PrefillBudget = options.DEFAULTS.prefill_budget,
    max_context: options.MaxContext = None,
    kv: options.Kv = "paged",
    time_every: options.TimeEvery = options.DEFAULTS.time_every,
    gputrace: GpuTrace = None,
    json_output: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Generate once. The answer goes to stdout, everything else to stderr.

    Ctrl-C ends the generation; what was written and recorded until then stays.

    Example: tokenwalk generate "What is the capital of France?" --trace france.mcap

    Or only some of it: --capture '{"layers": [[20, 30]], "positions": "generated", "max_bytes": 50000000}'
    """
    text = _text(prompt)
    if raw and system is not None:
        raise RequestError("--system needs the chat template, which --raw leaves out; drop one of them", param="system")
    if gputrace is not None:
        from engine.device import check_gpu_trace

        check_gpu_trace(gputrace)  # before a model is loaded for nothing
    plan = CapturePlan.read(capture or ("follow" if trace else "off"))
    messages = [{"role": "user", "content": text}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    sampling = SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed)
    request = GenerationRequest(
        messages=None if raw else messages,
        prompt=text if raw else None,
        max_tokens=max_tokens,
        sampling=sampling,
        stop=tuple(stop or ()),
        capture=plan,
        source="generate",
    )
    config = EngineConfig(
        slots=1,
        prefill_budget=prefill_budget,
        kv_memory=kv_memory,
        block_size=block_size,
        kv_store=kv,
        max_context=max_context,
        time_every=time_every,
        gpu_trace=gputrace,
    )
    with _recorded(trace) as (bus, recorder), _engine(model, config, bus) as engine:
        if not raw and not engine.tokenizer.has_chat_template:
            raise RequestError("this model has no chat template; give --raw to continue the text as it is")
        finished, answer = _run(engine, bus, request, quiet=json_output)
    torn = recorder is not None and recorder.failure is not None
    if json_output:
        _print_json(finished, answer, trace)
    else:
        _print_summary(finished, None if torn else trace)
    if finished.reason == "error":
        raise ModelError(finished.detail or "the generation failed")
    if torn and recorder is not None:
        raise TraceError(f"{trace} is not whole: it lacks {recorder.frames_lost:,} events; the answer is whole")
    if finished.reason == "cancelled":
        raise typer.Exit(130)


def _text(prompt: str) -> str:
    """The prompt's text, read from stdin for "-".

    Raises:
        RequestError: when it is empty or not UTF-8.
    """
    try:
        # Python lets an argument's wrong bytes through as lone surrogates.
        text = sys.stdin.buffer.read().decode() if prompt == "-" else prompt.encode().decode()
    except UnicodeError as error:
        raise RequestError(
            "the prompt is not UTF-8; convert it first, for instance with iconv", param="prompt"
        ) from error
    if not text:
        raise RequestError("the prompt is empty; give some text, or - to read it from stdin", param="prompt")
    return text


def _keep_what_is_there(trace: Path) -> None:
    """Move a trace that would be written over out of the way."""
    if trace.is_file() and not trace.is_symlink():
        kept = trace.with_name(f"{trace.name}.old")
        trace.replace(kept)
        print(f"tokenwalk: {trace} was there already; it is now {kept}", file=sys.stderr)


@contextmanager
def _recorded(trace: Path | None) -> Iterator[tuple[EventBus, Recorder | None]]:
    if trace is not None:
        _keep_what_is_there(trace)
    recorder = None if trace is None else Recorder(trace, on_failure=_say)
    bus = EventBus()
    if recorder is not None:
        bus.subscribe(recorder)
    try:
        yield bus, recorder
    finally:
        bus.close()
        if recorder is not None:
            recorder.close()


def _say(failure: str) -> None:
    print(f"\ntokenwalk: {failure}", file=sys.stderr, flush=True)


@contextmanager
def _engine(model: str, config: EngineConfig, bus: EventBus) -> Iterator[Engine]:
    from engine.engine import Engine
    from engine.models import load

    engine = Engine(lambda: load(model), config, bus)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def _run(engine: Engine, bus: EventBus, request: GenerationRequest, *, quiet: bool) -> tuple[RequestFinished, str]:
    """Generate, writing text as it comes unless `quiet`. Returns how it ended, and the text."""
    events: Outputs = queue.SimpleQueue()
    request_id = engine.submit(request, lambda event: events.put((event, bus.now_ns())))
    text: list[str] = []
    cancelled = False
    while True:
        try:
            event, queued_ns = _next(events, cancelled)
            if isinstance(event, RequestFinished):
                return event, "".join(text)
            if event.text:
                text.append(event.text)
                if not quiet:
                    _write(bus, event, queued_ns, chunk=len(text) - 1)
        except KeyboardInterrupt:
            if cancelled:
                end_at_once(130)
            cancelled = True
            engine.cancel(request_id)  # and go on until it says that it has ended
        except BrokenPipeError:
            engine.cancel(request_id)
            raise


def _next(events: Outputs, cancelled: bool) -> tuple[Token | RequestFinished, int]:
    """The next event; where the end that was asked for is long in coming, it is said what it waits for."""
    if cancelled:
        try:
            return events.get(timeout=SILENT_S)
        except queue.Empty:
            print(f"\ntokenwalk: {WAITS}", file=sys.stderr, flush=True)
    return events.get()


def _write(bus: EventBus, token: Token, queued_ns: int, *, chunk: int) -> None:
    data = token.text.encode()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    bus.emit(
        StreamSent(
            request=token.request,
            chunk=chunk,
            position=token.position,
            chunk_bytes=len(data),
            text_bytes=len(data),
            held_back_bytes=token.held_back_bytes,
            queued_ns=queued_ns,
            sent_ns=bus.now_ns(),
            to="stdout",
        )
    )


def _print_json(finished: RequestFinished, text: str, trace: Path | None) -> None:
    value: dict[str, Any] = {
        "text": text,
        "finish_reason": finished.reason,
        "detail": finished.detail,
        "prompt_tokens": finished.prompt_tokens,
        "completion_tokens": finished.completion_tokens,
        "timings": finished.timings,
        "trace": None if trace is None else str(trace),
    }
    print(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def _print_summary(finished: RequestFinished, trace: Path | None) -> None:
    print()  # the answer's own last line has no end
    timings = finished.timings
    parts = [f"{finished.prompt_tokens} + {finished.completion_tokens} tokens", f"ended by {finished.reason}"]
    if timings.get("ttft_ns") is not None:
        parts.append(f"first token after {timings['ttft_ns'] / 1e9:.2f} s")
    if timings.get("decode_ns") and finished.completion_tokens > 1:
        parts.append(f"{(finished.completion_tokens - 1) / (timings['decode_ns'] / 1e9):.1f} tokens/s")
    if trace is not None:
        parts.append(f"trace in {trace}")
    print("; ".join(parts), file=sys.stderr)
