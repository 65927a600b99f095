"""Who may do what: ids, ACLs, and the schemes that tie them together.

Rule of this file: an ACL that a znode has was accepted here, and every permission is asked for
here. Nothing is permitted because a scheme is unknown.

Source: Apache ZooKeeper's programmer's guide, "ZooKeeper access control using ACLs", and what a
3.8 server does. A connection has the id `ip` from the start, and may show others; `super` is
permitted everything.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence

from incumbent.errors import InvalidACL, NoAuth, Refused
from incumbent.server.policy import Policy
from incumbent.wire import OPEN_ACL, Acl, AclPerm, Err, Id

__all__ = ["READ_ONLY_ACL", "SUPER", "Keeper", "permits", "require", "shown", "user_names"]

READ_ONLY_ACL = (Acl(AclPerm.READ, "world", "anyone"),)

SUPER = Id("super", "")
"""The id of who may do all."""

_DECIMAL = re.compile(r"[+-]?[0-9]+")


class Keeper:
    """The schemes of one server: which credentials give which ids, which ACLs make sense."""

    __slots__ = ("_is_shown", "_super_digest")

    def __init__(self, policy: Policy) -> None:
        self._super_digest = policy.super_digest
        self._is_shown = {"digest", *policy.schemes}

    def ids(self, scheme: str | None, auth: bytes | None) -> list[Id] | None:
        """The ids that a credential proves; None if it proves nothing."""
        if scheme == "ip":
            return []
        if scheme != "digest" or auth is None:
            return None
        text = auth.decode(errors="replace")
        digest = base64.b64encode(hashlib.sha1(text.encode(), usedforsecurity=False).digest())
        mine = Id("digest", f"{text.partition(':')[0]}:{digest.decode()}")
        return [SUPER, mine] if mine.id == self._super_digest else [mine]

    def accept(self, path: str, acl: Sequence[Acl] | None, ids: Sequence[Id]) -> tuple[Acl, ...]:
        """An ACL as it is kept: without repeats, `auth` replaced by the ids that were shown.

        Raises `InvalidACL`; for a missing id the code is -5, as where Apache stumbles over it.
        """
        if acl == _OPEN:
            return OPEN_ACL
        accepted: list[Acl] = []
        for entry in dict.fromkeys(acl or ()):
            perms, scheme, name = entry
            if scheme == "auth":
                shown = [Acl(perms, *one) for one in ids if one.scheme in self._is_shown]
                if not shown:
                    raise InvalidACL(path)
                accepted += shown
                continue
            if name is None and scheme in ("world", "ip", *self._is_shown):
                raise Refused(path, Err.MARSHALLING)
            if not self._makes_sense(scheme, name):
                raise InvalidACL(path)
            accepted.append(entry)
        if not accepted:
            raise InvalidACL(path)
        kept = tuple(accepted)
        return OPEN_ACL if kept == OPEN_ACL else kept

    def _makes_sense(self, scheme: str | None, name: str) -> bool:
        if scheme == "world":
            return name == "anyone"
        if scheme == "digest":
            return len(_java_split(name, ":")) == 2
        if scheme == "ip":
            return _network(name) is not None
        return scheme in self._is_shown


def require(path: str, acl: tuple[Acl, ...], perm: int, ids: Iterable[Id]) -> None:
    """One of the permissions `perm`. Raises `NoAuth`."""
    if acl is not OPEN_ACL and not permits(acl, perm, ids):
        raise NoAuth(path)


def shown(acl: tuple[Acl, ...], ids: Iterable[Id]) -> list[Acl]:
    """An ACL for eyes that may read it: digests only for who may change it."""
    if acl is OPEN_ACL or permits(acl, AclPerm.ADMIN, ids):
        return list(acl)
    return [
        entry._replace(id=re.sub(":.*", ":x", entry.id)) if entry.scheme == "digest" else entry
        for entry in acl
    ]


def user_names(ids: Iterable[Id]) -> list[Id]:
    """What a client is told of its ids: of a digest the user's name only."""
    return [
        Id(scheme, name.partition(":")[0] if scheme == "digest" else name) for scheme, name in ids
    ]


def permits(acl: tuple[Acl, ...], perm: int, ids: Iterable[Id]) -> bool:
    """Does it give one of the permissions `perm`?"""
    ids = tuple(ids)
    if any(one.scheme == "super" for one in ids):
        return True
    for perms, scheme, name in acl:
        if not perms & perm:
            continue
        if scheme == "world":
            return True
        for own_scheme, own in ids:
            if own_scheme == scheme and (own == name or (scheme == "ip" and _is_in(own, name))):
                return True
    return False


def _is_in(address: str, name: str) -> bool:
    own, network = _network(address), _network(name)
    if own is None or network is None:
        return False
    shift = 32 - network[1]
    return own[0] >> shift == network[0] >> shift


def _network(text: str) -> tuple[int, int] | None:
    """(address, bits) of `1.2.3.4` or `1.2.3.0/24`; IPv4 only, as Apache's 3.8."""
    address, slash, size = text.partition("/")
    parts = address.split(".")
    if len(parts) != 4 or not all(_DECIMAL.fullmatch(part) for part in parts):
        return None
    numbers = [int(part) for part in parts]
    if slash and not _DECIMAL.fullmatch(size):
        return None
    bits = int(size) if slash else 32
    if not 0 <= bits <= 32 or not all(0 <= number <= 255 for number in numbers):
        return None
    return int.from_bytes(bytes(numbers), "big"), bits


def _java_split(text: str, separator: str) -> list[str]:
    """As Java's split: empty parts at the end don't count."""
    parts = text.split(separator)
    while parts and not parts[-1]:
        parts.pop()
    return parts


_OPEN = list(OPEN_ACL)
"""As it comes from the wire: by far the most frequent one."""
