"""A component's spec: what must run once, and how; its form in ZooKeeper.

Rule of this file: a `Spec` is complete and checked (see `checks`), and equal specs have equal
bytes: every key is written, in the order below, with `env`, `nodes`, `labels` and `limits` sorted.

The version "v" grows when an older agent would run a newer spec wrongly; it then refuses it. A
key that it may ignore is added without a new version: unknown keys are passed over.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import msgspec

from incumbent.errors import SpecError
from incumbent.spec.config import Use
from incumbent.spec.health import HOOKS, Check, Hook
from incumbent.spec.limits import LIMITS

__all__ = [
    "KEPT_BEFORE",
    "MOST_COPIES",
    "Spec",
    "changed_keys",
    "decode",
    "earlier",
    "encode",
    "is_same",
    "like",
    "plain",
    "program",
    "stored",
]

VERSION = 1
LOCAL_URL = r"^http://(127\.[0-9.]+|localhost|\[::1\])(:[0-9]{1,5})?(/[!-~]*)?\Z"
MOST_COPIES = 1000
KEPT_BEFORE = 5
"""So many specs of other programs that a component had are kept with its own."""
_LARGEST_WITH_BEFORE = 128 * 1024
"""Bytes; fewer are kept where they would make it larger: `apply` writes it in one multi."""

# A znode may have been written by hand: what `decode` accepts has these bounds, too.
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}\Z")]
UserName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,31}\$?\Z")]
LocalUrl = Annotated[str, msgspec.Meta(pattern=LOCAL_URL)]
LimitName = Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(LIMITS)})\\Z")]
OnFailure = Literal["backoff", "move", "quarantine-node", "freeze", "stop-everywhere"]
AbsolutePath = Annotated[str, msgspec.Meta(pattern=r"^/[^\0]*\Z")]


class Spec(msgspec.Struct, frozen=True, kw_only=True, tag_field="v", tag=VERSION):
    """One component.

    name         of the component; part of its znode's path
    command      the program and its arguments; never empty, never through a shell
    env          what the program's environment has besides, sorted by name
    env_file     absolute path of more of it, read on the node that starts the program
    cwd          absolute path; None is `/`
    stop_signal  its number
    stop_http    a URL of this machine that is asked to quit before that; None: not
    stop_grace   seconds from it to SIGKILL; None goes by the session (`lease.Numbers`)
    copies       how many seats the component has
    requires     absolute files without which a node does not stand
    nodes        the only nodes that may run it, sorted; empty allows every node
    isolation    None is the strongest that the node can do
    user         by name; None is the agent's
    umask        None is the agent's
    limits       see `limits`; -1 is none
    on_unclean   whether a successor waits for a swept instance that nobody saw die
    labels       for operators, who name components by them; sorted by name
    ready, live  how it is asked whether it is up, and whether it still works
    before_start, after_start, before_stop, after_stop, on_fail
                 what is run then
    config       what it uses of the cluster's configuration, by variable, sorted
    on_config    what is done when that changes
    debounce, debounce_max
                 seconds after the last change, and after the first, until it is done
    max_parallel how many copies a change takes down at a time
    auto_revert  whether all go back to what ran before, if a copy fails with the change

    Of its failures (`agent.failures`), in seconds:

    on_failure          what `max_failures` of them within `window` lead to
    backoff             the first pause between two starts; it doubles up to `backoff_most`
    success_exit_codes  ends that are no failures
    """

    name: Name
    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    env: dict[str, str] = {}
    env_file: AbsolutePath | None = None
    cwd: AbsolutePath | None = None
    stop_signal: Annotated[int, msgspec.Meta(ge=1, le=64)] = 15
    stop_grace: Annotated[float, msgspec.Meta(ge=0)] | None = None
    copies: Annotated[int, msgspec.Meta(ge=1, le=MOST_COPIES)] = 1
    requires: tuple[AbsolutePath, ...] = ()
    nodes: tuple[Name, ...] = ()
    isolation: Literal["sealed", "contained", "swept"] | None = None
    on_unclean: Literal["wait", "go"] = "wait"
    labels: dict[Name, str] = {}
    user: UserName | None = None
    umask: Annotated[int, msgspec.Meta(ge=0, le=0o777)] | None = None
    limits: dict[LimitName, int | float] = {}
    stop_http: LocalUrl | None = None
    on_failure: OnFailure = "backoff"
    max_failures: Annotated[int, msgspec.Meta(ge=1)] = 5
    window: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    backoff: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    backoff_most: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    success_exit_codes: tuple[Annotated[int, msgspec.Meta(ge=0, le=255)], ...] = ()
    ready: Check | None = None
    live: Check | None = None
    before_start: Hook | None = None
    after_start: Hook | None = None
    before_stop: Hook | None = None
    after_stop: Hook | None = None
    on_fail: Hook | None = None
    config: dict[str, Use] = {}
    on_config: Literal["restart", "SIGHUP", "none"] = "restart"
    debounce: Annotated[float, msgspec.Meta(ge=0)] = 5.0
    debounce_max: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    max_parallel: Annotated[int, msgspec.Meta(ge=1)] = 1
    auto_revert: bool = False

    def allows(self, node: str) -> bool:
        """Whether `node` may run it, by name."""
        return not self.nodes or node in self.nodes


def encode(spec: Spec) -> bytes:
    """The bytes that stand in the component's znode: {"v":1,"name":…} in canonical form."""
    return msgspec.json.encode(spec)


