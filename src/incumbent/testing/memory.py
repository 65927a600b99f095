"""A store in memory that may begin with a tree which no transactions lead to.

Rule of this file: what it was made to begin with is as durable as what is committed to it.
"""

from __future__ import annotations

from incumbent.server.journal import pack_znode, unpack_transactions, unpack_znode
from incumbent.server.store import Loaded, MemoryStore
from incumbent.server.tree import Tree

__all__ = ["RebasedStore"]


class RebasedStore(MemoryStore):
    """A `MemoryStore` until `begin_with` is called."""

    def __init__(self) -> None:
        super().__init__()
        self._first: tuple[int, dict[str, bytes], dict[int, int]] | None = None

    def begin_with(self, tree: Tree) -> None:
        """Keep this tree as it is now, and what is committed after it."""
        nodes = {path: pack_znode(node) for path, node in tree.nodes.items() if path}
        self._first = (tree.zxid, nodes, dict(tree.sessions))
        self._groups.clear()

    def load(self) -> Loaded:
        if self._first is None:
            return super().load()
        zxid, nodes, sessions = self._first
        restored = ((path, unpack_znode(body)) for path, body in nodes.items())
        tree = Tree.restored(zxid, restored, sessions.items())
        for group in self._groups:
            for transaction in unpack_transactions(group):
                if transaction.zxid > zxid:  # else it was under way, and is in the tree
                    tree.apply(transaction)
        return Loaded(tree=tree, secret=self._secret)
