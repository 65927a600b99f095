"""A KeyboardInterrupt at each single step of blocking code leaves nothing of ours behind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from tests.interrupting import interrupt_at_step
from tests.waiting import wait_until

import incumbent
from incumbent import sync
from incumbent.testing import EmbeddedServer

BLOCKS: dict[str, Callable[[sync.Zk], AbstractContextManager[Any]]] = {
    "lock": lambda zk: zk.lock("/x"),
    "reentrant lock": lambda zk: zk.lock("/x", reentrant=True),
    "reader": lambda zk: zk.rwlock("/x").read(),
    "semaphore": lambda zk: zk.semaphore("/s", size=1).acquire(),
    "multilock": lambda zk: zk.multilock(["/x"]).acquire(),
    "lead": lambda zk: zk.lead("/x"),
    "election": lambda zk: zk.election("/x").lead(),
    "terms": lambda zk: next(zk.election("/x").terms()),
    "standings": lambda zk: zk.election("/x").observe(),
    "double barrier": lambda zk: zk.double_barrier("/x", 1),
    "group": lambda zk: zk.group("/x").join("me"),
    "rosters": lambda zk: zk.group("/x").observe(),
    "cache": lambda zk: zk.cache("/x"),
    "changes": lambda zk: _changes(zk),
    "watch": lambda zk: zk.watch("/x"),
    "following": lambda zk: zk.value("/x").follow(),
    "items": lambda zk: zk.queue("/x").items(),
    "work": lambda zk: zk.work("/w"),
    "work queue": lambda zk: zk.work_queue("/x"),
}


@contextlib.contextmanager
def _changes(zk: sync.Zk) -> Iterator[object]:
    with zk.cache("/x") as cache, cache.changes() as changes:
        yield changes


def _is_blocking_code(file: str) -> bool:
    name = file.rpartition("/")[2]
    return name.startswith("blocking") or name in ("sync.py", "portal.py", "contextlib.py")


@pytest.mark.parametrize("block", BLOCKS)
def test_interrupted_at_any_step_nothing_is_left_and_the_next_block_is_served(
    zookeeper: EmbeddedServer, block: str
) -> None:
    with (
        incumbent.connect(zookeeper.hosts, tick=0.0) as zk,
        incumbent.connect(zookeeper.hosts, tick=0.0) as other,
    ):
        zk.ensure("/x")
        zk.semaphore("/s").resize(1)

        def go_through() -> None:
            with BLOCKS[block](zk):
                pass

        def is_tidy() -> bool:
            zk.exists("/x")  # comes behind all that the interruption has posted
            standing = other.children("/x") + other.children("/s/queue")
            return not standing and len(zk._zk.client._watches) == 0

        go_through()
        zk.ensure("/s/queue")
        step = 1
        while interrupt_at_step(step, _is_blocking_code, go_through):
            wait_until(is_tidy, 5, f"nothing to be left after step {step}")
            step += 1
        assert step > 100
