"""What failures lead to, by every policy, in time and over nodes."""

from __future__ import annotations

from typing import Any

import pytest

from incumbent.agent.failures import (
    Rules,
    counted,
    holds,
    next_change,
    pause,
    remark,
    restraint_of,
    signature,
)
from incumbent.agent.steadiness import Loss, aside_until, kept_out, staged
from incumbent.agent.tree import Failure, Failures, NodeFacts

NODES = ("n1", "n2", "n3")
P = "program"


def facts(node: str, aside_until: float = 0.0) -> NodeFacts:
    return NodeFacts(
        node=node, node_id=node, boot_id="b", session=node, lost=3, aside_until=aside_until
    )


class Story:
    """One component, failing; each failure at a time of its own."""

    def __init__(self, on_failure: str = "backoff", may: tuple[str, ...] = NODES, **rules: Any):
        self.rules = Rules(on_failure=on_failure, **rules)
        self.may = may
        self.history = Failures()
        self.now = 1000.0
        self.count = 0

    def fail(
        self,
        node: str = "n1",
        *,
        seat: str = "web/0",
        after: float = 1.0,
        uptime: float = 0.1,
        what: str = "exited with 1",
        permanent: bool = False,
        program: str = P,
    ) -> Failure:
        self.now += after
        self.count += 1
        failure = Failure(
            id=f"{seat}@{self.count}",
            seat=seat,
            node=node,
            at=self.now,
            what=what,
            signature=signature(what, ""),
            uptime=uptime,
            permanent=permanent,
        )
        self.tell(failure, program)
        return failure

    def tell(self, failure: Failure, program: str = P) -> None:
        self.history = counted(self.history, failure, self.rules, program=program, may=self.may)

    def pause(self, node: str = "n1", seat: str = "web/0", **more: Any) -> float:
        until, _ = pause(self.history, seat, node, self.rules, **more)
        return max(0.0, until - self.now)

    def here(self, node: str, live: tuple[str, ...] = NODES) -> str:
        may = {name: facts(name) for name in live}
        return kept_out(self.history, P, may, self.now).get(node, "")

    def anywhere(self, seat: str = "web/0") -> str:
        found = restraint_of(self.history, P, seat)
        return found.why if found is not None else ""


def test_restarts_slow_down_and_a_steady_run_forgets() -> None:
    story = Story()
    pauses = []
    for _ in range(10):
        story.fail(after=story.pause() + 0.1)
        pauses.append(story.pause())

    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    story.fail(after=70.0, uptime=10.0)
    assert story.pause() == 0


def test_a_component_has_its_own_pauses() -> None:
    story = Story(backoff=0.5, backoff_most=3.0)
    pauses = []
    for _ in range(6):
        story.fail(after=5.0)
        pauses.append(story.pause())

    assert pauses == [0, 0.5, 1, 2, 3, 3]


def test_one_failure_told_by_three_counts_once() -> None:
    story = Story("freeze", max_failures=2)
    failure = story.fail()

    story.tell(failure)
    story.tell(failure)

    assert len(story.history.failures) == 1
    assert story.anywhere() == ""


@pytest.mark.parametrize("uptime", [0.3, 2.0, 9.0, 10.5, 59.0])
def test_a_loop_is_found_at_the_documented_count_however_long_each_run_lasts(
    uptime: float,
) -> None:
    story = Story("freeze")
    for _ in range(4):
        story.fail(after=uptime, uptime=uptime)
        assert story.anywhere() == ""

    story.fail(after=uptime, uptime=uptime)

    assert story.anywhere() == (
        "5 failures within 600 s, the last: exited with 1; it is not started again until "
        "`incumbent retry web`"
    )


def test_monthly_crashes_do_not_add_up() -> None:
    story = Story("stop-everywhere", max_failures=2)
    for _ in range(24):
        story.fail(after=30 * 86400.0, uptime=30 * 86400.0)

    assert story.anywhere() == ""
    assert story.pause() == 0
    assert len(story.history.failures) == 1


