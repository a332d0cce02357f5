"""Which position each key stands at that an attention layer reads from a cache.

A cache need not hold its keys in order of position: a sliding window wraps around, or drops its beginning. Rather than
know every class of cache, each one gets a twin that stores positions in place of keys: whatever the cache does with
its keys, the twin does with their positions. Caches that begin alike share one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.device import mx

from mlx_lm.models.cache import KVCache


@dataclass(frozen=True, slots=True)
class _Fetch:
    """What a cache handed to a layer.

    Attributes:
        known: whether it is known at which positions the keys stand.
        positions: `[K]`; None when the keys stand at 0 … K − 1.
    """

    keys: Any
    values: Any
    known: bool
    positions: mx.array | None

    def may_be(self, keys: int) -> bool:
        return isinstance(self.keys, mx.array) and self.keys.ndim == 4 and self.keys.shape[2] == keys


class KeyPositions:
    """Watches the caches of one request. They must be empty when the watch begins."""

    def __init__(self, caches: list[Any]) -> None:
        self._watched = [cache for cache in leaves(caches) if hasattr(cache, "update_and_fetch")]
        self._fetches: list[_Fetch] = []
        self._start = self._length = self._of_layer = 0
        twins: dict[str, _Twin] = {}
        for cache in self._watched:
            # KVCache's keys are in order: it needs no twin.
            alike = None if type(cache) is KVCache else f"{type(cache)} {cache.__dict__}"
            self._watch(cache, None if alike is None else twins.setdefault(alike, _Twin(cache)))

    def release(self) -> None:
        """Leave the caches as they were found."""
        for cache in self._watched:
            cache.__dict__.pop("update_and_fetch", None)
        self._watched.clear()
        self._fetches.clear()

    def begin(self, start: int, length: int) -> None:
        """A pass over positions start … start + length − 1 begins."""
        self._start, self._length, self._of_layer = start, length, 0
        self._fetches.clear()

    def layer(self) -> None:
        """A layer begins: what is fetched from now on is its own."""
        self._of_layer = len(self._fetches)

    def end(self) -> None:
        """The pass is over. Nothing of a cache is held: its next write would copy all of it."""
        self._fetches.clear()

    def in_order(self, keys: mx.array, values: mx.array, rows: mx.array) -> mx.array | None:
        """Attention rows over all positions so far; None when it is not known where the keys stand.

        Args:
            keys: as the attention kernel was given them: a cache's own, or made from them by the layer.
            values: likewise.
            rows: `[heads, rows, K]`, in the order of the keys.

        Returns:
            `[heads, rows, positions]`; exactly 0 at positions whose keys are not kept any more.
        """
        fetch = self._fetched(keys, values)
        if fetch is None or not fetch.known:
            return None
        total = self._start + self._length
        if fetch.positions is None:
            return rows if rows.shape[-1] == total else None
        # Adding, not setting: slots that hold nothing yet count as position 0, and are masked.
        return mx.zeros((*rows.shape[:-1], total), rows.dtype).at[..., fetch.positions].add(rows)

    def _fetched(self, keys: mx.array, values: mx.array) -> _Fetch | None:
        for fetch in self._fetches:
            if fetch.keys is keys or fetch.values is values:
                return fetch
        # A layer that expands what it keeps (latent attention) attends to as many keys as it fetched, in that order.
        likely = [fetch for fetch in self._fetches[self._of_layer :] if fetch.may_be(keys.shape[2])]
        if len(likely) == 1 or (likely and all(fetch.known and fetch.positions is None for fetch in likely)):
            return likely[0]
        return None

    def _watch(self, cache: Any, twin: _Twin | None) -> None:
        original, stored = cache.update_and_fetch, 0

        def update_and_fetch(keys: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal stored
            fetched = original(keys, values, *args, **kwargs)
            every = stored == self._start and _a_key_each(keys, self._length)
            stored += keys.shape[2] if every else 0
            self._fetches.append(self._note(twin, every, *fetched))
            return fetched

        cache.update_and_fetch = update_and_fetch

    def _note(self, twin: _Twin | None, every: bool, keys: Any, values: Any) -> _Fetch:
        if not every or not isinstance(keys, mx.array):  # not a key for each token so far, or a quantised one
            return _Fetch(keys, values, False, None)
        if twin is None:
            return _Fetch(keys, values, True, None)
        positions = twin.after(self._start, self._length)
        return _Fetch(keys, values, positions is not None and positions.size == keys.shape[2], positions)


class _Twin:
    """Stores positions as a cache stores keys."""

    def __init__(self, cache: Any) -> None:
        self._cache = copy.deepcopy(cache)
        self._cache.__dict__.pop("update_and_fetch", None)  # the twin is not watched
        self._stored = 0
        self._positions: mx.array | None = None

    def after(self, start: int, length: int) -> mx.array | None:
        """The positions that the cache holds once `length` more are stored, in its order; None if it missed some."""
        if self._stored == start:
            places = mx.arange(start, start + length)[None, None, :, None]
            self._positions = self._cache.update_and_fetch(places, places)[0].reshape(-1)
            self._stored += length
            mx.async_eval(self._positions)  # whether or not somebody looks: or the graph would grow by every token
        return self._positions if self._stored == start + length else None


def _a_key_each(keys: Any, tokens: int) -> bool:
    return isinstance(keys, mx.array) and keys.ndim == 4 and keys.shape[0] == 1 and keys.shape[2] == tokens


def leaves(caches: Any) -> Iterator[Any]:
    """The caches in a list of caches, or of caches that hold caches."""
    for cache in caches:
        held = getattr(cache, "caches", None)
        if isinstance(held, (list, tuple)):
            yield from leaves(held)
        elif cache is not None:
            yield cache
