"""One request's block table: which block holds its positions 0 … block_size − 1, which the next ones, and so on."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.blocks.extents import NOTHING, Extent


@dataclass(slots=True, eq=False)
class BlockTable:
    """A request's blocks in order of position, and what is planned for it."""

    request: str
    block_size: int
    prompt: int
    """Blocks that the tokens known at the start need: these it will certainly ask for."""
    expected: int
    """Blocks that it is expected to need in the end."""
    length: int = 0
    """Positions that hold KV or may be written."""
    published: int = 0
    """Leading blocks that `BlockPool.stored` need not look at again: they are findable."""
    blocks: list[int] = field(default_factory=list)
    ahead: Extent = NOTHING
    """Free blocks kept for it, so that its next blocks can follow its last one: a wish, which others may override."""
    runs: list[Extent] = field(default_factory=list)
    """`blocks` as unbroken stretches."""

    def append(self, block: int) -> None:
        self.blocks.append(block)
        if self.runs and self.runs[-1].stop == block:
            self.runs[-1] = Extent(self.runs[-1].start, block + 1)
        else:
            self.runs.append(Extent(block, block + 1))

    def pop(self) -> int:
        block = self.blocks.pop()
        start, stop = self.runs.pop()
        if stop - start > 1:
            self.runs.append(Extent(start, stop - 1))
        return block

    @property
    def next_block(self) -> int:
        """The block that would prolong the last run; −1 when there is no run yet."""
        return self.blocks[-1] + 1 if self.blocks else -1

    def wanted(self, need: int) -> int:
        """Blocks to look for room for when `need` more are needed at once.

        All that it expects; and once it has outgrown that, twice as many as it has, so that the number of its runs
        grows with the logarithm of its length.
        """
        have = len(self.blocks)
        return max(need, self.expected - have if have < self.expected else 2 * have)

    def due(self, need: int) -> int:
        """The part of `wanted` for which cached blocks may be evicted: at most what makes twice its present size.

        An expectation is often far too high (most answers end long before the most that they may have).
        """
        have = len(self.blocks)
        return min(self.wanted(need), max(need, 2 * max(have, self.prompt) - have))

    def slot_runs(self, length: int) -> list[tuple[int, int]]:
        """`[start, stop)` slots of positions 0 … length − 1, in order of position."""
        spans, left = [], length
        for run in self.runs:
            if left <= 0:
                break
            slots = min(left, run.size * self.block_size)
            spans.append((run.start * self.block_size, run.start * self.block_size + slots))
            left -= slots
        return spans
