"""A block pool with everything around it that it needs to be judged: requests, a mirror of its events, a KV store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.blocks import BlockPool, CacheMirror
from engine.codec import encode, parse
from engine.events import BlockEvent


def count(start: int, size: int) -> list[int]:
    """Tokens that no other test prompt has, unless it asks for the same."""
    return list(range(start, start + size))


@dataclass
class Request:
    """A request's tokens, and how many of them have had their pass."""

    tokens: list[int]
    computed: int = 0


@dataclass
class World:
    """Requests on a pool, with a KV store on paper.

    The KV of a position depends on all tokens up to it. So on paper a slot holds just those tokens, and reading a
    request's slots back shows at once when a block was shared, copied, reused or overwritten wrongly.
    """

    total: int
    block_size: int = 4
    requests: dict[str, Request] = field(default_factory=dict)
    events: list[BlockEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mirror = CacheMirror(self.total)
        self.pool = BlockPool(self.total, self.block_size, self._emit, b"a model")
        self.slots: list[tuple[int, ...] | None] = [None] * (self.total * self.block_size)

    def _emit(self, event: BlockEvent) -> None:
        event.seq = len(self.events) + 1
        event.t_ns = event.seq * 10
        self.events.append(event)
        self.mirror.apply(parse(encode(event).payload, binary=False)[0])

    # --- what an engine does with a pool ------------------------------------------------------------------------------

    def open(self, name: str, tokens: Sequence[int], expected: int = 0) -> int:
        cached = self.pool.open(name, tokens, expected)
        self.requests[name] = Request(list(tokens), cached)
        return cached

    def run(self, name: str, length: int, *, store: bool = True) -> list[Any]:
        """Give positions below `length` their pass. Tokens that are not known yet are all `length`. Returns copies."""
        request = self.requests[name]
        copies = self.pool.grow(name, length)
        for copy in copies:
            size = self.block_size
            self.slots[copy.target * size : (copy.target + 1) * size] = self.slots[
                copy.source * size : (copy.source + 1) * size
            ]
        request.tokens += [length] * (length - len(request.tokens))
        slots = [slot for start, stop in self.pool.runs(name, length) for slot in range(start, stop)]
        assert len(slots) == length
        state = self.pool.state()
        for position in range(request.computed, length):
            block = state[slots[position] // self.block_size]
            assert block["holders"] == [name], f"{name} would write {position} in a block of {block['holders']}"
            assert block["prefix_hash"] is None, f"{name} would write {position} in a block that others can find"
            self.slots[slots[position]] = tuple(request.tokens[: position + 1])
        request.computed = max(request.computed, length)
        if store:
            self.store(name)
        return copies

    def store(self, name: str, known: int | None = None) -> None:
        request = self.requests[name]
        self.pool.stored(name, request.tokens[:known], request.computed)

    def fork(self, parent: str, child: str, length: int, tail: Sequence[int] = (), expected: int = 0) -> None:
        self.pool.fork(parent, child, length, expected)
        self.requests[child] = Request([*self.requests[parent].tokens[:length], *tail], length)

    def truncate(self, name: str, length: int, tail: Sequence[int] = ()) -> None:
        self.pool.truncate(name, length)
        self.requests[name] = Request([*self.requests[name].tokens[:length], *tail], length)

    def close(self, name: str, *, keep: bool = True) -> list[int]:
        self.pool.close(name, keep=keep)
        return self.requests.pop(name).tokens

    def answer(self, name: str, tokens: Sequence[int], length: int | None = None, expected: int = 0) -> None:
        """A whole request, from beginning to end."""
        self.open(name, tokens, expected)
        self.run(name, length or len(tokens))
        self.close(name)

    # --- judgement ----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """All accounts agree, the events tell the same, and every request reads the KV of its own tokens."""
        self.pool.check()
        assert self.mirror.state == self.pool.state()
        for name, request in self.requests.items():
            slots = [slot for start, stop in self.pool.runs(name, request.computed) for slot in range(start, stop)]
            kv = [self.slots[slot] for slot in slots]
            assert kv == [tuple(request.tokens[: position + 1]) for position in range(request.computed)], name

    def kinds(self, since: int = 0) -> list[str]:
        return [event.kind.removeprefix("block.") for event in self.events[since:]]

    def states(self, state: str) -> list[int]:
        return [block["block"] for block in self.pool.state() if block["state"] == state]
