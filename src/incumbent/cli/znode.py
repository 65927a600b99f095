"""A znode as people and programs read it: data, Stat, ACL; and an ACL as people write it.

Rule of this file: pure. Data that is no UTF-8 text is never shown as if it were: JSON has it as
base64, under another name.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from incumbent.cli.exits import Usage
from incumbent.wire import Acl, AclPerm, EventType, Stat, WatchEvent

__all__ = [
    "LISTED",
    "acl_text",
    "as_data",
    "as_stat",
    "event_line",
    "event_object",
    "listed",
    "parse_acl",
    "stat_rows",
    "tree_line",
    "wall",
]

LISTED = ("name", "children", "bytes", "version", "owner", "changed")

_LETTERS: Mapping[str, AclPerm] = {
    "c": AclPerm.CREATE,
    "d": AclPerm.DELETE,
    "r": AclPerm.READ,
    "w": AclPerm.WRITE,
    "a": AclPerm.ADMIN,
}
"""As ZooKeeper's own shell writes them, in its order."""


def as_data(data: bytes) -> dict[str, str]:
    """`{"data": text}`, or `{"data_base64": …}` where it is no text."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data).decode()}


def as_stat(stat: Stat) -> dict[str, Any]:
    """Its fields by ZooKeeper's names: numbers, times in milliseconds since 1970."""
    return Stat(*stat)._asdict()


def stat_rows(stat: Stat) -> list[tuple[str, str]]:
    """Name and value of each field: zxids and sessions in hex, times readable, in UTC."""
    values = as_stat(stat)
    for key in ("czxid", "mzxid", "pzxid", "ephemeralOwner"):
        values[key] = f"{values[key] & 0xFFFF_FFFF_FFFF_FFFF:#x}"
    for key in ("ctime", "mtime"):
        values[key] = wall(values[key])
    return [(key, str(value)) for key, value in values.items()]


def wall(milliseconds: int) -> str:
    """2026-11-27T23:15:27.304Z."""
    stamp = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def listed(name: str, stat: Stat) -> tuple[str, ...]:
    """The cells of one line of `ls --long`, see `LISTED`."""
    owner = f"{stat.ephemeralOwner & 0xFFFF_FFFF_FFFF_FFFF:#x}" if stat.ephemeralOwner else "–"
    sizes = (str(stat.numChildren), str(stat.dataLength), str(stat.version))
    return (name, *sizes, owner, wall(stat.mtime))


def tree_line(name: str, stat: Stat) -> str:
    """A line of `tree`, without what is drawn before it."""
    size = f"  {stat.dataLength} B" if stat.dataLength else ""
    return f"{name}{size}{'  ephemeral' if stat.ephemeralOwner > 0 else ''}"


def event_line(event: WatchEvent, now: float) -> str:
    """`now`: wall time. An event of type NONE names no znode: some may be missing."""
    stamp = wall(round(now * 1000))
    if event.type is EventType.NONE:
        return f"{stamp}  missed   some events may be missing: look again"
    return f"{stamp}  {event.type.name.lower():7}  {event.path}"


def event_object(event: WatchEvent, now: float) -> dict[str, Any]:
    """The same for programs; `event` is "missed" where some may be missing."""
    name = "missed" if event.type is EventType.NONE else event.type.name.lower()
    return {"time": wall(round(now * 1000)), "event": name, "path": event.path}


def acl_text(acl: Iterable[Acl]) -> list[str]:
    """SCHEME:ID:PERMISSIONS for each entry."""
    return [f"{scheme}:{who}:{_permissions(perms)}" for perms, scheme, who in acl]


def parse_acl(entries: Iterable[str]) -> list[Acl]:
    """Raises `Usage` for what is no entry. An id may have colons (digest has one)."""
    return [_entry(text) for text in entries]


def _entry(text: str) -> Acl:
    scheme, _, rest = text.partition(":")
    who, colon, letters = rest.rpartition(":")
    if not (scheme and colon and letters) or set(letters) - set(_LETTERS):
        raise Usage(
            f"{text!r} is no ACL entry: expected SCHEME:ID:PERMISSIONS with permissions of the "
            "letters cdrwa (create, delete, read, write, admin), such as world:anyone:r"
        )
    perms = AclPerm(0)
    for letter in letters:
        perms |= _LETTERS[letter]
    return Acl(int(perms), scheme, who)


def _permissions(perms: int) -> str:
    return "".join(letter for letter, perm in _LETTERS.items() if perms & perm) or "-"
