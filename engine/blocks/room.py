"""Which free block a request gets next: the one that prolongs its last run, where that can be had.

A request that looks for room gets a stretch of free blocks ahead of it, as long as it is expected to need, and uses it
up from the front. Others leave what is ahead of it alone while anything else can be had, and no longer.

Who begins goes behind who began last, where there is room: requests that come together and expect equally many blocks
then lie evenly apart, and one call of the kernel reads them all (`engine.kv.even`).
"""

from __future__ import annotations

from engine.blocks.extents import NOTHING, Extent, FreeSpace, merged
from engine.blocks.table import BlockTable


class Room:
    """The free blocks: those nobody has an eye on, and those ahead of a request."""

    def __init__(self, blocks: int) -> None:
        self.open = FreeSpace(blocks)
        self.keepers: dict[BlockTable, None] = {}
        """The tables that have something ahead."""
        self._newest: BlockTable | None = None
        """The table that began last."""

    def extents(self) -> list[Extent]:
        """All free blocks, in order, in as few stretches as there are."""
        return merged([*self.open, *(table.ahead for table in self.keepers)])

    def suits(self, table: BlockTable, due: int) -> bool:
        """Whether a table's next block can prolong its last run, or begin one of `due` blocks, at nobody's expense."""
        return bool(table.ahead.size) or table.next_block in self.open or self.open.largest >= due

    def take(self, table: BlockTable, need: int) -> int:
        """The best free block for the end of a table that needs `need` of them.

        Raises:
            LookupError: when none is free.
        """
        if not table.ahead.size:
            self._look(table, table.wanted(need))
        block = table.ahead.start
        self._set_ahead(table, Extent(block + 1, table.ahead.stop))
        return block

    def give(self, block: int) -> None:
        """A block has become free."""
        self.open.give(Extent(block, block + 1))

    def give_up(self, table: BlockTable) -> None:
        """A table needs nothing ahead any more."""
        self.open.give(table.ahead)
        self._set_ahead(table, NOTHING)

    def _look(self, table: BlockTable, want: int) -> None:
        """Put free blocks ahead of a table: `want` of them if there is such a stretch."""
        if self.open:
            start = table.next_block
            if start not in self.open:
                start = self.open.best_fit(want) if table.blocks else self._beginning(table, want)
            self._set_ahead(table, self.open.take(start, want))
        elif self.keepers:
            # The rear half of what the best provided has ahead: so both can go on without a break for a while.
            richest = max(self.keepers, key=lambda keeper: keeper.ahead.size)
            start, stop = richest.ahead
            middle = max((start + stop) // 2, stop - want)
            self._set_ahead(richest, Extent(start, middle))
            self._set_ahead(table, Extent(middle, stop))
        else:
            raise LookupError("no block is free")

    def _beginning(self, table: BlockTable, want: int) -> int:
        """Where a table begins: behind the one that did so last; when that has ended, where most room is for others."""
        last, self._newest = self._newest, table
        if last is None or not last.blocks:
            return self.open.best_fit(self.open.largest)
        behind = last.ahead.stop if last.ahead.size else last.next_block
        return behind if self.open.size_at(behind) >= want else self.open.best_fit(want)

    def _set_ahead(self, table: BlockTable, extent: Extent) -> None:
        table.ahead = extent if extent.size else NOTHING
        if extent.size:
            self.keepers[table] = None
        else:
            self.keepers.pop(table, None)
