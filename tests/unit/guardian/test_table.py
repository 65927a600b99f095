"""The guardian's decisions, one sentence each."""

from __future__ import annotations

import math
import signal

import pytest
from tests.unit.guardian.stand_in import StandIn, passport, start

from incumbent.guardian import actions as a
from incumbent.guardian import messages as m
from incumbent.guardian.table import Policy, Table


def connected(policy: Policy = Policy.KEEP, **options: object) -> StandIn:
    """A guardian whose agent has a session and a lease of 10 s."""
    world = StandIn(Table(policy=policy, beat=1.0, guardian_pid=50, **options))  # type: ignore[arg-type]
    world.say(
        m.Hello(generation=1, pid=9),
        m.Session(generation=1, passport=passport(), hosts="h:2181"),
        m.Lease(generation=1, valid_until=world.now + 10, last_zxid=6),
    )
    world.take()
    return world


def running(policy: Policy = Policy.KEEP, **changes: object) -> StandIn:
    world = connected(policy)
    world.say(start(**changes))
    world.executed("web/0", 1)
    world.take()
    world.take_done()
    return world


def keep_alive(world: StandIn, seconds: float, lease: bool = True) -> None:
    """Time passes, with ALIVE (and LEASE) each second."""
    for _ in range(int(seconds)):
        world.advance(1.0)
        if world.exited is not None or not world.agent:
            return
        world.say(m.Alive(generation=world.table.generation))
        if lease:
            world.say(
                m.Lease(
                    generation=world.table.generation,
                    valid_until=world.now + 10,
                    last_zxid=7,
                )
            )


# starting


def test_a_start_is_carried_out_with_its_deadlines() -> None:
    world = connected()

    world.say(start())
    world.executed("web/0", 1)

    spawned = next(each for each in world.done if isinstance(each, a.SpawnSeat))
    assert (spawned.soft_at, spawned.hard_at) == (1006.0, 1009.5)
    assert world.take() == [m.Started(seat="web/0", epoch=1, pid=101, start_time=7, main=101)]


@pytest.mark.parametrize(
    ("asked", "later", "says"),
    [
        (start(epoch=1), 0.0, "not newer than 1"),
        (start(epoch=2), 0.0, "epoch 1 of it is not proven dead"),
        (start(seat="db/0", epoch=1), 6.0, "soft deadline has passed"),
        (start(seat="db/0", epoch=1, soft=10.0), 0.0, "soft deadline has passed"),
        (start(seat="db/0", epoch=1, generation=0), 0.0, "generation 0 is over"),
    ],
)
def test_a_start_is_refused(asked: m.Start, later: float, says: str) -> None:
    world = running()
    keep_alive(world, later, lease=False)
    world.take()

    world.say(asked)

    (refused,) = world.take()
    assert isinstance(refused, m.Refused)
    assert says in refused.why
    assert len(world.trees) == 1


def test_nothing_starts_before_the_first_lease() -> None:
    world = StandIn(Table())
    world.say(m.Hello(generation=1, pid=9))
    world.say(m.Session(generation=1, passport=passport(), hosts="h"), start())

    assert isinstance(world.sent[-1], m.Refused)


def test_a_refused_epoch_is_spent() -> None:
    world = running()
    world.say(start(epoch=2))
    world.say(m.Stop(seat="web/0", epoch=1, grace=0))
    world.take()

    world.say(start(epoch=2), start(epoch=3))

    refused, *_ = world.take()
    assert isinstance(refused, m.Refused)
    assert world.live("web/0") == [3]


def test_a_program_that_cannot_be_executed_is_refused_for_good() -> None:
    world = connected()
    world.say(start())

    world.trees["web/0", 1].is_alive = False
    world.tell(a.SpawnFailed("web/0", 1, "no such file", permanent=True))

    assert world.take() == [m.Refused(seat="web/0", epoch=1, why="no such file", permanent=True)]
    world.say(start(epoch=2))
    assert world.live("web/0") == [2]


