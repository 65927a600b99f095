"""The guardian's process: events from the kernel in, the table's actions out.

One thread, one selector. Signal handlers do nothing; a wakeup descriptor has the number.
Deaths are readable pidfds, time is one timer of CLOCK_BOOTTIME. Its children are the agent
(spawned with `--link-fd N`; it outlives us, to prove our trees dead and close the session),
the first process of each tree, log writers, and at the end the closer.

Rule of this file: it decides nothing about programs; after start-up it opens no file and
waits for nothing but the selector.
"""

from __future__ import annotations

import errno
import gc
import math
import os
import selectors
import signal
import stat
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from incumbent.guardian import actions as a
from incumbent.guardian import kernel, words
from incumbent.guardian.containment import CONTAINMENTS, PERMANENT, Tree
from incumbent.guardian.link import AgentProcess, Link
from incumbent.guardian.logs import Logs
from incumbent.guardian.logwriter import LogPipe, relay
from incumbent.guardian.table import Policy, Table
from incumbent.parent import end_with

__all__ = ["run"]

_LAST_WORDS = 1.0  # seconds that helpers get to end in
_SPARE_AFTER = 2.0  # seconds from an agent's start to its spare's
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(
    agent_argv: Sequence[str],
    settings: Mapping[str, Any] | None = None,
    *,
    policy: Policy = Policy.KEEP,
    beat: float = 1.0,
    session_timeout: float = 10.0,
    hello_timeout: float = 30.0,
    parent: int | None = None,
    tell: Callable[[a.Event | a.Action], str] = words.of,
) -> int:
    """Be the guardian until everything has ended; the exit code.

    `agent_argv` is started with `--link-fd N` added, each time an agent is needed; `settings`
    reach it in WELCOME. `beat`, `session_timeout`: seconds; S until a passport tells the real
    one. `parent`: the pid of the process that started us; its death is a SIGTERM to us. `tell`:
    the line on stderr about an event or action, "" for none. Must be called in a process with
    one thread, which it takes over: signals, children, its memory.
    """
    table = Table(
        policy=policy,
        beat=beat,
        session_timeout=session_timeout,
        guardian_pid=os.getpid(),
        settings=settings,
        hello_timeout=hello_timeout,
    )
    return _Guardian(table, list(agent_argv), tell).run(parent)


