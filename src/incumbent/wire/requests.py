"""Requests about znodes and sessions, each with its answer.

Rule of this file: one class, one operation, its fields in the order in which they are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from incumbent.wire.jute import BOOL, BUFFER, INT, LONG, STRING
from incumbent.wire.protocol import ANY_VERSION, Op
from incumbent.wire.record import ACLS, OPEN_ACL, STAT, STRINGS, Acl, Request, Stat

__all__ = [
    "AclAndStat",
    "Check",
    "ChildrenAndStat",
    "CloseSession",
    "Create",
    "Create2",
    "CreateContainer",
    "CreateTtl",
    "Created",
    "DataAndStat",
    "Delete",
    "Exists",
    "GetAcl",
    "GetAllChildrenNumber",
    "GetChildren",
    "GetChildren2",
    "GetData",
    "GetEphemerals",
    "Ping",
    "Reconfig",
    "SetAcl",
    "SetData",
    "Sync",
]


class Created(NamedTuple):
    """Answer to create2 and createContainer: the path as made, and its Stat."""

    path: str
    stat: Stat


class DataAndStat(NamedTuple):
    """Answer to getData; `data` is None where the znode's data is null."""

    data: bytes | None
    stat: Stat


class AclAndStat(NamedTuple):
    """Answer to getACL; who may not administer the znode is shown no digests."""

    acl: list[Acl]
    stat: Stat


class ChildrenAndStat(NamedTuple):
    """Answer to getChildren2; names without the directory, in no order."""

    children: list[str]
    stat: Stat


@dataclass(frozen=True, slots=True)
class Create(Request):
    """Make a znode; answers its path."""

    path: str
    data: bytes | None = b""
    acl: Sequence[Acl] = OPEN_ACL
    flags: int = 0

    op: ClassVar[Op] = Op.CREATE
    layout: ClassVar = (STRING, BUFFER, ACLS, INT)
    answer: ClassVar = (STRING,)


@dataclass(frozen=True, slots=True)
class Create2(Request):
    """Make a znode; answers `Created`. In a multi it is answered as a Create (path only)."""

    path: str
    data: bytes | None = b""
    acl: Sequence[Acl] = OPEN_ACL
    flags: int = 0

    op: ClassVar[Op] = Op.CREATE2
    layout: ClassVar = (STRING, BUFFER, ACLS, INT)
    answer: ClassVar = (STRING, STAT)
    answer_type: ClassVar = Created


@dataclass(frozen=True, slots=True)
class CreateContainer(Request):
    """Make a container: a znode that the server deletes some time after its last child went."""

    path: str
    data: bytes | None = b""
    acl: Sequence[Acl] = OPEN_ACL
    flags: int = 4

    op: ClassVar[Op] = Op.CREATE_CONTAINER
    layout: ClassVar = (STRING, BUFFER, ACLS, INT)
    answer: ClassVar = (STRING, STAT)
    answer_type: ClassVar = Created


@dataclass(frozen=True, slots=True)
class Delete(Request):
    path: str
    version: int = ANY_VERSION

    op: ClassVar[Op] = Op.DELETE
    layout: ClassVar = (STRING, INT)


@dataclass(frozen=True, slots=True)
class Exists(Request):
    """Answers the Stat; NoNode is refused with -101, and sets the watch all the same."""

    path: str
    watch: bool = False

    op: ClassVar[Op] = Op.EXISTS
    layout: ClassVar = (STRING, BOOL)
    answer: ClassVar = (STAT,)


@dataclass(frozen=True, slots=True)
class GetData(Request):
    path: str
    watch: bool = False

    op: ClassVar[Op] = Op.GET_DATA
    layout: ClassVar = (STRING, BOOL)
    answer: ClassVar = (BUFFER, STAT)
    answer_type: ClassVar = DataAndStat


