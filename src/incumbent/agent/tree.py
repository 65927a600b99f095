"""Where things are under the root, and what stands in them.

Rule of this file: a znode's name and its content are made and read here and nowhere else.
Content is JSON with a version; a newer version is refused, unknown keys are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import msgspec

from incumbent.errors import IncumbentError

__all__ = [
    "Access",
    "Config",
    "ConfigEntry",
    "Breadcrumb",
    "Candidate",
    "Command",
    "Control",
    "Desired",
    "Failure",
    "Failures",
    "Mark",
    "NodeFacts",
    "Observed",
    "Offer",
    "Plan",
    "Restraint",
    "RolledOut",
    "Rollout",
    "SeatPlan",
    "SeatRecord",
    "Taken",
    "Tree",
    "UnreadableZnode",
    "altered",
    "read",
    "seat_name",
    "session_key",
    "split_seat",
    "write",
]


class UnreadableZnode(IncumbentError):
    """A znode of ours holds something that we cannot read: nothing is decided on a guess.

    `is_foreign`: written by another version of ours, as far as we can tell; not by accident.
    """

    def __init__(self, path: str, why: str, *, is_foreign: bool = False) -> None:
        self.path = path
        self.why = why
        self.is_foreign = is_foreign
        super().__init__(path, why)

    def __str__(self) -> str:
        return f"{self.path} cannot be read: {self.why}; upgrade this node, or put it right"


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """/control: the operators' settings. `by`: who paused or resumed, `since` then (wall time)."""

    v: int = 1
    paused: bool = False
    by: str = ""
    since: float = 0.0


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """/access: who may do what below the root (see `access`). Ids are SCHEME:ID, as ACLs have
    them. `readable`: everybody may read."""

    v: int = 1
    operators: list[str]
    agents: list[str]
    readable: bool = False


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """/nodes/<node>, ephemeral: what does not change while the node's session lives, but for
    `paused`, the zxid of the pause that its guardian goes by, 0 while it goes by the lease; and for
    `lost` and what follows from it.
    """

    v: int = 1
    node: str
    node_id: str
    boot_id: str
    session: str
    pid: int = 0
    containments: list[str] = []
    since: float = 0.0
    lost: int = 0
    """How often within an hour it has lost its connection for so long that its programs ended."""
    aside_until: float = 0.0
    """Wall time until which it stands for nothing, for that, while others can."""
    shows: list[str] = []
    """Its ids, SCHEME:ID, as an ACL would have them."""
    paused: int = 0
    labels: dict[str, str] = {}
    logs: str = ""
    """Where it shows its logs: tls://HOST:PORT or tcp://HOST:PORT; "": to nobody."""


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """/components/<c>/desired: what operators want. `frozen_by`: who wants it left as it is, since
    when (wall time): nothing of it is started, moved or restarted; it may be stopped.
    """

    v: int = 1
    run: bool = True
    frozen_by: str = ""
    frozen_since: float = 0.0


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a key had, since when (wall time), and who set it."""

    value: str
    at: float = 0.0
    by: str = ""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """/config/<key>: a value of the cluster's configuration, and those before, newest first."""

    v: int = 1
    now: ConfigEntry
    before: list[ConfigEntry] = []


class SeatRecord(msgspec.Struct, frozen=True, kw_only=True):
    """/components/<c>/seats/<k>: the count of starts; its version is for compare-and-set."""

    v: int = 1
    epoch: int = 0
    nonce: str = ""


