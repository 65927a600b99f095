"""The store on disk: one SQLite database, a log of groups and a table of the state.

Rule of this file: one group is one row, one statement, one transaction, synced when `commit`
returns. The state table is the log's beginning, folded: `folded zxid + later rows` is
everything, at every instant, also in the middle of a crash.

A commit is a write to the file, here, and its sync, in a thread: what a disk may make slow never
keeps the event loop waiting. (Measured: the write takes 6 to 12 µs, the sync 200 µs and up, and
the way to the thread and back costs nothing that can be seen beside that.) So SQLite does not
sync what it commits, this file does. Checkpoints are for the thread too, and while one is made
every commit goes there whole and waits its turn.

Folding takes the oldest rows, works out the znodes that they leave behind, writes those and
removes the rows, all in one SQLite transaction. It happens in small steps between commits.
An ephemeral whose deletion is durable already, in a row that is left, is not written: most of
them cost the state nothing (`Tree.replay`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from incumbent.errors import WireError
from incumbent.server.copying import Piece, pieces
from incumbent.server.journal import (
    FORMAT,
    pack_transactions,
    pack_znode,
    unpack_transactions,
    unpack_znode,
)
from incumbent.server.store import Batch, Loaded, StoreFailed
from incumbent.server.tree import (
    CreateNode,
    DeleteNode,
    EndSession,
    OpenSession,
    Transaction,
    Tree,
    deleted_paths,
    touched_paths,
)
from incumbent.server.worker import Worker

__all__ = ["SqliteStore"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS log (zxid INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS znodes (path TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (id INTEGER PRIMARY KEY, timeout_ms INTEGER NOT NULL);
"""
_STEP_BYTES = 32 * 1024
"""So much of the log is folded at a time: some milliseconds."""

_LOG_BYTES = 4 * 1024 * 1024
"""More than this and folding begins: a start reads it within a fifth of a second."""

_WAL_BYTES = 4 * 1024 * 1024
"""About so much is written between two checkpoints."""

_ROW_COST = 4 * 1024
"""Bytes written for a row beside its body: whole pages, and their headers."""

_PAUSE = 0.02
"""Seconds between two steps, so that requests come in between."""


