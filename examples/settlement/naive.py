"""The settlement as it is often published, with its holes: it bills customers twice.

    for each order that was read as pending:
        if it is not closed, and its znode does not exist:
            create the znode; charge; set CLOSED; delete the znode

Whoever has read "pending" and asks for the znode after the other one has deleted it goes on with
its stale read. A crash between charge and CLOSED charges again, and so does a session that ends
while the charge is under way. `settle.py` beside it has none of these.

    python naive.py --database URL --gateway HOST:PORT --zookeeper HOSTS --threads 4
"""

from __future__ import annotations

import argparse
import os
import threading
from contextlib import suppress

from bank import Bank, Declined
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from schema import ORDERS, connect
from sqlalchemy import Engine, select, update
from sqlalchemy.exc import SQLAlchemyError


def settle(engine: Engine, zk: KazooClient, bank: Bank, name: str) -> None:
    """One pass over what is pending."""
    with engine.begin() as db:
        query = select(ORDERS).where(ORDERS.c.state == "PENDING").order_by(ORDERS.c.id).limit(50)
        pending = list(db.execute(query))
    for order in pending:
        with engine.begin() as db:
            state = db.scalar(select(ORDERS.c.state).where(ORDERS.c.id == order.id))
        znode = f"/naive/{order.id}"
        if state == "CLOSED" or zk.exists(znode):
            continue
        zk.create(znode, ephemeral=True, makepath=True)
        receipt = bank.charge({"order": order.id, "cents": order.cents})
        with engine.begin() as db:
            values = {"state": "CLOSED", "closed_by": name, "charge": receipt["charge"]}
            db.execute(update(ORDERS).where(ORDERS.c.id == order.id).values(values))
        zk.delete(znode)


def work(engine: Engine, zk: KazooClient, gateway: str, name: str) -> None:
    bank = Bank(gateway)
    while True:
        with suppress(KazooException, Declined, SQLAlchemyError):
            settle(engine, zk, bank, name)


def main() -> None:
    parser = argparse.ArgumentParser(description="A settlement server that bills twice.")
    parser.add_argument("--database", required=True, metavar="URL")
    parser.add_argument("--gateway", required=True, metavar="HOST:PORT")
    where = os.environ.get("INCUMBENT_ZOOKEEPER", "127.0.0.1:2181")
    parser.add_argument("--zookeeper", default=where, metavar="HOSTS")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--session", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--name", default=f"naive-{os.getpid()}")
    options = parser.parse_args()

    engine = connect(options.database)
    zk = KazooClient(options.zookeeper, timeout=options.session)
    zk.start()
    threads = [
        threading.Thread(target=work, args=(engine, zk, options.gateway, options.name))
        for _ in range(options.threads)
    ]
    for thread in threads:
        thread.start()


if __name__ == "__main__":
    main()
