"""What an agent does in each state that the C client knows: the table of docs/client.md, row by row.

A test is named for its row, and its docstring is the sentence of that row that it shows; the last
test compares them with the document.

Rule of this file: what is awaited is a state, not a time. One node, one seat, no drawn faults.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.simulation.test_agent_orders import Ordered
from tests.unit.client.scripted import Peer, ScriptedServer
from tests.waiting import eventually

from incumbent.agent.agent import Agent
from incumbent.cli import lifecycle, orders, wishes
from incumbent.client import Client, State
from incumbent.credentials import Credentials
from incumbent.server import Policy, Server
from incumbent.server.sasl import secret_of
from incumbent.testing.processes import Program
from incumbent.testing.world import Host
from incumbent.wire import AuthPacket, ConnectRequest, ConnectResponse, Err, Ping, Request

NODE, SEAT = "n1", "c0/0"
ROWS = ("connecting", "associating", "connected", "expired", "auth_failed", "closed", "unknown")
"""The C client's states."""
OTHER = "odd"
"""A second server, which does as a test says."""


class Alone(Ordered):
    """One node. `begun`: what is done before its agent is started."""

    program = Program()

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed)
        self.programs = [self.program]
        self.containment, self.faults = "sealed", []
        self.nodes = {NODE: self.nodes[NODE]}
        self.odd = ScriptedServer("0.0.0.0", 2181)
        self.besides = ""
        self.said: list[str] = []
        self.server: Server | None = None
        self.states: list[tuple[State, bool]] = []
        """Of the agent's client from when it was `watched`, each with whether the program lived."""

    async def story(self) -> None:
        self.boot("zk")
        ops = self.world.host("ops")
        await ops.call(self.apply(), "apply")
        await self.begun()
        self.hosts += self.besides
        self.boot(NODE)
        self.hosts = "zk:2181"
        await ops.call(self.operate(), "operate")

    async def begun(self) -> None:
        return

    async def serve(self, host: Host) -> None:
        self.server = Server(
            self.store, clock=host.clock, tick=0.5, rng=host.rng, policy=self.policy
        )
        await self.server.start("0.0.0.0", 2181)
        await self.server.wait()

    def say(self, line: str) -> None:
        self.said.append(line)
        super().say(line)

    # -- the other server

    def be_odd(self) -> None:
        """There is a second server, of which only the agent knows."""
        host = self.world.host(OTHER)
        self.besides = f",{OTHER}:2181"

        async def serve() -> None:
            await self.odd.start()
            await asyncio.get_running_loop().create_future()

        host.run(serve(), "server")

    # -- what is looked at

    @property
    def agent(self) -> Agent:
        return self.agents[NODE]

    @property
    def its_client(self) -> Client:
        client = self.agent.client
        assert client is not None
        return client

    @property
    def boottime(self) -> float:
        return self.world.host(NODE).clock.boottime()

    def runs(self) -> bool:
        """Whether the program lives, by the machine's own word."""
        trees = self.nodes[NODE].processes.trees.values()
        return any(tree.has_started and not tree.is_empty for tree in trees)

    def epochs(self) -> list[int]:
        return [epoch for epoch, _ in self.starts()]

    async def until(self, is_so: Callable[[], object], within: float = 30.0) -> None:
        await eventually(is_so, within)

    async def started(self) -> None:
        await self.until(lambda: self.runs() and self.its_client.lease.valid_until > self.boottime)

    async def suspended(self) -> None:
        await self.until(lambda: self.its_client.state is State.SUSPENDED)

    async def connected(self) -> None:
        await self.until(lambda: self.its_client.state is State.CONNECTED)

    def watch(self) -> None:
        self.its_client.watch_state(lambda state: self.states.append((state, self.runs())))

    # -- what an operator does

    async def wish(self, run: bool) -> None:
        await wishes.want(self.client, self.tree, "c0", run=run)


class Cut(Alone):
    """The node is cut off: no connection at all."""

    def away(self) -> None:
        self.world.cut(NODE, "zk")

    def back(self) -> None:
        self.world.heal(NODE, "zk")


