"""The accountant: compares what was ordered, charged and closed, and believes nobody else.

    python accountant.py --database URL --gateway HOST:PORT [--orders N]

Exit code 0: every order was charged once, with its amount, and is closed. 1: not so.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request
from collections import defaultdict
from typing import Any

from schema import ORDERS, connect
from sqlalchemy import select


def compare(orders: list[Any], ledger: list[dict[str, Any]], expected: int | None) -> list[str]:
    """What is wrong, a line each with at most five examples."""
    charges = defaultdict(list)
    for charge in ledger:
        charges[charge["order"]].append(charge)
    known = {order.id for order in orders}
    wrong = {
        "charged more than once": [o for o, made in charges.items() if len(made) > 1],
        "charged with another amount": [
            o.id for o in orders if any(c["cents"] != o.cents for c in charges[o.id])
        ],
        "charged and not closed": [o.id for o in orders if o.state != "CLOSED" and charges[o.id]],
        "closed and not charged": [
            o.id for o in orders if o.state == "CLOSED" and not charges[o.id]
        ],
        "neither": [o.id for o in orders if o.state != "CLOSED" and not charges[o.id]],
        "closed with a charge that is not its own": [
            o.id
            for o in orders
            if o.state == "CLOSED" and o.charge not in [c["charge"] for c in charges[o.id]]
        ],
        "charged without an order": [o for o in charges if charges[o] and o not in known],
    }
    if expected is not None:
        wrong["lost"] = [number for number in range(1, expected + 1) if number not in known]
    return [
        f"{len(found)} orders {what}: {', '.join(map(str, sorted(found)[:5]))}"
        f"{', …' if len(found) > 5 else ''}"
        for what, found in wrong.items()
        if found
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Were all orders charged once and closed?")
    parser.add_argument("--database", required=True, metavar="URL")
    parser.add_argument("--gateway", required=True, metavar="HOST:PORT")
    parser.add_argument("--orders", type=int, help="how many there were to be")
    options = parser.parse_args()

    with urllib.request.urlopen(f"http://{options.gateway}/ledger", timeout=30) as answer:
        ledger = json.load(answer)
    with connect(options.database).begin() as db:
        orders = list(db.execute(select(ORDERS)))
    wrong = compare(orders, ledger, options.orders)
    if not orders:
        wrong.append("no orders at all: nothing was tried")
    closed = sum(order.state == "CLOSED" for order in orders)
    print(f"{len(orders)} orders, {closed} closed, {len(ledger)} charges")
    print("\n".join(f"WRONG  {each}" for each in wrong) or "every order charged once and closed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