def test_the_next_epoch_starts_once_the_last_is_empty_and_the_old_init_is_reaped() -> None:
    world = running()
    world.main_exits("web/0", 1)

    world.say(start(epoch=2))

    assert world.live("web/0") == [2]
    assert world.trees["web/0", 1].is_reaped


# ending of a program


def test_what_main_leaves_behind_is_killed_and_counted() -> None:
    world = running()
    world.advance(2)

    world.main_exits("web/0", 1, code=0, left=3)

    exited, empty = world.take()
    assert exited == m.Exited(seat="web/0", epoch=1, code=0, signal=None, uptime=2.0, left=3)
    assert empty == m.Empty(seat="web/0", epoch=1)


def test_an_init_is_reaped_only_after_the_agent_has_its_pidfd() -> None:
    world = running()
    world.main_exits("web/0", 1)
    assert not world.trees["web/0", 1].is_reaped

    world.say(m.Seen(seat="web/0", epoch=1, pid=101))

    assert world.trees["web/0", 1].is_reaped


def test_a_tree_killed_from_outside_has_no_status_but_is_empty() -> None:
    world = running()
    world.trees["web/0", 1].is_alive = False

    world.tell(a.TreeEmpty("web/0", 1))

    exited, empty = world.take()
    assert isinstance(exited, m.Exited) and (exited.code, exited.signal) == (None, None)
    assert isinstance(empty, m.Empty)


def test_a_tree_that_ended_itself_at_its_hard_deadline_says_so_to_the_next_agent_too() -> None:
    world = running()
    seat = world.table.seats["web/0"]
    world.now = seat.hard_at + 0.01

    world.tell(a.TreeEmpty("web/0", 1))

    exited = seat.report(world.now).exited
    assert exited is not None and "hard deadline" in exited.why


# stopping


def test_an_ordered_stop_is_signal_continue_and_after_the_grace_kill() -> None:
    world = connected()
    world.next_tree_ignores_stop = True
    world.say(start(stop_signal=int(signal.SIGINT)))
    world.executed("web/0", 1)
    world.take()

    world.say(m.Stop(seat="web/0", epoch=1, grace=2.0))
    tree = world.trees["web/0", 1]
    assert tree.signals == [signal.SIGINT, signal.SIGCONT]
    world.advance(1.9)
    assert tree.is_alive
    world.advance(0.2)

    assert tree.signals[-1] == signal.SIGKILL
    assert [each.tag for each in world.take()] == ["STOPPING", "EXITED", "EMPTY"]


def test_a_stop_without_grace_kills_at_once() -> None:
    world = running()

    world.say(m.Stop(seat="web/0", epoch=1, grace=0))

    assert world.trees["web/0", 1].signals == [signal.SIGKILL]
    assert [each.tag for each in world.take()] == ["EXITED", "EMPTY"]


def test_a_second_stop_can_only_shorten_the_grace() -> None:
    world = connected()
    world.next_tree_ignores_stop = True
    world.say(start())
    world.executed("web/0", 1)

    world.say(m.Stop(seat="web/0", epoch=1, grace=3.0), m.Stop(seat="web/0", epoch=1, grace=9.0))
    world.advance(1.0)
    world.say(m.Stop(seat="web/0", epoch=1, grace=0))

    assert not world.trees["web/0", 1].is_alive
    assert world.trees["web/0", 1].signals.count(signal.SIGTERM) == 1


def test_a_stop_of_what_is_empty_is_answered_and_one_of_another_epoch_ignored() -> None:
    world = running()
    world.main_exits("web/0", 1)
    world.take()

    world.say(m.Stop(seat="web/0", epoch=1, grace=1), m.Stop(seat="web/0", epoch=7, grace=1))

    assert world.take() == [m.Empty(seat="web/0", epoch=1)]


def test_a_program_not_executed_yet_is_killed_without_grace() -> None:
    world = connected()
    world.say(start())

    world.say(m.Stop(seat="web/0", epoch=1, grace=5.0))

    assert not world.live("web/0")


# deadlines