class Mute(Alone):
    """There are connections, and no session on any: the other server takes them, and says nothing."""

    async def begun(self) -> None:
        self.odd.on_hello = lambda hello: None
        self.be_odd()

    def away(self) -> None:
        self.world.cut(NODE, "zk")

    def back(self) -> None:
        self.world.heal(NODE, "zk")


def nothing_is_started(kind: type[Alone], server: str) -> None:
    """Before the first session, while `away`."""

    class Before(kind):  # type: ignore[misc,valid-type]
        async def begun(self) -> None:
            await super().begun()
            self.away()

        async def orders(self) -> None:
            answer = f"{self.world.host(server).address}:2181: no answer within"
            await self.until(lambda: any(self.names(line, answer) for line in self.said))
            assert self.its_client.state in (State.CONNECTING, State.CLOSED)
            assert self.agent.term is None
            self.meanwhile = self.starts()
            self.back()
            await self.started()

        def names(self, line: str, answer: str) -> bool:
            return line.startswith("nothing runs here: ") and answer in line

    cluster = Before()

    cluster.run()

    assert cluster.meanwhile == []
    assert cluster.epochs() == [1]


def nothing_is_decided(kind: type[Alone]) -> None:
    """While SUSPENDED, though an operator wants it stopped, and then nothing at all."""

    class Ordered(kind):  # type: ignore[misc,valid-type]
        async def orders(self) -> None:
            await self.started()
            self.away()
            await self.suspended()
            await self.wish(run=False)
            await asyncio.sleep(0.5)
            self.ran_on = self.runs()
            self.back()
            await orders.until_ended(self.client, self.tree, "c0", self.say)
            await self.wish(run=True)
            await self.started()

            self.away()
            await self.suspended()
            self.valid_until = self.its_client.lease.valid_until
            await self.until(lambda: not self.runs())
            self.ended_at, self.state_then = self.boottime, self.its_client.state
            self.back()
            await self.started()

    cluster = Ordered()

    cluster.run()

    assert cluster.ran_on
    assert cluster.ended_at < cluster.valid_until
    assert cluster.state_then is State.SUSPENDED, "the guardian did it, before the agent knew"
    assert cluster.epochs() == [1, 2, 3]


def test_connecting_nothing_is_started_and_each_address_is_named_with_its_answer() -> None:
    """before the first: starts nothing, says what each address answered"""
    nothing_is_started(Cut, "zk")


def test_connecting_nothing_is_decided_and_programs_go_on_until_the_lease_ends() -> None:
    """SUSPENDED: decides nothing; programs go on until the guardian stops them, by the last lease"""
    nothing_is_decided(Cut)


@pytest.mark.parametrize("is_first", [True, False])
def test_associating_a_connection_without_a_session_is_none(is_first: bool) -> None:
    """the same"""
    if is_first:
        nothing_is_started(Mute, OTHER)
    else:
        nothing_is_decided(Mute)


def test_connected_it_decides_starts_stops_and_beats() -> None:
    """decides, starts, stops, beats"""

    class Connected(Alone):
        async def orders(self) -> None:
            await self.started()
            first = self.its_client.lease.valid_until
            await self.until(lambda: self.its_client.lease.valid_until > first)
            await self.wish(run=False)
            await orders.until_ended(self.client, self.tree, "c0", self.say)
            self.stopped = not self.runs()
            await self.wish(run=True)
            await lifecycle.until_running(self.client, self.tree, "c0")

    cluster = Connected()

    cluster.run()

    assert cluster.stopped
    assert cluster.epochs() == [1, 2]


def test_connected_for_reading_only_is_never_asked_for() -> None:
    """It never asks for reading only"""

    class Asked(Alone):
        async def begun(self) -> None:
            def refuse(hello: ConnectRequest) -> ConnectResponse | None:
                raise ConnectionError

            self.odd.on_hello = refuse
            self.be_odd()
            self.world.cut(NODE, "zk")

        async def orders(self) -> None:
            await self.until(lambda: self.odd.hellos)
            self.world.heal(NODE, "zk")
            await self.started()
            first = len(self.odd.hellos)
            self.world.cut(NODE, "zk")
            await self.until(lambda: len(self.odd.hellos) > first)
            self.world.heal(NODE, "zk")
            await self.connected()

    cluster = Asked()

    cluster.run()

    assert {hello.session_id != 0 for hello in cluster.odd.hellos} == {True, False}
    assert not any(hello.read_only for hello in cluster.odd.hellos)


