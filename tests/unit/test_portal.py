"""The way into the loop's thread: interrupted, forked, and at the program's end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interrupting import interrupt
from tests.waiting import wait_until

import incumbent
from incumbent import portal as portals
from incumbent.client import State
from incumbent.errors import SessionClosed
from incumbent.portal import Portal, portal
from incumbent.testing import EmbeddedServer


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


def ask(begin: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return portal().ask(begin, lambda: None)


@pytest.mark.parametrize("way", ["ask", "run"])
def test_interrupted_at_any_moment_a_call_leaves_nothing_running(
    server: EmbeddedServer, way: str
) -> None:
    with incumbent.connect(server.hosts, tick=0) as zk:
        the_portal, loop = portal(), portal()._loop
        call = {"ask": ask, "run": the_portal.run}[way]
        running: list[int] = []

        async def work() -> None:
            running.append(1)
            try:
                for _ in range(1000):
                    await zk._zk.submit(incumbent.wire.Exists("/"))
            finally:
                running.pop()

        tasks = len(asyncio.all_tasks(loop))

        def work_on() -> None:
            while True:
                call(work)

        for step in range(50):
            interrupt(step * 0.0001, work_on)
            assert running == []

        assert zk.exists("/")
        assert len(asyncio.all_tasks(loop)) == tasks


def test_interrupted_at_any_moment_a_block_leaves_nothing_open(server: EmbeddedServer) -> None:
    with incumbent.connect(server.hosts, tick=0) as zk:
        tasks = len(asyncio.all_tasks(portal()._loop))

        def open_and_close() -> None:
            while True:
                with zk.watch("/w"):
                    pass

        for step in range(40):
            interrupt(step * 0.0002, open_and_close)
        wait_until(lambda: len(asyncio.all_tasks(portal()._loop)) == tasks)
        wait_until(lambda: len(zk._zk.client._watches) == 0)


def test_interrupted_at_any_moment_a_session_is_closed(server: EmbeddedServer) -> None:
    before = len(portal().at_exit)

    def open_and_close() -> None:
        while True:
            with incumbent.connect(server.hosts):
                pass

    for step in range(40):
        interrupt(step * 0.0002, open_and_close)

    def left() -> int:
        return sum(close.__self__.state is State.CONNECTED for close in portal().at_exit)  # type: ignore[attr-defined]

    # Between a call's return and what the caller does with it there is always a gap.
    wait_until(lambda: left() <= before + 2)


def test_what_a_call_raises_is_raised_and_what_it_awaits_is_awaited() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        await asyncio.gather(asyncio.sleep(0.001), asyncio.sleep(0.002))
        raise KeyError("this one")

    async def nothing() -> str:
        return "at once"

    for call in (ask, portal().run):
        with pytest.raises(KeyError, match="this one"):
            call(fail)
        assert call(nothing) == "at once"


def test_closing_in_a_forked_child_does_nothing(server: EmbeddedServer) -> None:
    with incumbent.connect(server.hosts, tick=0) as zk:
        zk.create("/parents", ephemeral=True)

        def child() -> None:
            zk.close()
            with pytest.raises(SessionClosed, match="forked"):
                zk.get("/parents")

        assert _in_a_child(child) == 0
        assert zk.exists("/parents")


def test_a_fork_while_another_thread_makes_the_portal_leaves_the_child_free(
    server: EmbeddedServer,
) -> None:
    def child() -> None:
        with incumbent.connect(server.hosts, tick=0) as mine:
            assert mine.exists("/")

    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with portals._lock:
            held.set()
            done.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(20)
    try:
        assert _in_a_child(child) == 0
    finally:
        done.set()
        holder.join()


def _in_a_child(work: object) -> int:
    """The exit code of a forked child that does it; SIGALRM's if it hangs."""
    assert callable(work)
    pid = os.fork()
    if not pid:
        signal.alarm(10)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_after_the_goodbye_a_call_is_a_typed_error_and_not_a_wait(server: EmbeddedServer) -> None:
    program = """
        import atexit, sys

        def late():
            try:
                zk.exists("/")
            except Exception as error:
                print(type(error).__name__, error, flush=True)

        atexit.register(late)  # called last
        import incumbent
        zk = incumbent.connect(sys.argv[1], tick=0)
    """

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), server.hosts],
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("SessionClosed")
    assert "the program is ending" in done.stdout


@pytest.mark.parametrize("has_uvloop", [True, False])
def test_blocking_code_works_with_and_without_uvloop(
    server: EmbeddedServer, tmp_path: Path, has_uvloop: bool
) -> None:
    if not has_uvloop:
        (tmp_path / "uvloop.py").write_text("raise ImportError\n")
    program = """
        import sys, incumbent
        from incumbent.portal import portal
        with incumbent.connect(sys.argv[1], tick=0) as zk:
            with zk.lock("/with-and-without") as hold:
                hold.ensure()
            with zk.watch("/x") as events:
                zk.create("/x", ephemeral=True)
                print(events.next(5).path, type(portal()._loop).__module__, flush=True)
    """

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), server.hosts],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (done.returncode, done.stderr) == (0, "")
    path, loop = done.stdout.split()
    assert path == "/x"
    assert loop.startswith("uvloop") == has_uvloop


@pytest.mark.parametrize("way", ["blocking", "asyncio", "interrupted"])
def test_a_program_with_a_live_client_ends_within_two_seconds_though_its_server_is_silent(
    server: EmbeddedServer, way: str
) -> None:
    programs = {
        "blocking": """
            import sys, time, incumbent
            zk = incumbent.connect(sys.argv[1], tick=0)
            zk.create("/" + sys.argv[2], ephemeral=True)
            print("live", flush=True)
            sys.stdin.readline()
            print(time.monotonic(), flush=True)
        """,
        "interrupted": """
            import sys, time, incumbent
            zk = incumbent.connect(sys.argv[1], tick=0)
            zk.create("/" + sys.argv[2], ephemeral=True)
            print("live", flush=True)
            sys.stdin.readline()
            print(time.monotonic(), flush=True)
            import os, signal
            os.kill(os.getpid(), signal.SIGINT)
            zk.get("/")
        """,
        "asyncio": """
            import asyncio, sys, time
            from incumbent import aio

            async def main():
                zk = await aio.connect(sys.argv[1], tick=0)
                await zk.create("/" + sys.argv[2], ephemeral=True)
                print("live", flush=True)
                await asyncio.to_thread(sys.stdin.readline)
                print(time.monotonic(), flush=True)

            asyncio.run(main())
        """,
    }
    # A machine with other work may be slow once; a wait in the program would be there each time.
    took = min(_time_to_end(server, programs[way], f"{way}{number}") for number in range(2))

    assert took < 2.0, f"it took {took:.1f} s"


def _time_to_end(server: EmbeddedServer, program: str, name: str) -> float:
    """Seconds from its last line to the end of its process, with a server that stands still."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), server.hosts, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "live\n"
        server.stall()
        out, _ = process.communicate("go\n", timeout=30)
        return time.monotonic() - float(out)
    finally:
        server.resume()
        process.kill()
        process.wait()


def test_a_portal_of_the_past_says_so() -> None:
    the_portal = Portal()
    the_portal._goodbye()

    with pytest.raises(SessionClosed, match="is ending"):
        the_portal.check()
    wait_until(lambda: not the_portal._thread.is_alive())
