"""A seat's decisions: who accepts, what a breadcrumb proves, when to start again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from incumbent.agent.lifecycle import (
    Accept,
    Decline,
    ProvenDead,
    Stand,
    StandAside,
    StillWaiting,
    accepts,
    breadcrumb_verdict,
    stands,
)
from incumbent.agent.tree import Breadcrumb, NodeFacts, SeatPlan

ME = NodeFacts(node="n1", node_id="id1", boot_id="boot", session="1")


def crumb(**changes):
    fields = {
        "epoch": 4,
        "node": "n2",
        "node_id": "id2",
        "boot_id": "boot",
        "session": "2",
        "s_min": 10.0,
        "containment": "sealed",
        "stop_budget": 3.5,
        "nonce": "x",
    }
    return Breadcrumb(**{**fields, **changes})


def verdict(breadcrumb, **changes):
    given_ = {
        "session_lives": False,
        "nodes": {},
        "me": ME,
        "mine_running": False,
        "on_unclean": "wait",
        "control": 0,
    }
    return breadcrumb_verdict(breadcrumb, **{**given_, **changes})


@given(st.permutations(["n1", "n2", "n3", "n4"]), st.sampled_from(["n1", "n3", "gone"]))
def test_somebody_always_accepts_after_at_most_one_decline_each(queue, target):
    plan, version = SeatPlan(node=target), 7
    declined = dict.fromkeys(queue, -1)

    declines = 0
    while True:
        head = queue[0]
        if isinstance(accepts(head, plan, version, declined[head], queue), Accept):
            break
        declined[head] = version
        queue = [*queue[1:], head]
        declines += 1

    assert declines <= len(declined) - 1
    if target in declined:
        assert head == target


def test_without_a_plan_the_head_accepts():
    assert isinstance(accepts("n1", None, 0, -1, ["n1"]), Accept)


def test_a_head_lets_the_target_pass_only_while_it_stands():
    plan = SeatPlan(node="n2")

    assert isinstance(accepts("n1", plan, 1, -1, ["n1", "n2"]), Decline)
    assert isinstance(accepts("n1", plan, 1, -1, ["n1"]), Accept)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Stand),
        ({"plan": SeatPlan(node="n1")}, Stand),
        ({"plan": SeatPlan(node="n2", standbys=["n1"])}, Stand),
        ({"plan": SeatPlan(node="n2", standbys=["n3"])}, StandAside),
        ({"plan": SeatPlan(node="gone", standbys=["n3"])}, Stand),
        ({"allowed": ["n2"]}, StandAside),
        ({"allowed": ["n1"]}, Stand),
        ({"unfit": "/opt/x does not exist on this node"}, StandAside),
    ],
)
def test_who_stands(changes, expected):
    given_ = {"allowed": (), "unfit": "", "plan": None, "live": ["n1", "n2", "n3"]}

    assert isinstance(stands("n1", **{**given_, **changes}), expected)


def test_a_sealed_instance_is_dead_when_its_session_is_gone():
    assert isinstance(verdict(crumb()), ProvenDead)


@pytest.mark.parametrize("containment", ["sealed", "swept"])
@pytest.mark.parametrize("on_unclean", ["wait", "go"])
def test_while_its_session_lives_nothing_proves_an_instance_dead(containment, on_unclean):
    answer = verdict(crumb(containment=containment), session_lives=True, on_unclean=on_unclean)

    assert isinstance(answer, StillWaiting)


def test_a_contained_instance_is_waited_for_like_a_swept_one():
    """systemd ends what is left of its unit, but only after a time that nobody else can know."""
    waiting = verdict(crumb(containment="contained"))

    assert isinstance(waiting, StillWaiting)
    assert "only contained" in waiting.why


def test_a_swept_instance_is_waited_for_and_the_sentence_names_the_way_out():
    answer = verdict(crumb(containment="swept"))

    assert isinstance(answer, StillWaiting)
    assert "incumbent node confirm-dead n2" in answer.why


def test_a_swept_instance_is_dead_once_its_node_was_booted_again():
    back = NodeFacts(node="n2", node_id="id2", boot_id="next boot", session="9")

    assert isinstance(verdict(crumb(containment="swept"), nodes={"n2": back}), ProvenDead)


def test_a_swept_instance_is_not_dead_because_its_node_is_back_in_the_same_boot():
    back = NodeFacts(node="n2", node_id="id2", boot_id="boot", session="9")

    assert isinstance(verdict(crumb(containment="swept"), nodes={"n2": back}), StillWaiting)


def test_on_unclean_go_is_the_operators_word():
    assert isinstance(verdict(crumb(containment="swept"), on_unclean="go"), ProvenDead)


def test_our_own_breadcrumb_is_settled_by_our_own_guardian():
    own = crumb(node="n1", node_id="id1", session="1", containment="swept")

    assert isinstance(verdict(own, session_lives=True), ProvenDead)
    assert isinstance(verdict(own, session_lives=True, mine_running=True), StillWaiting)


def test_our_own_breadcrumb_of_an_earlier_boot_goes_by_its_session():
    own = crumb(node="n1", node_id="id1", boot_id="earlier", session="1")

    assert isinstance(verdict(own, session_lives=True), StillWaiting)
    assert isinstance(verdict(own), ProvenDead)
