"""What `apply --plan` says of a file: what would change, what that would restart, and no secrets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.cli.clusters import cluster, running, web

from incumbent.agent.tree import Desired
from incumbent.cli.apply_plan import planned, text
from incumbent.spec import Check, Spec


def said(*components: Any, specs: list[Spec], prune: bool = False) -> str:
    return "\n".join(text(each) for each in planned(cluster(*components), specs, prune=prune))


THREE = web(*(running(number=k) for k in range(3)), env={"PORT": "80", "DB_PASSWORD": "old"})


def spec(**more: Any) -> Spec:
    env = {"PORT": "80", "DB_PASSWORD": "old"}
    return Spec(**{"name": "web", "command": ("web",), "copies": 3, "env": env, **more})


def test_what_is_the_same_is_unchanged_and_what_is_not_there_yet_is_created() -> None:
    both = [spec(), Spec(name="new", command=("new",), copies=2)]

    assert said(THREE, specs=both) == "web: unchanged\nnew: created\n  2 copies to start"
    assert [each.is_change for each in planned(cluster(THREE), both, prune=False)] == [False, True]


def test_each_key_is_shown_before_and_after_and_what_that_restarts() -> None:
    new = spec(
        command=("web", "--api-token", "s3cret"),
        env={"DB_PASSWORD": "new", "MORE": "1"},
        max_parallel=2,
    )

    assert said(THREE, specs=[new]) == (
        "web: changed\n"
        "  command          web → web --api-token '***'\n"
        "  env.DB_PASSWORD  *** → ***\n"
        '  env.MORE         (none) → "1"\n'
        '  env.PORT         "80" → (none)\n'
        "  max_parallel     1 → 2\n"
        "  restarts web/0, web/1, web/2 where they run, in no fixed order, 2 at a time: the next one "
        "when the one before has run for 10 s\n"
        "  at the first failure the others stay as they are"
    )


def test_a_ready_check_is_what_the_next_one_waits_for_and_all_may_go_back() -> None:
    check = Check(way="command", command=("ask", "--password=x"), interval=1.0, timeout=1.0)

    told = said(THREE, specs=[spec(ready=check, auto_revert=True)])

    assert "when the one before is ready\n  at the first failure all go back" in told
    assert "--password=***" in told and "=x" not in told


def test_what_is_none_of_the_programs_business_restarts_nothing() -> None:
    told = said(THREE, specs=[spec(copies=4, labels={"team": "x"})])

    assert told.endswith("  starts web/3\n  restarts nothing")
    assert said(THREE, specs=[spec(copies=1)]).endswith("  stops web/1, web/2\n  restarts nothing")


def test_what_is_stopped_or_frozen_is_not_restarted() -> None:
    new = [spec(env={})]

    assert "`incumbent start` starts it" in said(
        replace(THREE, desired=Desired(run=False)), specs=new
    )
    frozen = replace(THREE, desired=Desired(frozen_by="ops@desk"))
    assert "frozen by ops@desk: restarts nothing before" in said(frozen, specs=new)


def test_what_the_file_lacks_goes_on_or_is_removed() -> None:
    assert said(THREE, specs=[]) == "web: not in the file\n  goes on"
    assert said(THREE, specs=[], prune=True) == (
        "web: removed\n  stopped and removed: web/0, web/1, web/2"
    )