def decode(data: bytes, where: str) -> Spec:
    """The spec in a znode's bytes; `where` is its path. Raises `SpecError`."""
    try:
        version = _version.decode(data).v
    except msgspec.MsgspecError as error:
        raise SpecError(where, 0, "", f"not a spec of ours: {_lowered(error)}") from None
    if version != VERSION:
        raise SpecError(
            where,
            0,
            "v",
            f"written by a newer Incumbent (version {version}, this one reads {VERSION}): "
            "upgrade Incumbent on this node, or apply the file again with this one",
        )
    try:
        return _spec.decode(data)
    except msgspec.MsgspecError as error:
        raise SpecError(where, 0, "", f"not a spec of ours: {_lowered(error)}") from None


def stored(spec: Spec, old: bytes = b"") -> bytes:
    """What is written over `old`, which stood in the component's znode: the spec, and the newest that
    it had before, for agents to go back to. They stand in one znode, since whoever may write it
    may say what runs.
    """
    kept: list[Spec] = []
    seen = {program(spec)}
    for each in [*_own(old), *earlier(old)]:
        if program(each) not in seen:
            seen.add(program(each))
            kept.append(each)
    before = [msgspec.to_builtins(each) for each in kept[:KEPT_BEFORE]]
    while before:
        data = msgspec.json.encode({**msgspec.to_builtins(spec), "before": before})
        if len(data) <= _LARGEST_WITH_BEFORE:
            return data
        before.pop()
    return encode(spec)


def is_same(old: bytes, spec: Spec) -> bool:
    """Whether just this spec stands in a component's bytes already, whatever it had before."""
    try:
        there = msgspec.json.decode(old) if old else {}
    except msgspec.MsgspecError:
        return False
    if isinstance(there, dict):
        there.pop("before", None)
    return msgspec.json.encode(there) == encode(spec)


def earlier(data: bytes) -> list[Spec]:
    """The specs that a component had before, newest first, as far as they can be read."""
    try:
        raws = _before.decode(data).before if data else []
    except msgspec.MsgspecError:
        return []
    return [spec for raw in raws for spec in _own(bytes(raw))]


def like(spec: Spec, before: Spec) -> Spec:
    """The program of an earlier spec, and all else as it is now."""
    others = {key: getattr(spec, key) for key in _FOR_OTHERS}
    return msgspec.structs.replace(before, **others)


def plain(value: Any) -> Any:
    """A key's value, as JSON would have it."""
    return msgspec.to_builtins(value)


def changed_keys(old: Spec, new: Spec) -> list[str]:
    """The keys in which two specs differ, in the order of the fields; of `env` each variable."""
    changed: list[str] = []
    for key in Spec.__struct_fields__:
        before, after = getattr(old, key), getattr(new, key)
        if key == "env":
            names = sorted(before.keys() | after.keys())
            changed += [f"env.{name}" for name in names if before.get(name) != after.get(name)]
        elif before != after:
            changed.append(key)
    return changed


_FOR_OTHERS: dict[str, Any] = {
    "copies": 1,
    "requires": (),
    "nodes": (),
    "on_unclean": "wait",
    "labels": {},
    "on_failure": "backoff",
    "max_failures": 5,
    "window": 600.0,
    "backoff": 1.0,
    "backoff_most": 60.0,
    "success_exit_codes": (),
    "on_config": "restart",
    "debounce": 5.0,
    "debounce_max": 60.0,
    "max_parallel": 1,
    "auto_revert": False,
    **dict.fromkeys(HOOKS),
}
"""Keys that say nothing of the program itself, as they are by default."""


def program(spec: Spec) -> str:
    """Short for all that a running instance was started with: where it is another, the instance
    is out of date. How many there are, where they may run, their labels, what is run around them and
    what comes of their failures, is none of its business.
    """
    own = msgspec.structs.replace(spec, **_FOR_OTHERS)
    return hashlib.blake2b(encode(own), digest_size=8).hexdigest()


class _Version(msgspec.Struct):
    v: int


class _Before(msgspec.Struct):
    before: list[msgspec.Raw] = []


_version = msgspec.json.Decoder(_Version)
_spec = msgspec.json.Decoder(Spec)
_before = msgspec.json.Decoder(_Before)


def _own(data: bytes) -> list[Spec]:
    try:
        return [decode(data, "")] if data else []
    except SpecError:
        return []


def _lowered(error: Exception) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]
