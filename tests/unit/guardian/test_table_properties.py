"""Random lives of a guardian: whatever happens in whatever order, the rules hold.

The stand-in asserts at each step that no seat has two live trees, nothing starts after its
soft deadline, nothing alive is reaped, no session is closed before proof, no two agents live
at once; here the rest is checked.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.guardian.stand_in import StandIn, passport, start

from incumbent.guardian import actions as a
from incumbent.guardian import messages as m
from incumbent.guardian.table import Policy, Table

SEATS = ("web/0", "db/0")


class GuardianLife(RuleBasedStateMachine):
    policy = Policy.KEEP

    def __init__(self) -> None:
        super().__init__()
        self.world = StandIn(Table(policy=self.policy, beat=1.0))
        self.epoch = 0
        self.told_empty: set[tuple[str, int]] = set()

    def is_up(self) -> bool:
        return self.world.exited is None

    def is_connected(self) -> bool:
        return (
            self.is_up() and self.world.agent != 0 and self.world.table._agent.name == "CONNECTED"
        )

    def is_awaiting(self) -> bool:
        return self.is_up() and not self.is_connected()

    @precondition(lambda self: not self.is_up())
    @rule()
    def another_guardian(self) -> None:
        self.world = StandIn(Table(policy=self.policy, beat=1.0))

    @precondition(is_awaiting)
    @rule(speaks_first=st.sampled_from([False, False, False, True]))
    def hello(self, speaks_first: bool) -> None:
        if not self.world.agent:
            return
        if speaks_first:
            self.world.say(m.Alive(generation=self.world.agent))
            return
        lease = m.Lease(
            generation=self.world.agent, valid_until=self.world.now + 10, last_zxid=self.epoch
        )
        session = m.Session(generation=self.world.agent, passport=passport(), hosts="h")
        self.world.say(m.Hello(generation=0, pid=1), session, lease)

    @precondition(is_connected)
    @rule(seconds=st.sampled_from([0.0, 3.0, 10.0, 10.0, 10.0]))
    def lease(self, seconds: float) -> None:
        lease = m.Lease(
            generation=self.world.table.generation,
            valid_until=self.world.now + seconds,
            last_zxid=self.epoch,
        )
        self.world.say(lease)

    @precondition(is_connected)
    @rule(session=st.sampled_from([0x1234, 0x1234, 0x99]))
    def session(self, session: int) -> None:
        generation = self.world.table.generation
        self.world.say(m.Session(generation=generation, passport=passport(session), hosts="h"))

    @precondition(is_connected)
    @rule(
        seat=st.sampled_from(SEATS),
        older=st.sampled_from([0, 0, 0, 1]),
        stubborn=st.booleans(),
        unkillable=st.sampled_from([False, False, False, True]),
        soft=st.sampled_from([0.5, 4.0]),
        stale=st.sampled_from([0, 0, 0, 1]),
    )
    def start(
        self, seat: str, older: int, stubborn: bool, unkillable: bool, soft: float, stale: int
    ) -> None:
        self.epoch += 1
        self.world.next_tree_ignores_stop = stubborn
        self.world.next_tree_is_unkillable = unkillable
        generation = self.world.table.generation - stale
        self.world.say(start(self.epoch - older, seat, generation=generation, soft=soft))

    @precondition(is_connected)
    @rule(seat=st.sampled_from(SEATS), back=st.sampled_from([0, 0, 1]), unkillable=st.booleans())
    def start_a_hook(self, seat: str, back: int, unkillable: bool) -> None:
        self.epoch += 1
        self.world.next_tree_is_unkillable = unkillable
        beside = max(self.world.table.newest_epoch.get(seat, 1) - back, 0)
        self.world.say(start(self.epoch, f"{seat}!live", beside=beside, limit=3.0))

    @precondition(is_up)
    @rule(data=st.data(), extend=st.sampled_from([0.0, 5.0, 1e9]), ready=st.booleans())
    def a_program_speaks(self, data: st.DataObject, extend: float, ready: bool) -> None:
        live = [tree for tree in self.world.trees.values() if tree.is_alive and tree.is_executed]
        if live:
            tree = data.draw(st.sampled_from(live))
            seat, epoch = tree.start.seat, tree.start.epoch
            told = m.Told(seat=seat, epoch=epoch, extend=extend, ready=ready)
            self.world.tell(a.ProgramTold(told))

    @precondition(is_up)
    @rule(data=st.data(), what=st.sampled_from(["executed", "failed", "exited", "died"]))
    def something_happens_to_a_tree(self, data: st.DataObject, what: str) -> None:
        live = [tree for tree in self.world.trees.values() if tree.is_alive]
        if not live:
            return
        tree = data.draw(st.sampled_from(live))
        seat, epoch = tree.start.seat, tree.start.epoch
        if what == "executed" and not tree.is_executed:
            self.world.executed(seat, epoch)
        elif what == "failed" and not tree.is_executed and not tree.is_unkillable:
            tree.is_alive = False
            self.world.tell(a.SpawnFailed(seat, epoch, "ENOENT", True))
        elif what == "exited" and tree.is_executed:
            self.world.main_exits(seat, epoch, 0, 1)
        elif what == "died" and not tree.is_unkillable:
            tree.is_alive = False
            self.world.tell(a.TreeEmpty(seat, epoch))

    @precondition(is_connected)
    @rule(seat=st.sampled_from(SEATS), grace=st.sampled_from([0.0, 1.0, 30.0]))
    def stop(self, seat: str, grace: float) -> None:
        for epoch in self.world.live(seat):
            self.world.say(m.Stop(seat=seat, epoch=epoch, grace=grace))

    @precondition(is_connected)
    @rule(seat=st.sampled_from(SEATS))
    def seen(self, seat: str) -> None:
        record = self.world.table.seats.get(seat)
        if record is not None:
            self.world.say(m.Seen(seat=seat, epoch=record.start.epoch, pid=record.pid))

    @precondition(is_connected)
    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.world.say(m.Paused(paused=paused, number=1))

    @precondition(is_up)
    @rule()
    def agent_dies(self) -> None:
        if self.world.agent:
            self.world.kill_agent_from_outside()

    @precondition(is_up)
    @rule(seconds=st.sampled_from([0.01, 0.5, 1.0, 4.0, 11.0]), alive=st.booleans())
    def time_passes(self, seconds: float, alive: bool) -> None:
        if alive and self.is_connected():
            self.world.say(m.Alive(generation=self.world.table.generation))
        self.world.advance(seconds)

    @precondition(is_up)
    @rule()
    def the_guardian_sleeps(self) -> None:
        self.world.now += 20.0
        self.world.tell(a.Tick())

    @precondition(is_connected)
    @rule(code=st.integers(0, 3))
    def bye(self, code: int) -> None:
        self.world.say(m.Bye(code=code))

    @precondition(is_up)
    @rule()
    def shutdown(self) -> None:
        self.world.tell(a.ShutdownAsked("SIGTERM"))

    @invariant()
    def empty_is_said_only_of_the_dead(self) -> None:
        for message in self.world.take():
            if isinstance(message, m.Empty):
                assert not self.world.trees[message.seat, message.epoch].is_alive

    @invariant()
    def whoever_lives_past_hard_is_being_killed(self) -> None:
        if self.world.exited is not None or self.world.table.is_paused:
            return
        for seat in self.world.table.seats.values():
            if self.world.now >= seat.hard_at:
                assert seat.state in ("killing", "stuck", "empty")
            elif self.world.now >= seat.soft_at:
                assert seat.state in ("stopping", "killing", "stuck", "empty")

    @invariant()
    def whoever_lives_past_its_limit_is_being_killed(self) -> None:
        if self.world.exited is not None:
            return
        for seat in self.world.table.seats.values():
            if self.world.now >= seat.limit_at:
                assert seat.state in ("killing", "stuck", "empty")

    @invariant()
    def the_pages_deadline_is_the_tables(self) -> None:
        for seat in self.world.table.seats.values():
            tree = self.world.trees[seat.key]
            if tree.is_alive and not self.world.table.is_paused:
                assert tree.hard_at <= seat.hard_at

    def teardown(self) -> None:
        """Whatever was, a killed seat ends in EMPTY, or STUCK while it cannot be killed."""
        world = self.world
        if world.exited is None:
            world.tell(a.ShutdownAsked("SIGTERM"))
        if world.exited is None:
            world.tell(a.ShutdownAsked("SIGTERM"))
        world.advance(40.0)
        for (seat, epoch), tree in world.trees.items():
            if tree.is_alive:
                assert tree.is_unkillable
                record = world.table.seats[seat]
                assert (record.state, record.start.epoch) == ("stuck", epoch)
                world.release(seat, epoch)
        world.advance(1.0)
        assert world.exited is not None
        assert not any(tree.is_alive for tree in world.trees.values())
        super().teardown()


class ReleasingGuardianLife(GuardianLife):
    policy = Policy.RELEASE


PROFILE = settings(
    max_examples=200,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestKeep = GuardianLife.TestCase
TestKeep.settings = PROFILE
TestRelease = ReleasingGuardianLife.TestCase
TestRelease.settings = PROFILE
