"""How an engine runs: what `tokenwalk serve` can set."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engine.capture import CapturePlan
from engine.errors import RequestError

StoreName = Literal["paged", "prealloc", "concat"]
Policy = Literal["continuous", "static"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How an engine runs.

    Attributes:
        slots: requests that run at once.
        prefill_budget: most positions that one step computes.
        kv_memory: bytes for keys and values of all requests.
        block_size: positions of a KV block.
        kv_store: paged; prealloc and concat are there for comparison.
        policy: continuous batching; static is there for comparison.
        max_context: most tokens of prompt and answer together; None takes the model's context.
        max_queue: most requests that wait.
        capture_default: what is captured of a request that does not say.
        time_every: time the operations of every that many steps; 0 times none but those asked for.
        gpu_trace: the first step in which all requests decode is captured to this .gputrace file, by Metal.
    """

    slots: int = 8
    prefill_budget: int = 256
    kv_memory: int = 512 * 2**20
    block_size: int = 16
    kv_store: StoreName = "paged"
    policy: Policy = "continuous"
    max_context: int | None = None
    max_queue: int = 64
    capture_default: CapturePlan = field(default_factory=lambda: CapturePlan(level="follow"))
    time_every: int = 0
    gpu_trace: Path | None = None

    def __post_init__(self) -> None:
        positive = {
            "number of slots": self.slots,
            "prefill budget": self.prefill_budget,
            "block size": self.block_size,
            "KV memory": self.kv_memory,
            "max context": 1 if self.max_context is None else self.max_context,
        }
        for name, value in positive.items():
            if value < 1:
                raise RequestError(f"the {name} is {value}; expected 1 or more")
        if self.time_every < 0:
            raise RequestError(f"every {self.time_every} steps are to be timed; expected 0 (none) or more")
        if self.max_queue < 0:
            raise RequestError(f"the queue may hold {self.max_queue} requests; expected 0 or more")
