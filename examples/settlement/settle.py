"""A settlement server: charges pending orders and closes them, beside any number of others.

Orders are picked from the database by every server; a claim decides who works on one, the fence
keeps whoever lost a claim from writing, and the outbox makes one charge of all attempts.

    python settle.py --database URL --gateway HOST:PORT --zookeeper HOSTS --threads 4

It ends by SIGTERM, after what it has begun.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading

from bank import Bank
from schema import FENCE, ORDERS, OUTBOX, connect
from sqlalchemy import Engine, select

import incumbent
from incumbent.blocking_work import Claim

AT_ONCE = 500  # orders in one look at the database
TRIES = 50  # then people have to look at an order: `incumbent work parked`


class Settlement:
    """One server."""

    def __init__(self, engine: Engine, gateway: str, name: str) -> None:
        self._engine = engine
        self._gateway = gateway
        self._name = name
        self._banks = threading.local()

    def pending(self) -> list[str]:
        """What there is to do, as far as this look at the database shows."""
        with self._engine.begin() as db:
            query = select(ORDERS.c.id).where(ORDERS.c.state == "PENDING").order_by(ORDERS.c.id)
            return [str(each) for each in db.scalars(query.limit(AT_ONCE))]

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


def main() -> None:
    parser = argparse.ArgumentParser(description="A settlement server; run as many as you like.")
    parser.add_argument("--database", required=True, metavar="URL")
    parser.add_argument("--gateway", required=True, metavar="HOST:PORT")
    where = os.environ.get("INCUMBENT_ZOOKEEPER", "127.0.0.1:2181")
    parser.add_argument("--zookeeper", default=where, metavar="HOSTS")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--session", type=float, default=2.0, metavar="SECONDS")
    name = os.environ.get("INCUMBENT_SEAT", f"settlement-{os.getpid()}")
    parser.add_argument("--name", default=name)
    options = parser.parse_args()

    settlement = Settlement(connect(options.database), options.gateway, options.name)
    with (
        incumbent.connect(
            options.zookeeper, timeout=600, session_timeout=options.session, insecure=True
        ) as zk,
        zk.work("/settlement", lag=0.1) as work,
    ):
        signal.signal(signal.SIGTERM, lambda *_: work.stop())
        done = work.run(
            settlement.pending, settlement.settle, workers=options.threads, tries=TRIES, idle=0.1
        )
        print(f"{options.name}: {done}", flush=True)


if __name__ == "__main__":
    main()
