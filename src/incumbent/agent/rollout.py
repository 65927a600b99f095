"""How a change reaches the copies of a component: a few at a time, and no further than it works.

    change ─► begun ─► a copy's turn: restarted, up again ─► the next one's … ─► done
                            │ it fails, or is not ready in time
                            ├─► stopped: nobody else has a turn; who had none stays as it is
                            └─► reverted (`auto_revert`): who had one goes back, a few at a time

Nobody directs it. Whoever leads a copy looks at the component's record, and writes over the version
that it has read only what concerns its own copy: that it takes a turn, is up, or has failed. So a turn is
held by a copy, not by a node: where its agent dies, whoever leads it next goes on.

What a change wants is known by a `Mark`. Each names the newest zxid among the spec and what is used of the
configuration: an agent that lags behind does not replace a newer change by an older one.

Rule of this file: pure. At most `max_parallel` copies that ran are down for a roll-out at any time; a
copy that is down anyway counts among them, and starts with what is new. What has failed is begun
nowhere else until somebody changes it again, or says `retry`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from incumbent.agent.tree import Mark, RolledOut, Rollout, altered

__all__ = [
    "REVERTED",
    "STOPPED",
    "Copy",
    "Rules",
    "Step",
    "Wanted",
    "again",
    "aim",
    "failed",
    "look",
    "progress",
    "target",
]

KEPT = 10
"""So many roll-outs that are over are remembered."""
BEHIND = "this node has yet to hear of the newest change"
STOPPED = "the roll-out is stopped"
REVERTED = "the change is taken back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a component's spec says of it."""

    copies: int
    max_parallel: int
    auto_revert: bool

    @property
    def is_alone(self) -> bool:
        """Nobody's turn to wait for, nothing to go back to: no record is kept."""
        return self.copies == 1 and not self.auto_revert


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What operators want, as this node knows it. `zxid`: of its newest part."""

    mark: Mark
    zxid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What runs of one copy. `is_up`: ready, or for a while where nothing tells."""

    number: int
    mark: Mark
    is_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What is to be done, after `record` is written if it differs from what was read.

    keep     leave the copy as it is; a failure counts as ever
    change   restart it, or tell it
    pardon   a failure: it was the change's, which is taken back
    """

    record: Rollout | None
    do: Literal["keep", "change", "pardon"] = "keep"
    why: str = ""


def target(record: Rollout | None, number: int, wanted: Mark, rules: Rules) -> Mark:
    """What a copy of which nothing runs is started with."""
    if rules.is_alone or record is None or record.new != wanted or record.good is None:
        return wanted
    is_spared = record.state == "stopped" and str(number) not in record.seats
    return record.good if record.state == "reverted" or is_spared else wanted


def look(record: Rollout | None, copy: Copy, wanted: Wanted, rules: Rules, now: float) -> Step:
    """At a copy that runs. `now`: wall time."""
    if rules.is_alone:
        return Step(record=record, do="keep" if copy.mark == wanted.mark else "change")
    if record is None and copy.mark == wanted.mark:
        return Step(record=None)
    if record is None or record.new != wanted.mark:
        if record is not None and wanted.zxid < record.zxid:
            return Step(record=record, why=BEHIND)
        return Step(record=_begun(record, copy, wanted, now))
    if record.state == "stopped":
        return _in_a_stopped_one(record, copy)
    if copy.mark != aim(record):
        return _departing(record, copy, rules)
    why = f"{REVERTED}: {record.why}" if record.state == "reverted" else ""
    return Step(record=_arrived(record, copy, rules, now), why=why)


def failed(
    record: Rollout | None,
    copy: Copy,
    why: str,
    wanted: Wanted,
    rules: Rules,
    now: float,
    *,
    can_revert: bool,
) -> Step:
    """What ran of a copy, or was to run, has failed. `can_revert`: what was good before is at hand."""
    if rules.is_alone or record is None:
        return Step(record=record)
    if record.new != wanted.mark and copy.mark == wanted.mark and wanted.zxid >= record.zxid:
        record = _begun(record, copy, wanted, now)
    if copy.mark != record.new:
        return Step(record=record)
    if record.state == "reverted":
        return Step(record=record, do="pardon")
    if record.state != "under way":
        return Step(record=record)
    going = {k: state for k, state in record.seats.items() if state == "going"}
    seats = {**record.seats, str(copy.number): "going"}
    why = f"copy {copy.number}: {why}"
    if rules.auto_revert and can_revert and record.good not in (None, record.new):
        seats = {**going, str(copy.number): "going"}
        back = altered(record, state="reverted", why=why, ended_at=now, seats=seats)
        return Step(record=back, do="pardon")
    return Step(record=altered(record, state="stopped", why=why, ended_at=now, seats=seats))


def again(record: Rollout | None) -> Rollout | None:
    """What `retry` makes of it: what has failed is tried once more."""
    if record is None or record.state not in ("stopped", "reverted"):
        return record
    seats = {k: state for k, state in record.seats.items() if state == "going"}  # may be down
    return altered(record, state="under way", why="", ended_at=0.0, seats=seats)


def aim(record: Rollout) -> Mark:
    """What the copies are brought to."""
    return record.good if record.state == "reverted" and record.good is not None else record.new


def progress(record: Rollout, copies: int) -> str:
    """For operators."""
    up = sum(record.seats.get(str(k)) == "up" for k in range(copies))
    if record.state == "stopped":
        return f"{STOPPED}: {record.why}"
    if record.state == "reverted":
        return f"{REVERTED}: {record.why}; {up} of {copies} are up with what ran before"
    return f"a change is rolled out; {up} of {copies} are up with it"


def _begun(record: Rollout | None, copy: Copy, wanted: Wanted, now: float) -> Rollout:
    """Copies whose turn it is are down still, and count on."""
    if record is None:
        good = copy.mark if copy.is_up else None
        return Rollout(new=wanted.mark, good=good, zxid=wanted.zxid, at=now)
    over = RolledOut(
        new=record.new,
        state="replaced" if record.state == "under way" else record.state,
        at=record.ended_at or now,
        why=record.why,
    )
    return Rollout(
        new=wanted.mark,
        good=record.new if record.state == "done" else record.good,
        zxid=wanted.zxid,
        at=now,
        seats={k: state for k, state in record.seats.items() if state == "going"},
        before=[over, *record.before][:KEPT],
    )


def _in_a_stopped_one(record: Rollout, copy: Copy) -> Step:
    number = str(copy.number)
    if copy.mark != record.new and number in record.seats:  # its turn came, and then all was over
        seats = {k: state for k, state in record.seats.items() if k != number}
        return Step(record=altered(record, seats=seats))
    return Step(record=record, why=f"{STOPPED}: {record.why}")


def _arrived(record: Rollout, copy: Copy, rules: Rules, now: float) -> Rollout:
    number, state = str(copy.number), "up" if copy.is_up else "going"
    if record.state == "done":
        return record
    seats = {**record.seats, number: state}  # as before, perhaps; but fewer copies may be wanted
    is_done = all(seats.get(str(k)) == "up" for k in range(rules.copies))
    if is_done and record.state == "under way":
        return altered(record, seats=seats, state="done", ended_at=now)
    return altered(record, seats=seats)


def _departing(record: Rollout, copy: Copy, rules: Rules) -> Step:
    """It runs with something else than what it is to be brought to."""
    number = str(copy.number)
    if record.good is None and copy.is_up:
        return Step(record=altered(record, good=copy.mark))
    if record.seats.get(number) == "going":
        return Step(record=record, do="change")
    others = [int(k) for k, state in record.seats.items() if state == "going" and k != number]
    before = sorted(k for k in others if k < rules.copies)
    if len(before) >= rules.max_parallel:
        named = ", ".join(map(str, before))
        return Step(record=record, why=f"waits for its turn in the roll-out, after copy {named}")
    seats = {**record.seats, number: "going"}
    if record.state == "done":  # it came late, with what was there before
        return Step(record=altered(record, seats=seats, state="under way", ended_at=0.0))
    return Step(record=altered(record, seats=seats))
