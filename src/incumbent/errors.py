"""Every error of the project, in one tree.

Rule of this file: what a caller must do differently has a different type; above all,
"refused: nothing was done" and "fate unknown: it may have been done" never share one.

    IncumbentError
    ├── Refused                  the server answered: nothing was done
    │   ├── NoNode               ├── NodeExists         ├── BadVersion
    │   ├── NotEmpty             ├── NoAuth             ├── InvalidACL
    │   ├── NoChildrenForEphemerals                     ├── BadArguments
    │   ├── Unimplemented        ├── SessionMoved       ├── RolledBack (in a multi)
    │   ├── ReadOnlyServer       ├── NoWatch            ├── ReconfigRefused
    │   └── QuotaExceeded        (a code we don't know is a plain Refused, with its `code`)
    ├── NotSent                  it never left this process: nothing was done
    │   └── TooLarge
    ├── FateUnknown              it was sent and no answer came: read it back
    │   └── ItemUnknown          an item was put or taken, or was not
    ├── SessionError             the session, not the request
    │   ├── SessionExpired       the server's word, or our own clock's
    │   ├── SessionClosed        we closed it
    │   └── AuthFailed           the session itself goes on
    ├── ConnectTimeout           with what each address answered
    ├── HoldLost                 a hold is no longer believed
    │   ├── LockLost
    │   ├── ClaimLost
    │   └── Deposed
    │       └── Abdicated        by our own choice
    ├── LockTimeout              not acquired within `timeout`
    ├── BarrierTimeout           not all came within `timeout`
    ├── BrokenBarrier            one of those inside was lost: nobody leaves as agreed
    ├── NameTaken                another session has a member's name
    ├── Taken                    an item of work is somebody's, done, parked or not due
    ├── QueueExhausted           a sequence counter near its end
    ├── MalformedValue           a znode holds something else than the recipe keeps there
    ├── StaleToken               a later holder of the claim was here: nothing was written
    ├── WasClosed                a row is not as it was to be: nothing was written
    ├── NotInTable               an item has no row: nothing was written
    ├── MixedDialects            a directory that two dialects order differently
    ├── BadContent               a znode's data is not what the recipe there writes
    ├── WireError
    │   ├── RemoteWireError      the other end broke the protocol
    │   │   └── AnswerTooLarge   it didn't, but we keep no answer of that size
    │   └── LocalWireError       we were asked to send what cannot be sent
    ├── SpecError                a component file or setting is wrong
    ├── SpecErrors               all that is wrong in one file, together
    ├── SettingMissing           needed, and found in no place looked at
    └── NumbersDontFit           a session's times leave no room (see lease.Numbers)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = [
    "Abdicated",
    "AnswerTooLarge",
    "AuthFailed",
    "BadArguments",
    "BadContent",
    "BadVersion",
    "BarrierTimeout",
    "BrokenBarrier",
    "ClaimLost",
    "ConnectTimeout",
    "Deposed",
    "FateUnknown",
    "HoldLost",
    "IncumbentError",
    "InvalidACL",
    "ItemUnknown",
    "LocalWireError",
    "LockLost",
    "LockTimeout",
    "MalformedValue",
    "MixedDialects",
    "NameTaken",
    "NoAuth",
    "NoChildrenForEphemerals",
    "NoNode",
    "NoWatch",
    "NodeExists",
    "NotEmpty",
    "NotInTable",
    "NotSent",
    "NumbersDontFit",
    "QueueExhausted",
    "QuotaExceeded",
    "ReadOnlyServer",
    "ReconfigRefused",
    "Refused",
    "RemoteWireError",
    "RolledBack",
    "SessionClosed",
    "SessionError",
    "SessionExpired",
    "SessionMoved",
    "SettingMissing",
    "SpecError",
    "SpecErrors",
    "Taken",
    "StaleToken",
    "TooLarge",
    "Unimplemented",
    "WasClosed",
    "WireError",
    "refusal",
]


class IncumbentError(Exception):
    """The root of the tree."""


class Refused(IncumbentError):
    """The server refused a request; nothing was done.

    `code` is ZooKeeper's error code, `path` the znode asked for ("" where there is none).
    """

    code: int = 0
    index: int | None = None
    """Which operation of a multi it was."""
    says = "refused"

    def __init__(self, path: str = "", code: int | None = None) -> None:
        if code is not None:
            self.code = code
        self.path = path
        super().__init__(path, self.code)

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{where}{self.says} (code {self.code}); nothing was changed"


class NoNode(Refused):
    code, says = -101, "no such znode"


class NodeExists(Refused):
    code, says = -110, "the znode exists already"


class BadVersion(Refused):
    code, says = -103, "the version is another one by now"


class NotEmpty(Refused):
    code, says = -111, "the znode has children"


class NoAuth(Refused):
    code, says = -102, "not permitted by the znode's ACL"


class InvalidACL(Refused):
    code, says = -114, "this ACL is not accepted here"


class NoChildrenForEphemerals(Refused):
    code, says = -108, "an ephemeral znode cannot have children"


class BadArguments(Refused):
    code, says = -8, "the server does not accept these arguments"


class Unimplemented(Refused):
    code, says = -6, "the server does not know this operation"


class SessionMoved(Refused):
    code, says = -118, "the session has moved to another connection"


class ReadOnlyServer(Refused):
    code, says = -119, "the server is cut off from its ensemble and serves reads only"


class NoWatch(Refused):
    code, says = -121, "there is no such watch"


class ReconfigRefused(Refused):
    code, says = -123, "the ensemble's members cannot be changed here"


class QuotaExceeded(Refused):
    code, says = -125, "a quota would be exceeded"


class RolledBack(Refused):
    """An operation of a multi that was undone or not tried because another one was refused.

    Code 0 stands before the refused operation, -2 after it.
    """

    code, says = -2, "undone, since another operation of this multi was refused"


_BY_CODE: Mapping[int, type[Refused]] = {
    c.code: c
    for c in (
        NoNode,
        NodeExists,
        BadVersion,
        NotEmpty,
        NoAuth,
        InvalidACL,
        NoChildrenForEphemerals,
        BadArguments,
        Unimplemented,
        SessionMoved,
        ReadOnlyServer,
        NoWatch,
        ReconfigRefused,
        QuotaExceeded,
        RolledBack,
    )
}


def refusal(code: int, path: str = "") -> Refused:
    """The typed error for a server's code; a plain `Refused` for a code we don't know."""
    return _BY_CODE.get(code, Refused)(path, code)


class NotSent(IncumbentError):
    """The request never left this process; nothing was done.

    `what` names the request, `why` the cause: no connection in time, the queue is full.
    """

    def __init__(self, what: str, why: str) -> None:
        self.what = what
        self.why = why
        super().__init__(what, why)

    def __str__(self) -> str:
        return f"{self.what} was not sent: {self.why}; nothing was changed, try again"


class TooLarge(NotSent):
    """A request over the size that a server would accept (jute.maxbuffer, 256 KB for a multi)."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(what, f"it has {size} bytes, the limit is {limit}")

    def __str__(self) -> str:
        return f"{self.what} was not sent: {self.why}; send less at once"


