"""The shop's database: customers, their orders, and what the settlement needs beside them.

Orders have a column for the fencing token of whoever worked on them last; charges that were meant
stand in an outbox before they are made.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
)

from incumbent.work.sql import Fence, Outbox, outbox_table

METADATA = MetaData()

CUSTOMERS = Table(
    "customers",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", String(80), nullable=False),
)

ORDERS = Table(
    "orders",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("customer", Integer, ForeignKey("customers.id"), nullable=False),
    Column("cents", Integer, nullable=False),
    Column("state", String(8), nullable=False, default="PENDING"),
    Column("ordered_time", Float, nullable=False),
    Column("closed_by", String(80)),
    Column("charge", String(40)),
    Column("fencing_token", BigInteger, nullable=False, default=0),
    Index("pending_orders", "state", "id"),
)

FENCE = Fence(ORDERS)
OUTBOX = Outbox(outbox_table(METADATA))


def connect(url: str) -> Engine:
    """The database at `url`: sqlite:///FILE or postgresql+psycopg://…"""
    engine = create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
    if url.startswith("sqlite"):

        @event.listens_for(engine, "connect")
        def _on_connect(connection, _record) -> None:  # type: ignore[no-untyped-def]
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA busy_timeout = 20000")

    return engine
