"""KV blocks: fixed-size pieces of the KV cache, handed out in runs, shared by prefix, evicted when nobody needs them.

Read in this order: `pool` (what a request can ask for), `ledger` (what can happen to a block, and the events that say
so), `room` (which free block comes next), `prefix` (what can be reused). `mirror` rebuilds the state from the events.
"""

from engine.blocks.check import BrokenInvariant
from engine.blocks.mirror import CacheMirror
from engine.blocks.pool import BlockPool, NoBlocks
from engine.blocks.state import BlockState, Copy, Fragmentation

__all__ = ["BlockPool", "BlockState", "BrokenInvariant", "CacheMirror", "Copy", "Fragmentation", "NoBlocks"]