class FateUnknown(IncumbentError):
    """The request was sent and no answer came: it may have been carried out, or not.

    Never repeat it blindly: read its effect back (a nonce, a version, a czxid).
    """

    def __init__(self, what: str, why: str) -> None:
        self.what = what
        self.why = why
        super().__init__(what, why)

    def __str__(self) -> str:
        return f"{self.what}: fate unknown, {self.why}; read the znode before trying again"


class ItemUnknown(FateUnknown):
    """A queue's item whose putting or taking was not answered, and which is not there.

    `path` names it (without its number, if it was being put), `data` is what it holds. Taken:
    by us, or by somebody else. Put: and taken already, or never. Only its effects can tell.
    """

    def __init__(self, path: str, data: bytes, why: str) -> None:
        super().__init__(f"item {path}", why)
        self.path = path
        self.data = data
        self.args = (path, data, why)

    def __str__(self) -> str:
        return f"{self.what}: fate unknown, {self.why}; look for its effects before using it again"


class SessionError(IncumbentError):
    """Something about the whole session. `session_id` is 0 where none was given yet."""

    def __init__(self, session_id: int = 0, why: str = "") -> None:
        self.session_id = session_id
        self.why = why
        super().__init__(session_id, why)

    def __str__(self) -> str:
        return f"session {self.session_id:#x}: {self.why or type(self).__name__}"


class SessionExpired(SessionError):
    """The session is over: by the server's word, or by our own clock before it.

    Its ephemeral znodes are gone or will be; whatever it held is lost.
    """


class SessionClosed(SessionError):
    """The client was closed, or was never started."""


class AuthFailed(SessionError):
    """The server refused a credential. The session itself goes on."""