class Breadcrumb(msgspec.Struct, frozen=True, kw_only=True):
    """…/running/<epoch>: an instance may be running. It does not change, but for `control`: the
    zxid of /control's last change when its guardian certainly kept the deadlines (`pausing`).
    """

    v: int = 1
    epoch: int
    node: str
    node_id: str
    boot_id: str
    session: str
    s_min: float
    containment: str
    stop_budget: float
    nonce: str
    program: str = ""
    """Of its spec (`spec.program`)."""
    config: dict[str, str] = {}
    """Of what it uses of the configuration: variable → digest of its value."""
    control: int = 0


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a contender would start with: its breadcrumb, yet without an epoch, and the versions
    of control and desired under which it may start. See `grant.py`.
    """

    breadcrumb: Breadcrumb
    control: int
    desired: int


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A contender of a seat. `declined`: the plan version under which it let others pass."""

    v: int = 1
    node: str
    declined: int = -1
    offer: Offer | None = None


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """…/observed: written by the leader at each change of state. Times are wall time."""

    v: int = 1
    epoch: int
    state: str
    node: str
    pid: int = 0
    containment: str = ""
    since: float = 0.0
    reason: str = ""
    noticed_at: float = 0.0
    proved_at: float = 0.0
    receipt: str = ""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """An order at one seat: by which leader, for which of its instances, and what came of it."""

    epoch: int
    session: str
    outcome: str = ""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """/components/<c>/commands/<id>: what the leaders of its seats are to do once. `seats`: by
    number, who took it. `signal`: its name, SIGHUP, where that is what to do. `only`: the numbers
    of the seats that it is for; none: all."""

    v: int = 1
    do: str
    signal: str = ""
    by: str = ""
    only: list[str] = []
    seats: dict[str, Taken] = {}


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One failure of a component. `id`: by which it counts once; `at`: wall time; `uptime`: how
    many seconds it had run; `signature`: the same for the same failure (`failures.signature`).
    """

    id: str
    seat: str
    node: str
    at: float
    what: str
    signature: str
    uptime: float = 0.0
    permanent: bool = False


class Restraint(msgspec.Struct, frozen=True, kw_only=True):
    """What a component does without because of its failures: a `node` by name, the start of a
    `seat`, or of the `component`. `until` is wall time, 0: until `incumbent retry`. `times`: how
    often it came to that.
    """

    what: Literal["node", "seat", "component"]
    name: str
    at: float
    until: float
    why: str
    times: int = 1
    signature: str = ""


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """/components/<c>/failures, oldest first. Of one `program` (of a spec) only."""

    v: int = 1
    program: str = ""
    failures: list[Failure] = []
    restraints: list[Restraint] = []


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """By which one knows what an instance was started with: `program` of its spec, and digests of
    what it uses of the configuration, by variable."""

    program: str
    config: dict[str, str] = {}


class RolledOut(msgspec.Struct, frozen=True, kw_only=True):
    """A roll-out that is over: what came of it, when (wall time), and why."""

    new: Mark
    state: str
    at: float
    why: str = ""


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """/components/<c>/rollout: how far `new` has come, where several copies have to be changed one
    after the other (see `rollout`). `good`: what all ran with before. `zxid`: of the change. `seats`:
    by number, those whose turn it is or was. `at`, `ended_at`: wall time.
    """

    v: int = 1
    new: Mark
    good: Mark | None = None
    zxid: int = 0
    state: Literal["under way", "done", "stopped", "reverted"] = "under way"
    why: str = ""
    at: float = 0.0
    ended_at: float = 0.0
    seats: dict[str, Literal["going", "up"]] = {}
    before: list[RolledOut] = []


class SeatPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where a seat should be: its node, and those that stand by. `taken_from`: an operator moved
    it to `node`, from there.
    """

    node: str
    standbys: list[str] = []
    taken_from: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """/plan."""

    v: int = 1
    version: int = 0
    seats: dict[str, SeatPlan] = {}


T = TypeVar("T", bound=msgspec.Struct)


def write(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record)


def altered(record: T, **changes: Any) -> T:
    """The same record with other values in it."""
    return msgspec.structs.replace(record, **changes)


