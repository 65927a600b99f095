"""kazoo's recipes under measurement.

usage: recipes_kazoo.py HOSTS TASK PATH SECONDS
Says `ready`, waits for a line, and then says `result VALUE`.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Callable

from kazoo.client import KazooClient

SESSION = 30.0


def ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def session(hosts: str) -> KazooClient:
    client = KazooClient(hosts, timeout=SESSION)
    client.start()
    return client


def cycles(client: KazooClient, task: str, path: str, seconds: float) -> float:
    lock = client.Lock(path)
    semaphore = client.Semaphore(f"{path}-s", max_leases=1)
    queue, counter = client.Queue(path), client.Counter(f"{path}-counter")

    def once() -> None:
        nonlocal counter
        match task:
            case "lock" | "holds":
                with lock:
                    pass
            case "semaphore":
                with semaphore:
                    pass
            case "queue":
                queue.put(b"x")
                queue.get()
            case "counter":
                counter += 1

    once()
    ready()
    count, began = 0, time.monotonic()
    while (took := time.monotonic() - began) < seconds:
        once()
        count += 1
    return count / took


def rounds(client: KazooClient, hosts: str, path: str, seconds: float) -> float:
    other = session(hosts)
    counts, is_over = {}, threading.Event()

    def member(who: KazooClient) -> None:
        barrier = who.DoubleBarrier(path, 2)
        counts[who] = 0
        while not is_over.is_set():
            barrier.enter()
            barrier.leave()
            counts[who] += 1

    ready()
    began = time.monotonic()
    for who in (client, other):
        threading.Thread(target=member, args=(who,), daemon=True).start()
    time.sleep(seconds)
    result = counts[client] / (time.monotonic() - began)
    is_over.set()
    return result


def handover(client: KazooClient, hosts: str, path: str, samples: int) -> float:
    other = session(hosts)
    took: list[float] = []
    free_at = 0.0
    ready()

    def stand(who: KazooClient, have: threading.Event, give: threading.Event) -> None:
        def lead() -> None:
            nonlocal free_at
            took.append((time.monotonic() - free_at) * 1000)
            have.set()
            give.wait()
            free_at = time.monotonic()

        who.Election(path).run(lead)

    def begin(who: KazooClient) -> tuple[threading.Event, threading.Event]:
        have, give = threading.Event(), threading.Event()
        threading.Thread(target=stand, args=(who, have, give), daemon=True).start()
        return have, give

    have, give = begin(client)
    have.wait()
    for number in range(samples):
        next_have, next_give = begin(other if number % 2 == 0 else client)
        time.sleep(0.05)
        give.set()
        next_have.wait()
        give = next_give
    give.set()
    return statistics.median(took[1:])


def crowd(client: KazooClient, path: str, count: int, are_elections: bool) -> float:
    led: list[int] = []
    forever = threading.Event()
    client.ensure_path(path)
    ready()
    began = time.monotonic()

    def lead(number: int) -> None:
        def leads() -> None:
            led.append(number)
            forever.wait()

        if are_elections:
            client.Election(f"{path}/{number}").run(leads)
        else:
            client.Lock(path).acquire()
            forever.wait()

    for number in range(count):
        threading.Thread(target=lead, args=(number,), daemon=True).start()
    until(lambda: len(led) == count if are_elections else numbers(client, path) == count)
    took = time.monotonic() - began
    print(f"threads {threading.active_count()}", flush=True)
    return took


def numbers(client: KazooClient, path: str) -> int:
    return client.get(path)[1].numChildren


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.02)


def far(client: KazooClient, path: str, samples: int) -> float:
    client.ensure_path(path)
    ready()
    took = []
    for _ in range(samples):
        began = time.monotonic()
        with client.Lock(path):
            took.append((time.monotonic() - began) * 1000)
        time.sleep(0.2)
    return statistics.median(took)


def main(hosts: str, task: str, path: str, amount: float) -> None:
    client = session(hosts)
    match task:
        case "barrier":
            result = rounds(client, hosts, path, amount)
        case "handover":
            result = handover(client, hosts, path, int(amount))
        case "elections" | "contenders":
            result = crowd(client, path, int(amount), task == "elections")
        case "far":
            result = far(client, path, int(amount))
        case _:
            result = cycles(client, task, path, amount)
    print(f"result {result}", flush=True)
    os._exit(0)  # threads that wait for ever are not joined


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
