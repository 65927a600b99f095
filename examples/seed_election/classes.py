"""The same election as a class: one task while it leads, another while it follows.

python classes.py [HOST:PORT] [--path /election] [--every SECONDS]
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread

from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import KazooTimeoutError


class Candidate:
    """One who stands in the election at `path`. `run` returns why it no longer does."""

    def __init__(self, hosts: str, path: str, prefix: str, every: float) -> None:
        self.hosts = hosts
        self.path = path
        self.prefix = prefix
        self.every = every
        self.node = ""
        self._client = KazooClient(hosts=hosts)
        self._client.add_listener(self._on_state)
        self._changed = Event()  # look at the queue again
        self._is_lost = False
        self._task: Thread | None = None
        self._task_over = Event()

    def run(self) -> str:
        """Connect, stand, and play our role until the session or our znode is gone."""
        try:
            self._client.start(timeout=5)
        except KazooTimeoutError:
            return f"no ZooKeeper answers at {self.hosts}; `incumbent server` starts one"
        try:
            self._stand()
            while not self._is_lost:
                self._changed.clear()
                children = sorted(self._client.get_children(self.path))
                if self.node not in children:
                    return f"{self.node} was deleted by somebody"
                self._take_role(children)
                self._changed.wait()
                self._end_task()
            return "the session is lost"
        finally:
            self._end_task()
            self._client.stop()  # our znode goes with the session, at once
            self._client.close()

    def leader_task(self, over: Event) -> None:
        """What the leader does, until `over` is set."""
        while True:
            say(f"Process {os.getpid()} is doing leader work")
            if over.wait(self.every):
                return

    def follower_task(self, over: Event) -> None:
        """What everybody else does meanwhile."""
        while True:
            say(f"Process {os.getpid()} is waiting")
            if over.wait(self.every):
                return

    def _stand(self) -> None:
        self._client.ensure_path(self.path)
        made = self._client.create(f"{self.path}/{self.prefix}", ephemeral=True, sequence=True)
        self.node = made.rsplit("/", 1)[1]

    def _take_role(self, children: list[str]) -> None:
        place = children.index(self.node)
        if place == 0:
            say(f"{self.node} is the leader")
            self._begin_task(self.leader_task)
            return
        previous = children[place - 1]
        say(f"{self.node} is not the leader, watching {previous}")
        self._begin_task(self.follower_task)
        self._client.DataWatch(f"{self.path}/{previous}", self._on_previous)

    def _begin_task(self, task: Callable[[Event], None]) -> None:
        self._task_over = Event()
        self._task = Thread(target=task, args=(self._task_over,), daemon=True)
        self._task.start()

    def _end_task(self) -> None:
        """A role's task has ended before the next role begins."""
        self._task_over.set()
        if self._task is not None:
            self._task.join()

    def _on_previous(self, _data: bytes | None, stat: object) -> bool | None:
        if stat is not None:
            return None
        self._changed.set()  # it is gone, or was gone already
        return False  # and this watch is over

    def _on_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self._is_lost = True
            self._changed.set()


def say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("hosts", nargs="?", default=os.environ.get("HOSTS", "127.0.0.1:2181"))
    parser.add_argument("--path", default="/election")
    parser.add_argument("--prefix", default="node_")
    parser.add_argument("--every", type=float, default=5.0, metavar="SECONDS")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with suppress(KeyboardInterrupt):
        sys.exit(Candidate(options.hosts, options.path, options.prefix, options.every).run())


if __name__ == "__main__":
    main()
