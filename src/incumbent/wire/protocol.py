"""The protocol's numbers.

Rule of this file: a number that both ends must agree on is written here and nowhere else.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

__all__ = [
    "ANY_VERSION",
    "CONTAINER_OWNER",
    "MAX_FRAME",
    "MAX_SEQUENCE",
    "MAX_TTL_MS",
    "AclPerm",
    "CreateFlag",
    "Err",
    "EventType",
    "KeeperState",
    "Op",
    "WatchMode",
    "WatchType",
    "Xid",
]

ANY_VERSION = -1
"""As an expected version: whatever it is."""

MAX_FRAME = 1_048_575
"""Largest frame, in bytes, that a server accepts (jute.maxbuffer's default)."""

MAX_SEQUENCE = 2**31 - 1
"""Where a directory's sequence counter sticks; there is no order at or beyond it."""

CONTAINER_OWNER = -(2**63)
"""ephemeralOwner of a container (0x8000000000000000 as a signed long)."""

MAX_TTL_MS = 2**40 - 1
"""Longest time to live of a znode: about 34 years."""


class Op(IntEnum):
    """Request types."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11
    ERROR = -1


class Xid(IntEnum):
    """Transaction ids with a meaning; all but EVENT are chosen by the client and echoed."""

    EVENT = -1
    PING = -2
    AUTH = -4
    SET_WATCHES = -8


class CreateFlag(IntEnum):
    """The flags of a create."""

    PERSISTENT = 0
    EPHEMERAL = 1
    SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    TTL = 5
    TTL_SEQUENTIAL = 6


class AclPerm(IntFlag):
    """What an ACL entry permits."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class Err(IntEnum):
    """Error codes of replies that our own code decides on."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    CONNECTION_LOSS = -4
    MARSHALLING = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NO_WATCHER = -121
    RECONFIG_DISABLED = -123


class EventType(IntEnum):
    """What a watch saw. NONE: about the session, not about a znode."""

    NONE = -1
    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILD = 4


class WatchMode(IntEnum):
    """How long a watch lasts, and how far it sees. The client's numbers for the last two."""

    STANDARD = -1
    PERSISTENT = 0
    RECURSIVE = 1


class WatchType(IntEnum):
    """Which watches a client means when it looks them up or removes them."""

    CHILDREN = 1
    DATA = 2
    ANY = 3


class KeeperState(IntEnum):
    """The session's state as an event carries it."""

    DISCONNECTED = 0
    CONNECTED = 3
    EXPIRED = -112