class SqliteStore:
    """Transactions in the database file `path`, made if missing. Raises `StoreFailed`.

    Only one process may have it open; the data directory's lock sees to that.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log_bytes = 0
        self._copies = 0
        self._durable = 2**63 - 1  # the last zxid that is: all, as long as nothing is added
        self._folding: asyncio.TimerHandle | None = None
        self._worker = Worker()
        self._checkpointing: asyncio.Future[None] | None = None
        self._doubtful: int | None = None  # rows from this zxid on were refused, and may be there
        self._unchecked = 0  # about so many bytes came after the last checkpoint
        self._deleted: dict[str, int] = {}  # by a durable row that is left, at which zxid last
        with self._failures():
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # Exclusive before WAL: the index of the WAL is then kept on our heap, not in a
            # shared file that a full disk could take away under our feet.
            for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=NORMAL"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.execute("PRAGMA wal_autocheckpoint=0")
            self._db.executescript(_SCHEMA)
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?)", (FORMAT,))
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('folded', 0)")
            self._db.execute(
                "INSERT OR IGNORE INTO meta VALUES ('secret', ?)", (secrets.token_bytes(32),)
            )
            found = self._meta("format")
            if found in (1, 2):  # what it holds is read, what is added may be of this format
                self._db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (FORMAT,))
                found = FORMAT
            self._wal = os.open(f"{path}-wal", os.O_RDWR | os.O_CLOEXEC)
        if found != FORMAT:
            raise StoreFailed(str(path), f"its format is {found}, this server reads {FORMAT}")

    def load(self) -> Loaded:
        with self._failures():
            os.fdatasync(self._wal)  # what a killed process left unsynced is shown from now on
            tree = Tree.restored(
                int(str(self._meta("folded"))),
                (
                    (path, unpack_znode(body))
                    for path, body in self._db.execute("SELECT path, body FROM znodes")
                ),
                self._db.execute("SELECT id, timeout_ms FROM sessions ORDER BY id"),
            )
            self._log_bytes = 0
            self._deleted.clear()
            doubtful = 2**63 - 1 if self._doubtful is None else self._doubtful
            rows = self._db.execute(
                "SELECT body FROM log WHERE zxid < ? ORDER BY zxid", (doubtful,)
            )
            for (body,) in rows:
                self._log_bytes += len(body)
                batch = tuple(unpack_transactions(body))
                self._note_deleted(batch)
                for transaction in batch:
                    tree.replay(transaction)
            secret = self._meta("secret")
        self._durable = tree.zxid
        assert isinstance(secret, bytes)
        return Loaded(tree=tree, secret=secret)

    async def commit(self, batch: Batch) -> None:
        body = pack_transactions(batch)
        with self._failures():
            if self._checkpointing is None:
                self._insert(batch, body)
                await self._worker.run(lambda: self._sync(batch))
            else:
                await self._worker.run(lambda: self._keep(batch, body))
        self._note_deleted(batch)
        self._grown(len(body))
        if self._log_bytes > _LOG_BYTES and self._folding is None and not self._copies:
            self._fold_later()
        elif self._unchecked > _WAL_BYTES and self._checkpointing is None and not self._copies:
            self._begin_checkpoint()

    def add(self, batch: Batch) -> None:
        """As `commit`, where no event loop runs."""
        body = pack_transactions(batch)
        with self._failures():
            self._keep(batch, body)
        self._note_deleted(batch)
        self._grown(len(body))

    def _keep(self, batch: Batch, body: bytes) -> None:
        self._insert(batch, body)
        self._sync(batch)

    def _insert(self, batch: Batch, body: bytes) -> None:
        self._forget_doubtful()
        self._db.execute("INSERT INTO log VALUES (?, ?)", (batch[-1].zxid, body))

    def _sync(self, batch: Batch) -> None:
        try:
            os.fdatasync(self._wal)
        except OSError:
            self._doubtful = batch[0].zxid
            raise
        self._durable = batch[-1].zxid

    def _grown(self, size: int) -> None:
        self._log_bytes += size
        self._unchecked += size + _ROW_COST

    def _note_deleted(self, batch: Batch) -> None:
        for zxid, _time, changes in batch:
            for change in changes:
                if isinstance(change, DeleteNode | EndSession):
                    self._deleted.update(dict.fromkeys(deleted_paths(change), zxid))

    def _forget_doubtful(self) -> None:
        """Nothing of a refused batch stays, though it may have come as far as the file."""
        if self._doubtful is not None:
            self._db.execute("DELETE FROM log WHERE zxid >= ?", (self._doubtful,))
            self._doubtful = None

    @contextlib.contextmanager
    def copying(self) -> Iterator[Iterator[Piece]]:
        """A copy of everything, in pieces; commits may go on meanwhile, all else waits."""
        self._copies += 1
        try:
            yield pieces(self._db, lambda: self._durable)
        finally:
            self._copies -= 1

    async def settled(self) -> None:
        """Return when nothing is at work on the database beside commits."""
        while self._checkpointing is not None:
            await asyncio.wait([self._checkpointing])

    def close(self) -> None:
        if self._folding is not None:
            self._folding.cancel()
        self._worker.stop()
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        if self._wal >= 0:
            os.close(self._wal)
            self._wal = -1

    def fold(self, step: int = _STEP_BYTES) -> bool:
        """Fold the oldest rows into the state, about so many bytes; True if rows are left.

        Raises `StoreFailed`."""
        transactions: list[Transaction] = []
        taken = 0
        with self._failures(), self._transaction():
            self._forget_doubtful()
            rows = self._db.execute(
                "SELECT body FROM log WHERE zxid <= ? ORDER BY zxid", (self._durable,)
            )
            for (body,) in rows:
                transactions += unpack_transactions(body)
                taken += len(body)
                if taken >= step:
                    break
            rows.close()
            if transactions:
                self._write_state(transactions)
                last = transactions[-1].zxid
                self._db.execute("DELETE FROM log WHERE zxid <= ?", (last,))
        self._log_bytes -= taken
        self._unchecked += 2 * taken
        return self._log_bytes > 0

    def _write_state(self, transactions: list[Transaction]) -> None:
        """The state table after these, worked out on a tree of only the znodes they touch."""
        touched: dict[str, bool] = {}  # and was it there before?
        for transaction in transactions:
            for change in transaction.changes:
                is_new = isinstance(change, CreateNode)
                for path in touched_paths(change):
                    touched.setdefault(path, not is_new)
                    is_new = False
        find = "SELECT body FROM znodes WHERE path = ?"
        kept = {}
        for path in (path for path, was_there in touched.items() if was_there):
            row = self._db.execute(find, (path,)).fetchone()
            if row is not None:
                kept[path] = unpack_znode(row[0])
        part = Tree.partial(kept.items())
        for transaction in transactions:
            part.replay(transaction)
            self._fold_sessions(transaction)
        for path in touched:
            node = part.nodes.get(path)
            if node is not None and not (node.owner > 0 and path in self._deleted):
                self._db.execute(
                    "INSERT OR REPLACE INTO znodes VALUES (?, ?)", (path, pack_znode(node))
                )
            elif path in kept:
                self._db.execute("DELETE FROM znodes WHERE path = ?", (path,))
        self._db.execute("UPDATE meta SET value = ? WHERE key = 'folded'", (part.zxid,))

    def _fold_sessions(self, transaction: Transaction) -> None:
        for change in transaction.changes:
            if isinstance(change, OpenSession):
                self._db.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?)", change)
            elif isinstance(change, EndSession):
                self._db.execute("DELETE FROM sessions WHERE id = ?", (change.session_id,))
            for path in deleted_paths(change):
                if self._deleted.get(path) == transaction.zxid:
                    del self._deleted[path]

    def _fold_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._folding = loop.call_later(_PAUSE, self._fold_step)

    def _fold_step(self) -> None:
        self._folding = None
        if self._copies or self._checkpointing is not None:
            return  # the first commit after it begins again
        with contextlib.suppress(StoreFailed):  # the log goes on; the next commit tries again
            if self.fold():
                self._fold_later()
        if self._unchecked > _WAL_BYTES:
            self._begin_checkpoint()

    def _begin_checkpoint(self) -> None:
        self._unchecked = 0
        self._checkpointing = self._worker.run(self._checkpoint)
        self._checkpointing.add_done_callback(self._checkpointed)

    def _checkpoint(self) -> None:
        """Move the file's latest pages to their places, and begin it anew."""
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        # The first write afterwards syncs the file's new beginning: make it here.
        self._db.execute("UPDATE meta SET value = value WHERE key = 'folded'")

    def _checkpointed(self, done: asyncio.Future[None]) -> None:
        self._checkpointing = None
        if done.cancelled() or done.exception() is not None:
            self._unchecked = _WAL_BYTES  # a full disk, perhaps: the next commit tries again

    def _meta(self, key: str) -> object:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, WireError, OSError) as error:
            raise StoreFailed(str(self._path), str(error)) from error
