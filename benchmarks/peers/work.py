"""One worker that does orders, each once, under measurement.

usage: work.py TASK WHERE PATH SECONDS
Says `ready`, waits for a line, and then says `result ORDERS_PER_SECOND`. The handling of an order
is nothing, so that what is measured is what doing it once costs.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator

SESSION = 30.0
PRELOADED = 20_000  # orders that are there before the measurement begins


def ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def rate(once: Callable[[], object], seconds: float) -> float:
    count, began = 0, time.monotonic()
    while (took := time.monotonic() - began) < seconds:
        if once() is None:
            break
        count += 1
    return count / took


def names(path: str) -> Iterator[str]:
    return (f"order-{os.getpid()}-{number}" for number in itertools.count())


def claims(where: str, path: str, seconds: float) -> float:
    import incumbent

    with incumbent.connect(where, session_timeout=SESSION) as zk, zk.work(path) as work:
        for _ in work.claims(f"warm-{number}" for number in range(500)):
            pass
        ready()
        count, began = 0, time.monotonic()
        for _claim in work.claims(names(path), batch=500):
            count += 1
            if time.monotonic() - began >= seconds:
                break
        work.__exit__(None, None, None)  # every mark is written
        return count / (time.monotonic() - began)


def run(where: str, path: str, seconds: float) -> float:
    from incumbent import aio
    from incumbent.work import Claim

    async def main() -> float:
        async with (
            aio.connect(where, session_timeout=SESSION) as zk,
            zk.work(path) as work,
        ):
            ready()
            source = names(path)
            asyncio.get_running_loop().call_later(seconds, work.stop)

            async def handle(claim: Claim) -> None:
                pass

            counters = await work.run(
                lambda: list(itertools.islice(source, 500)), handle, workers=64
            )
            return counters.done / counters.seconds

    return asyncio.run(main())


def kazoo_lock(where: str, path: str, seconds: float) -> float:
    from kazoo.client import KazooClient

    client = KazooClient(where, timeout=SESSION)
    client.start()
    numbers = itertools.count()

    def once() -> bool:
        lock = client.Lock(f"{path}/order-{os.getpid()}-{next(numbers)}")
        if lock.acquire(blocking=False):
            lock.release()
        return True

    once()
    ready()
    return rate(once, seconds)


def kazoo_queue(where: str, path: str, seconds: float) -> float:
    from kazoo.client import KazooClient

    client = KazooClient(where, timeout=SESSION)
    client.start()
    queue = client.LockingQueue(path)
    for start in range(0, 2_000, 500):
        queue.put_all([b"%d" % number for number in range(start, start + 500)])

    def once() -> object:
        found = queue.get(5)
        if found is not None:
            queue.consume()
        return found

    once()
    ready()
    return rate(once, seconds)


def postgres(where: str, path: str, seconds: float) -> float:
    import psycopg

    with psycopg.connect(where) as connection:
        table = path.strip("/").replace("-", "_")
        connection.execute(f"create table {table} (id int primary key, state int not null)")
        connection.execute(
            f"insert into {table} select n, 0 from generate_series(1, {PRELOADED}) as n"
        )
        connection.execute(f"create index on {table} (id) where state = 0")
        connection.commit()
        pick = f"select id from {table} where state = 0 order by id limit 1 for update skip locked"

        def once() -> object:
            found = connection.execute(pick).fetchone()
            if found is not None:
                connection.execute(f"update {table} set state = 1 where id = %s", found)
            connection.commit()
            return found

        once()
        ready()
        return rate(once, seconds)


TASKS = {
    "claims": claims,
    "run": run,
    "kazoo-lock": kazoo_lock,
    "kazoo-queue": kazoo_queue,
    "postgres": postgres,
}


def main() -> None:
    task, where, path, seconds = sys.argv[1:5]
    print("result", TASKS[task](where, path, float(seconds)), flush=True)


if __name__ == "__main__":
    main()