class ConnectTimeout(IncumbentError):
    """No session within the time given. `report` has one (address, answer) per attempt."""

    def __init__(self, timeout: float, report: Sequence[tuple[str, str]]) -> None:
        self.timeout = timeout
        self.report = tuple(report)
        super().__init__(timeout, self.report)

    def __str__(self) -> str:
        tried = "; ".join(f"{address}: {answer}" for address, answer in self.report)
        return (
            f"no ZooKeeper session within {self.timeout:g} s ({tried or 'no address was tried'}); "
            "check that a server listens there: `incumbent server`, or name others with --zookeeper"
        )


class HoldLost(IncumbentError):
    """A lock or leadership that was held is no longer believed. `path` names it."""

    noun = "hold"

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(path, why)

    def __str__(self) -> str:
        return f"{self.noun} on {self.path} is lost: {self.why}; stop what it guarded"


class LockLost(HoldLost):
    noun = "lock"


class ClaimLost(HoldLost):
    """A claim on an item of work; `path` is the item's record."""

    noun = "claim"


class Deposed(HoldLost):
    noun = "leadership"


class Abdicated(Deposed):
    """A leadership given up by our own choice: `Election.abdicate`. Seen inside its block only."""


class LockTimeout(IncumbentError):
    """Not acquired within the time given; nothing of ours is left in the queue."""

    def __init__(self, path: str, timeout: float, ahead: Sequence[str] = ()) -> None:
        self.path = path
        self.timeout = timeout
        self.ahead = tuple(ahead)
        super().__init__(path, timeout, self.ahead)

    def __str__(self) -> str:
        ahead = f"; ahead of us: {', '.join(self.ahead)}" if self.ahead else ""
        return f"{self.path}: not acquired within {self.timeout:g} s{ahead}"


class BarrierTimeout(IncumbentError):
    """Not all came within the time given; nothing of ours is left there. `here` came, of `count`."""

    def __init__(self, path: str, timeout: float, here: int, count: int) -> None:
        self.path = path
        self.timeout = timeout
        self.here = here
        self.count = count
        super().__init__(path, timeout, here, count)

    def __str__(self) -> str:
        came = f"{self.here} of {self.count} came"
        if self.here > self.count:
            came = f"{self.count} others were there, no more go in at once, and they did not leave"
        return (
            f"{self.path}: {came} within {self.timeout:g} s; enter again, they may be waiting still"
        )


class BrokenBarrier(IncumbentError):
    """One of those who went through a double barrier was lost before all had left.

    Everybody who went through with it gets this. `is_certain` is False for one whose session
    ended while it waited to leave: the others may have left as agreed.
    """

    def __init__(self, path: str, why: str, is_certain: bool = True) -> None:
        self.path = path
        self.why = why
        self.is_certain = is_certain
        super().__init__(path, why, is_certain)

    def __str__(self) -> str:
        return f"{self.path}: the barrier is broken, {self.why}; enter again for another round"


class NameTaken(IncumbentError):
    """Not a member within the time given, since another session has the name; nothing was made.

    After a crash that is a former life's, until its session has expired.
    """

    def __init__(self, path: str, timeout: float, session_id: int) -> None:
        self.path = path
        self.timeout = timeout
        self.session_id = session_id
        super().__init__(path, timeout, session_id)

    def __str__(self) -> str:
        return (
            f"{self.path}: still a member of session {self.session_id:#x} after {self.timeout:g} s; "
            "wait for longer than a session timeout, or take another name"
        )


class Taken(IncumbentError):
    """An item of work that we cannot begin; nothing was changed.

    `standing` says how it stands with it: "claimed" by another session, "done", "parked" after
    too many failures, or "waiting" for its time. `item` is its name, `path` the work's.
    """

    def __init__(self, path: str, item: str, standing: str) -> None:
        self.path = path
        self.item = item
        self.standing = standing
        super().__init__(path, item, standing)

    def __str__(self) -> str:
        says = {
            "claimed": "somebody works on it now; leave it to them",
            "done": "it is done; leave it out of your list",
            "parked": "it failed too often; `incumbent work parked` says why, `incumbent work retry` frees it",
            "waiting": "its time has not come; try later",
        }
        return f"{self.path}: item {self.item!r}: {says.get(self.standing, self.standing)}"


class QueueExhausted(IncumbentError):
    """A directory's sequence counter is near 2^31 - 1, beyond which there is no order."""

    def __init__(self, path: str, sequence: int) -> None:
        self.path = path
        self.sequence = sequence
        super().__init__(path, sequence)

    def __str__(self) -> str:
        return (
            f"{self.path}: its sequence counter stands at {self.sequence}, near the end of its "
            "range; when nobody stands there, delete the directory, it is made again from 0"
        )


