"""The plan: fair, still at rest, and of no order among its arguments."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from incumbent.agent.placement import SeatNeeds, best_other, place
from incumbent.agent.tree import SeatPlan

NODES = [f"n{i}" for i in range(6)]
SEATS = [f"c{i}/0" for i in range(14)]

nodes = st.lists(st.sampled_from(NODES), min_size=1, unique=True)
owners = st.dictionaries(st.sampled_from(SEATS), st.none() | st.sampled_from(NODES))
limits = st.dictionaries(
    st.sampled_from(SEATS), st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True)
)


def needs(owner_of, limit_of=None):
    limit_of = limit_of or {}
    return [
        SeatNeeds(seat=seat, owner=owner, nodes=tuple(limit_of.get(seat, ())))
        for seat, owner in owner_of.items()
    ]


def owned_as_planned(plan, limit_of=None):
    return needs({seat: planned.node for seat, planned in plan.items()}, limit_of)


@given(owners, nodes, limits)
def test_at_rest_nothing_moves(owner_of, live, limit_of):
    plan = place(needs(owner_of, limit_of), live)

    again = place(owned_as_planned(plan, limit_of), live)

    assert {s: p.node for s, p in again.items()} == {s: p.node for s, p in plan.items()}


@given(owners, nodes, limits, st.randoms(use_true_random=False))
def test_the_order_of_the_arguments_changes_nothing(owner_of, live, limit_of, random):
    seats = needs(owner_of, limit_of)
    shuffled, live_shuffled = list(seats), list(live)
    random.shuffle(shuffled)
    random.shuffle(live_shuffled)

    assert place(shuffled, live_shuffled) == place(seats, live)


@given(owners, nodes, limits)
def test_a_seat_is_planned_only_where_it_may_be_and_left_out_where_nobody_may(
    owner_of, live, limit_of
):
    plan = place(needs(owner_of, limit_of), live)

    for seat in owner_of:
        allowed = [n for n in live if n in limit_of.get(seat, NODES)]
        if not allowed:
            assert seat not in plan
            continue
        assert plan[seat].node in allowed
        assert all(n in allowed and n != plan[seat].node for n in plan[seat].standbys)
        assert len(plan[seat].standbys) == min(2, len(allowed) - 1)


@given(owners, nodes)
def test_without_limits_no_two_nodes_differ_by_more_than_one(owner_of, live):
    plan = place(needs(owner_of), live)

    load = [sum(1 for p in plan.values() if p.node == n) for n in live]
    assert max(load) - min(load) <= 1


@given(owners, nodes)
def test_a_node_that_joins_draws_at_most_its_fair_share(owner_of, live):
    newcomer = "n-new"
    before = place(needs(owner_of), live)

    after = place(owned_as_planned(before), [*live, newcomer])

    moved = [s for s in before if after[s].node != before[s].node]
    assert len(moved) <= math.ceil(len(before) / (len(live) + 1))
    assert all(after[s].node == newcomer for s in moved)


@given(owners, nodes.filter(lambda live: len(live) > 1))
def test_a_node_that_goes_moves_only_what_it_had(owner_of, live):
    before = place(needs(owner_of), live)
    gone = live[0]

    after = place(owned_as_planned(before), live[1:])

    for seat, planned in before.items():
        if planned.node != gone:
            assert after[seat].node == planned.node


def test_seats_for_which_nobody_stands_are_no_load():
    stuck = [SeatNeeds(seat=f"stuck{i}/0", owner="n1", is_load=False) for i in range(4)]
    web = [SeatNeeds(seat=f"web{i}/0", owner="n2") for i in range(2)]

    plan = place([*stuck, *web], ["n1", "n2"])

    assert {plan["web0/0"].node, plan["web1/0"].node} == {"n1", "n2"}
    assert all(plan[s.seat].node == "n1" for s in stuck)


def test_a_seat_that_has_just_come_moves_rather_than_one_that_runs():
    runs = [SeatNeeds(seat="web/0", owner="n1")]
    came = [SeatNeeds(seat=f"web/{k}", owner="n1", is_new=True) for k in range(1, 5)]

    plan = place([*runs, *came], ["n1", "n2", "n3"])

    assert plan["web/0"].node == "n1"
    assert sorted(each.node for each in plan.values()) == ["n1", "n1", "n2", "n2", "n3"]


@given(owners, nodes.filter(lambda live: len(live) > 1), st.data())
def test_what_an_operator_moved_stays_and_moves_nothing_else(owner_of, live, data):
    before = place(needs(owner_of), live)
    moved = {
        seat: data.draw(st.sampled_from([n for n in live if n != planned.node]))
        for seat, planned in before.items()
        if data.draw(st.booleans())
    }
    seats = [
        SeatNeeds(
            seat=seat,
            owner=moved.get(seat, planned.node),
            taken_from=planned.node if seat in moved else "",
        )
        for seat, planned in before.items()
    ]

    after = place(seats, live)

    for seat, planned in before.items():
        assert after[seat].node == moved.get(seat, planned.node)
        assert after[seat].taken_from == (planned.node if seat in moved else "")


def test_what_was_moved_to_a_node_that_is_gone_is_placed_anew_and_forgotten():
    seats = [SeatNeeds(seat="web/0", owner="gone", taken_from="n1")]

    plan = place(seats, ["n1", "n2"])

    assert (plan["web/0"].node, plan["web/0"].taken_from) == ("n1", "")


def test_what_is_frozen_is_not_moved():
    seats = [SeatNeeds(seat=f"web/{k}", owner="n1", stays=True) for k in range(4)]

    plan = place(seats, ["n1", "n2"])

    assert {each.node for each in plan.values()} == {"n1"}


def test_the_best_other_node_is_the_one_with_least_to_do():
    plan = {
        "a/0": SeatPlan(node="n1"),
        "b/0": SeatPlan(node="n2"),
        "c/0": SeatPlan(node="n2"),
        "d/0": SeatPlan(node="n3"),
    }

    assert best_other("a/0", "n1", plan, ["n1", "n2", "n3"]) == "n3"
    assert best_other("a/0", "n1", plan, ["n1", "n2"]) == "n2"
    assert best_other("a/0", "n1", plan, ["n1"]) is None