def test_backoff_alone_never_gives_up() -> None:
    story = Story("backoff")
    for _ in range(200):
        story.fail()

    assert (story.anywhere(), story.here("n1"), story.history.restraints) == ("", "", [])
    assert len(story.history.failures) == 60, "and its history is bounded"


def test_move_has_the_node_do_without_it_for_a_window() -> None:
    story = Story("move", max_failures=3)
    for _ in range(3):
        story.fail("n1")

    assert story.here("n1") == (
        "3 failures within 600 s, the last: exited with 1; n1 does without it for 600 s"
    )
    assert story.here("n2") == ""
    assert story.here("n1", live=("n1",)) == "", "where no other is left, it is taken all the same"
    assert next_change(story.history, story.now) == story.now + 600
    story.now += 600
    assert story.here("n1") == ""


def test_a_node_that_fails_again_does_without_it_twice_as_long() -> None:
    story = Story("move", max_failures=2)
    lasted = []
    for _ in range(4):
        story.fail("n1")
        story.fail("n1")
        until = next_change(story.history, story.now)
        assert until is not None
        lasted.append(until - story.now)
        story.now = until

    assert lasted == [600, 1200, 2400, 4800]


def test_a_quarantined_node_stays_so_until_retry_even_if_it_is_the_last() -> None:
    story = Story("quarantine-node", max_failures=2)
    story.fail("n1")
    story.fail("n1")
    story.now += 86400.0

    assert story.here("n1", live=("n1",)).endswith("until `incumbent retry web`")
    assert next_change(story.history, story.now) is None


def test_failures_on_another_node_are_not_this_nodes() -> None:
    story = Story("move", max_failures=3)
    for node in ("n1", "n2", "n1", "n2"):
        story.fail(node, what=f"of {node}")

    assert (story.here("n1"), story.here("n2")) == ("", "")


def test_the_same_failure_on_three_nodes_is_not_the_nodes() -> None:
    story = Story("move", max_failures=2)
    for node in ("n1", "n1", "n2", "n2"):
        story.fail(node)
    assert story.here("n1") and story.here("n2")

    story.fail("n3")
    last = story.fail("n3")

    assert [story.here(node) for node in NODES] == ["", "", ""]
    assert remark(story.history, last, story.rules, NODES) == (
        "the same failure on n1, n2, n3: it is not the node, so it stays here"
    )


def test_failures_that_differ_blame_each_its_node() -> None:
    story = Story("move", max_failures=2)
    for node in ("n1", "n1", "n2", "n2"):
        story.fail(node, what=f"there is no disk of {'abc'[int(node[1]) - 1]}")

    assert story.here("n1") and story.here("n2")


def test_of_two_nodes_both_are_enough_and_of_one_there_is_no_other() -> None:
    two = Story("quarantine-node", may=("n1", "n2"), max_failures=1)
    two.fail("n1")
    two.fail("n2")
    one = Story("move", may=("n1",), max_failures=1)
    one.fail("n1")

    assert two.history.restraints == one.history.restraints == []


def test_freeze_is_for_a_seat_and_stop_everywhere_for_all_of_them() -> None:
    frozen = Story("freeze", max_failures=2)
    stopped = Story("stop-everywhere", max_failures=2)
    for story in (frozen, stopped):
        story.fail("n1", seat="web/0")
        story.fail("n2", seat="web/1")
    assert (frozen.anywhere("web/0"), frozen.anywhere("web/1")) == ("", "")
    assert stopped.anywhere("web/0") == stopped.anywhere("web/1") != ""

    frozen.fail("n2", seat="web/0")

    assert frozen.anywhere("web/0") and not frozen.anywhere("web/1")


@pytest.mark.parametrize("policy", ["backoff", "move", "quarantine-node", "freeze"])
def test_a_permanent_failure_is_enough_by_itself(policy: str) -> None:
    story = Story(policy)
    story.fail("n1", what="exited with 125", permanent=True)

    why = story.here("n1") or story.anywhere()

    assert "exited with 125, which says that trying again is vain; " in why


