"""What an order's end is told as."""

from __future__ import annotations

from incumbent.agent.tree import Breadcrumb
from incumbent.cli.orders import not_removed


def _crumb(node: str, epoch: int) -> Breadcrumb:
    return Breadcrumb(
        epoch=epoch,
        node=node,
        node_id="1",
        boot_id="b",
        session="0x1",
        s_min=10.0,
        containment="sealed",
        stop_budget=3.0,
        nonce="n",
    )


def test_what_is_not_removed_in_time_says_what_may_still_run_where() -> None:
    said = not_removed("web", 60.0, [_crumb("n1", 4), _crumb("n2", 1)])

    assert "not proven dead after 60 s: epoch 4 on n1, epoch 1 on n2; " in said
    assert said.endswith("then `incumbent remove web` again")


def test_what_has_ended_just_after_its_time_is_not_called_alive() -> None:
    said = not_removed("web", 0.5, [])

    assert "nothing of it is left" in said
    assert "not proven dead" not in said
    assert "`incumbent remove web` again" in said
