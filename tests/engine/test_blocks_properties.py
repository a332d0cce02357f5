"""The block pool under thousands of random actions, in pools too small for them.

After each one every account agrees, the events alone tell the same state, and every request still reads the KV of its
own tokens, whatever was shared, copied, evicted or overwritten meanwhile.
"""

from __future__ import annotations

import zlib
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.blocks import NoBlocks
from tests.engine.blocks_world import World

token = st.integers(0, 1)  # so few that prefixes meet often
tokens = st.lists(token, min_size=1, max_size=22)
data = st.data()


class PoolMachine(RuleBasedStateMachine):
    """Requests that come, grow, fork, are cut, preempted, closed and distrusted."""

    @initialize(total=st.integers(3, 14), block_size=st.integers(1, 4))
    def start(self, total: int, block_size: int) -> None:
        self.world = World(total, block_size)
        self.pool = self.world.pool
        self.number = 0
        self.finished: list[list[int]] = [[0]]

    def new_name(self) -> str:
        self.number += 1
        return f"r{self.number}"

    def any_request(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.world.requests)), label="request")

    def unchanged_without_blocks(self, name: str, length: int) -> bool:
        """Grow where the pool says that it cannot, and see that nothing happens. Whether it said so."""
        if self.pool.can_grow(name, length):
            return False
        before, events = self.pool.state(), len(self.world.events)
        try:
            self.pool.grow(name, length)
        except NoBlocks:
            assert self.pool.state() == before
            assert len(self.world.events) == events
            return True
        raise AssertionError("can_grow said no, and grow succeeded")

    def open(self, name: str, tokens: list[int], expected: int) -> None:
        matched = self.pool.match_prefix(tokens)
        assert matched < len(tokens)
        assert matched % self.world.block_size == 0
        assert self.world.open(name, tokens, expected) == matched

    @rule(tokens=tokens, expected=st.integers(0, 40))
    @precondition(lambda self: len(self.world.requests) < 6)
    def open_new(self, tokens: list[int], expected: int) -> None:
        self.open(self.new_name(), tokens, expected)

    @rule(data=data, tail=st.lists(token, max_size=6), expected=st.integers(0, 40))
    @precondition(lambda self: len(self.world.requests) < 6)
    def open_what_begins_like_another(self, data: st.DataObject, tail: list[int], expected: int) -> None:
        known = self.finished + [request.tokens for request in self.world.requests.values()]
        beginning = data.draw(st.sampled_from(known), label="beginning")
        self.open(self.new_name(), beginning + tail, expected)

    @rule(tokens=tokens, more=st.integers(0, 8), spare=st.integers(0, 2))
    @precondition(lambda self: len(self.world.requests) < 6)
    def can_open_is_right(self, tokens: list[int], more: int, spare: int) -> None:
        length = len(tokens) + more
        can = self.pool.can_open(tokens, length, spare)
        name = self.new_name()
        self.world.open(name, tokens)
        if can:
            self.world.run(name, length)
            assert self.pool.available >= spare
        else:
            needed = self.pool.blocks_for(length) - len(self.pool.table(name))
            assert needed + spare > self.pool.available

    @rule(data=data, count=st.integers(1, 9), tail=st.lists(token, min_size=9, max_size=9), store=st.booleans())
    @precondition(lambda self: self.world.requests)
    def run(self, data: st.DataObject, count: int, tail: list[int], store: bool) -> None:
        name = self.any_request(data)
        request = self.world.requests[name]
        length = request.computed + count
        if not self.unchanged_without_blocks(name, length):
            request.tokens += tail[: max(0, length - len(request.tokens))]
            copies = self.world.run(name, length, store=store)
            assert len(copies) <= 1

    @rule(data=data, unknown=st.integers(0, 3))
    @precondition(lambda self: self.world.requests)
    def store(self, data: st.DataObject, unknown: int) -> None:
        name = self.any_request(data)
        self.world.store(name, max(0, len(self.world.requests[name].tokens) - unknown))

    @rule(data=data, tail=st.lists(token, min_size=1, max_size=5), expected=st.integers(0, 40))
    @precondition(lambda self: 0 < len(self.world.requests) < 6)
    def fork(self, data: st.DataObject, tail: list[int], expected: int) -> None:
        parent = self.any_request(data)
        length = data.draw(st.integers(0, self.world.requests[parent].computed), label="length")
        self.world.fork(parent, self.new_name(), length, tail, expected)

    @rule(data=data, tail=st.lists(token, min_size=1, max_size=5))
    @precondition(lambda self: self.world.requests)
    def truncate(self, data: st.DataObject, tail: list[int]) -> None:
        name = self.any_request(data)
        length = data.draw(st.integers(0, self.world.requests[name].computed), label="length")
        self.world.truncate(name, length, tail)

    @rule(data=data)
    @precondition(lambda self: self.world.requests)
    def close(self, data: st.DataObject) -> None:
        self.finished = [*self.finished[-5:], self.world.close(self.any_request(data))]

    @rule(data=data)
    @precondition(lambda self: self.world.requests)
    def preempt(self, data: st.DataObject) -> None:
        name = self.any_request(data)
        tokens = self.world.close(name)
        self.open(name, tokens, 0)

    @rule(data=data)
    @precondition(lambda self: self.world.requests)
    def distrust(self, data: st.DataObject) -> None:
        name = self.any_request(data)
        held = list(self.pool.table(name))
        full = self.world.requests[name].computed >= self.world.block_size
        findable = full and self.pool.state()[held[0]]["prefix_hash"] is not None
        tokens = self.world.close(name, keep=False)
        state = self.pool.state()
        assert all(state[block]["prefix_hash"] is None for block in held)
        if findable:
            assert self.pool.match_prefix([*tokens, 0]) == 0
        self.finished = [*self.finished[-5:], tokens]

    @invariant()
    def everything_agrees(self) -> None:
        self.world.settle()

    @invariant()
    def the_sums_are_right(self) -> None:
        state, size = self.pool.state(), self.world.block_size
        held = [block for block in state if block["state"] == "held"]
        assert self.pool.available == len(state) - len(held)
        assert self.pool.cached == sum(block["state"] == "cached" for block in state)
        filled = {
            (block["block"], offset)
            for block in held
            for name in block["holders"]
            for offset in range(size)
            if block["logical"] * size + offset < self.pool._tables[name].length
        }
        assert abs(self.pool.waste() - (1 - len(filled) / (len(held) * size) if held else 0)) < 1e-12
        broken = self.pool.fragmentation()
        assert broken.free == sum(block["state"] == "free" for block in state)
        assert broken.largest == longest_run([block["block"] for block in state if block["state"] == "free"])

    def teardown(self) -> None:
        """Whatever happened, when all are gone nothing is held."""
        if hasattr(self, "world"):
            for name in sorted(self.world.requests):
                self.world.close(name)
            self.world.settle()
            assert self.pool.available == self.world.total


class CollidingPoolMachine(PoolMachine):
    """The same with a hash of which every third one is equal: only the comparison of tokens keeps contents apart."""

    @initialize(total=st.integers(3, 14), block_size=st.integers(1, 4))
    def start(self, total: int, block_size: int) -> None:
        super().start(total, block_size)

        def weak(parent: Any, block: tuple[int, ...]) -> str:
            return f"{zlib.crc32(repr((parent and parent.hash, block)).encode()) % 3:032x}"

        self.pool._prefixes.hash = weak  # type: ignore[method-assign]


def longest_run(blocks: list[int]) -> int:
    longest = run = 0
    for before, block in zip([None, *blocks], blocks, strict=False):
        run = run + 1 if before is not None and block == before + 1 else 1
        longest = max(longest, run)
    return longest


TestPool = PoolMachine.TestCase
TestPool.settings = settings(
    max_examples=100, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestCollidingPool = CollidingPoolMachine.TestCase
TestCollidingPool.settings = settings(
    max_examples=40, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
