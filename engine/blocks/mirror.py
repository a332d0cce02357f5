"""The block map rebuilt from a run's events alone, as the page does it and as a test of the pool's word.

What each event means is said where it is defined (`engine.events`): all say what the block is afterwards, except that
`block.freed` and `block.evicted` say what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.blocks.state import BlockState, blank


class CacheMirror:
    """The state of all blocks after the events seen so far.

    Args:
        blocks: how many there are (`run.header`: `kv.blocks`).
    """

    def __init__(self, blocks: int) -> None:
        self.state: list[BlockState] = [blank(block) for block in range(blocks)]

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take in one event, as its frame has it. Events that are not about blocks change nothing.

        Raises:
            ValueError: when the event contradicts those before it.
        """
        kind = str(event["kind"])
        if not kind.startswith("block."):
            return
        state = self.state[event["block"]]
        if kind in ("block.allocated", "block.copied") and state["state"] != "free":
            raise ValueError(f"{kind} {event['seq']}: block {event['block']} was not free: {state}")
        holders = _holders_after(kind, state["holders"], event["request"])
        if len(holders) != event["refs"]:
            raise ValueError(f"{kind} {event['seq']}: {event['refs']} refs, but the events name {holders} as holders")
        findable = kind != "block.evicted"
        if kind == "block.freed" or (kind == "block.evicted" and not holders):
            state = blank(event["block"])
        else:
            state = BlockState(
                block=event["block"],
                state="held" if holders else "cached",
                refs=len(holders),
                holders=holders,
                logical=event["logical"],
                positions=event["positions"],
                prefix_hash=event["prefix_hash"] if findable else None,
                parent_hash=event["parent_hash"] if findable else None,
                last_use_ns=event["t_ns"],
            )
        self.state[event["block"]] = state


def _holders_after(kind: str, holders: list[str], request: str) -> list[str]:
    if kind in ("block.allocated", "block.copied"):
        return [request]
    if kind == "block.reused" or (kind == "block.ref_changed" and request not in holders):
        return [*holders, request]
    if kind in ("block.freed", "block.ref_changed"):
        return [holder for holder in holders if holder != request]
    return holders