@dataclass(frozen=True, slots=True)
class SetData(Request):
    path: str
    data: bytes | None
    version: int = ANY_VERSION

    op: ClassVar[Op] = Op.SET_DATA
    layout: ClassVar = (STRING, BUFFER, INT)
    answer: ClassVar = (STAT,)


@dataclass(frozen=True, slots=True)
class GetChildren(Request):
    path: str
    watch: bool = False

    op: ClassVar[Op] = Op.GET_CHILDREN
    layout: ClassVar = (STRING, BOOL)
    answer: ClassVar = (STRINGS,)


@dataclass(frozen=True, slots=True)
class GetChildren2(Request):
    path: str
    watch: bool = False

    op: ClassVar[Op] = Op.GET_CHILDREN2
    layout: ClassVar = (STRING, BOOL)
    answer: ClassVar = (STRINGS, STAT)
    answer_type: ClassVar = ChildrenAndStat


@dataclass(frozen=True, slots=True)
class Check(Request):
    """Inside a multi: refuse it unless the znode exists with this version."""

    path: str
    version: int = ANY_VERSION

    op: ClassVar[Op] = Op.CHECK
    layout: ClassVar = (STRING, INT)


@dataclass(frozen=True, slots=True)
class CreateTtl(Request):
    """Make a znode that the server deletes `ttl_ms` after its last change, if it has no children."""

    path: str
    data: bytes | None = b""
    acl: Sequence[Acl] = OPEN_ACL
    flags: int = 5
    ttl_ms: int = 0

    op: ClassVar[Op] = Op.CREATE_TTL
    layout: ClassVar = (STRING, BUFFER, ACLS, INT, LONG)
    answer: ClassVar = (STRING, STAT)
    answer_type: ClassVar = Created


@dataclass(frozen=True, slots=True)
class GetAcl(Request):
    path: str

    op: ClassVar[Op] = Op.GET_ACL
    layout: ClassVar = (STRING,)
    answer: ClassVar = (ACLS, STAT)
    answer_type: ClassVar = AclAndStat


@dataclass(frozen=True, slots=True)
class SetAcl(Request):
    """`version` is that of the ACL: the Stat's aversion."""

    path: str
    acl: Sequence[Acl]
    version: int = ANY_VERSION

    op: ClassVar[Op] = Op.SET_ACL
    layout: ClassVar = (STRING, ACLS, INT)
    answer: ClassVar = (STAT,)


@dataclass(frozen=True, slots=True)
class GetAllChildrenNumber(Request):
    """Answers how many znodes there are below the path."""

    path: str

    op: ClassVar[Op] = Op.GET_ALL_CHILDREN_NUMBER
    layout: ClassVar = (STRING,)
    answer: ClassVar = (INT,)


@dataclass(frozen=True, slots=True)
class GetEphemerals(Request):
    """Answers the paths of the session's own ephemerals that begin with `prefix`."""

    prefix: str

    op: ClassVar[Op] = Op.GET_EPHEMERALS
    layout: ClassVar = (STRING,)
    answer: ClassVar = (STRINGS,)


@dataclass(frozen=True, slots=True)
class Reconfig(Request):
    """Change an ensemble's members; a standalone server refuses it."""

    joining: str | None
    leaving: str | None
    members: str | None
    config_id: int = ANY_VERSION

    op: ClassVar[Op] = Op.RECONFIG
    layout: ClassVar = (STRING, STRING, STRING, LONG)
    answer: ClassVar = (BUFFER, STAT)
    answer_type: ClassVar = DataAndStat


@dataclass(frozen=True, slots=True)
class Sync(Request):
    path: str

    op: ClassVar[Op] = Op.SYNC
    layout: ClassVar = (STRING,)
    answer: ClassVar = (STRING,)


@dataclass(frozen=True, slots=True)
class Ping(Request):
    op: ClassVar[Op] = Op.PING


@dataclass(frozen=True, slots=True)
class CloseSession(Request):
    op: ClassVar[Op] = Op.CLOSE_SESSION
