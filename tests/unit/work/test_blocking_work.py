"""Work for blocking code: the same, in threads, and a Ctrl-C that leaves nothing."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections import Counter as Tally
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.library_server import ServerProcess
from tests.waiting import wait_until

import incumbent
from incumbent import sync
from incumbent.errors import ClaimLost, Taken


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("work")) as server:
        yield server.hosts


@pytest.fixture
def zk(hosts: str) -> Iterator[sync.Zk]:
    with incumbent.connect(hosts, session_timeout=4, tick=0) as zk:
        yield zk


def test_each_item_is_done_once_by_two_who_share_a_list(zk: sync.Zk, hosts: str) -> None:
    done: list[str] = []
    with incumbent.connect(hosts, session_timeout=4, tick=0) as other:

        def go(zk: sync.Zk) -> None:
            with zk.work("/shared", lag=0.05) as work:
                for claim in work.claims((f"o{number}" for number in range(60)), batch=7):
                    done.append(claim.item)

        threads = [threading.Thread(target=go, args=(each,)) for each in (zk, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(done) == sorted(f"o{number}" for number in range(60))


def test_a_block_ends_done_failed_or_by_its_own_word(zk: sync.Zk) -> None:
    with zk.work("/ends", lag=0.02) as work:
        with work.claim("x") as claim:
            assert claim.remaining() > 0
            claim.ensure()
            with pytest.raises(Taken, match="works on it now"), work.claim("x"):
                pass
        with pytest.raises(KeyError), work.claim("y"):
            raise KeyError("so")
        with work.claim("z") as claim:
            claim.park("never")
        with pytest.raises(Taken, match="it is done"), work.claim("x"):
            pass

        assert [record.item for record in work.parked()] == ["z"]
        wait_until(lambda: (record := work.look("y")) is not None and record.failures == 1)
        work.retry("z")
        work.done("y")
        record = work.look("y")
        assert record is not None
        assert record.state == "done"
        assert work.look("z") is None


def test_a_break_gives_back_what_was_not_finished(zk: sync.Zk) -> None:
    with zk.work("/break", lag=0.02) as work:
        for claim in work.claims(["a", "b", "c"]):
            if claim.item == "b":
                break
    with zk.work("/break", lag=0.02) as work:
        assert [claim.item for claim in work.claims(["a", "b", "c"])] == ["b", "c"]


def test_run_calls_its_handlers_in_threads(zk: sync.Zk) -> None:
    done: Tally[str] = Tally()
    threads: set[int] = set()

    def handle(claim: sync.Claim) -> None:
        threads.add(threading.get_ident())
        time.sleep(0.005)  # so that several run at a time
        claim.ensure()
        done[claim.item] += 1

    with zk.work("/run", lag=0.02) as work:
        items = [f"o{number}" for number in range(30)]
        counters = work.run(lambda: items, handle, workers=4, until_empty=True, idle=0.05)

    assert counters.done == 30
    assert set(done.values()) == {1}
    assert 1 < len(threads) <= 4


def test_a_handler_that_exits_ends_the_run_and_not_the_session(zk: sync.Zk) -> None:
    with zk.work("/exits", lag=0.02) as work:
        with pytest.raises(SystemExit):
            work.run(lambda: ["x"], lambda claim: sys.exit(3), idle=0.05)
        with pytest.raises(SystemExit):
            work.run(lambda: sys.exit(3), lambda claim: None, idle=0.05)

        assert work.counters.running == 0
        work.done("y")


def test_stop_lets_the_handlers_finish(zk: sync.Zk) -> None:
    done: list[str] = []
    with zk.work("/stop", lag=0.02) as work:

        def handle(claim: sync.Claim) -> None:
            work.stop()
            done.append(claim.item)

        counters = work.run(lambda: ["a", "b"], handle, workers=1)

    assert counters.done == len(done) == 1


def test_a_lost_claim_is_set_for_its_handler(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ServerProcess(tmp_path))
        zk = incumbent.connect(server.hosts, session_timeout=2, tick=0)
        with zk, zk.work("/lost") as work, pytest.raises(ClaimLost), work.claim("x") as claim:
            stack.close()
            assert claim.lost.wait(10)
            assert claim.remaining() == 0


_PROGRAM = """
import sys, time, incumbent
with incumbent.connect(sys.argv[1], session_timeout=4, tick=0) as zk:
    with zk.work("/interrupted", lag=0.02) as work:
        def handle(claim):
            print("begun", flush=True)
            time.sleep(1)
            print("ended", flush=True)
        if sys.argv[2] == "run":
            work.run(lambda: ["x"], handle)
        elif sys.argv[2] == "claim":
            with work.claim("x") as claim:
                print("begun", flush=True)
                time.sleep(60)
        else:
            for claim in work.claims(["x", "y"]):
                print("begun", flush=True)
                time.sleep(60)
"""


@pytest.mark.parametrize("how", ["run", "claim", "claims"])
def test_ctrl_c_leaves_no_claim(zk: sync.Zk, hosts: str, how: str) -> None:
    zk.work("/interrupted").retry("x")
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, hosts, how], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "begun\n"
        program.send_signal(signal.SIGINT)
        said, _ = program.communicate(timeout=20)
    finally:
        program.kill()

    record = zk.work("/interrupted").look("x")
    if how == "run":  # a handler in a thread is not interrupted: it has ended, and is done
        assert said == "ended\n"
        assert record is not None
        assert record.state == "done"
    else:
        assert record is None
    with zk.work("/interrupted") as work:
        if how != "run":
            with work.claim("x") as claim:
                claim.give_back()