def test_at_soft_the_stop_begins_by_itself_and_a_late_lease_does_not_undo_it() -> None:
    world = connected()
    world.next_tree_ignores_stop = True
    world.say(start())
    world.executed("web/0", 1)
    world.take()

    keep_alive(world, 6, lease=False)
    assert world.trees["web/0", 1].signals == [signal.SIGTERM, signal.SIGCONT]
    keep_alive(world, 4, lease=True)

    assert signal.SIGKILL in world.trees["web/0", 1].signals
    assert [each.tag for each in world.take() if each.tag != "LEASE_ACK"] == [
        "STOPPING",
        "EXITED",
        "EMPTY",
    ]


def test_at_hard_the_tree_is_killed_whatever_grace_was_ordered() -> None:
    world = connected()
    world.next_tree_ignores_stop = True
    world.say(start())
    world.executed("web/0", 1)
    world.say(m.Stop(seat="web/0", epoch=1, grace=60.0))

    keep_alive(world, 9, lease=False)
    assert world.live("web/0") == [1] or signal.SIGKILL in world.trees["web/0", 1].signals
    keep_alive(world, 1, lease=False)

    assert not world.live("web/0")


def test_each_lease_moves_every_deadline_before_it_is_acknowledged() -> None:
    world = running()

    world.say(m.Lease(generation=1, valid_until=1020.0, last_zxid=9))

    write, ack = (each for each in world.done if not isinstance(each, a.WakeAt))
    assert write == a.WriteDeadline((0x1234, 0.5), 1019.5)
    assert ack == a.Send(m.LeaseAck(valid_until=1020.0))
    assert world.table.passport is not None and world.table.passport["last_zxid"] == 9


def test_while_paused_no_deadline_is_enforced() -> None:
    world = running()

    world.say(m.Paused(paused=True, number=1))
    assert world.trees["web/0", 1].hard_at == math.inf
    keep_alive(world, 100, lease=False)
    assert world.live("web/0") == [1]
    world.say(m.Paused(paused=False, number=2))

    assert not world.live("web/0")


def test_a_tree_that_outlives_sigkill_is_stuck_retried_and_never_called_empty() -> None:
    world = connected()
    world.next_tree_is_unkillable = True
    world.say(start())
    world.executed("web/0", 1)
    world.take()

    world.say(m.Stop(seat="web/0", epoch=1, grace=0))
    keep_alive(world, 20)
    tags = [each.tag for each in world.take() if each.tag != "LEASE_ACK"]
    assert tags == ["STUCK"]
    assert world.trees["web/0", 1].signals.count(signal.SIGKILL) > 100
    world.say(start(epoch=2))
    refused = world.sent[-1]
    assert isinstance(refused, m.Refused) and "stuck" in refused.why
    world.release("web/0", 1)
    world.advance(0.2)

    assert [each.tag for each in world.take()][-1] == "EMPTY"


def test_a_session_that_comes_again_has_the_lease_of_its_programs() -> None:
    world = running()
    for session_id in (99, 0x1234):
        world.say(m.Session(generation=1, passport=passport(session_id=session_id), hosts="h"))

    world.say(m.Lease(generation=1, valid_until=1020.0, last_zxid=9))

    assert world.trees["web/0", 1].hard_at == 1019.5
    assert world.table.seats["web/0"].hard_at == 1019.5


def test_a_new_sessions_lease_does_not_prolong_the_old_sessions_programs() -> None:
    world = running()

    world.say(m.Session(generation=1, passport=passport(session_id=99), hosts="h"))
    world.say(m.Lease(generation=1, valid_until=world.now + 100, last_zxid=1))
    assert world.trees["web/0", 1].hard_at == 1009.5
    keep_alive(world, 11, lease=False)

    assert not world.live("web/0")


# the agent's death


def test_keep_a_dead_agent_is_respawned_and_learns_everything() -> None:
    world = running()
    world.say(m.Seen(seat="web/0", epoch=1, pid=101))

    world.kill_agent_from_outside()
    assert world.agent == 2
    world.say(m.Hello(generation=2, pid=10))

    (welcome,) = world.take()
    assert isinstance(welcome, m.Welcome)
    assert welcome.generation == 2
    assert welcome.passport is not None and welcome.passport["last_zxid"] == 6
    assert welcome.lease == 1010.0
    (report,) = welcome.seats
    assert (report.epoch, report.pid, report.state) == (1, 101, "running")
    assert world.live("web/0") == [1]


