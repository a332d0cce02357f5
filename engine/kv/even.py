"""Decoding rows whose keys lie evenly apart in a paged pool: one kernel call for all of them, and nothing copied.

Row i's keys begin at `start + i · apart`, so a strided view of the pool, `[rows, kv_heads, keys, head_dim]`, shows each
row its own keys, and the shorter rows some slots more, which the mask hides. On a CPU a kernel call is ten operations
whose scheduling costs more than their arithmetic on short contexts: 8 rows of 50 keys took 23 ms a step in calls of
their own and 8 ms in one; 8 rows of 600 keys 63 and 53.

What the mask hides must still be finite, since 0 · NaN is NaN. So a row never reads beyond `RowSpan.limit`, where
another request's keys begin, which might become NaN in this very step, nor where a request that is gone wrote in the
last one, which nobody has looked at yet; and what is found is wiped where it is nobody's (`PagedStore.wipe`).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.kv.store import RowSpan

WASTE = 128
"""Hidden keys that a row may read on average. A call of its own costs a row as much time as about 200 more keys."""

REACH = 8
"""How many rows ahead are tried as a row's neighbour: what bounds the search when there are many rows."""


@dataclass(frozen=True, slots=True)
class EvenRows:
    """Rows that one strided view shows.

    Attributes:
        members: indices into the spans, by where their keys begin.
        start: slot of the first row's first key.
        apart: slots from one row's first key to the next row's.
        keys: how many keys the view shows of each row: as many as the longest has.
    """

    members: list[int]
    start: int
    apart: int
    keys: int


def even_rows(spans: list[RowSpan]) -> list[EvenRows]:
    """Group the decoding rows that a view can show together, as many as possible from the pool's beginning on.

    Rows with several tokens, and rows whose keys lie in several runs, are in no group.
    """
    left = {
        span.runs[0][0]: index
        for index, span in sorted(enumerate(spans), key=lambda pair: pair[1].runs[:1])
        if span.length == 1 and len(span.runs) == 1
    }
    groups = []
    while len(left) > 1:
        starts = list(left)
        candidates = [_chain(spans, left, starts[0], after - starts[0]) for after in starts[1 : 1 + REACH]]
        best = max(candidates, key=lambda group: len(group.members))
        if len(best.members) > 1:
            groups.append(best)
        for index in best.members[1:]:
            del left[spans[index].runs[0][0]]
        del left[starts[0]]
    return groups


def _chain(spans: list[RowSpan], left: dict[int, int], start: int, apart: int) -> EvenRows:
    """The longest row of rows from `start` on, `apart` slots each, that a view may show together."""
    members: list[int] = []
    keys = total = 0
    place = start
    while place in left:
        members.append(left[place])
        longest = max(keys, spans[left[place]].stop)
        total += spans[left[place]].stop
        room = all(spans[index].runs[0][0] + longest <= spans[index].limit for index in members)
        if not room or len(members) * longest - total > WASTE * (len(members) - 1):
            members.pop()
            break
        keys, place = longest, place + apart
    return EvenRows(members, start, apart, keys)
