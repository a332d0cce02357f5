"""Replays the block events of a trace: who holds what, and whether it is where it should be."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.blocks import CacheMirror
from engine.codec import Frame
from engine.trace.checking import Check, Checker, Continuity, Fields, Tally

_TAKING = frozenset({"block.allocated", "block.copied", "block.reused", "block.ref_changed"})


_MOST_BLOCKS = 4_000_000
"""More than any memory holds; a file from anybody may say anything."""


class BlockRefs(Checker):
    """Refs are the holders that the events before name, and all that a request held is given back.

    Needs all block events from the run's start.
    """

    def __init__(self, continuity: Continuity) -> None:
        self._continuity = continuity
        self._mirror: CacheMirror | None = None
        self._paged = True
        self._refs = Tally("block refs are their holders")
        self._leaks = Tally("no block leaks")

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.kind == "run.header" and self._mirror is None:
            blocks = fields["kv"].get("blocks")
            self._paged = blocks is not None
            if blocks is not None and not 0 <= blocks <= _MOST_BLOCKS:
                raise ValueError(f"{blocks} blocks")
            self._mirror = CacheMirror(blocks or 0)
        elif frame.kind.startswith("block.") and self._mirror is not None:
            self._apply(frame, fields, self._mirror)
        elif frame.kind in ("request.finished", "request.preempted") and self._mirror is not None:
            kept = [state["block"] for state in self._mirror.state if frame.request in state["holders"]]
            gone = "finished" if frame.kind == "request.finished" else "gave way"
            self._leaks.expect(not kept, f"{frame.request} {gone} and still holds blocks {kept[:5]}")

    def _apply(self, frame: Frame, fields: Fields, mirror: CacheMirror) -> None:
        if not 0 <= fields["block"] < len(mirror.state):
            self._refs.expect(False, f"event {frame.seq}: there is no block {fields['block']}")
            return
        before = mirror.state[fields["block"]]
        if frame.kind == "block.reused":
            findable = before["prefix_hash"] is not None and before["prefix_hash"] == fields["prefix_hash"]
            what = f"event {frame.seq}: block {fields['block']}"
            self._refs.expect(findable, f"{what} was reused for what it did not hold")
        try:
            mirror.apply(fields)
        except ValueError as error:
            self._refs.expect(False, str(error))
        else:
            self._refs.expect(True, "")

    def results(self) -> Iterator[Check]:
        unknown = self._continuity.unknown or (None if self._paged else "the KV cache is not in blocks")
        yield self._refs.check(f"{self._refs.checked} block events", unknown=unknown)
        yield self._leaks.check(f"{self._leaks.checked} requests gave all back", unknown=unknown)


class BlockTables(Checker):
    """Each request's blocks: one for every stretch of its positions, there before a step writes them.

    Holds in a slice too, which has every event of a block while its request holds it.
    """

    def __init__(self, continuity: Continuity) -> None:
        self._continuity = continuity
        self._size: int | None = None
        self._tables: dict[str, dict[int, int]] = {}
        """Per request that arrived here, the blocks that it holds, and the index of each in its table."""
        self._hashes: dict[int, str | None] = {}
        """The prefix hash of each block that one of them holds."""
        self._computed: dict[str, int] = {}
        self._tally = Tally("positions in their blocks")

    def see(self, frame: Frame, fields: Fields, array: np.ndarray | None) -> None:
        if frame.kind == "run.header":
            self._size = fields["kv"].get("block_size")
        if self._size is None:
            return
        if frame.kind == "request.arrived" and frame.request is not None:
            self._tables[frame.request] = {}
        elif frame.kind == "step.started":
            for row in fields["rows"]:
                self._row(frame.step, row, self._size)
        elif frame.kind == "request.scheduled" and frame.request in self._tables:
            self._computed[frame.request] = fields["cached_tokens"]
        elif frame.kind.startswith("block."):
            self._block(frame, fields, self._size)

    def _row(self, step: int | None, row: Fields, size: int) -> None:
        table = self._tables.get(row["request"])
        if table is None:
            return
        needed = -(-row["to"] // size)
        held = set(table.values())
        # One of the first `len(held) + 1` is lacking, or none: a file may say that a row has any number of positions.
        lacking = [logical for logical in range(min(needed, len(held) + 1)) if logical not in held]
        self._tally.expect(
            not lacking, f"step {step}: {row['request']} has no block for positions {_span(lacking, size)}"
        )
        self._computed[row["request"]] = row["to"]

    def _block(self, frame: Frame, fields: Fields, size: int) -> None:
        request, block, logical = frame.request, fields["block"], fields["logical"]
        if request in self._tables and fields["positions"] is not None:
            right = fields["positions"] == [logical * size, (logical + 1) * size]
            where = f"event {frame.seq}: block {block} at {logical}"
            self._tally.expect(right, f"{where} is said to be for positions {fields['positions']}")
        table = self._tables.get(request or "")
        if frame.kind == "block.freed" or (frame.kind == "block.evicted" and not fields["refs"]):
            for other in self._tables.values():
                other.pop(block, None)
            self._hashes.pop(block, None)
        elif table is not None and frame.kind == "block.ref_changed" and block in table:
            del table[block]
        elif table is not None and frame.kind in _TAKING:
            replaced = fields.get("source")  # by a copy: it is given back just after
            there = [held for held, index in table.items() if index == logical and held != replaced]
            self._tally.expect(not there, f"event {frame.seq}: {request} has blocks {there} at {logical}, and {block}")
            table[block], self._hashes[block] = logical, fields["prefix_hash"]
        elif table is not None and frame.kind == "block.stored":
            self._stored(frame, fields, table, size)

    def _stored(self, frame: Frame, fields: Fields, table: dict[int, int], size: int) -> None:
        logical, computed = fields["logical"], self._computed.get(frame.request or "", 0)
        full = (logical + 1) * size <= computed
        what = f"event {frame.seq}: block {fields['block']}"
        self._tally.expect(full, f"{what} is said to be full, with {computed} positions computed")
        self._hashes[fields["block"]] = fields["prefix_hash"]
        before = next((held for held, index in table.items() if index == logical - 1), None)
        parent = None if before is None else self._hashes.get(before)
        self._tally.expect(fields["parent_hash"] == parent, f"{what} does not follow from the block before it")

    def results(self) -> Iterator[Check]:
        unknown = self._continuity.own_unknown or (None if self._size else "the KV cache is not in blocks")
        yield self._tally.check(f"{self._tally.checked} rows and blocks", unknown=unknown)


def _span(logical: list[int], size: int) -> str:
    return f"{logical[0] * size} to {(logical[-1] + 1) * size - 1}" if logical else "none"