def test_after_a_respawn_an_init_is_not_reaped_before_the_new_agent_has_seen_it() -> None:
    world = running()
    world.say(m.Seen(seat="web/0", epoch=1, pid=101))
    world.kill_agent_from_outside()

    world.main_exits("web/0", 1, code=4)
    assert not world.trees["web/0", 1].is_reaped
    world.say(m.Hello(generation=2, pid=10))

    (welcome,) = world.take()
    assert isinstance(welcome, m.Welcome)
    report = welcome.seats[0]
    assert (report.state, report.pid) == ("empty", 101)
    assert report.exited is not None and report.exited.code == 4
    world.say(m.Seen(seat="web/0", epoch=1, pid=101))
    assert world.trees["web/0", 1].is_reaped


def test_three_missed_beats_kill_the_agent_and_the_next_one_follows_its_death() -> None:
    world = running()

    world.advance(2.9)
    assert world.agent == 1
    world.advance(0.2)

    killed = next(i for i, each in enumerate(world.done) if isinstance(each, a.KillAgent))
    spawned = world.done.index(a.SpawnAgent(2))
    assert killed < spawned
    assert world.live("web/0") == [1]


def test_the_guardians_own_sleep_is_not_counted_as_the_agents_silence() -> None:
    world = connected()

    world.now += 60  # nobody woke the table
    world.tell(a.Tick())

    assert world.agent == 1


def test_an_agent_that_never_says_hello_is_replaced() -> None:
    world = StandIn(Table(hello_timeout=5.0))

    world.advance(5.1)

    assert world.agent == 2


def test_an_agent_whose_link_is_closed_is_killed_before_another_one_starts() -> None:
    world = running()

    world.tell(a.LinkClosed(1))
    world.advance(1.9)
    assert world.agent == 1
    world.advance(0.2)

    kinds = [type(each) for each in world.done]
    assert kinds.index(a.KillAgent) < kinds.index(a.SpawnAgent)


def test_an_agent_that_ends_by_itself_is_not_killed_for_its_closed_link() -> None:
    world = running(Policy.RELEASE)

    world.tell(a.LinkClosed(1))
    world.agent = 0
    world.tell(a.AgentDied(1, 3))

    assert a.KillAgent not in [type(each) for each in world.done]
    assert world.exited == 3


def test_an_agent_that_breaks_the_protocol_is_replaced() -> None:
    world = running()

    world.tell(a.AgentBroke(1, "unknown message"))

    assert world.agent == 2
    assert world.live("web/0") == [1]


def test_messages_of_a_past_generation_do_nothing() -> None:
    world = running()
    world.kill_agent_from_outside()

    world.tell(a.Received(1, m.Lease(generation=1, valid_until=5000.0, last_zxid=1)))
    world.tell(a.Received(1, m.Stop(seat="web/0", epoch=1, grace=0)))

    assert world.table.valid_until == 1010.0
    assert world.live("web/0") == [1]


def test_no_lease_from_the_new_agent_by_soft_ends_everything_in_order() -> None:
    world = running()
    world.kill_agent_from_outside()
    world.say(m.Hello(generation=2, pid=10))

    for _ in range(7):
        world.advance(1.0)
        if world.agent:
            world.say(m.Alive(generation=2))

    assert world.trees["web/0", 1].signals[0] == signal.SIGTERM
    assert world.closer_runs == 1
    assert world.exited == 1
    closer = next(each for each in world.done if isinstance(each, a.RunCloser))
    assert closer.breadcrumbs == ("/incumbent/components/web/seats/0/running/1",)
    assert closer.hosts == "h:2181"


