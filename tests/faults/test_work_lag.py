"""Two servers, each with a database of its own, and changes that reach the other 500 ms later.

To read an order again under a claim does not help: the copy that is read lags. What helps is the
mark that a claim's end leaves, kept longer than the lag. The control without it must be caught.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import incumbent
from incumbent.errors import NodeExists
from incumbent.sync import Zk
from incumbent.testing import EmbeddedServer

LAG = 0.5  # seconds
ORDERS = [str(number) for number in range(30)]


class Copy:
    """One server's database; what is closed here is closed at the other one after the lag."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.other: Copy | None = None
        self.late: list[threading.Timer] = []
        with closing(sqlite3.connect(file)) as db, db:
            db.execute("CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT)")
            db.executemany("INSERT INTO orders VALUES (?, 'PENDING')", [(o,) for o in ORDERS])

    def pending(self) -> list[str]:
        with closing(sqlite3.connect(self.file)) as db:
            return [r[0] for r in db.execute("SELECT id FROM orders WHERE state = 'PENDING'")]

    def close(self, order: str) -> None:
        self._write(order)
        assert self.other is not None
        timer = threading.Timer(LAG, self.other._write, [order])
        self.late.append(timer)
        timer.start()

    def _write(self, order: str) -> None:
        with closing(sqlite3.connect(self.file, timeout=20)) as db, db:
            db.execute("UPDATE orders SET state = 'CLOSED' WHERE id = ?", (order,))


Charge = Callable[[str], None]
Settle = Callable[[Zk, Copy, Charge], None]


def settle_with_claims(zk: Zk, copy: Copy, charge: Charge) -> None:
    with zk.work("/settlement", lag=LAG, keep_done=60) as work:
        while pending := copy.pending():
            for claim in work.claims(pending, batch=5):
                if claim.item in copy.pending():
                    charge(claim.item)
                    copy.close(claim.item)
            time.sleep(0.01)


def settle_by_reading_again(zk: Zk, copy: Copy, charge: Charge) -> None:
    """The control: a znode while it is worked on, and a look at the database under it."""
    while pending := copy.pending():
        for order in pending:
            try:
                zk.create(f"/naive-{order}", ephemeral=True)
            except NodeExists:
                continue
            if order in copy.pending():
                charge(order)
                copy.close(order)
            zk.delete(f"/naive-{order}")


@contextmanager
def two_copies(folder: Path) -> Iterator[tuple[Copy, Copy]]:
    one, two = Copy(folder / "one.db"), Copy(folder / "two.db")
    one.other, two.other = two, one
    yield one, two
    for timer in [*one.late, *two.late]:
        timer.join()


def charges(folder: Path, settle: Settle) -> Counter[str]:
    """How often each order was charged by two servers."""
    charged: Counter[str] = Counter()
    lock = threading.Lock()
    failures: list[BaseException] = []

    def charge(order: str) -> None:
        with lock:
            charged[order] += 1

    def serve(hosts: str, copy: Copy) -> None:
        try:
            with incumbent.connect(hosts) as zk:
                settle(zk, copy, charge)
        except BaseException as error:
            failures.append(error)
            raise

    with EmbeddedServer() as server, two_copies(folder) as copies:
        threads = [threading.Thread(target=serve, args=(server.hosts, copy)) for copy in copies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert not failures
    return charged


def test_reading_a_lagging_copy_again_under_a_claim_bills_twice(tmp_path: Path) -> None:
    charged = charges(tmp_path, settle_by_reading_again)

    assert max(charged.values()) > 1


def test_the_mark_of_a_claims_end_outlives_the_lag_and_each_is_billed_once(
    tmp_path: Path,
) -> None:
    charged = charges(tmp_path, settle_with_claims)

    assert charged == dict.fromkeys(ORDERS, 1)