class _Guardian:
    """Keeps the driver's contract of actions.py."""

    def __init__(
        self, table: Table, agent_argv: list[str], tell: Callable[[a.Event | a.Action], str]
    ) -> None:
        self.table = table
        self.agent_argv = agent_argv
        self.tell = tell
        self.events: deque[a.Event] = deque()
        self.selector = selectors.DefaultSelector()
        self.timer = kernel.BoottimeTimer()
        self.trees: dict[tuple[str, int], Tree] = {}
        self.deadlines: dict[tuple[int, float], kernel.BoottimeTimer] = {}  # while a tree has it
        self.cgroups: dict[tuple[str, int], int] = {}  # descriptors to poll
        self.link: Link | None = None
        self.agent_pid = self.agent_pidfd = -1
        self.spare: AgentProcess | None = None
        self.spare_at = math.inf
        self.closer_pid = self.closer_pidfd = -1
        self.wake = self.closer_by = math.inf
        self.code: int | None = None
        self.voice = 2
        self.helpers: set[int] = set()  # children that end when their pipe does
        self.logs = Logs(self.selector, self.helpers, self.say)
        self.open_files: tuple[int, int] | None = None  # what programs may have

    def run(self, parent: int | None) -> int:
        kernel.fill_standard_descriptors()
        kernel.set_dumpable(False)
        kernel.become_subreaper()
        self.open_files = (
            kernel.allow_many_descriptors()
        )  # each seat takes four, with a cgroup eight
        if stat.S_ISREG(os.fstat(2).st_mode):
            relay_pid, self.voice = relay(2)
            self.helpers.add(relay_pid)
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for signo in (*_SIGNALS, signal.SIGCHLD):
            if signal.getsignal(signo) is not signal.SIG_IGN:  # as nohup asks
                signal.signal(signo, _only_wake)
        if parent is not None:
            end_with(parent)
        self.watch(wake_read, lambda: self.on_signals(wake_read))
        self.watch(self.timer.fd, self.on_timer)
        self.carry_out(self.table.begin(kernel.boottime()))
        from incumbent.guardian import closer  # by now, while the agent starts: it needs wire

        self.closer = closer
        gc.freeze()
        while self.code is None:
            self.handle_all()
            if self.code is None:
                for key, _ in self.selector.select():
                    key.data()
        self.await_helpers()
        return self.code

    def await_helpers(self) -> None:
        """What was said and logged is written when we end, and we leave nobody behind. Not for
        long: a full disk keeps them, or somebody who was given the pipe that they read."""
        if self.voice != 2:
            os.close(self.voice)
        until = kernel.boottime() + _LAST_WORDS
        for pid in self.helpers:
            with suppress(OSError):
                pidfd = os.pidfd_open(pid)
                kernel.is_readable(pidfd, max(0.0, until - kernel.boottime()))

    def handle_all(self) -> None:
        while self.events and self.code is None:
            event = self.events.popleft()
            self.carry_out(self.table.handle(event, kernel.boottime()), event)
            if isinstance(event, a.TreeEmpty | a.SpawnFailed):
                self.logs.forget((event.seat, event.epoch))
        self.timer.set(min(self.wake, self.logs.look_at, self.closer_by, self.spare_at))

    def carry_out(self, actions: Sequence[a.Action], event: a.Event | None = None) -> None:
        """And say it, afterwards: an agent waits for what is done, nobody for what is said."""
        for action in actions:
            a.carry_out(action, self)
        for each in (event, *actions):
            if each is not None and type(each) is not a.WriteDeadline:  # with each beat
                self.say(self.tell(each))

    # ── what the selector says

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        self.selector.register(fd, selectors.EVENT_READ, callback)

    def on_signals(self, wake_read: int) -> None:
        for number in os.read(wake_read, 4096):
            if number == signal.SIGCHLD:
                self.reap_strangers()
            elif number in _SIGNALS:
                self.events.append(a.ShutdownAsked(signal.Signals(number).name))

    def on_timer(self) -> None:
        """A Tick for the table, after what is readable; a look at the logs; the closer's end."""
        self.timer.clear()
        now = kernel.boottime()
        if now >= self.wake:
            self.wake = math.inf  # the table asks again
            self.on_link()
            self.events.append(a.Tick())
        if now >= self.logs.look_at:
            self.logs.look(now)
        if now >= self.closer_by:
            self.closer_by = math.inf
            kernel.kill(self.closer_pidfd)
        if now >= self.spare_at:
            self.spare_at = math.inf
            self.start_spare()

    def on_link(self) -> None:
        if self.link is None:
            return
        self.events += self.link.read()
        if self.link.is_closed:
            self.drop_link()
        elif self.link.has_unsent:
            self.link.flush()
            self.watch_link()

    def watch_link(self) -> None:
        """For reading, and for writing while something is unsent."""
        if self.link is not None:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE * self.link.has_unsent)
            self.selector.modify(self.link.sock, wanted, self.on_link)

    def drop_link(self) -> None:
        if self.link is not None:
            self.selector.unregister(self.link.sock)
            self.link.sock.close()
            self.link = None

    def on_agent_death(self) -> None:
        generation = self.table.generation
        self.on_link()
        self.drop_link()
        self.selector.unregister(self.agent_pidfd)
        found = os.waitid(os.P_PIDFD, self.agent_pidfd, os.WEXITED | os.WNOHANG)
        os.close(self.agent_pidfd)
        self.agent_pid = self.agent_pidfd = -1
        status = found.si_status if found else 0
        code = status if found and found.si_code == os.CLD_EXITED else -status
        self.events.append(a.AgentDied(generation, code))

    def on_channel(self, tree: Tree) -> None:
        if tree.channel.fileno() in self.selector.get_map():
            self.events += tree.on_channel()
            if tree.is_silent:
                self.selector.unregister(tree.channel)

    def on_tree_death(self, tree: Tree) -> None:
        self.on_channel(tree)  # to its end
        if not tree.is_silent:
            self.selector.unregister(tree.channel)
        self.selector.unregister(tree.pidfd)
        self.events += tree.on_death(self.ours)
        self.after_proof(tree)

    def on_cgroup(self, tree: Tree) -> None:
        self.events += tree.on_cgroup(self.ours)
        self.after_proof(tree)

    def after_proof(self, tree: Tree) -> None:
        """If there was one: its cgroup is let go of, and what never ran is forgotten."""
        if tree.cgroup is None and (changes := self.cgroups.pop((tree.seat, tree.epoch), None)):
            self.selector.unregister(changes)
        if tree.is_reaped:
            self.trees.pop((tree.seat, tree.epoch), None)
            self.close_unused_deadlines()

    def on_closer_death(self) -> None:
        self.selector.unregister(self.closer_pidfd)
        found = os.waitid(os.P_PIDFD, self.closer_pidfd, os.WEXITED | os.WNOHANG)
        os.close(self.closer_pidfd)
        self.closer_pid = self.closer_pidfd = -1
        is_closed = found is not None and found.si_status == 0
        self.events.append(a.CloserFinished(is_closed, "" if is_closed else "the closer failed"))

    # ── what the table wants (actions.ProcessTable)

    def spawn_agent(self, action: a.SpawnAgent) -> None:
        spare, self.spare = self.spare, None
        try:
            if spare is None:
                spare = AgentProcess(self.agent_argv)
            else:
                self.selector.unregister(spare.pidfd)
        except (OSError, ValueError) as error:
            why = f"{self.agent_argv[0]} cannot be started: {error}"
            self.events.append(a.AgentDied(action.generation, None, why))
            return
        self.agent_pid, self.agent_pidfd = spare.pid, spare.pidfd
        self.link = Link(spare.sock, action.generation)
        self.watch(spare.sock.fileno(), self.on_link)
        self.watch(self.agent_pidfd, self.on_agent_death)
        if self.table.policy is Policy.KEEP:
            self.spare_at = kernel.boottime() + _SPARE_AFTER

    def start_spare(self) -> None:
        """The next agent, started before it is needed: on a loaded machine, where agents are
        killed, a start may take longer than the lease lasts. It has said HELLO and waits.
        """
        if self.spare is None:
            with suppress(OSError, ValueError):  # then the next agent is started when needed
                spare = self.spare = AgentProcess(self.agent_argv)
                self.watch(spare.pidfd, self.on_spare_death)

    def on_spare_death(self) -> None:
        spare, self.spare = self.spare, None
        if spare is not None:
            self.selector.unregister(spare.pidfd)
            os.waitid(os.P_PIDFD, spare.pidfd, os.WEXITED | os.WNOHANG)
            os.close(spare.pidfd)
            spare.sock.close()
            self.spare_at = kernel.boottime() + 5 * _SPARE_AFTER

    def kill_agent(self, action: a.KillAgent) -> None:
        if self.agent_pidfd >= 0:
            kernel.kill(self.agent_pidfd)

    def send(self, action: a.Send) -> None:
        if self.link is not None:
            had_unsent = self.link.has_unsent
            self.link.send(action.message)
            if self.link.has_unsent and not had_unsent:
                self.watch_link()

    def spawn_seat(self, action: a.SpawnSeat) -> None:
        start = action.start
        key = (start.seat, start.epoch)
        secrets = self.secrets()
        log: LogPipe | None = None
        try:
            if start.containment not in CONTAINMENTS:
                raise OSError(errno.EINVAL, f"unknown containment {start.containment!r}")
            log = LogPipe(start.log, secrets) if start.log is not None else None
            output = log.write_end if log else None
            tree = Tree(action, self.deadline_of(action), secrets, output, self.open_files)
        except OSError as error:
            if log is not None:
                log.close()
            self.close_unused_deadlines()
            why = f"{start.containment}: {error.strerror}"
            self.events.append(a.SpawnFailed(*key, why, error.errno in PERMANENT))
            return
        self.trees[key] = tree
        self.watch(tree.channel.fileno(), lambda: self.on_channel(tree))
        self.watch(tree.pidfd, lambda: self.on_tree_death(tree))
        if tree.cgroup is not None:
            self.cgroups[key] = tree.cgroup.changes.fileno()
            self.watch(self.cgroups[key], lambda: self.on_cgroup(tree))
        if log is not None:
            self.logs.keep(key, log)

    def deadline_of(self, action: a.SpawnSeat) -> kernel.BoottimeTimer:
        """The timer of all that are to be dead by then."""
        deadline = self.deadlines.get(action.whose_deadline)
        if deadline is None:
            deadline = self.deadlines[action.whose_deadline] = kernel.BoottimeTimer()
        deadline.set(action.hard_at)
        return deadline

    def close_unused_deadlines(self) -> None:
        used = {tree.whose_deadline for tree in self.trees.values()}
        for whose in self.deadlines.keys() - used:
            self.deadlines.pop(whose).close()

    def signal(self, action: a.Signal) -> None:
        tree = self.trees.get((action.seat, action.epoch))
        if tree is not None:
            tree.signal(action.signo)

    def kill_tree(self, action: a.KillTree) -> None:
        tree = self.trees.get((action.seat, action.epoch))
        if tree is not None:
            self.events += tree.kill(self.ours)
            self.after_proof(tree)

    def write_deadline(self, action: a.WriteDeadline) -> None:
        deadline = self.deadlines.get(action.whose)
        if deadline is not None:
            deadline.set(action.hard_at)

    def reap(self, action: a.Reap) -> None:
        tree = self.trees.pop((action.seat, action.epoch), None)
        if tree is not None:
            tree.reap()
            self.close_unused_deadlines()

    def run_closer(self, action: a.RunCloser) -> None:
        try:
            self.closer_pid = self.closer.spawn_closer(
                action.passport,
                action.hosts,
                action.breadcrumbs,
                self.table.settings.get("credentials"),
            )
        except OSError as error:
            self.events.append(a.CloserFinished(False, str(error)))
            return
        self.closer_pidfd = os.pidfd_open(self.closer_pid)
        self.closer_by = kernel.boottime() + self.closer.TIME_LIMIT + 1.0
        self.watch(self.closer_pidfd, self.on_closer_death)

    def exit(self, action: a.Exit) -> None:
        self.code = action.code

    def wake_at(self, action: a.WakeAt) -> None:
        self.wake = action.when

    # ── children that nobody asked for

    def ours(self) -> set[int]:
        """The children that we made. Others are orphans of a swept tree, or of our agent, or,
        as PID 1, of anybody."""
        pids = {self.agent_pid, self.closer_pid, *self.helpers}
        if self.spare is not None:
            pids.add(self.spare.pid)
        pids.update(self.logs.pids())
        pids.update(tree.pid for tree in self.trees.values())
        return pids

    def reap_strangers(self) -> None:
        strangers = set(kernel.children()) - self.ours()
        for pid in sorted(strangers | self.helpers):
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    self.helpers.discard(pid)

    # ── small things

    def secrets(self) -> list[bytes]:
        """What a fork must not keep: the passport's hex texts, and the credentials as they are."""
        passport = self.table.passport or {}
        credentials = self.table.settings.get("credentials") or {}
        shown = [str(each[1]) for each in (*passport.get("auth", ()), *credentials.get("auth", ()))]
        texts = [str(passport.get("password", "")), *shown]
        return [*(text.encode() for text in texts), *map(bytes.fromhex, dict.fromkeys(shown))]

    def say(self, words_: str) -> None:
        """One line on stderr, lost rather than waited for."""
        if words_ and kernel.is_writable(self.voice):
            with suppress(OSError):
                stamp = time.strftime("%H:%M:%S")
                os.write(self.voice, f"{stamp} guardian: {words_}\n".encode()[:4000])


def _only_wake(signo: int, frame: object) -> None:
    """The wakeup descriptor has its number."""