def test_three_deaths_within_one_session_timeout_are_a_crash_loop() -> None:
    world = running()

    world.kill_agent_from_outside()
    for _ in range(2):
        world.say(m.Hello(generation=0, pid=10))
        world.advance(0.5)
        world.kill_agent_from_outside()

    assert not world.live("web/0")
    assert world.closer_runs == 1
    assert world.exited == 1


def test_deaths_that_are_far_apart_are_not_a_crash_loop() -> None:
    world = running()

    world.kill_agent_from_outside()
    for _ in range(6):
        world.say(
            m.Hello(generation=0, pid=10),
            m.Lease(generation=world.agent, valid_until=world.now + 10, last_zxid=1),
        )
        keep_alive(world, 6)
        world.kill_agent_from_outside()

    assert world.exited is None
    assert world.live("web/0") == [1]


def test_an_agent_that_cannot_run_at_all_gives_its_exit_code_to_the_guardian() -> None:
    world = StandIn(Table())

    for generation in (1, 2, 3):
        world.agent = 0
        world.tell(a.AgentDied(generation, 2))

    assert world.exited == 2
    assert world.closer_runs == 0


def test_release_stops_proves_closes_and_fails() -> None:
    world = running(Policy.RELEASE)

    world.kill_agent_from_outside()

    kinds = [type(each) for each in world.done]
    assert kinds.index(a.Signal) < kinds.index(a.RunCloser) < kinds.index(a.Exit)
    assert a.SpawnAgent not in kinds
    assert world.exited == 1


# shutdown


def test_a_shutdown_waits_for_the_agents_bye_and_takes_its_code() -> None:
    world = running()

    world.tell(a.ShutdownAsked("SIGTERM"))
    assert world.take() == [m.Shutdown(why="SIGTERM")]
    world.say(m.Stop(seat="web/0", epoch=1, grace=1.0), m.Bye(code=0))
    assert world.exited is None
    world.agent = 0
    world.tell(a.LinkClosed(1))
    world.tell(a.AgentDied(1, 0))

    assert world.exited == 0
    assert world.closer_runs == 0
    assert a.KillAgent not in [type(each) for each in world.done]


def test_without_a_bye_in_time_everything_is_killed_and_the_session_closed() -> None:
    world = running(stop_grace=3.0)

    world.tell(a.ShutdownAsked("SIGTERM"))
    keep_alive(world, 7)
    assert world.exited is None
    keep_alive(world, 2)

    assert world.exited == 1
    assert world.closer_runs == 1


def test_an_ordered_stop_with_a_long_grace_prolongs_the_wait_for_bye() -> None:
    world = connected()
    world.next_tree_ignores_stop = True
    world.say(start(stop_grace=3.0))
    world.executed("web/0", 1)

    world.tell(a.ShutdownAsked("SIGTERM"))
    world.say(m.Stop(seat="web/0", epoch=1, grace=60.0))
    keep_alive(world, 50)

    assert world.exited is None
    assert world.live("web/0") == [1]


def test_asked_twice_everything_ends_at_once() -> None:
    world = connected()
    world.next_tree_ignores_stop = True
    world.say(start())
    world.executed("web/0", 1)

    world.tell(a.ShutdownAsked("SIGINT"))
    world.tell(a.ShutdownAsked("SIGINT"))

    assert world.exited == 1
    assert world.closer_runs == 1


def test_a_shutdown_before_any_agent_speaks_ends_at_once() -> None:
    world = StandIn(Table())

    world.tell(a.ShutdownAsked("SIGTERM"))

    assert world.exited == 0


def test_nothing_starts_during_a_shutdown() -> None:
    world = connected()
    world.tell(a.ShutdownAsked("SIGTERM"))

    world.say(start())

    refused = world.sent[-1]
    assert isinstance(refused, m.Refused) and "ending" in refused.why


def test_an_agent_that_dies_while_it_drains_is_not_respawned() -> None:
    world = running()
    world.tell(a.ShutdownAsked("SIGTERM"))

    world.kill_agent_from_outside()

    assert world.exited == 1
    assert world.closer_runs == 1


