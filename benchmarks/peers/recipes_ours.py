"""Our recipes under measurement, in an asyncio program, in one on uvloop, or in blocking code.

usage: recipes_ours.py HOSTS [uvloop-|blocking-]TASK PATH SECONDS
Says `ready`, waits for a line, and then says `result VALUE THREADS`.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import incumbent
from incumbent import aio

SESSION = 30.0


def ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


async def is_ready() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def rate(once: Callable[[], Awaitable[object]], seconds: float) -> float:
    await once()
    await is_ready()
    count, began = 0, time.monotonic()
    while (took := time.monotonic() - began) < seconds:
        await once()
        count += 1
    return count / took


async def cycles(zk: aio.Zk, task: str, path: str, seconds: float) -> float:
    queue, counter = zk.queue(path), zk.counter(f"{path}-counter")

    async def lock() -> None:
        async with zk.lock(path):
            pass

    async def semaphore() -> None:
        async with zk.semaphore(f"{path}-s", size=1).acquire():
            pass

    async def item() -> None:
        await queue.put(b"x")
        await items.take()

    kinds = {"lock": lock, "holds": lock, "semaphore": semaphore, "queue": item}
    async with queue.items() as items:
        return await rate(kinds.get(task, lambda: counter.add(1)), seconds)


async def rounds(zk: aio.Zk, hosts: str, path: str, seconds: float) -> float:
    """Of a double barrier for two."""
    async with session(hosts) as other:
        until = 0.0

        async def member(who: aio.Zk) -> int:
            count, barrier = 0, who.double_barrier(path, 2)
            for _ in range(100_000):
                async with barrier:
                    is_over = time.monotonic() > until
                count += 1
                if is_over:
                    return count
            return count

        await is_ready()
        began = time.monotonic()
        until = began + seconds
        first = asyncio.ensure_future(member(zk))
        second = asyncio.ensure_future(member(other))
        done, waiting = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        count, took = next(iter(done)).result(), time.monotonic() - began
        for each in waiting:
            each.cancel()
        return count / took


async def handover(zk: aio.Zk, hosts: str, path: str, samples: int) -> float:
    """Milliseconds from the end of one block to the beginning of the next one's, median."""
    async with session(hosts) as other:
        took: list[float] = []
        free_at = 0.0
        await is_ready()

        async def stand(who: aio.Zk, have: asyncio.Event, give: asyncio.Event) -> None:
            nonlocal free_at
            async with who.lead(path):
                took.append((time.monotonic() - free_at) * 1000)
                have.set()
                await give.wait()
                free_at = time.monotonic()

        have, give = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(stand(zk, have, give))
        await have.wait()
        for number in range(samples):
            next_have, next_give = asyncio.Event(), asyncio.Event()
            who = other if number % 2 == 0 else zk
            following = asyncio.create_task(stand(who, next_have, next_give))
            await asyncio.sleep(0.05)
            give.set()
            await next_have.wait()
            task, give = following, next_give
        give.set()
        await task
        return statistics.median(took[1:])


async def crowd(zk: aio.Zk, path: str, count: int, are_elections: bool) -> float:
    """Seconds until all lead, each in its own election; or all stand in one queue."""
    led = 0
    stood = asyncio.Event()

    async def lead(number: int) -> None:
        nonlocal led
        where = f"{path}/{number}" if are_elections else path
        async with zk.lock(where):
            led += 1
            if led == count:
                stood.set()
            await asyncio.sleep(3600)

    await zk.ensure(path)
    await is_ready()
    began = time.monotonic()
    tasks = [asyncio.create_task(lead(number)) for number in range(count)]
    if are_elections:
        await stood.wait()
    else:
        while (await zk.children_and_stat(path))[1].numChildren < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    took = time.monotonic() - began
    print(f"threads {threading.active_count()}", flush=True)
    for task in tasks:
        task.cancel()
    return took


async def far(zk: aio.Zk, path: str, samples: int) -> float:
    """Milliseconds until the lock is held, the directory being there; median."""
    await zk.create(path, container=True, parents=True)
    await is_ready()
    took = []
    for _ in range(samples):
        began = time.monotonic()
        async with zk.lock(path):
            took.append((time.monotonic() - began) * 1000)
        await asyncio.sleep(0.2)
    return statistics.median(took)


def session(hosts: str) -> aio.Connecting:
    return aio.connect(hosts, session_timeout=SESSION, tick=0)


async def main(hosts: str, task: str, path: str, amount: float) -> None:
    async with session(hosts) as zk:
        match task:
            case "barrier":
                result = await rounds(zk, hosts, path, amount)
            case "handover":
                result = await handover(zk, hosts, path, int(amount))
            case "elections" | "contenders":
                result = await crowd(zk, path, int(amount), task == "elections")
            case "far":
                result = await far(zk, path, int(amount))
            case _:
                result = await cycles(zk, task, path, amount)
        print(f"result {result}", flush=True)


def blocking(hosts: str, task: str, path: str, seconds: float) -> None:
    with incumbent.connect(hosts, session_timeout=SESSION, tick=0) as zk, ExitStack() as stack:
        queue, counter = zk.queue(path), zk.counter(f"{path}-counter")

        items = stack.enter_context(queue.items())

        def once() -> None:
            match task:
                case "lock" | "holds":
                    with zk.lock(path):
                        pass
                case "semaphore":
                    with zk.semaphore(f"{path}-s", size=1).acquire():
                        pass
                case "queue":
                    queue.put(b"x")
                    items.take()
                case "counter":
                    counter.add(1)

        once()
        ready()
        count, began = 0, time.monotonic()
        while (took := time.monotonic() - began) < seconds:
            once()
            count += 1
        print(f"result {count / took}", flush=True)


if __name__ == "__main__":
    _, where, what, znode, much = sys.argv
    if what.startswith("blocking-"):
        blocking(where, what.removeprefix("blocking-"), znode, float(much))
    elif what.startswith("uvloop-"):
        import uvloop

        uvloop.run(main(where, what.removeprefix("uvloop-"), znode, float(much)))
    else:
        asyncio.run(main(where, what, znode, float(much)))
