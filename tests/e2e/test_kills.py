"""The kill table, row by row, with real processes: what is killed, what must still hold.

Every program is a witness: it holds a lock of its seat and writes down that it lives, so that
the auditor's word does not rest on ours. KILLS=N sets the kills per row (50);
SESSION and TICK the times in seconds (1 and 0.1). `make soak`: 500, and the server's defaults.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.e2e.nodes import Node, Nodes, is_alive
from tests.relay import Relay
from tests.waiting import wait_until

from incumbent.clock import SYSTEM
from incumbent.testing.auditor import Expectations, audit
from incumbent.testing.witness import command

KILLS = int(os.environ.get("KILLS", "50"))
pytestmark = pytest.mark.timeout(120 + 10 * KILLS)  # seconds, on the slowest machine
SESSION = float(os.environ.get("SESSION", "1"))
TICK = float(os.environ.get("TICK", "0.1"))
NAMES = ("n1", "n2", "n3")
KINDS = {
    "plain": (),
    "stubborn": ("--ignore-term",),
    "forking": ("--fork",),
    "flooding": ("--flood",),
    "silent": ("--close-stdout",),
}
"""Programs that live until they are ended. Two more never live: `brief` and `missing`."""


class Life(NamedTuple):
    """An instance by its newest line: on which node, and when it last gave a sign of life."""

    epoch: int
    node: str
    at: float


class Town:
    """Three nodes with a witness of every kind, and what the journal says of them."""

    def __init__(
        self,
        folder: Path,
        *,
        session: float = SESSION,
        options: Callable[[Nodes, str], Sequence[str]] | None = None,
    ) -> None:
        """`options` of `incumbent agent`, by the node's name; asked for once the server listens."""
        self.nodes = Nodes(folder, tick=TICK, session=session)
        self._options = options
        self.journal = folder / "journal"
        self.locks = folder / "locks"
        self.locks.mkdir()
        self._read = 0
        self._lives: dict[str, Life] = {}

    def __enter__(self) -> Town:
        self.nodes.__enter__()
        try:
            for name in NAMES:
                self.nodes.start(name, *(self._options(self.nodes, name) if self._options else ()))
            self.nodes.apply(self._file())
            self.wait_until_all_live()
            self._wait_until_settled()
        except BaseException as error:
            self.nodes.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.nodes.__exit__(*error)

    def _file(self) -> str:
        def component(name: str, argv: list[str]) -> str:
            return f"[component.{name}]\ncommand = {json.dumps(argv)}\nstop_grace = 0.05\n"

        files = [
            component(kind, command(str(self.journal), str(self.locks), *options))
            for kind, options in KINDS.items()
        ]
        brief = command(str(self.journal), str(self.locks), "--exit-after", "0.01", "--code", "3")
        files += [component("brief", brief), component("missing", ["/nowhere/at/all"])]
        return "".join(files)

    # -- what the journal says

    def lives(self) -> dict[str, Life]:
        """Component → its newest instance, for the kinds that live."""
        if not self.journal.exists():
            return {}
        with self.journal.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        self._read += len(new)
        for line in new.splitlines():
            event = json.loads(line)
            component = event["seat"].partition("/")[0]
            known = self._lives.get(component)
            if known is None or event["epoch"] >= known.epoch:
                self._lives[component] = Life(
                    event["epoch"], event["node"], event["boottime_ns"] / 1e9
                )
        return {kind: self._lives[kind] for kind in KINDS if kind in self._lives}

    def owners(self) -> dict[str, tuple[int, str]]:
        """Component → epoch and node."""
        return {kind: (life.epoch, life.node) for kind, life in self.lives().items()}

    def _wait_until_settled(self) -> None:
        """The first plans may still move a seat or two: nobody has moved for a while."""
        known, since = self.owners(), SYSTEM.boottime()

        def is_settled() -> bool:
            nonlocal known, since
            if (now := self.owners()) != known:
                known, since = now, SYSTEM.boottime()
            return SYSTEM.boottime() - since > 2.0

        wait_until(is_settled, 20.0, "nobody to move any more")
        self.wait_until_all_live()

    def wait_until_all_live(self, newer_than: dict[str, int] | None = None) -> None:
        """Every kind has given a sign of life just now, under a newer epoch where one is given."""
        newer = newer_than or {}

        def all_live() -> bool:
            lives, now = self.lives(), SYSTEM.boottime()
            return all(
                kind in lives
                and lives[kind].epoch > newer.get(kind, 0)
                and now - lives[kind].at < 0.5
                for kind in KINDS
            )

        wait_until(all_live, 20.0, f"all to live, newer than {newer}; before: {self.owners()}")

    def on(self, node: Node) -> dict[str, int]:
        """Component → epoch of what runs on a node."""
        return {kind: life.epoch for kind, life in self.lives().items() if life.node == node.name}

    def audited(self) -> None:
        """The auditor's word on all of it."""
        with self.journal.open() as file:
            verdict = audit(file, Expectations())
        assert verdict.clean, str(verdict)

    # -- kills

    def rotation(self, kills: int) -> list[Node]:
        """A node for each kill, one after the other; those that have something to lose first."""
        return [self.nodes.nodes[number % len(NAMES)] for number in range(kills)]

    def back(self, node: Node) -> None:
        """The node's own end, then its next life."""
        node.guardian.ends(20.0)
        node.start_again().connected()