class MalformedValue(IncumbentError):
    """A znode holds something else than the recipe keeps there."""

    def __init__(self, path: str, data: bytes, expected: str) -> None:
        self.path = path
        self.data = data
        self.expected = expected
        super().__init__(path, data, expected)

    def __str__(self) -> str:
        return (
            f"{self.path}: holds {self.data[:40]!r}, expected {self.expected}; "
            "set it right, or name another path"
        )


class StaleToken(IncumbentError):
    """A later holder of the claim was at this row; nothing was written."""

    def __init__(self, table: str, item: object, *, token: int, newest: int) -> None:
        self.table = table
        self.item = item
        self.token = token
        self.newest = newest
        super().__init__(table, item, token, newest)

    def __str__(self) -> str:
        return (
            f"{self.table} {self.item}: our fencing token {self.token} is older than {self.newest}: "
            "the claim was lost and somebody else works on it; drop what was computed"
        )


class WasClosed(IncumbentError):
    """A row is not as the writer's condition says; nothing was written."""

    def __init__(self, table: str, item: object) -> None:
        self.table = table
        self.item = item
        super().__init__(table, item)

    def __str__(self) -> str:
        return f"{self.table} {self.item}: not as `only_if` says; read it again under the claim"


class NotInTable(IncumbentError):
    """An item has no row where it should have one; nothing was written."""

    def __init__(self, table: str, item: object) -> None:
        self.table = table
        self.item = item
        super().__init__(table, item)

    def __str__(self) -> str:
        return f"{self.table} has no {self.item}; insert its row before it is worked on"


class MixedDialects(IncumbentError):
    """A directory has a child that another dialect would order differently."""

    def __init__(self, path: str, child: str, dialect: str) -> None:
        self.path = path
        self.child = child
        self.dialect = dialect
        super().__init__(path, child, dialect)

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.child} is not a contender of the {self.dialect} dialect, and the "
            "two would order each other differently; use one dialect, or another directory"
        )


class BadContent(IncumbentError):
    """A znode's data is not what the recipe there writes; nothing was changed."""

    def __init__(self, path: str, expected: str, data: bytes | None) -> None:
        self.path = path
        self.expected = expected
        self.data = data or b""
        super().__init__(path, expected, data)

    def __str__(self) -> str:
        shown = repr(self.data[:40])[1:] + ("…" if len(self.data) > 40 else "")
        return (
            f"{self.path}: {shown} is not {self.expected}; use another path, or put right what "
            "is there"
        )


class WireError(IncumbentError):
    """Bytes that break the protocol."""


class RemoteWireError(WireError):
    """The other end sent something that is not the protocol; the connection is dropped."""


class AnswerTooLarge(RemoteWireError):
    """An answer over the size that we keep; it was thrown away, the connection goes on."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        self.what = what
        self.size = size
        self.limit = limit
        super().__init__(what, size, limit)

    def __str__(self) -> str:
        return (
            f"{self.what}: an answer of {self.size} bytes, the limit is {self.limit}; ask for less"
        )


class LocalWireError(WireError):
    """We were asked to encode a value that the protocol cannot carry."""


class SpecError(IncumbentError):
    """A file or setting is wrong. One problem: file, line, key path, what was expected."""

    def __init__(self, file: str, line: int, key: str, problem: str) -> None:
        self.file = file
        self.line = line
        self.key = key
        self.problem = problem
        super().__init__(file, line, key, problem)

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.key}: {self.problem}" if self.key else f"{place}: {self.problem}"


class SpecErrors(IncumbentError):
    """Everything that is wrong in one file: one `SpecError` in `problems` for each, in order."""

    def __init__(self, problems: Sequence[SpecError]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


class SettingMissing(IncumbentError):
    """A setting that is needed stands nowhere.

    `looked` has (place, what was found there) in the order of precedence; `advice` the next step.
    """

    def __init__(self, what: str, looked: Sequence[tuple[str, str]], advice: str) -> None:
        self.what = what
        self.looked = tuple(looked)
        self.advice = advice
        super().__init__(what, self.looked, advice)

    def __str__(self) -> str:
        places = "".join(f"\n  {place}: {found}" for place, found in self.looked)
        return f"{self.what}; looked at{places}\n{self.advice}"


class NumbersDontFit(IncumbentError):
    """A session's times leave no room to stop programs before it ends. `sum` shows the figures."""

    def __init__(self, sum_: str, advice: str) -> None:
        self.sum = sum_
        self.advice = advice
        super().__init__(sum_, advice)

    def __str__(self) -> str:
        return f"{self.sum}; {self.advice}"