@pytest.mark.parametrize("whose", ["server", "us"])
def test_expired_all_is_proven_dead_before_another_session_begins(whose: str) -> None:
    """stops everything, proves it dead, closes the old session if it may still live, then begins another"""

    class Expired(Alone):
        program = Program(stop_takes=None, children=2)  # ends by SIGKILL alone

        async def orders(self) -> None:
            await self.started()
            self.watch()
            old = self.its_client.passport
            self.its_client.watch_state(lambda state: self.look(state, old.session_id))
            if whose == "server":
                ops = self.world.host("ops")
                closer = Client(self.hosts, clock=ops.clock, rng=ops.rng, resume=old, log=self.say)
                await closer.connect(10.0)
                await closer.close()
            else:
                self.world.host("zk").freeze()  # which keeps its sessions as they were
                await self.until(lambda: self.its_client.state is State.LOST)
                self.world.host("zk").thaw()
            await self.until(lambda: self.its_client.generation == 2)
            await self.started()

        def look(self, state: State, session_id: int) -> None:
            if state is State.CONNECTED and self.its_client.session_id != session_id:
                assert self.server is not None
                self.old_is_gone = session_id not in self.server._service.tree.sessions

    cluster = Expired()

    cluster.run()

    assert [state for state, _ in cluster.states][-2:] == [State.LOST, State.CONNECTED]
    assert cluster.states[-1] == (State.CONNECTED, False), "it lived when the next session began"
    assert cluster.old_is_gone
    assert cluster.epochs() == [1, 2]


def test_auth_failed_at_its_start_nothing_is_started_and_it_is_tried_again() -> None:
    """at its start: starts nothing, says so, and tries again"""
    users = {"operators": secret_of("operators", "secret")}

    class Unknown(Alone):
        policy = Policy(sasl=users, schemes=("sasl",))
        credentials = Credentials(auth=(("sasl", b"agents:secret"),), insecure=True)

        async def orders(self) -> None:
            await self.until(lambda: any("nothing runs here" in line for line in self.said))
            self.meanwhile = self.starts()
            users["agents"] = secret_of("agents", "secret")
            await self.started()

            del users["agents"]
            self.said.clear()
            agent = self.guardian(NODE).agent
            assert agent is not None
            agent.kill()
            await self.until(lambda: any(self.is_agents(line) for line in self.said))
            self.says, self.ran_on = self.said[-1], self.runs()
            users["agents"] = secret_of("agents", "secret")
            await self.started()

        def is_agents(self, line: str) -> bool:
            """Not the client's, which begins with an address."""
            return "refused a SASL" in line and ":2181: " not in line

    cluster = Unknown()

    cluster.run()

    assert cluster.meanwhile == []
    assert (cluster.ran_on, "nothing runs here" in cluster.says) == (True, False)
    assert cluster.epochs()[0] == 1


def test_auth_failed_later_that_server_is_passed_over() -> None:
    """Later: passes that server over, as SUSPENDED"""

    def refuse(peer: Peer, xid: int, request: Request) -> bool:
        if isinstance(request, AuthPacket):
            peer.refuse(xid, Err.AUTH_FAILED)
            peer.close()
        return True

    cluster = passed_over(refuse, Credentials(auth=(("digest", b"a:b"),), insecure=True))

    assert any("a credential of scheme digest was refused" in line for line in cluster.said)


