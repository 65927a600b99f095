"""The leader election that tutorials teach, step by step, on kazoo.

    python procedural.py [HOST:PORT] [--path /election] [--every SECONDS]

Start it in three terminals, then end the leader: the next one takes over, and the third, which
watches only the one before it, hears nothing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from threading import Event

from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import KazooTimeoutError


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("hosts", nargs="?", default=os.environ.get("HOSTS", "127.0.0.1:2181"))
    parser.add_argument("--path", default="/election")
    parser.add_argument("--prefix", default="node_")
    parser.add_argument("--every", type=float, default=5.0, metavar="SECONDS")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    client = KazooClient(hosts=options.hosts)
    changed, lost = Event(), Event()

    def on_state(state: str) -> None:  # called by kazoo's thread: no requests from here
        if state == KazooState.LOST:
            lost.set()
            changed.set()

    client.add_listener(on_state)
    try:
        client.start(timeout=5)
    except KazooTimeoutError:
        sys.exit(f"no ZooKeeper answers at {options.hosts}; `incumbent server` starts one")
    try:
        stand(client, f"{options.path}/{options.prefix}", options.every, changed, lost)
    except KeyboardInterrupt:
        pass
    finally:  # closing the session deletes our znode at once; just dying would take the timeout
        client.stop()
        client.close()


def stand(client: KazooClient, stem: str, every: float, changed: Event, lost: Event) -> None:
    """Make our znode, then lead or wait, until the session is lost."""
    path = stem.rsplit("/", 1)[0]
    client.ensure_path(path)
    made = client.create(stem, ephemeral=True, sequence=True)
    node = made.rsplit("/", 1)[1]

    def on_previous(_data: bytes | None, stat: object) -> bool | None:
        if stat is not None:
            return None
        changed.set()  # it is gone, or was gone already: look again
        return False  # and this watch is over

    while not lost.is_set():
        changed.clear()
        children = sorted(client.get_children(path))
        if node not in children:
            sys.exit(f"{node} was deleted by somebody")
        place = children.index(node)
        if place == 0:
            say(f"{node} is the leader")
            doing = "doing leader work"
        else:
            previous = children[place - 1]
            say(f"{node} is not the leader, watching {previous}")
            client.DataWatch(f"{path}/{previous}", on_previous)
            doing = "waiting"
        while True:
            say(f"Process {os.getpid()} is {doing}")
            if changed.wait(every):
                break
    sys.exit("the session is lost")


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
