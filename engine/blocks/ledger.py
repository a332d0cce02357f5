"""Every block's state, and every change of it as an event.

A block is *held* by one or more requests, or *cached* (by none, but found again by its content), or *free*. The methods
here change one block and say so with one `block.*` event, so that the events alone tell the whole story
(`engine.blocks.mirror` is the proof).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.blocks.prefix import Node, PrefixIndex, branch
from engine.blocks.state import BlockState, blank
from engine.events import BlockEvent, BlockEvicted, BlockFreed, BlockRefChanged, BlockStored


@dataclass(slots=True, eq=False)
class Block:
    """What is known of one physical block."""

    number: int
    logical: int = 0
    """Its index in its holders' tables: the same in all of them, since they share it for the same positions."""
    holders: dict[str, None] = field(default_factory=dict)
    """The requests that hold it, in the order in which they came (a dict, as an ordered set)."""
    node: Node | None = None
    """The prefix by which it is found."""
    distrusted: bool = False
    """Held still, but never to become findable."""
    last_use_ns: int = 0

    @property
    def free(self) -> bool:
        return not self.holders and self.node is None


class Ledger:
    """All blocks, one change at a time.

    Args:
        total: number of blocks.
        block_size: token positions a block holds.
        emit: takes each event and stamps its `t_ns`.
        freed: told the number of each block that has become free.
        prefixes: the index of what can be found.
    """

    def __init__(
        self,
        total: int,
        block_size: int,
        emit: Callable[[BlockEvent], object],
        freed: Callable[[int], object],
        prefixes: PrefixIndex,
    ) -> None:
        self.blocks = [Block(number) for number in range(total)]
        self.cached: OrderedDict[int, None] = OrderedDict()  # left longest ago first
        self.held = 0
        self._block_size = block_size
        self._emit, self._freed, self._prefixes = emit, freed, prefixes

    def state(self, block: Block) -> BlockState:
        """A block as it is shown."""
        if block.free:
            return blank(block.number)
        return BlockState(
            block=block.number,
            state="held" if block.holders else "cached",
            refs=len(block.holders),
            holders=list(block.holders),
            logical=block.logical,
            positions=self._positions(block),
            prefix_hash=block.node.hash if block.node else None,
            parent_hash=block.node.parent_hash if block.node else None,
            last_use_ns=block.last_use_ns,
        )

    def hold(self, block: Block, request: str, logical: int, kind: type[BlockEvent], **more: Any) -> None:
        """A request comes to hold a block, in the way that `kind` says."""
        if not block.holders:
            self.held += 1
            self.cached.pop(block.number, None)
        block.holders[request] = None
        block.logical = logical
        self._say(kind, block, request, **more)

    def let_go(self, block: Block, request: str) -> None:
        """A request gives a block back. If it was the last holder, the block is cached when it can be, or else free."""
        del block.holders[request]
        if not block.holders:
            self.held -= 1
            if block.node is None or len(block.node.blocks) > 1:
                self._free(BlockFreed, block, request)
                return
            self.cached[block.number] = None
        self._say(BlockRefChanged, block, request)

    def publish(self, block: Block, parent: Node | None, tokens: Sequence[int], request: str) -> bool:
        """Make a full block findable. False if it must not be, or if another content has the same hash."""
        node = None if block.distrusted else self._prefixes.add(parent, tokens)
        if node is None:
            return False
        block.node, twins = node, list(node.blocks)
        node.blocks[block.number] = None
        self._say(BlockStored, block, request)
        for twin in twins:
            if not self.blocks[twin].holders:
                del self.cached[twin]
                self._free(BlockFreed, self.blocks[twin], None)
        return True

    def evict_oldest(self, request: str) -> None:
        """Free the cached block that was left longest ago, to make room for a request."""
        number, _ = self.cached.popitem(last=False)
        self._free(BlockEvicted, self.blocks[number], request, reason="room")

    def distrust(self, numbers: Sequence[int], request: str) -> None:
        """Make a failed request's blocks, and all that begins with the first of them, unfindable for good."""
        for number in numbers:
            self.blocks[number].distrusted = True
        first = self.blocks[numbers[0]].node if numbers else None
        for node in branch(first) if first else ():
            for number in list(node.blocks):
                block = self.blocks[number]
                if block.holders:
                    event = self._event(BlockEvicted, block, request, reason="distrust")
                    block.distrusted = True
                    self._unpublish(block)
                    self._emit(event)
                    block.last_use_ns = event.t_ns
                else:
                    del self.cached[number]
                    self._free(BlockEvicted, block, request, reason="distrust")

    # --- one block ----------------------------------------------------------------------------------------------------

    def _free(self, kind: type[BlockEvent], block: Block, request: str | None, **more: Any) -> None:
        event = self._event(kind, block, request, **more)
        self._unpublish(block)
        block.distrusted = False
        self._freed(block.number)
        self._emit(event)

    def _unpublish(self, block: Block) -> None:
        node, block.node = block.node, None
        if node is not None:
            del node.blocks[block.number]
            if not node.blocks:
                self._prefixes.remove(node)

    def _say(self, kind: type[BlockEvent], block: Block, request: str, **more: Any) -> None:
        event = self._event(kind, block, request, **more)
        self._emit(event)
        block.last_use_ns = event.t_ns

    def _event(self, kind: type[BlockEvent], block: Block, request: str | None, **more: Any) -> BlockEvent:
        """What the block is now, as an event."""
        return kind(
            block=block.number,
            request=request,
            logical=block.logical,
            positions=self._positions(block),
            prefix_hash=block.node.hash if block.node else None,
            parent_hash=block.node.parent_hash if block.node else None,
            refs=len(block.holders),
            **more,
        )

    def _positions(self, block: Block) -> list[int]:
        return [block.logical * self._block_size, (block.logical + 1) * self._block_size]
