"""The block pool as the scheduler's memory (`engine.memory.Memory`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.blocks import BlockPool, Copy
from engine.events import BlockAllocated, BlockCopied, BlockEvent, Event


class BlockMemory:
    """Answers the scheduler's questions from a block pool.

    Attributes:
        pool: the blocks.
    """

    def __init__(self, blocks: int, block_size: int, emit: Callable[[Event], object], model_key: bytes) -> None:
        self.pool = BlockPool(blocks, block_size, self._said, model_key)
        self._emit = emit
        self._writers: dict[int, list[tuple[int, str]]] = {}
        """Per block: the requests that were given it to write, each with the position from which on it did."""
        self._shared: dict[str, int] = {}
        """Per request: how many leading positions it found, and did not write."""

    def match_prefix(self, tokens: Sequence[int]) -> int:
        return self.pool.match_prefix(tokens)

    def whole_blocks(self, tokens: int) -> int:
        return tokens // self.pool.block_size * self.pool.block_size

    def can_open(self, tokens: Sequence[int], *, spare: int = 0) -> bool:
        # Alone, a request needs no spare: whatever fits is let in.
        return self.pool.can_open(tokens, spare=min(spare, self.pool.total - self.pool.blocks_for(len(tokens))))

    def open(self, request: str, tokens: Sequence[int], expected_tokens: int = 0) -> int:
        self._shared[request] = self.pool.open(request, tokens, expected_tokens)
        return self._shared[request]

    def fork(self, parent: str, child: str, length: int, expected_tokens: int = 0) -> int:
        self.pool.fork(parent, child, length, expected_tokens)
        self._shared[child] = length
        return length

    def can_grow(self, request: str, length: int) -> bool:
        return self.pool.can_grow(request, length)

    def grow(self, request: str, length: int) -> list[Copy]:
        return self.pool.grow(request, length)

    def most(self, request: str, length: int) -> int:
        if self.pool.can_grow(request, length):
            return length
        blocks = len(self.pool.table(request)) + self.pool.available
        most = min(length, blocks * self.pool.block_size)
        # A copy-on-write takes one block more than the table shows.
        return most if self.pool.can_grow(request, most) else max(0, most - self.pool.block_size)

    def runs(self, request: str, length: int) -> list[tuple[int, int]]:
        return self.pool.runs(request, length)

    def limit(self, request: str, beyond: int) -> int:
        return self.pool.limit(request, beyond)

    def unheld(self) -> list[tuple[int, int]]:
        return self.pool.unheld()

    def computed_by(self, request: str, length: int) -> list[tuple[str, int, int]]:
        found = self.pool.table(request)[: self.pool.blocks_for(length)]
        size, spans = self.pool.block_size, list[tuple[str, int, int]]()
        for logical, block in enumerate(found):
            writers = self._writers.get(block, [])
            ends = [first for first, _ in writers[1:]] + [(logical + 1) * size]
            for (first, writer), end in zip(writers, ends, strict=False):
                start, stop = max(first, logical * size), min(end, length)
                if start >= stop:
                    continue
                if spans and spans[-1][0] == writer and spans[-1][2] == start:
                    spans[-1] = (writer, spans[-1][1], stop)
                else:
                    spans.append((writer, start, stop))
        return spans

    def stored(self, request: str, tokens: Sequence[int], computed: int) -> None:
        self.pool.stored(request, tokens, computed)

    def close(self, request: str, *, keep: bool = True) -> None:
        self.pool.close(request, keep=keep)
        self._shared.pop(request, None)

    def _said(self, event: BlockEvent) -> None:
        if isinstance(event, BlockAllocated) and event.request is not None:
            self._writers[event.block] = [(0, event.request)]
        elif isinstance(event, BlockCopied) and event.request is not None:
            # Up to where it shares, what was copied is what others wrote.
            begin = self._shared.get(event.request, 0)
            before = [(first, writer) for first, writer in self._writers.get(event.source, []) if first < begin]
            self._writers[event.block] = [*before, (begin, event.request)]
        self._emit(event)
