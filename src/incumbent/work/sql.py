"""The database's side of work done once: a fence against whoever held a claim before, and an
outbox that makes one charge of many attempts.

A claim says who may work on an item now. It cannot stop a holder that slept through its end and
writes on: only the database can, by comparing tokens (`Fence`). And it cannot know whether a
crashed holder's call to somebody else's service was carried out: only that service can, if each
attempt names the same key and says the same (`Outbox`).

    with engine.begin() as db:                       # 1. read again, under the claim
        order = fence.read(db, claim.item, claim.fencing_token)
        if order.state != "pending":
            return
        bill = outbox.intend(db, claim.key, claim.item, {"amount": order.amount})
    receipt = gateway.charge(bill.payload, key=claim.key)
    with engine.begin() as db:                       # 2. close, and keep the receipt
        fence.close(db, claim.item, claim.fencing_token, state="closed")
        outbox.record(db, claim.key, receipt)

Every method works in the transaction of the caller, with SQLAlchemy's `Connection` or `Session`,
on SQLite and PostgreSQL. Install it with `pip install incumbent[sql]`.

Rule of this file: each write is one conditional statement, so that a late one changes nothing,
whatever the isolation level, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    Connection,
    CursorResult,
    Float,
    MetaData,
    Row,
    String,
    Table,
    insert,
    select,
    update,
)
from sqlalchemy import Column as SqlColumn
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from incumbent.clock import SYSTEM
from incumbent.errors import NotInTable, StaleToken, WasClosed

__all__ = ["Bill", "Fence", "Outbox", "fence_table", "outbox_table"]

Database: TypeAlias = Connection | Session
"""Whatever carries out a statement inside the caller's transaction."""


def fence_table(metadata: MetaData, name: str = "incumbent_fence") -> Table:
    """A table of fences of its own, for items whose table should not get another column."""
    return Table(
        name,
        metadata,
        SqlColumn("item", String(1024), primary_key=True),
        SqlColumn("fencing_token", BigInteger, nullable=False, default=0),
    )


class Fence:
    """Rows, each with the newest token under which it was read for work or written.

    table    has a row for each item; `fence_table` gets its rows by itself
    item     the name of the column that says which item; unique
    token    the name of the column for the newest token; 64 bits, not null, 0 at first

    All who work on the items must go through a fence. A holder whose claim came later has a
    greater token: from its first `read`, whoever had the item before changes nothing more.
    """

    def __init__(self, table: Table, *, item: str = "id", token: str = "fencing_token") -> None:
        for column in (item, token):
            if column not in table.c:
                raise ValueError(f"the table {table.name} has no column {column}")
        self._table = table
        self._item = table.c[item]
        self._token = table.c[token]
        self._makes_rows = set(table.c) == {self._item, self._token}

    def read(self, db: Database, item: object, fencing_token: int) -> Row[Any]:
        """The row as it is under this claim; whoever had an older one is shut out from now on.

        Read what the work depends on after this, in the same transaction. Raises `StaleToken` if
        a later holder was here, `NotInTable` if there is no such item.
        """
        enter = (
            update(self._table)
            .where(self._item == item, self._token <= fencing_token)
            .values({self._token: fencing_token})
        )
        while not _changed(db, enter):
            if self._makes_rows:
                _insert_if_absent(db, self._table, {self._item.name: item, self._token.name: 0})
            self._refuse_if_stale(db, item, fencing_token)
        return db.execute(select(self._table).where(self._item == item)).one()

    def close(
        self,
        db: Database,
        item: object,
        fencing_token: int,
        *,
        only_if: ColumnElement[bool] | None = None,
        **values: object,
    ) -> None:
        """Write `values` into the item's row, unless a later holder was here.

        One UPDATE. Raises `StaleToken` then, `NotInTable` where there is no such item, and
        `WasClosed` if the row is not as `only_if` says; nothing has changed in any of these cases.
        """
        write = (
            update(self._table)
            .where(self._item == item, self._token <= fencing_token)
            .values({self._token.name: fencing_token, **values})
        )
        if only_if is not None:
            write = write.where(only_if)
        while not _changed(db, write):
            self._refuse_if_stale(db, item, fencing_token)
            if only_if is not None:
                raise WasClosed(self._table.name, item)

    def _refuse_if_stale(self, db: Database, item: object, fencing_token: int) -> None:
        """Why a statement of ours changed nothing. Returns only if its row came or changed since."""
        newest = db.execute(select(self._token).where(self._item == item)).scalar_one_or_none()
        if newest is None:
            raise NotInTable(self._table.name, item)
        if newest > fencing_token:
            raise StaleToken(self._table.name, item, token=fencing_token, newest=newest)