def passed_over(
    on_request: Callable[[Peer, int, Request], bool], credentials: Credentials
) -> Alone:
    """The other server grants the session, and then does `on_request`; the node has only that
    one for a while."""

    class Passed(Alone):
        async def orders(self) -> None:
            await self.started()
            self.watch()
            session_id = self.its_client.session_id
            self.world.cut(NODE, "zk")
            await self.until(lambda: self.odd.seen)
            await asyncio.sleep(0.5)
            self.ran_on, last = self.runs(), self.its_client.lease.valid_until
            self.world.heal(NODE, "zk")
            await self.until(lambda: self.its_client.lease.valid_until > last)
            assert self.its_client.session_id == session_id
            assert self.its_client.state is State.CONNECTED

        async def begun(self) -> None:
            self.odd.on_request = on_request
            self.be_odd()

    Passed.credentials = credentials
    cluster = Passed()

    cluster.run()

    assert cluster.ran_on
    assert cluster.epochs() == [1]
    assert State.LOST not in dict(cluster.states)
    return cluster


def test_closed_everything_was_given_back_before() -> None:
    """has given everything back before"""

    class Drained(Alone):
        async def orders(self) -> None:
            await self.started()
            self.watch()
            assert self.server is not None
            tree, crumbs = self.server._service.tree, self.tree.running(SEAT)
            self.its_client.watch_state(lambda _: self.left.extend(tree.children(crumbs)))
            self.guardian(NODE).shutdown()
            await self.until(lambda: self.its_client.state is State.CLOSED)
            await self.until(lambda: self.runs())  # its init system starts it again

        left: list[str] = []

    cluster = Drained()

    cluster.run()

    assert cluster.states == [(State.CLOSED, False)]
    assert cluster.left == []
    assert cluster.epochs() == [1, 2]


def test_closed_unasked_it_ends_and_the_guardian_starts_it_again() -> None:
    """If not, it ends, and the guardian starts it again"""

    class Failing(Alone):
        async def orders(self) -> None:
            await self.started()
            self.watch()
            self.first = self.agent
            self.nodes[NODE].machine.remember_losses = self.fail  # type: ignore[method-assign]
            self.world.cut(NODE, "zk")
            await self.until(lambda: self.states and self.states[-1][0] is State.CLOSED)
            del self.nodes[NODE].machine.remember_losses
            self.world.heal(NODE, "zk")
            await self.until(lambda: self.agent is not self.first)
            await self.started()

        def fail(self, losses: object) -> None:
            raise RuntimeError("on purpose")

    cluster = Failing()

    cluster.run()

    assert cluster.states[-1] == (State.CLOSED, False)
    assert cluster.epochs() == [1, 2]


@pytest.mark.parametrize("what", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x02ab"])
def test_unknown_bytes_are_as_no_connection(what: bytes) -> None:
    """as SUSPENDED"""

    def answer(peer: Peer, xid: int, request: Request) -> bool:
        peer.transport.write(what)
        return True

    passed_over(answer, Credentials(auth=(("digest", b"a:b"),), insecure=True))


def test_unknown_error_codes_renew_no_lease() -> None:
    """A code that refuses its beats renews nothing: the guardian stops its programs, by the last lease"""

    class Coded(Alone):
        async def begun(self) -> None:
            self.odd.on_request = lambda peer, xid, request: (
                not isinstance(request, Ping) and peer.refuse(xid, -999) is None
            )
            self.be_odd()

        async def orders(self) -> None:
            await self.started()
            self.world.cut(NODE, "zk")
            await self.until(lambda: self.odd.seen)
            self.valid_until = self.its_client.lease.valid_until
            await self.until(lambda: not self.runs())
            self.ended_at = self.boottime
            self.world.heal(NODE, "zk")
            await self.started()

    cluster = Coded()

    cluster.run()

    assert cluster.ended_at < cluster.valid_until
    assert cluster.epochs() == [1, 2]


def test_the_table_in_the_documents_has_these_rows_and_says_this() -> None:
    shown: dict[str, list[str]] = {}
    for name, test in globals().items():
        if name.startswith("test_") and test.__doc__:
            row = next(row for row in ROWS if name.startswith(f"test_{row}_"))
            shown.setdefault(row, []).append(test.__doc__)

    assert told() == {row: sorted(sentences) for row, sentences in shown.items()}


def told() -> dict[str, list[str]]:
    """Row → what the agent does, in sentences."""
    page = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
    table = page.split("what the agent does |\n")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[1:]]
    return {row[0]: sorted(re.split(r"(?<=\w)\. ", row[-1])) for row in rows}
