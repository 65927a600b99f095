"""Three processes that stand in one election: ours and our peers', all driven alike.

A kind says how one contender is started; an `Election` keeps three of them: the one that leads
can be killed or asked to give way, and a new one takes its place in the queue.

Rule of this file: every process started here is ended by its pid when its `with` ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.reports import Report, Reports, now
from tests.children import ends_with_us

__all__ = [
    "SESSION",
    "Election",
    "Kind",
    "curator",
    "elect",
    "java",
    "kazoo",
    "library",
    "settle",
]

SESSION = 10.0
"""Seconds: the session timeout of everybody here."""

STANDBYS = 2
_PEERS = Path(__file__).parent / "peers"
_JARS = Path("/usr/share/java")
_CURATOR = [
    _JARS / f"{name}.jar"
    for name in (
        *("curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute"),
        *("guava", "slf4j-api", "slf4j-nop", "netty-handler", "netty-transport", "netty-common"),
        *("netty-buffer", "netty-codec", "netty-resolver"),
    )
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`argv` starts one contender, `{name}` replaced.

    It leads when a line with `leads` comes from it, and stands when one with `stands` does. A
    clean handover begins at the line `releasing` from it; "" where it begins at our SIGTERM.
    """

    name: str
    argv: Sequence[str]
    leads: str = "leader"
    stands: str = "standing"
    releasing: str = "releasing"

    def has(self, report: Report, words: str) -> bool:
        return report.text == words or (words.startswith("is ") and words in report.text)


def kazoo(hosts: str, path: str) -> Kind:
    program = str(_PEERS / "kazoo_election.py")
    argv = [sys.executable, program, hosts, path, "{name}", f"{SESSION:g}"]
    return Kind(name="kazoo", argv=argv)


def library(hosts: str, path: str) -> Kind:
    program = str(_PEERS / "library_lead.py")
    argv = [sys.executable, program, hosts, path, "{name}", f"{SESSION:g}", "0"]
    return Kind(name="library", argv=argv)


def elect(hosts: str, path: str, command: Sequence[str] = ()) -> Kind:
    argv = [sys.executable, "-P", "-m", "incumbent.cli", "elect", path, "--zookeeper", hosts]
    argv += ["--session-timeout", f"{SESSION:g}", "--tick", "0", "--name", "{name}"]
    argv += ["--", *command] if command else []
    return Kind(
        name="elect",
        argv=argv,
        leads="started" if command else "is the leader",
        stands="is not the leader",
        releasing="",
    )


def curator(hosts: str, path: str, folder: Path) -> Kind | str:
    """The peer, compiled into `folder`; or why there is none here."""
    argv = java(folder, "Latch")
    if isinstance(argv, str):
        return argv
    return Kind(name="curator", argv=[*argv, hosts, path, "{name}", f"{SESSION * 1000:.0f}"])


def java(folder: Path, program: str) -> list[str] | str:
    """What runs a program of peers/ with Curator, compiled into `folder`; or why nothing does."""
    absent = [name for name in ("java", "javac") if shutil.which(name) is None]
    absent += [str(jar) for jar in _CURATOR if not jar.exists()]
    if absent:
        return f"Curator is left out: no {absent[0]} (apt-get install default-jdk-headless libcurator-recipes-java zookeeper)"
    classes = ":".join(map(str, _CURATOR))
    if not (folder / f"{program}.class").exists():
        source = str(_PEERS / f"{program}.java")
        compiling = ["javac", "-cp", classes, "-d", str(folder), source]
        done = subprocess.run(compiling, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"Curator is left out: javac says {done.stderr.strip()[:300]}"
    flags = ["-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
    return ["java", *flags, "-cp", f"{folder}:{classes}", program]


class Election:
    """A context manager: one leader and two that wait, settled when `enter` has returned."""

    def __init__(self, kind: Kind, reports: Reports, folder: Path) -> None:
        self.kind = kind
        self._reports = reports
        self._folder = folder
        self._members: dict[str, subprocess.Popen[bytes]] = {}
        self._count = 0
        self.leader = ""

    def __enter__(self) -> Election:
        try:
            since = now()
            self.fill(1)
            self.leader = self._next_leader(since, 60.0).source
            self.fill()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._members.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._members.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def fill(self, size: int = 1 + STANDBYS) -> None:
        """Start what is missing, one after the other, each standing before the next."""
        while len(self._members) < size:
            self._count += 1
            name = f"{self.kind.name}-{self._count}"
            since = now()
            self._start(name)
            self._reports.wait(
                lambda each, name=name: each.source == name and self._says_its_role(each),  # type: ignore[misc]
                since=since,
                timeout=60.0,
                what=f"{name} to stand",
            )

    def kill(self) -> float:
        """SIGKILL the leader's process; when."""
        process = self._members.pop(self.leader)
        at = now()
        process.kill()
        process.wait()
        return at

    def give_way(self) -> float:
        """Ask the leader to; when it began to."""
        process = self._members.pop(self.leader)
        at = now()
        process.send_signal(signal.SIGTERM)
        self._leaving = process
        if not self.kind.releasing:
            return at
        return self._reports.wait(
            lambda each: each.source == self.leader and each.text == self.kind.releasing,
            since=at,
            what=f"{self.leader} to give way",
        ).at

    def has_left(self) -> None:
        """Wait for the end of the one that gave way."""
        self._leaving.wait(20)

    def successor(self, since: float, timeout: float = 30.0) -> float:
        """When the next one led; it is the leader from now on."""
        report = self._next_leader(since, timeout)
        self.leader = report.source
        return report.at

    def _next_leader(self, since: float, timeout: float) -> Report:
        return self._reports.wait(
            lambda each: each.source in self._members and self.kind.has(each, self.kind.leads),
            since=since,
            timeout=timeout,
            what=f"the next leader of {self.kind.name}",
        )

    def _says_its_role(self, report: Report) -> bool:
        return any(self.kind.has(report, words) for words in (self.kind.stands, self.kind.leads))

    def _start(self, name: str) -> None:
        out = self._reports.pipe(name)
        try:
            with (self._folder / f"{name}.err").open("wb") as err:
                self._members[name] = subprocess.Popen(
                    [word.replace("{name}", name) for word in self.kind.argv],
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                    preexec_fn=ends_with_us(),
                )
        finally:
            os.close(out)


def settle(seconds: float) -> None:
    """Let everybody reach the state in which they would be for hours: beats sent, spares ready."""
    time.sleep(seconds)