def read(kind: type[T], data: bytes, path: str) -> T:
    """The record in `data`. Raises `UnreadableZnode`."""
    try:
        raw: Any = msgspec.json.decode(data)
        version = raw.get("v") if isinstance(raw, dict) else None
        if version != 1:
            is_foreign = isinstance(version, int)
            why = f"version {version!r}, this agent reads version 1"
            raise UnreadableZnode(path, why, is_foreign=is_foreign)
        return msgspec.convert(raw, kind)
    except msgspec.MsgspecError as error:
        raise UnreadableZnode(path, str(error)) from None


def seat_name(component: str, number: int) -> str:
    """A seat's name between agent and guardian, in logs and plans."""
    return f"{component}/{number}"


def split_seat(seat: str) -> tuple[str, int]:
    component, _, number = seat.rpartition("/")
    return component, int(number)


@dataclass(frozen=True, slots=True)
class Tree:
    """The names below one root."""

    root: str = "/incumbent"

    @property
    def control(self) -> str:
        return f"{self.root}/control"

    @property
    def access(self) -> str:
        return f"{self.root}/access"

    @property
    def sessions(self) -> str:
        return f"{self.root}/sessions"

    def session(self, session_id: int) -> str:
        return f"{self.root}/sessions/{session_key(session_id)}"

    @property
    def nodes(self) -> str:
        return f"{self.root}/nodes"

    def node(self, node: str) -> str:
        return f"{self.root}/nodes/{node}"

    @property
    def plan(self) -> str:
        return f"{self.root}/plan"

    @property
    def config(self) -> str:
        return f"{self.root}/config"

    def config_key(self, key: str) -> str:
        return f"{self.config}/{key}"

    @property
    def planner(self) -> str:
        return f"{self.root}/planner/election"

    @property
    def components(self) -> str:
        return f"{self.root}/components"

    def component(self, component: str) -> str:
        return f"{self.root}/components/{component}"

    def desired(self, component: str) -> str:
        return f"{self.component(component)}/desired"

    def commands(self, component: str) -> str:
        return f"{self.component(component)}/commands"

    def failures(self, component: str) -> str:
        return f"{self.component(component)}/failures"

    def rollout(self, component: str) -> str:
        return f"{self.component(component)}/rollout"

    def seats(self, component: str) -> str:
        return f"{self.component(component)}/seats"

    def seat(self, seat: str) -> str:
        component, number = split_seat(seat)
        return f"{self.seats(component)}/{number}"

    def election(self, seat: str) -> str:
        return f"{self.seat(seat)}/election"

    def running(self, seat: str) -> str:
        return f"{self.seat(seat)}/running"

    def breadcrumb(self, seat: str, epoch: int) -> str:
        return f"{self.running(seat)}/{epoch}"

    def observed(self, seat: str) -> str:
        return f"{self.seat(seat)}/observed"

    def skeleton(self) -> list[tuple[str, bytes]]:
        """What must exist before anything else, outermost first: one flight of creates."""
        parts = self.root[1:].split("/")
        above = ["/" + "/".join(parts[: i + 1]) for i in range(len(parts))]
        return [
            *((path, b"") for path in above),
            (self.control, write(Control())),
            (self.sessions, b""),
            (self.nodes, b""),
            (self.components, b""),
            (self.plan, write(Plan())),
            (self.config, b""),
            (f"{self.root}/planner", b""),
            (self.planner, b""),
        ]

    def component_skeleton(self, component: str, copies: int) -> list[tuple[str, bytes]]:
        """Below a component's own znode: what `apply` creates with it in one multi."""
        out = [
            (self.desired(component), write(Desired())),
            (self.commands(component), b""),
            (self.seats(component), b""),
        ]
        for number in range(copies):
            out += self.seat_skeleton(seat_name(component, number))
        return out

    def seat_skeleton(self, seat: str) -> list[tuple[str, bytes]]:
        return [
            (self.seat(seat), write(SeatRecord())),
            (self.election(seat), b""),
            (self.running(seat), b""),
            (self.observed(seat), b""),
        ]


def session_key(session_id: int) -> str:
    """A session's id as it stands in names: hex, unsigned."""
    return f"{session_id & 0xFFFFFFFFFFFFFFFF:x}"
