"""Prometheus metrics, counted from the event stream alone, under vLLM's names.

The one exception is what the stream itself loses or weighs: frames dropped for slow clients, bytes of the trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.codec import Frame, parse
from engine.events import KINDS

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every one, which nobody reads

LATENCY_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
TOKEN_LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
NS = 1e-9  # seconds


@dataclass(slots=True)
class _Flight:
    """What must be remembered of a request until it is finished."""

    running: bool = False
    last_token_ns: int | None = None
    prompt_tokens: int = 0
    looked_up: bool = False
    """Whether its prompt has been looked up in the prefix cache: only the first time counts."""


class Metrics:
    """Listens on the bus; `text()` is the body of `GET /metrics`."""

    def __init__(self, trace_bytes: Callable[[], int] = lambda: 0) -> None:
        self._registry = CollectorRegistry()
        self._flights: dict[str, _Flight] = {}
        self._slots = 1
        self._running = 0
        self._blocks: int | None = None
        self._held: set[int] = set()

        def counter(name: str, help_text: str, *labels: str) -> Counter:
            return Counter(f"tokenwalk_{name}", help_text, labels, registry=self._registry)

        def histogram(name: str, help_text: str, buckets: tuple[float, ...] = LATENCY_S) -> Histogram:
            return Histogram(f"tokenwalk_{name}", help_text, registry=self._registry, buckets=buckets)

        def gauge(name: str, help_text: str) -> Gauge:
            return Gauge(f"tokenwalk_{name}", help_text, registry=self._registry)

        self.running = gauge("num_requests_running", "Requests that hold a slot.")
        self.waiting = gauge("num_requests_waiting", "Requests that wait in the queue.")
        self.batch = gauge("batch_utilisation", "Rows ÷ slots of the latest step that decoded; 0 when nothing runs.")
        self.kv_usage = gauge("kv_cache_usage_perc", "Held KV blocks ÷ all, 1 is full; NaN where it has no blocks.")
        self.kv_usage.set(math.nan)
        self.prefix_queries = counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self.prefix_hits = counter("prefix_cache_hits", "Prompt tokens whose KV was there already.")
        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens of finished requests.")
        self.generation_tokens = counter("generation_tokens", "Tokens generated.")
        self.preemptions = counter("num_preemptions", "Requests that had to give their slot away.")
        self.finished = counter("request_success", "Finished requests, by reason.", "finished_reason")
        self.rejected = counter("requests_rejected", "Requests refused on arrival.")
        self.first_token = histogram("time_to_first_token_seconds", "From arrival to the first token.")
        self.inter_token = histogram("inter_token_latency_seconds", "Between two tokens of a request.", TOKEN_LATENCY_S)
        self.total = histogram("e2e_request_latency_seconds", "From arrival to the end.")
        self.queue = histogram("request_queue_time_seconds", "From arrival to the slot.")
        self.prefill = histogram("request_prefill_time_seconds", "Computing the prompt.")
        self.decode = histogram("request_decode_time_seconds", "From the first token to the last.")
        self.capture = counter("capture_seconds", "Time spent copying captured arrays.")
        self.dropped = counter("events_dropped", "Events a client was too slow for, or paused too long.", "client")
        self._registry.register(_TraceBytes(trace_bytes))
        self._handlers: dict[str, Callable[[Frame], None]] = {
            "run.header": self._header,
            "request.arrived": self._arrived,
            "request.tokenized": self._tokenized,
            "request.scheduled": self._scheduled,
            "request.preempted": self._preempted,
            "request.rejected": self._rejected,
            "request.finished": self._finished,
            "step.started": self._step,
            "step.finished": self._step_finished,
            "token": self._token,
            **{kind: self._block for kind in KINDS if kind.startswith("block.")},
        }

    def text(self) -> bytes:
        """The metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def count_dropped(self, client: str, frames: int) -> None:
        """Count frames that a client will not get."""
        self.dropped.labels(client).inc(frames)

    def on_frame(self, frame: Frame) -> None:
        """Bus listener."""
        handle = self._handlers.get(frame.kind)
        if handle is not None:
            handle(frame)

    def _arrived(self, frame: Frame) -> None:
        self._flights[frame.request or ""] = _Flight()
        self.waiting.inc()

    def _tokenized(self, frame: Frame) -> None:
        flight = self._flights.get(frame.request or "")
        if flight is not None:
            flight.prompt_tokens = len(_fields(frame)["tokens"])

    def _scheduled(self, frame: Frame) -> None:
        flight = self._flights.get(frame.request or "")
        if flight is not None and not flight.looked_up:
            flight.looked_up = True
            self.prefix_queries.inc(flight.prompt_tokens)
            self.prefix_hits.inc(_fields(frame)["cached_tokens"])
        self._move(frame, to_running=True)

    def _preempted(self, frame: Frame) -> None:
        self.preemptions.inc()
        self._move(frame, to_running=False)

    def _rejected(self, frame: Frame) -> None:
        self.rejected.inc()
        self._land(frame)

    def _step(self, frame: Frame) -> None:
        rows = _fields(frame)["rows"]
        if any(row["phase"] == "decode" for row in rows):
            self.batch.set(len(rows) / self._slots)

    def _step_finished(self, frame: Frame) -> None:
        self.capture.inc(_fields(frame)["capture_ns"] * NS)

    def _header(self, frame: Frame) -> None:
        fields = _fields(frame)
        self._slots = max(1, fields["slots"])
        self._blocks = fields["kv"].get("blocks")
        if self._blocks:
            self.kv_usage.set(0)

    def _block(self, frame: Frame) -> None:
        """Every block event says how many hold the block afterwards."""
        fields = _fields(frame)
        if fields["refs"]:
            self._held.add(fields["block"])
        else:
            self._held.discard(fields["block"])
        if self._blocks:
            self.kv_usage.set(len(self._held) / self._blocks)

    def _token(self, frame: Frame) -> None:
        self.generation_tokens.inc()
        flight = self._flights.get(frame.request or "")
        if flight is None:
            return
        if flight.last_token_ns is not None:
            self.inter_token.observe((frame.t_ns - flight.last_token_ns) * NS)
        flight.last_token_ns = frame.t_ns

    def _finished(self, frame: Frame) -> None:
        fields = _fields(frame)
        self.finished.labels(fields["reason"]).inc()
        self.prompt_tokens.inc(fields["prompt_tokens"])
        for histogram, name in (
            (self.first_token, "ttft_ns"),
            (self.total, "total_ns"),
            (self.queue, "queue_ns"),
            (self.prefill, "prefill_ns"),
            (self.decode, "decode_ns"),
        ):
            if fields["timings"].get(name) is not None:
                histogram.observe(fields["timings"][name] * NS)
        self._land(frame)

    def _move(self, frame: Frame, *, to_running: bool) -> None:
        flight = self._flights.get(frame.request or "")
        if flight is not None and flight.running != to_running:
            flight.running = to_running
            self._count_running(1 if to_running else -1)
            self.waiting.dec(1 if to_running else -1)

    def _land(self, frame: Frame) -> None:
        flight = self._flights.pop(frame.request or "", None)
        if flight is not None and flight.running:
            self._count_running(-1)
        elif flight is not None:
            self.waiting.dec()

    def _count_running(self, change: int) -> None:
        self._running += change
        self.running.set(self._running)
        if self._running == 0:
            self.batch.set(0)


class _TraceBytes(Collector):
    """Asks the recorder when somebody asks us."""

    def __init__(self, trace_bytes: Callable[[], int]) -> None:
        self._trace_bytes = trace_bytes

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "tokenwalk_trace_bytes_written", "Bytes written to the trace file.", value=self._trace_bytes()
        )


def _fields(frame: Frame) -> dict[str, Any]:
    fields, _ = parse(frame.payload, binary=frame.binary)
    return fields
