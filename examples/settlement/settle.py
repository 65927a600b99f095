"""A settlement server: charges pending orders and closes them, beside any number of others.

Orders are picked from the database by every server; a claim decides who works on one, the fence
keeps whoever lost a claim from writing, and the outbox makes one charge of all attempts.

    python settle.py --database URL --gateway HOST:PORT --zookeeper HOSTS --threads 4

It ends by SIGTERM, after what it has begun.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import threading

from bank import Bank, Declined
from schema import FENCE, ORDERS, OUTBOX, connect
from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

import incumbent
from incumbent.blocking_work import Claim, Work
from incumbent.errors import IncumbentError

BATCH = 50


class Settlement:
    """One server."""

    def __init__(self, engine: Engine, gateway: str, name: str) -> None:
        self._engine = engine
        self._gateway = gateway
        self._name = name
        self._banks = threading.local()

    def pending(self) -> list[str]:
        """Some of what there is to do, as far as this look at the database shows: not the same for
        every thread, so that they do not all ask for the same claims."""
        with self._engine.begin() as db:
            query = select(ORDERS.c.id).where(ORDERS.c.state == "PENDING").order_by(ORDERS.c.id)
            found = [str(each) for each in db.scalars(query.limit(10 * BATCH))]
        return random.sample(found, min(BATCH, len(found)))

    def settle(self, claim: Claim) -> None:
        """Charge and close one order. May be called again after a crash at any point of it."""
        number = int(claim.item)
        with self._engine.begin() as db:
            order = FENCE.read(db, number, claim.fencing_token)
            if order.state != "PENDING":
                return
            wish = {"order": order.id, "cents": order.cents}
            bill = OUTBOX.intend(db, claim.key, claim.item, wish)
        claim.ensure()
        receipt = bill.answer or self._bank().charge(bill.payload, claim.key)
        with self._engine.begin() as db:
            OUTBOX.record(db, claim.key, receipt)
            FENCE.close(
                db,
                number,
                claim.fencing_token,
                state="CLOSED",
                closed_by=self._name,
                charge=receipt["charge"],
            )

    def _bank(self) -> Bank:
        if not hasattr(self._banks, "mine"):
            self._banks.mine = Bank(self._gateway)
        return self._banks.mine


def work_on(settlement: Settlement, work: Work, stop: threading.Event) -> None:
    """One thread: claim a batch in one flight, settle it, look again."""
    while not stop.is_set():
        try:
            for claim in work.claims(settlement.pending(), batch=BATCH):
                if stop.is_set():
                    break
                try:
                    settlement.settle(claim)
                except (Declined, SQLAlchemyError) as error:
                    claim.fail(str(error), retry_in=0.2)
        except (IncumbentError, SQLAlchemyError) as error:  # a claim lost, ZooKeeper away, …
            print(f"looks again: {error}", flush=True)
        stop.wait(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description="A settlement server; run as many as you like.")
    parser.add_argument("--database", required=True, metavar="URL")
    parser.add_argument("--gateway", required=True, metavar="HOST:PORT")
    where = os.environ.get("INCUMBENT_ZOOKEEPER", "127.0.0.1:2181")
    parser.add_argument("--zookeeper", default=where, metavar="HOSTS")
    parser.add_argument("--threads", type=int, default=4)
    name = os.environ.get("INCUMBENT_SEAT", f"settlement-{os.getpid()}")
    parser.add_argument("--name", default=name)
    options = parser.parse_args()

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settlement = Settlement(connect(options.database), options.gateway, options.name)
    with (
        incumbent.connect(options.zookeeper, session_timeout=2.0, insecure=True) as zk,
        zk.work("/settlement", lag=0.1) as work,
    ):
        threads = [
            threading.Thread(target=work_on, args=(settlement, work, stop))
            for _ in range(options.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
