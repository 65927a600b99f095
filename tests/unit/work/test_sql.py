"""The fence and the outbox, on SQLite and on PostgreSQL, against holders that come too late."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    select,
)
from sqlalchemy.orm import Session
from tests.postgres import PostgresServer, postgres_missing

from incumbent.errors import NotInTable, StaleToken, WasClosed
from incumbent.work.sql import Fence, Outbox, fence_table, outbox_table

METADATA = MetaData()
ORDERS = Table(
    "orders",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("state", String(16), nullable=False, default="pending"),
    Column("amount", Integer, nullable=False),
    Column("fencing_token", BigInteger, nullable=False, default=0),
)
FENCES = fence_table(METADATA)
OUTBOX = outbox_table(METADATA)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if why := postgres_missing():
        pytest.skip(why)
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A database with one pending order, number 7, of 1250."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/shop.db"
    else:
        url = request.getfixturevalue("postgres").url
    made = create_engine(url)
    METADATA.drop_all(made)
    METADATA.create_all(made)
    with made.begin() as db:
        db.execute(ORDERS.insert().values(id=7, amount=1250))
    yield made
    made.dispose()


def state(engine: Engine) -> tuple[str, int]:
    with engine.begin() as db:
        row = db.execute(select(ORDERS)).one()
        return row.state, row.fencing_token


def test_whoever_came_later_shuts_an_older_holder_out_and_nothing_is_written(
    engine: Engine,
) -> None:
    fence = Fence(ORDERS)
    with engine.begin() as db:
        fence.read(db, 7, 5)
    with engine.begin() as db:
        assert fence.read(db, 7, 9).state == "pending"

    with (
        pytest.raises(StaleToken, match="our fencing token 5 is older than 9"),
        engine.begin() as db,
    ):
        fence.close(db, 7, 5, state="closed")

    assert state(engine) == ("pending", 9)


def test_an_older_holder_cannot_even_read_for_work(engine: Engine) -> None:
    fence = Fence(ORDERS)
    with engine.begin() as db:
        fence.read(db, 7, 9)

    with pytest.raises(StaleToken), engine.begin() as db:
        fence.read(db, 7, 5)


def test_what_was_stale_leaves_the_callers_transaction_usable(engine: Engine) -> None:
    fence = Fence(ORDERS)
    with engine.begin() as db:
        fence.read(db, 7, 9)

    with engine.begin() as db:
        with pytest.raises(StaleToken):
            fence.close(db, 7, 5, state="closed")
        fence.close(db, 7, 9, state="closed")

    assert state(engine) == ("closed", 9)


def test_a_row_is_closed_once_if_the_condition_says_so(engine: Engine) -> None:
    fence = Fence(ORDERS)
    with engine.begin() as db:
        fence.close(db, 7, 5, only_if=ORDERS.c.state == "pending", state="closed")

    with pytest.raises(WasClosed, match="read it again"), engine.begin() as db:
        fence.close(db, 7, 6, only_if=ORDERS.c.state == "pending", state="closed twice")

    assert state(engine) == ("closed", 5)


def test_an_item_without_a_row_is_named(engine: Engine) -> None:
    fence = Fence(ORDERS)

    with pytest.raises(NotInTable, match="orders has no 8"), engine.begin() as db:
        fence.read(db, 8, 5)
    with pytest.raises(NotInTable, match="orders has no 8"), engine.begin() as db:
        fence.close(db, 8, 5, state="closed")


def test_a_fence_of_its_own_makes_its_rows(engine: Engine) -> None:
    fence = Fence(FENCES, item="item")
    with engine.begin() as db:
        fence.read(db, "order 7", 9)

    with pytest.raises(StaleToken), engine.begin() as db:
        fence.read(db, "order 7", 5)


def test_a_fence_works_in_a_session_too(engine: Engine) -> None:
    fence, outbox = Fence(ORDERS), Outbox(OUTBOX)
    with Session(engine) as db, db.begin():
        fence.read(db, 7, 5)
        outbox.intend(db, "key", "7", {"amount": 1250})
        fence.close(db, 7, 5, state="closed")

    assert state(engine) == ("closed", 5)


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="orders has no column version"):
        Fence(ORDERS, token="version")


def test_of_many_holders_at_once_only_the_newest_closes(engine: Engine) -> None:
    """Each enters, and closes after all have entered: the row says the newest, whoever is last."""
    fence, barrier = Fence(ORDERS), threading.Barrier(8)
    closed: list[int] = []

    def hold(token: int) -> None:
        try:
            with engine.begin() as db:
                fence.read(db, 7, token)
        except StaleToken:
            barrier.wait(20)
            return
        barrier.wait(20)
        try:
            with engine.begin() as db:
                fence.close(db, 7, token, state=f"closed by {token}")
            closed.append(token)
        except StaleToken:
            pass

    threads = [threading.Thread(target=hold, args=(token,)) for token in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert closed == [8]
    assert state(engine) == ("closed by 8", 8)


def test_the_first_intention_stands_whatever_a_later_attempt_would_say(engine: Engine) -> None:
    outbox = Outbox(OUTBOX)
    with engine.begin() as db:
        outbox.intend(db, "key", "7", {"amount": 1250})

    with engine.begin() as db:
        bill = outbox.intend(db, "key", "7", {"amount": 9999})

    assert bill.payload == {"amount": 1250}
    assert bill.answer is None


def test_an_intention_that_was_not_committed_was_never_there(engine: Engine) -> None:
    outbox = Outbox(OUTBOX)
    with pytest.raises(RuntimeError), engine.begin() as db:
        outbox.intend(db, "key", "7", {"amount": 1})
        raise RuntimeError("crash before the commit")

    with engine.begin() as db:
        assert outbox.intend(db, "key", "7", {"amount": 1250}).payload == {"amount": 1250}


def test_the_first_answer_stands_and_ends_the_waiting(engine: Engine) -> None:
    outbox = Outbox(OUTBOX)
    with engine.begin() as db:
        outbox.intend(db, "one", "7", {})
        outbox.intend(db, "two", "8", {})
        assert [bill.key for bill in outbox.unanswered(db)] == ["one", "two"]

    with engine.begin() as db:
        outbox.record(db, "one", {"charge": 31})
        outbox.record(db, "one", {"charge": 32})

        assert [bill.key for bill in outbox.unanswered(db)] == ["two"]
        assert outbox.intend(db, "one", "7", {}).answer == {"charge": 31}


def test_an_answer_to_what_was_never_meant_is_named(engine: Engine) -> None:
    with pytest.raises(NotInTable), engine.begin() as db:
        Outbox(OUTBOX).record(db, "nobody's", {})