def test_the_session_is_not_closed_while_a_tree_is_stuck() -> None:
    world = connected(Policy.RELEASE)
    world.next_tree_is_unkillable = True
    world.say(start())
    world.executed("web/0", 1)

    world.kill_agent_from_outside()
    world.advance(30.0)
    assert world.closer_runs == 0 and world.exited is None
    world.release("web/0", 1)
    world.advance(0.2)

    assert world.closer_runs == 1
    assert world.exited == 1


def test_an_agent_that_says_bye_and_stays_is_killed() -> None:
    world = running()

    world.say(m.Bye(code=0))
    world.advance(2.1)

    assert world.exited == 0


# what a program says, hooks and checks


def test_what_a_program_says_is_passed_on_and_known_to_the_next_agent() -> None:
    world = running()

    world.tell(a.ProgramTold(m.Told(seat="web/0", epoch=1, ready=True)))
    world.tell(a.ProgramTold(m.Told(seat="web/0", epoch=1, status="busy", alive=True)))

    assert [each.tag for each in world.take()] == ["TOLD", "TOLD"]
    world.kill_agent_from_outside()
    world.say(m.Hello(pid=10))
    told = world.take()[0].seats[0].told  # type: ignore[union-attr]
    assert told is not None and told.ready and told.status == "busy"


def test_a_program_may_put_off_the_end_of_its_stop_but_not_for_ever() -> None:
    world = running()
    world.trees["web/0", 1].ignores_stop = True
    world.say(m.Stop(seat="web/0", epoch=1, grace=3.0))

    world.tell(a.ProgramTold(m.Told(seat="web/0", epoch=1, extend=30.0)))
    keep_alive(world, 20)
    assert world.live("web/0")
    for _ in range(100):
        world.tell(a.ProgramTold(m.Told(seat="web/0", epoch=1, extend=30.0)))
        keep_alive(world, 7)

    assert not world.live("web/0")


def test_no_word_of_a_program_lengthens_the_stop_at_its_soft_deadline() -> None:
    world = running()
    world.trees["web/0", 1].ignores_stop = True
    world.say(m.Stop(seat="web/0", epoch=1, grace=3.0))
    world.tell(a.ProgramTold(m.Told(seat="web/0", epoch=1, extend=60.0)))

    keep_alive(world, 6, lease=False)
    world.tell(a.ProgramTold(m.Told(seat="web/0", epoch=1, extend=60.0)))
    keep_alive(world, 4, lease=False)

    assert not world.live("web/0")


def hook(epoch: int = 1, beside: int = 1, limit: float = 2.0) -> m.Start:
    return start(epoch, "web/0!after_start", beside=beside, limit=limit, breadcrumb=None)


def test_a_hook_is_killed_when_its_time_is_over() -> None:
    world = running()
    world.say(hook())
    world.executed("web/0!after_start", 1)

    world.advance(2.0)

    assert world.live("web/0") and not world.live("web/0!after_start")


def test_a_newer_instance_does_not_start_beside_a_hook_of_an_older_one() -> None:
    world = running()
    world.say(hook(limit=60.0))
    world.executed("web/0!after_start", 1)
    world.main_exits("web/0", 1)
    world.take()

    world.say(start(2))

    (refused,) = world.take()
    assert isinstance(refused, m.Refused) and "web/0!after_start of epoch 1" in refused.why


def test_a_hook_of_an_instance_that_is_over_is_refused() -> None:
    world = running()
    world.main_exits("web/0", 1)
    world.say(start(2))
    world.take()

    world.say(hook(beside=1))

    (refused,) = world.take()
    assert isinstance(refused, m.Refused) and refused.why == "epoch 1 of web/0 is over"


def test_hooks_start_while_the_node_is_stopped_in_order_and_no_program_does() -> None:
    world = running()
    world.tell(a.ShutdownAsked("SIGTERM"))
    world.take()

    world.say(hook(limit=20.0), start(2, "db/0"))
    keep_alive(world, 15)

    assert world.live("web/0!after_start")
    assert world.table._phase.name == "DRAINING"  # it waits for the hook's time, too
    assert [each.why for each in world.take() if isinstance(each, m.Refused)] == [
        "the guardian is ending"
    ]