def test_agent_killed_the_programs_run_on_and_no_election_is_held(tmp_path: Path) -> None:
    # The next agent has S/2 for its Python to start and to renew: else its node gives way, safely.
    with Town(tmp_path, session=2 * SESSION) as town:
        killed_at = dict.fromkeys(NAMES, 0.0)
        for node in town.rotation(KILLS):
            # Three deaths within S are a crash loop: the next row.
            soon = killed_at[node.name] + 0.7 * town.nodes.session
            wait_until(lambda: SYSTEM.boottime() > soon, what="its turn")  # noqa: B023
            before = town.owners()

            killed_at[node.name] = SYSTEM.boottime()
            old = node.kill_agent()

            wait_until(lambda: _is_back(node, old), 10.0, "the next agent to be in control")  # noqa: B023
            assert town.owners() == before
            town.wait_until_all_live()
        town.audited()


def _is_back(node: Node, old: int) -> bool:
    try:
        return node.agent_pid != old and node.status().get("connection") == "CONNECTED"
    except OSError:
        return False


def test_agent_crash_looping_its_guardian_gives_up_and_others_take_over(tmp_path: Path) -> None:
    rounds = max(1, KILLS // 3)
    with Town(tmp_path) as town:
        for node in town.rotation(rounds):
            had = town.on(node)

            while node.guardian.code is None:
                _kill_quietly(node)

            town.wait_until_all_live(had)
            town.back(node)
        town.audited()


def _kill_quietly(node: Node) -> None:
    try:
        node.kill_agent()
    except OSError:
        return


def test_guardian_killed_the_next_node_takes_over(tmp_path: Path) -> None:
    with Town(tmp_path) as town:
        for node in town.rotation(KILLS):
            had = town.on(node)

            node.kill_guardian()

            town.wait_until_all_live(had)
            town.back(node)
        town.audited()


def _kill_both(node: Node) -> Callable[[], None]:
    node.kill()
    return lambda: None


def _freeze_both(node: Node) -> Callable[[], None]:
    agent, guardian = node.agent_pid, node.guardian.pid
    for pid in (guardian, agent):
        os.kill(pid, signal.SIGSTOP)

    def thaw() -> None:
        for pid in (agent, guardian):
            if is_alive(pid):
                os.kill(pid, signal.SIGCONT)

    return thaw


@pytest.mark.parametrize("how", [_kill_both, _freeze_both], ids=["killed", "frozen"])
def test_both_gone_the_old_instance_is_dead_before_the_session_is(tmp_path: Path, how) -> None:
    with Town(tmp_path) as town:
        for node in town.rotation(max(1, KILLS // 2)):
            had = town.on(node)

            undo = how(node)

            town.wait_until_all_live(had)
            undo()
            if how is _kill_both:
                town.back(node)
            else:
                wait_until(lambda: _is_connected(town, node), 20.0, "the thawed node to be back")  # noqa: B023
        town.audited()


def _is_connected(town: Town, node: Node) -> bool:
    if node.guardian.code is not None:
        node.start_again().connected()
    return node.status().get("connection") == "CONNECTED"


class Wires(dict[str, Relay]):
    """A relay for each node, all in a thread of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def lay(self, nodes: Nodes, name: str) -> list[str]:
        """The options that lead a node over a relay of its own."""
        host, _, port = nodes.hosts.rpartition(":")
        relay = self[name] = Relay(host, int(port))
        asyncio.run_coroutine_threadsafe(relay.start(), self.loop).result(5.0)
        return ["--zookeeper", relay.hosts]

    def do(self, what: Callable[[], None]) -> None:
        """In their thread, and wait until it is done."""

        async def doing() -> None:
            what()

        asyncio.run_coroutine_threadsafe(doing(), self.loop).result(5.0)


@contextmanager
def wires() -> Iterator[Wires]:
    laid = Wires()
    try:
        yield laid
    finally:
        for relay in laid.values():
            laid.do(relay.stop)
        laid.loop.call_soon_threadsafe(laid.loop.stop)
        laid.thread.join(5.0)
        laid.loop.close()


@pytest.mark.parametrize("way", ["both", "up", "down"])
def test_network_gone_silently_the_old_instance_is_dead_before_the_session_is(
    tmp_path: Path, way: str
) -> None:
    """Where only the server's answers are lost, a relay (unlike TCP) would let each vain attempt
    to connect renew the session: the attempt ends it in the same flight, so others may take over.
    """

    def swallow(relay: Relay) -> None:
        relay.swallow_up = way in ("both", "up")
        relay.swallow_down = way in ("both", "down")

    with wires() as relays, Town(tmp_path, options=relays.lay) as town:
        for node in town.rotation(max(1, KILLS // 8)):
            had = town.on(node)

            relays.do(partial(swallow, relays[node.name]))

            town.wait_until_all_live(had)
            relays.do(relays[node.name].heal)
            wait_until(lambda: _is_connected(town, node), 20.0, "the node to be back")  # noqa: B023
            town.wait_until_all_live(had)
        town.audited()


ROUNDS = 4
"""Kills of one program in a row: each waits twice as long for its next start as the one before."""


@pytest.mark.parametrize("town_number", range(math.ceil(KILLS / (ROUNDS * len(KINDS)))))
def test_program_killed_it_starts_again_in_place_under_a_new_epoch(
    tmp_path: Path, town_number: int
) -> None:
    with Town(tmp_path) as town:
        for _ in range(ROUNDS):
            before = town.owners()
            rows = [
                town.nodes.wait(kind, "running", epoch=epoch) for kind, (epoch, _) in before.items()
            ]

            for row in rows:
                os.kill(row["pid"], signal.SIGKILL)

            town.wait_until_all_live({kind: epoch for kind, (epoch, _) in before.items()})
            assert [node for _, node in town.owners().values()] == [n for _, n in before.values()]
        town.audited()