def test_another_program_begins_anew() -> None:
    story = Story("freeze", max_failures=1)
    story.fail()
    assert story.anywhere()

    assert restraint_of(story.history, "another", "web/0") is None
    story.fail(program="another", uptime=20.0)

    assert len(story.history.failures) == 1


def test_what_was_pardoned_waits_for_nothing() -> None:
    story = Story()
    for _ in range(5):
        story.fail()

    assert story.pause() == 8
    assert story.pause(since=story.now) == 0
    assert story.pause("n2") == 0, "another node has its own"


def test_a_signature_is_the_same_whatever_the_numbers() -> None:
    one = signature("code 1", "12:01 pid 17: cannot open /data")

    assert one == signature("code 1", "12:59 pid 4711: cannot open /data")
    assert one != signature("code 1", "12:59 pid 4711: cannot open /etc")


def lost(*times: float) -> list[Loss]:
    return [Loss(at=at, why="") for at in times]


def test_a_node_that_loses_its_session_again_and_again_stands_aside_for_a_growing_time() -> None:
    times = [1000.0 + 100 * count for count in range(10)]

    asides = [aside_until(lost(*times[:n]), times[n - 1]) - times[n - 1] for n in range(3, 11)]

    assert [aside_until(lost(*times[:n]), times[2]) for n in range(3)] == [0, 0, 0], (
        "two may happen"
    )
    assert asides == [10, 20, 40, 80, 160, 320, 600, 600]


def test_a_clock_set_back_by_hours_holds_up_nothing_for_hours() -> None:
    story = Story("move", max_failures=3)
    story.now = 100_000.0
    for _ in range(3):
        story.fail()
    assert story.here("n1")
    back = story.now - 3600.0

    assert kept_out(story.history, P, {n: facts(n) for n in NODES}, back) == {}
    assert next_change(story.history, back) is None
    until, last = pause(story.history, "web/0", "n1", story.rules)
    assert last is not None and not holds(last.at, until, back)
    assert holds(last.at, until, last.at - 0.1), "two nodes' clocks are never quite the same"
    story.now = back
    for _ in range(3):
        story.fail()
    assert story.here("n1"), "and from then on everything counts by the new time"
    assert 0 < story.pause() <= story.rules.backoff_most


def test_a_node_whose_clock_was_set_back_stands_aside_no_longer() -> None:
    losses = lost(5000.0, 5001.0, 5002.0)

    assert aside_until(losses, 1400.0) == 1410.0
    assert aside_until([*losses, *lost(1300.0)], 1301.0) == 0, "the others are hours away"


def test_sessions_lost_hours_apart_do_not_add_up() -> None:
    assert aside_until(lost(*[5000.0 * count for count in range(50)]), 2.5e5) == 0


def test_an_unsteady_node_is_passed_over_only_while_others_can_stand() -> None:
    may = {"n1": facts("n1", 100.0), "n2": facts("n2"), "n3": facts("n3", 50.0)}

    assert list(kept_out(Failures(), P, may, 10.0)) == ["n1", "n3"]
    assert list(kept_out(Failures(), P, may, 60.0)) == ["n1"]
    assert kept_out(Failures(), P, {"n1": may["n1"], "n3": may["n3"]}, 10.0) == {}


def test_one_node_restrained_and_the_other_unsteady_leave_it_to_both() -> None:
    story = Story("move", may=("n1", "n2"), max_failures=1)
    story.fail("n1")
    may = {"n1": facts("n1"), "n2": facts("n2", story.now + 60)}

    assert kept_out(story.history, P, may, story.now) == {}


def test_a_return_is_staged_within_a_node_and_between_nodes_and_bounded() -> None:
    ours = [staged(position, 0.2) for position in range(500)]

    assert ours == sorted(ours) and ours[0] != ours[1] and ours[-1] == 5.0
    assert staged(0, 0.2) != staged(0, 0.9)
