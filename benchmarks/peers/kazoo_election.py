"""kazoo's Election: says `leader` when it leads; at SIGTERM `releasing`, and gives it up.

usage: kazoo_election.py HOSTS PATH NAME SESSION_SECONDS
"""

from __future__ import annotations

import signal
import sys
import threading

from kazoo.client import KazooClient

told = threading.Event()


def lead() -> None:
    print("leader", flush=True)
    told.wait()
    print("releasing", flush=True)


def main(hosts: str, path: str, name: str, session: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    client = KazooClient(hosts, timeout=float(session))
    client.start()
    print("standing", flush=True)
    client.Election(path, name).run(lead)
    client.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