def outbox_table(metadata: MetaData, name: str = "incumbent_outbox") -> Table:
    """What `Outbox` keeps: a row for each call that was ever meant, and its answer."""
    return Table(
        name,
        metadata,
        SqlColumn("key", String(128), primary_key=True),
        SqlColumn("item", String(1024), nullable=False),
        SqlColumn("payload", JSON, nullable=False),
        SqlColumn("intended_time", Float, nullable=False),
        SqlColumn("answer", JSON, nullable=True),
        SqlColumn("answered_time", Float, nullable=True),
    )


@dataclass(frozen=True, slots=True)
class Bill:
    """A call to somebody else's service as it was first meant.

    key        names it at the service, in every attempt: the claim's key
    payload    what to say: the first attempt's, whatever the item's row says by now
    answer     the service's, once it was recorded; None before
    """

    key: str
    item: str
    payload: Any
    answer: Any


class Outbox:
    """Calls to somebody else's service, written down before they are made."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def intend(self, db: Database, key: str, item: str, payload: Mapping[str, Any]) -> Bill:
        """Write the call down; commit before it is made. If an earlier attempt wrote it down,
        that one stands: the same key must always say the same.
        """
        row = {"key": key, "item": item, "payload": dict(payload), "intended_time": SYSTEM.wall()}
        _insert_if_absent(db, self._table, row)
        return self._bill(db, key)

    def record(self, db: Database, key: str, answer: Any) -> None:
        """The service has answered. A second answer to the same key changes nothing."""
        table = self._table
        write = (
            update(table)
            .where(table.c.key == key, table.c.answered_time.is_(None))
            .values(answer=answer, answered_time=SYSTEM.wall())
        )
        if not _changed(db, write):
            self._bill(db, key)

    def unanswered(self, db: Database, *, limit: int = 1000) -> Iterator[Bill]:
        """The oldest calls that may or may not have been made: what crashes have left."""
        table = self._table
        rows = db.execute(
            select(table)
            .where(table.c.answered_time.is_(None))
            .order_by(table.c.intended_time)
            .limit(limit)
        )
        for row in rows:
            yield _to_bill(row)

    def _bill(self, db: Database, key: str) -> Bill:
        row = db.execute(select(self._table).where(self._table.c.key == key)).one_or_none()
        if row is None:
            raise NotInTable(self._table.name, key)
        return _to_bill(row)


def _to_bill(row: Row[Any]) -> Bill:
    return Bill(row.key, row.item, row.payload, row.answer)


def _changed(db: Database, statement: Any) -> bool:
    result = db.execute(statement)
    assert isinstance(result, CursorResult)
    return result.rowcount > 0


def _insert_if_absent(db: Database, table: Table, row: Mapping[str, object]) -> None:
    """An insert that does not end the caller's transaction where the row is there already."""
    name = db.get_bind().dialect.name if isinstance(db, Session) else db.dialect.name
    if name == "postgresql":
        db.execute(postgresql.insert(table).values(**row).on_conflict_do_nothing())
    elif name == "sqlite":
        db.execute(sqlite.insert(table).values(**row).on_conflict_do_nothing())
    elif (
        db.execute(
            select(table).where(*(c == row[c.name] for c in table.primary_key.columns))
        ).first()
        is None
    ):
        db.execute(insert(table).values(**row))
