"""The block pool: each request's block table, who may write which block, and who can reuse what. No arrays, no clock.

Three rules carry the rest:

- A block is written only by its one holder, and only until it can be found. Who must write another one gets a copy.
- A cached block is the only one of its content: a twin is freed as soon as a request holds the other.
- A table is given back last block first. So among cached blocks a longer prefix was always left before the shorter ones
  that lead to it, and evicting the one left longest ago never leaves a block that nothing leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.blocks.check import check
from engine.blocks.extents import Extent, merged
from engine.blocks.ledger import Block, Ledger
from engine.blocks.prefix import PrefixIndex
from engine.blocks.room import Room
from engine.blocks.state import BlockState, Copy, Fragmentation
from engine.blocks.table import BlockTable
from engine.events import BlockAllocated, BlockCopied, BlockEvent, BlockRefChanged, BlockReused


class NoBlocks(Exception):
    """A request cannot have the blocks it needs now; nothing was changed. The scheduler preempts somebody."""


class BlockPool:
    """All KV blocks of one model, and the block tables of the requests that run.

    Args:
        total: number of blocks.
        block_size: token positions a block holds.
        emit: takes each `block.*` event and stamps its `t_ns`.
        model_key: whatever besides the tokens decides what the KV is: model, weights, dtype.
    """

    def __init__(
        self, total: int, block_size: int, emit: Callable[[BlockEvent], object], model_key: bytes = b""
    ) -> None:
        if total < 1 or block_size < 1:
            raise ValueError(f"{total} blocks of {block_size} tokens; expected at least 1 of each")
        self.total = total
        self.block_size = block_size
        self._prefixes = PrefixIndex(block_size, model_key)
        self._room = Room(total)
        self._ledger = Ledger(total, block_size, emit, self._room.give, self._prefixes)
        self._tables: dict[str, BlockTable] = {}

    # --- questions ----------------------------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Blocks that a request could have: free, or cached and held by nobody."""
        return self.total - self._ledger.held

    @property
    def cached(self) -> int:
        """Blocks that nobody holds and that can be found by their content."""
        return len(self._ledger.cached)

    def blocks_for(self, tokens: int) -> int:
        """How many blocks hold that many tokens."""
        return -(-tokens // self.block_size)

    def match_prefix(self, tokens: Sequence[int]) -> int:
        """How many leading tokens are in whole blocks that can be reused. Never all: one must be left to run."""
        return sum(1 for _ in self._prefixes.walk(tokens)) * self.block_size

    def can_open(self, tokens: Sequence[int], length: int | None = None, spare: int = 0) -> bool:
        """Whether a request with these tokens could be opened and grown to `length` (default: to all of them) now.

        Args:
            spare: blocks that must still be available then.
        """
        matched = list(self._prefixes.walk(tokens))
        revived = sum(next(iter(node.blocks)) in self._ledger.cached for node in matched)
        new = self.blocks_for(len(tokens) if length is None else length) - len(matched)
        return max(new, 0) + revived + spare <= self.available

    def can_grow(self, request: str, length: int) -> bool:
        """Whether `grow` would succeed."""
        return self._needed(self._table(request), length) <= self.available

    def table(self, request: str) -> Sequence[int]:
        """The request's blocks in order of position. Not to be changed."""
        return self._table(request).blocks

    def runs(self, request: str, length: int) -> list[tuple[int, int]]:
        """`[start, stop)` slots of positions 0 … length − 1, in order, as few as there are unbroken runs of blocks.

        Slot = block × block_size + offset in the block.
        """
        return self._table(request).slot_runs(length)

    def limit(self, request: str, beyond: int) -> int:
        """The slot behind a request's last block from which on another request may write, or at which the pool ends.

        Looks no further than `beyond` slots. Until blocks are given out again, what lies before may be read.
        """
        start = block = self._table(request).next_block
        last = min(self.total, start + self.blocks_for(beyond))
        while block < last and not self._ledger.blocks[block].holders:
            block += 1
        return block * self.block_size

    def unheld(self) -> list[tuple[int, int]]:
        """`[start, stop)` slots that are no holder's position, in order, as few as there are unbroken runs."""
        size, ends = self.block_size, dict[int, int]()
        for table in self._tables.values():
            for number in table.blocks:
                held = self._ledger.blocks[number].logical * size
                ends[number] = max(ends.get(number, 0), min(size, table.length - held))
        slots = [Extent(number * size + ends.get(number, 0), (number + 1) * size) for number in range(self.total)]
        return [(start, stop) for start, stop in merged([extent for extent in slots if extent.size])]

    def fragmentation(self) -> Fragmentation:
        """How broken up the free blocks and the tables are."""
        free = [extent.size for extent in self._room.extents()]
        runs = [len(table.runs) for table in self._tables.values() if table.blocks]
        return Fragmentation(
            free=sum(free),
            extents=len(free),
            largest=max(free, default=0),
            tables=len(runs),
            runs=sum(runs),
            most_runs=max(runs, default=0),
        )

    def waste(self) -> float:
        """1 − positions that hold tokens ÷ positions that the held blocks have; 0.0 when none is held."""
        empty = {}
        for table in self._tables.values():
            if table.blocks:  # only a last block can be partly filled, and only if no other holder goes on beyond it
                block = self._ledger.blocks[table.blocks[-1]]
                longest = max(self._tables[holder].length for holder in block.holders)
                empty[block] = max(0, (block.logical + 1) * self.block_size - longest)
        return sum(empty.values()) / (self._ledger.held * self.block_size) if empty else 0.0

    def state(self) -> list[BlockState]:
        """Every block, in order: ready for JSON, and equal to what `CacheMirror` makes of the events."""
        return [self._ledger.state(block) for block in self._ledger.blocks]

    def check(self) -> None:
        """Compare everything that is known twice.

        Raises:
            BrokenInvariant: when two accounts differ: a fault of this package.
        """
        check(self._tables, self._ledger, self._room, self._prefixes)

    # --- actions ------------------------------------------------------------------------------------------------------

    def open(self, request: str, tokens: Sequence[int], expected_tokens: int = 0) -> int:
        """Start a request's table with the blocks that already hold the beginning of its tokens.

        Args:
            tokens: all token ids known so far.
            expected_tokens: how long it is expected to become, prompt and answer. Free blocks behind its own are kept
                for it as long as there are others.

        Returns:
            How many leading positions need no pass.
        """
        table = self._new_table(request, len(tokens), expected_tokens)
        for node in self._prefixes.walk(tokens):
            number = table.next_block if table.next_block in node.blocks else next(iter(node.blocks))
            self._hold(self._ledger.blocks[number], table, BlockReused)
        table.length = len(table.blocks) * self.block_size
        return table.length

    def grow(self, request: str, length: int) -> list[Copy]:
        """Make all positions below `length` writable that do not hold KV yet.

        Returns:
            The copies that the store must carry out before anything is written: at most one, when the last block is
            partly filled and others hold it or may find it.

        Raises:
            NoBlocks: when there are too few; nothing was changed.
        """
        table = self._table(request)
        needed = self._needed(table, length)
        if needed > self.available:
            raise NoBlocks(f"{request} needs {needed} more of {self.total} blocks; {self.available} are available")
        copies = []
        if length > table.length and (shared := self._unwritable_last(table)):
            copies.append(self._copy_on_write(table, shared, needed))
        while (missing := self.blocks_for(length) - len(table.blocks)) > 0:
            self._hold(self._take(table, missing), table, BlockAllocated)
        table.length = max(table.length, length)
        return copies

    def stored(self, request: str, tokens: Sequence[int], computed: int) -> None:
        """Say that positions below `computed` hold the KV of these tokens: full blocks become findable.

        `tokens` may be shorter, while the ids of the last ones are on the device alone.
        """
        table, size, blocks = self._table(request), self.block_size, self._ledger.blocks
        for index in range(table.published, min(computed, len(tokens), table.length) // size):
            block = blocks[table.blocks[index]]
            parent = blocks[table.blocks[index - 1]].node if index else None
            if block.node is None:  # or else another holder has said it
                if index and parent is None:
                    return  # what leads to this block cannot be found, so it could not be either
                if not self._ledger.publish(block, parent, tokens[index * size : (index + 1) * size], request):
                    return
            table.published = index + 1

    def fork(self, parent: str, child: str, length: int, expected_tokens: int = 0) -> None:
        """Start a request that shares its parent's blocks for positions below `length`, which must hold KV.

        The last block is shared even when it is partly filled: whoever writes it first gets a copy.
        """
        source = self._table(parent)
        if not 0 <= length <= source.length:
            raise ValueError(f"{parent} holds {source.length} positions; it cannot be forked at {length}")
        table = self._new_table(child, length, expected_tokens)
        for number in source.blocks[: self.blocks_for(length)]:
            self._hold(self._ledger.blocks[number], table, BlockRefChanged)
        table.length = length

    def truncate(self, request: str, length: int) -> None:
        """Give back the blocks that hold nothing below `length`; positions from there on will be written anew."""
        table = self._table(request)
        if not 0 <= length <= table.length:
            raise ValueError(f"{request} holds {table.length} positions; it cannot be cut to {length}")
        while len(table.blocks) > self.blocks_for(length):
            self._ledger.let_go(self._ledger.blocks[table.pop()], request)
        table.length = length
        table.published = min(table.published, length // self.block_size)
        if table.ahead.start != table.next_block:
            self._room.give_up(table)

    def close(self, request: str, *, keep: bool = True) -> None:
        """Give all of a request's blocks back: those that can be found stay as cached, the others become free.

        Args:
            keep: False when the KV may be wrong. Then whatever begins with the request's first block cannot be found
                any more, whoever holds it: its own blocks, those it reused (the fault may have come from them), and
                those that others have put behind either.
        """
        table = self._table(request)
        if not keep:
            self._ledger.distrust(table.blocks, request)
        self.truncate(request, 0)
        del self._tables[request]

    # --- how the actions work -----------------------------------------------------------------------------------------

    def _table(self, request: str) -> BlockTable:
        if request not in self._tables:
            raise KeyError(f"request {request} has no block table: it was not opened, or was closed")
        return self._tables[request]

    def _new_table(self, request: str, tokens: int, expected_tokens: int) -> BlockTable:
        if request in self._tables:
            raise ValueError(f"request {request} has a block table already; close it first")
        prompt = self.blocks_for(tokens)
        table = BlockTable(request, self.block_size, prompt, max(prompt, self.blocks_for(expected_tokens)))
        self._tables[request] = table
        return table

    def _needed(self, table: BlockTable, length: int) -> int:
        """Blocks to be taken so that the table can be written up to `length`."""
        if length <= table.length:
            return 0
        return self.blocks_for(length) - len(table.blocks) + (self._unwritable_last(table) is not None)

    def _unwritable_last(self, table: BlockTable) -> Block | None:
        """The table's last block, when there is room in it that the request may not write."""
        if table.length % self.block_size == 0:
            return None
        block = self._ledger.blocks[table.blocks[-1]]
        return block if len(block.holders) > 1 or block.node else None

    def _hold(self, block: Block, table: BlockTable, kind: type[BlockEvent], source: int | None = None) -> None:
        table.append(block.number)
        more = {} if source is None else {"source": source}
        self._ledger.hold(block, table.request, len(table.blocks) - 1, kind, **more)

    def _copy_on_write(self, table: BlockTable, shared: Block, need: int) -> Copy:
        table.pop()
        target = self._take(table, need)
        target.distrusted = shared.distrusted
        self._hold(target, table, BlockCopied, source=shared.number)
        self._ledger.let_go(shared, table.request)
        return Copy(shared.number, target.number)

    def _take(self, table: BlockTable, need: int) -> Block:
        """A free block for the end of a table that needs `need` of them. There is one: `grow` has counted."""
        due = table.due(need)
        for _ in range(min(due, self.cached)):
            if self._room.suits(table, due):
                break
            self._ledger.evict_oldest(table.request)
        return self._ledger.blocks[self._room.take(table, need)]
