"""The metrics are what the events say."""

import math
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from backend.metrics import Metrics
from engine.codec import encode
from engine.events import (
    BlockAllocated,
    BlockEvicted,
    BlockFreed,
    BlockRefChanged,
    BlockReused,
    Event,
    RequestArrived,
    RequestFinished,
    RequestPreempted,
    RequestScheduled,
    RequestTokenized,
    RunHeader,
    StepStarted,
)
from tests.backend.conftest import Running, Serve
from tests.backend.fake_engine import ANSWER, FakeEngine

PROMISED = """
num_requests_running num_requests_waiting prompt_tokens_total generation_tokens_total num_preemptions_total
request_success_total time_to_first_token_seconds_count inter_token_latency_seconds_count
e2e_request_latency_seconds_count request_queue_time_seconds_count request_prefill_time_seconds_count
request_decode_time_seconds_count batch_utilisation kv_cache_usage_perc prefix_cache_queries_total
prefix_cache_hits_total trace_bytes_written_total capture_seconds_total
"""


def values(server: Running) -> dict[str, float]:
    server.live.bus.flush()
    if server.live.recorder is not None:
        server.live.recorder.flush()  # it writes on a thread of its own
    response = server.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        sample.name.removeprefix("tokenwalk_") + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def test_a_finished_request_is_counted(server: Running) -> None:
    before = values(server)
    assert {name for name in PROMISED.split() if name not in before} == {"request_success_total"}  # no reason yet
    usage = server.chat().json()["usage"]
    after = values(server)
    tokens = len(ANSWER.encode()) + 1
    assert after["request_success_total[stop]"] == 1
    assert after["generation_tokens_total"] == tokens == usage["completion_tokens"]
    assert after["prompt_tokens_total"] == usage["prompt_tokens"]
    assert after["inter_token_latency_seconds_count"] == tokens - 1
    assert after["time_to_first_token_seconds_sum"] == 3
    assert after["e2e_request_latency_seconds_sum"] == 4
    assert after["request_queue_time_seconds_sum"] == 1
    assert after["request_prefill_time_seconds_sum"] == 2
    assert after["request_decode_time_seconds_count"] == 0  # the fake engine reports none
    assert after["capture_seconds_total"] == tokens * 0.5
    assert after["batch_utilisation"] == 0  # nothing runs any more
    assert math.isnan(after["kv_cache_usage_perc"])  # the fake engine has no blocks
    assert after["prefix_cache_queries_total"] == usage["prompt_tokens"]
    assert after["prefix_cache_hits_total"] == 0
    assert after["num_requests_running"] == after["num_requests_waiting"] == 0
    assert after["trace_bytes_written_total"] > before["trace_bytes_written_total"]


def test_running_and_waiting_requests_are_told_apart(serve: Serve) -> None:
    with serve(prepare=FakeEngine.hold) as server:
        assert server.engine is not None
        from engine.request import GenerationRequest

        ids = [
            server.engine.submit(GenerationRequest(prompt="Hello", max_tokens=100), lambda event: None)
            for _ in range(3)
        ]
        server.engine.allow(1)
        server.engine.wait_for_state("decode")
        now = values(server)
        assert (now["num_requests_running"], now["num_requests_waiting"]) == (1, 2)
        assert now["batch_utilisation"] == 1
        server.engine.cancel(ids[1])
        server.engine.wait_for_state("finished")
        now = values(server)
        assert (now["num_requests_running"], now["num_requests_waiting"]) == (1, 1)
        assert now["request_success_total[cancelled]"] == 1


class Story:
    """Events as an engine of two slots and four blocks of two positions would tell them, straight to the metrics."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.seq = 0
        self.tell(RunHeader, epoch="", engine_version="", model={}, tokenizer={}, machine={},
                  kv={"store": "paged", "blocks": 4, "block_size": 2}, slots=2, started_at="")  # fmt: skip

    def tell(self, kind: type[Event], **fields: Any) -> None:
        self.seq += 1
        self.metrics.on_frame(encode(kind(seq=self.seq, t_ns=self.seq, **fields)))

    def request(self, name: str, tokens: int) -> None:
        self.tell(RequestArrived, request=name, source="", text=None, sampling={}, max_tokens=9, capture={})
        self.tell(RequestTokenized, request=name, tokens=[{}] * tokens, duration_ns=0)

    def schedule(self, name: str, cached: int) -> None:
        self.tell(RequestScheduled, request=name, waited_ns=0, reason="", cached_tokens=cached)

    def step(self, *phases: str) -> None:
        self.tell(StepStarted, step=1, rows=[{"phase": phase} for phase in phases], tokens=1, token_budget=8)

    def __getitem__(self, name: str) -> float:
        return next(
            sample.value
            for family in text_string_to_metric_families(self.metrics.text().decode())
            for sample in family.samples
            if sample.name == f"tokenwalk_{name}"
        )


def test_kv_usage_follows_the_blocks_that_are_held() -> None:
    story = Story()
    assert story["kv_cache_usage_perc"] == 0
    story.tell(BlockAllocated, block=0, request="a", refs=1)
    story.tell(BlockAllocated, block=1, request="a", refs=1)
    story.tell(BlockReused, block=0, request="b", refs=2)
    assert story["kv_cache_usage_perc"] == 0.5
    story.tell(BlockRefChanged, block=0, request="a", refs=1)
    assert story["kv_cache_usage_perc"] == 0.5
    story.tell(BlockRefChanged, block=0, request="b", refs=0)  # cached: anybody can have it
    story.tell(BlockFreed, block=1, request="a", refs=0)
    assert story["kv_cache_usage_perc"] == 0
    story.tell(BlockAllocated, block=0, request="c", refs=1)
    story.tell(BlockEvicted, block=0, request="c", refs=1, reason="distrust")  # held still
    assert story["kv_cache_usage_perc"] == 0.25


def test_a_prompt_is_looked_up_once_however_often_its_request_starts() -> None:
    story = Story()
    story.request("a", 10)
    story.request("b", 10)
    story.schedule("a", 0)
    story.schedule("b", 8)
    story.tell(RequestPreempted, request="b", reason="")
    assert (story["num_preemptions_total"], story["num_requests_running"], story["num_requests_waiting"]) == (1, 1, 1)
    story.schedule("b", 9)
    assert (story["prefix_cache_queries_total"], story["prefix_cache_hits_total"]) == (20, 8)


def test_utilisation_is_of_steps_that_decode() -> None:
    story = Story()
    story.request("a", 3)
    story.schedule("a", 0)
    story.step("prefill")
    assert story["batch_utilisation"] == 0
    story.step("decode")
    assert story["batch_utilisation"] == 0.5
    story.step("decode", "prefill")
    assert story["batch_utilisation"] == 1
    story.tell(RequestFinished, request="a", reason="stop", prompt_tokens=3, completion_tokens=1, timings={})
    assert story["batch_utilisation"] == 0
