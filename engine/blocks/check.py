"""Everything that the block pool knows twice, compared.

Called in tests after every action, and by whoever suspects the pool: cost grows with the number of blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from engine.blocks.extents import merged
from engine.blocks.ledger import Ledger
from engine.blocks.prefix import PrefixIndex
from engine.blocks.room import Room
from engine.blocks.table import BlockTable


class BrokenInvariant(AssertionError):
    """Two accounts of the same blocks differ."""


def check(tables: Mapping[str, BlockTable], ledger: Ledger, room: Room, prefixes: PrefixIndex) -> None:
    """Raise `BrokenInvariant`, which says what differs, unless all accounts agree."""
    _check_tables(tables, ledger)
    _check_states(ledger, room)
    _check_room(tables, room)
    _check_prefixes(ledger, prefixes)
    _check_cached(ledger)


def _demand(holds: bool, message: str) -> None:
    if not holds:
        raise BrokenInvariant(message)


def _check_tables(tables: Mapping[str, BlockTable], ledger: Ledger) -> None:
    """Holders are exactly the tables that name a block; published blocks form a chain."""
    holders: dict[int, set[str]] = defaultdict(set)
    for name, table in tables.items():
        size, blocks = table.block_size, table.blocks
        _demand(table.request == name, f"the table of {table.request} is filed under {name}")
        _demand(len(set(blocks)) == len(blocks), f"{name} holds a block twice: {blocks}")
        _demand(len(blocks) == -(-table.length // size), f"{name}: {len(blocks)} blocks for {table.length} positions")
        spelt_out = [block for start, stop in table.runs for block in range(start, stop)]
        _demand(spelt_out == blocks, f"{name}: runs {table.runs} are not its blocks {blocks}")
        touching = any(before.stop == after.start for before, after in zip(table.runs, table.runs[1:], strict=False))
        _demand(not touching, f"{name}: runs {table.runs} could be fewer")
        _demand(
            table.published <= table.length // size, f"{name}: {table.published} of {table.length // size} published"
        )
        parent = None
        for index, number in enumerate(blocks):
            block = ledger.blocks[number]
            _demand(block.logical == index, f"block {number} is {block.logical}, but {name} has it at {index}")
            if block.node is not None:
                chained = block.node.parent is parent and (index == 0 or parent is not None)
                _demand(chained, f"block {number} at {index} of {name} can be found, but not by way of the one before")
            parent = block.node
            holders[number].add(name)
    for block in ledger.blocks:
        named, known = sorted(holders[block.number]), sorted(block.holders)
        _demand(named == known, f"block {block.number}: its holders are {known}, but the tables say {named}")


def _check_states(ledger: Ledger, room: Room) -> None:
    """Every block is exactly one of free, cached, held, and nothing is lost."""
    free = {block for start, stop in room.extents() for block in range(start, stop)}
    for block in ledger.blocks:
        states = {"free": block.number in free, "cached": block.number in ledger.cached, "held": bool(block.holders)}
        true = [name for name, holds in states.items() if holds]
        _demand(len(true) == 1, f"block {block.number} is {' and '.join(true) or 'neither free, cached nor held'}")
        _demand(block.free == states["free"], f"block {block.number} is {true[0]}, but has node {block.node}")
        kept_apart = not block.distrusted or (states["held"] and block.node is None)
        _demand(kept_apart, f"block {block.number} is distrusted, but {true[0]} or can be found")
    held = sum(bool(block.holders) for block in ledger.blocks)
    _demand(ledger.held == held, f"{ledger.held} blocks are counted as held; {held} are")
    _demand(all(0 <= block < len(ledger.blocks) for block in free), f"free blocks outside the pool: {sorted(free)}")


def _check_room(tables: Mapping[str, BlockTable], room: Room) -> None:
    """Free stretches are disjoint, and merged where nobody has an eye on them; what is ahead follows what is held."""
    open_extents = sorted(room.open)
    _demand(merged(open_extents) == open_extents, f"open extents overlap or touch: {open_extents}")
    _demand(room.open.consistent, f"the views of the open extents differ: {open_extents}")
    ahead = [table.ahead for table in tables.values() if table.ahead.size]
    single = sum(extent.size for extent in open_extents + ahead)
    together = sum(extent.size for extent in room.extents())
    _demand(single == together, f"free extents overlap: {open_extents}, ahead {ahead}")
    keepers = {table.request for table in room.keepers}
    for name, table in tables.items():
        _demand((name in keepers) == bool(table.ahead.size), f"{name} has {table.ahead} ahead; keepers: {keepers}")
        follows = not table.ahead.size or table.ahead.start == table.next_block
        _demand(follows, f"{name} has {table.ahead} ahead, but its next block would be {table.next_block}")
    _demand(keepers <= tables.keys(), f"closed requests still have room ahead: {keepers - tables.keys()}")


def _check_prefixes(ledger: Ledger, prefixes: PrefixIndex) -> None:
    """The index and the blocks agree, and every node can be reached from the first block on."""
    nodes = {node.hash: node for node in prefixes}
    for key, node in nodes.items():
        _demand(bool(node.blocks), f"prefix {key} has no block")
        _demand(prefixes.hash(node.parent, node.tokens) == key, f"prefix {key} is not the hash of its tokens")
        if node.parent is not None:
            reachable = nodes.get(node.parent.hash) is node.parent and node.parent.children.get(key) is node
            _demand(reachable, f"nothing leads to prefix {key}")
        for number in node.blocks:
            _demand(ledger.blocks[number].node is node, f"block {number} does not know that it is prefix {key}")
        for child in node.children:
            _demand(child in nodes, f"prefix {key} has a child that is not in the index: {child}")
    for block in ledger.blocks:
        if block.node is not None:
            known = nodes.get(block.node.hash) is block.node and block.number in block.node.blocks
            _demand(known, f"block {block.number} has prefix {block.node.hash}, which does not know it")


def _check_cached(ledger: Ledger) -> None:
    """Cached blocks are single, and those that begin with one were left before it."""
    order = {number: place for place, number in enumerate(ledger.cached)}
    for number, place in order.items():
        node = ledger.blocks[number].node
        if node is None:
            raise BrokenInvariant(f"block {number} is cached, but cannot be found")
        _demand(len(node.blocks) == 1, f"block {number} is cached, though others have its content: {list(node.blocks)}")
        for child in node.children.values():
            for other in child.blocks:
                earlier = order.get(other, place) < place
                _demand(earlier, f"block {other} begins with cached block {number}, but would be evicted after it")
