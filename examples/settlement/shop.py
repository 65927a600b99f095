"""The shop: customers keep ordering. Orders arrive at a rate until there are as many as wanted.

python shop.py --database URL --orders 5000 --rate 400
"""

from __future__ import annotations

import argparse
import random
import time

from schema import CUSTOMERS, METADATA, ORDERS, connect
from sqlalchemy import func, insert, select
from sqlalchemy.exc import OperationalError

CUSTOMER_COUNT = 100
AT_ONCE = 20  # orders in one transaction


def main() -> None:
    parser = argparse.ArgumentParser(description="Orders, arriving continuously.")
    parser.add_argument("--database", required=True, metavar="URL")
    parser.add_argument("--orders", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=400.0, help="orders per second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    engine, rng = connect(options.database), random.Random(options.seed)
    METADATA.create_all(engine)
    with engine.begin() as db:
        if not db.scalar(select(func.count()).select_from(CUSTOMERS)):
            people = [{"id": n, "name": f"Customer {n}"} for n in range(1, CUSTOMER_COUNT + 1)]
            db.execute(insert(CUSTOMERS), people)
        number = db.scalar(select(func.max(ORDERS.c.id))) or 0

    started = time.monotonic()
    begun_with = number
    while number < options.orders:
        batch = [
            {
                "id": each,
                "customer": rng.randint(1, CUSTOMER_COUNT),
                "cents": rng.randint(100, 50_000),
                "ordered_time": time.time(),
            }
            for each in range(number + 1, min(number + AT_ONCE, options.orders) + 1)
        ]
        try:
            with engine.begin() as db:
                db.execute(insert(ORDERS), batch)
        except OperationalError:  # the database is being restarted: look how far we are
            time.sleep(0.2)
            number = _newest(engine, number)
            continue
        number = batch[-1]["id"]
        ahead = (number - begun_with) / options.rate - (time.monotonic() - started)
        time.sleep(max(0.0, ahead))


def _newest(engine, number: int) -> int:  # type: ignore[no-untyped-def]
    try:
        with engine.begin() as db:
            return db.scalar(select(func.max(ORDERS.c.id))) or 0
    except OperationalError:
        return number


if __name__ == "__main__":
    main()
