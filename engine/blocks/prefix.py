"""Which whole blocks of tokens are in memory: a tree of prefixes, found by hash.

A block's hash covers its own tokens and the hash of the block before, so it stands for everything from position 0 up to
the block's end: KV depends on all of that, not on the block's tokens alone. Whatever else changes the KV (the model,
its weights, its dtype) seeds the chain. Sampling does not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

HASH_BYTES = 16


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """One findable prefix, named by its last block."""

    hash: str
    parent: Node | None
    """The prefix that is one block shorter; None for the first block."""
    tokens: tuple[int, ...]
    """Token ids of the last block."""
    children: dict[str, Node] = field(default_factory=dict)
    blocks: dict[int, None] = field(default_factory=dict)
    """The blocks that hold this content, oldest first (a dict, as an ordered set). Two requests that compute the same
    prompt at the same time leave two."""

    @property
    def parent_hash(self) -> str | None:
        return self.parent.hash if self.parent else None


class PrefixIndex:
    """Finds nodes by their hash, and never trusts the hash alone."""

    def __init__(self, block_size: int, model_key: bytes) -> None:
        self._block_size = block_size
        self._seed = blake2b(model_key, digest_size=HASH_BYTES).hexdigest()
        self._nodes: dict[str, Node] = {}

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def walk(self, tokens: Sequence[int]) -> Iterator[Node]:
        """The nodes of the longest known prefix, first block first, never of all the tokens.

        At least one token is left over, because somebody wants to know what comes next, and only a pass can say.
        """
        parent = None
        for start in range(0, len(tokens) - self._block_size, self._block_size):
            block = tuple(tokens[start : start + self._block_size])
            node = self._nodes.get(self.hash(parent, block))
            if node is None or not _same(node, parent, block):
                return
            yield node
            parent = node

    def add(self, parent: Node | None, tokens: Sequence[int]) -> Node | None:
        """The node of this content, made if there is none; None when another content has the same hash."""
        block = tuple(tokens)
        key = self.hash(parent, block)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Node(key, parent, block)
            if parent is not None:
                parent.children[key] = node
        return node if _same(node, parent, block) else None

    def remove(self, node: Node) -> None:
        """Forget a node. Its children must have gone first: nothing would lead to them any more."""
        if node.children:
            raise ValueError(f"prefix {node.hash} still has children: {', '.join(node.children)}")
        del self._nodes[node.hash]
        if node.parent is not None:
            del node.parent.children[node.hash]

    def hash(self, parent: Node | None, block: tuple[int, ...]) -> str:
        """The chained hash of a block, in hexadecimal."""
        chain = parent.hash if parent else self._seed
        return blake2b(
            bytes.fromhex(chain) + struct.pack(f"<{len(block)}q", *block), digest_size=HASH_BYTES
        ).hexdigest()


def branch(node: Node) -> Iterator[Node]:
    """A node and all that begins with it, children before parents. Nodes may be removed as they come."""
    stack, order = [node], []
    while stack:
        order.append(stack.pop())
        stack.extend(order[-1].children.values())
    return reversed(order)


def _same(node: Node, parent: Node | None, block: tuple[int, ...]) -> bool:
    """The guard against collisions: the parent has been compared before, so by induction all tokens are."""
    return node.parent is parent and node.tokens == block
