"""Which store and which way through the model an engine uses, decided once, at load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.device import memory_bytes

from engine.config import EngineConfig
from engine.errors import RequestError
from engine.events import Event
from engine.forward import BatchedForward, SeparateForward
from engine.kv.blocks import BlockMemory
from engine.kv.paged import PagedStore
from engine.kv.simple import ConcatStore, PreallocStore
from engine.memory import Memory, Unlimited
from engine.models.info import ModelInfo
from engine.runner import Forward
from engine.selftest import judge
from engine.taps import Taps


@dataclass(frozen=True, slots=True)
class KV:
    """How an engine keeps keys and values."""

    forward: Forward
    memory: Memory
    facts: dict[str, Any]
    """`RunHeader.kv`."""

    @property
    def tokens(self) -> int | None:
        """How many tokens fit; None where nobody counts."""
        blocks, size = self.facts["blocks"], self.facts["block_size"]
        return None if blocks is None else blocks * size


def choose(
    taps: Taps,
    info: ModelInfo,
    config: EngineConfig,
    emit: Callable[[Event], object],
) -> KV:
    """Test whether the model can be batched, and build what it will use.

    Raises:
        RequestError: when the memory does not hold a single block, or is more than the machine has.
    """
    verdict = judge(taps, info.dtype)
    layers = len(taps.structure.layers)
    if not verdict.batched:
        facts = _facts("per_request", info, batched=False, reason=verdict.reason)
        return KV(SeparateForward(taps), Unlimited(), facts)
    if config.kv_store != "paged":
        simple = ConcatStore(layers=layers) if config.kv_store == "concat" else PreallocStore(layers=layers)
        memory = Unlimited()
        return KV(
            BatchedForward(taps, simple, memory), memory, _facts(simple.name, info, batched=True, reason=verdict.reason)
        )
    block_size = config.block_size
    size = verdict.position_bytes * block_size
    blocks = config.kv_memory // size
    if blocks < 1:
        raise RequestError(
            f"the KV memory is {config.kv_memory} bytes, and one block of {block_size} positions takes {size}"
        )
    here = memory_bytes()
    if here is not None and config.kv_memory > here:
        raise RequestError(
            f"the KV memory is {config.kv_memory / 1e9:.1f} GB, and this machine has {here / 1e9:.1f} GB; give less"
        )
    paged_memory = BlockMemory(blocks, block_size, emit, info.name.encode())
    paged = PagedStore(layers=layers, blocks=blocks, block_size=block_size)
    facts = _facts("paged", info, batched=True, reason=verdict.reason)
    facts |= {"block_size": block_size, "blocks": blocks, "block_bytes": size}
    return KV(BatchedForward(taps, paged, paged_memory), paged_memory, facts)


def _facts(store: str, info: ModelInfo, *, batched: bool, reason: str) -> dict[str, Any]:
    return {
        "store": store,
        "block_size": None,
        "blocks": None,
        "dtype": info.dtype,
        "batched": batched,
        "batching": reason,
    }
