"""`incumbent demo`: the main job on this machine, in a minute, with faults.

    a folder in /tmp ─► server, three nodes ─► redis, web, worker, each beside a witness
                     ─► four acts (`story`) ─► everything is stopped ─► the auditor's verdict

Rule of this file: whatever happens, all that was started is ended before the verdict, and the
exit code is 0 only if every act came to its end and the auditor finds the journals clean.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from incumbent.cli.demo.journals import Journals, verdict
from incumbent.cli.demo.keep import keep
from incumbent.cli.demo.loads import loads
from incumbent.cli.demo.stage import Stage
from incumbent.cli.demo.story import Story
from incumbent.cli.demo.voice import Unheard, Voice
from incumbent.cli.exits import DONE, NO, Parser, TimedOut, failed, say
from incumbent.errors import IncumbentError

__all__ = ["main"]

NAMES = ("n1", "n2", "n3")
SESSION = 10.0
_SET_UP_TIME = 30.0
_SLACK = 10.0
"""Seconds beyond S in which every seat must show life after a fault."""
_AT_MOST = 55.0
"""Seconds for all acts; with the stop and the verdict less than a minute."""
_INTERRUPTED = 130
_CHECKED = "Never two of a seat at once, epochs only upward, life again after each fault."


def main(argv: Sequence[str]) -> int:
    """Play the demo; returns the exit code."""
    options = _parser().parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="incumbent-demo-"))
    is_clean = False
    try:
        demo = _Demo(folder, is_swept=options.swept, is_kept=options.keep)
        code = asyncio.run(demo.run())
        is_clean = code in (DONE, _INTERRUPTED)
        return code
    except KeyboardInterrupt:  # before anything was started: from then on it is heard
        is_clean = True
        raise
    finally:
        if is_clean:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            say(f"journals and logs are kept in {folder}")


def _parser() -> Parser:
    parser = Parser(
        prog="incumbent demo",
        description="A server, three nodes and real programs on this machine, in a temporary "
        "folder: kills an agent, a guardian and a whole node, hands one program over, and lets "
        "an independent auditor judge. Takes less than a minute; leaves nothing behind.",
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave it running afterwards, until Ctrl-C"
    )
    parser.add_argument(
        "--swept",
        action="store_true",
        help="play it as where programs cannot be sealed (neither root nor user namespaces)",
    )
    return parser


class _Demo:
    def __init__(self, folder: Path, *, is_swept: bool, is_kept: bool) -> None:
        self._loads = loads(folder, isolation="swept" if is_swept else None)
        self._journals = Journals(folder, [load.name for load in self._loads])
        self._stage = Stage(folder, NAMES, self._loads, SESSION)
        self._voice = Voice()
        self._is_kept = is_kept
        self._is_begun = self._is_over = False
        self._asked, self._hurry = asyncio.Event(), asyncio.Event()

    async def run(self) -> int:
        """Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop)
        work = asyncio.ensure_future(self._work())
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            with self._voice:
                ends: list[asyncio.Future[Any]] = [work, asked]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                work.cancel()
                await asyncio.wait([work])
        finally:
            asked.cancel()
            await self._stage.close(self._hurry)
        with suppress(Unheard):
            return self._end(work)
        return _INTERRUPTED

    def _stop(self) -> None:
        """Ctrl-C: in order; again: at once."""
        (self._hurry if self._asked.is_set() else self._asked).set()

    async def _work(self) -> None:
        stage = self._stage
        self._introduce()
        self._voice.caption = lambda: "starting"
        self._voice.show(stage.now)
        await stage.open()
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(stage.watch(self._voice.show))]
            watching += [group.create_task(stage.watch_work(load)) for load in self._loads]
            await stage.settle(_SET_UP_TIME)
            self._is_begun = True
            self._voice.caption = str
            self._voice.print_table()
            try:
                async with asyncio.timeout(_AT_MOST):
                    await Story(stage, self._journals, self._voice).play()
            except TimeoutError:
                raise TimedOut(f"the acts were not over after {_AT_MOST:g} s") from None
            self._is_over = True
            self._voice.print_table()
            if self._is_kept:
                self._judge()
                await keep(stage, self._voice)
            for task in watching:
                task.cancel()

    def _introduce(self) -> None:
        names = ", ".join(load.name for load in self._loads)
        line = self._voice.line
        line(("Incumbent", "bold"), f": a server, three nodes, {names}. S = {SESSION:g} s.")
        line("Each program runs on one node; another is next in line. Then things get killed.")
        line("Beside each program a witness ticks every 5 ms; both hold the seat's lock.")
        line("At the end an independent auditor reads what the witnesses wrote.")
        if self._loads[0].name != "redis":
            line("redis-server is not installed here: a second worker takes its place.")

    # ── the end

    def _end(self, work: asyncio.Future[None]) -> int:
        """Say how it ended; the exit code."""
        error = None if work.cancelled() else work.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, Unheard):
            return _INTERRUPTED
        if isinstance(error, IncumbentError):
            failed(error)
        elif error is not None:
            raise error
        elif not self._is_over:
            self._voice.line()
            self._voice.line("Stopped before its end: no verdict. Nothing is left running.")
            return _INTERRUPTED
        self._voice.line()
        self._voice.line("Everything is stopped.")
        if not self._is_begun:
            return NO
        is_clean = self._judge()
        return DONE if is_clean and error is None else NO

    def _judge(self) -> bool:
        is_clean, words = verdict(self._journals.files, SESSION + _SLACK)
        style = "bold green" if is_clean else "bold red"
        self._voice.line()
        self._voice.line(("The auditor: ", "bold"), (words, style))
        if is_clean:
            self._voice.line((_CHECKED, "dim"))
        return is_clean
