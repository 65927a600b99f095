"""Who a program will be on this machine.

Rule of this file: it only looks users up.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from incumbent.spec import Spec

__all__ = ["Identity", "identity_of", "user_of", "user_problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user of this machine, as its program will have it."""

    name: str
    home: str
    uid: int
    gid: int
    groups: tuple[int, ...]


def identity_of(spec: Spec) -> Identity | None:
    """The spec's user on this machine; None if it names none, or one that is not here."""
    try:
        entry = pwd.getpwnam(spec.user) if spec.user is not None else None
    except KeyError:
        return None
    if entry is None:
        return None
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    name, uid, gid = entry.pw_name, entry.pw_uid, entry.pw_gid
    return Identity(name=name, home=entry.pw_dir, uid=uid, gid=gid, groups=groups)


def user_problem(spec: Spec) -> str:
    """Why nothing can run as the spec's user on this machine, "" if it can."""
    if spec.user is None:
        return ""
    try:
        uid = pwd.getpwnam(spec.user).pw_uid
    except KeyError:
        return f"there is no user {spec.user} on this node"
    if uid != os.geteuid() != 0:
        return f"only an agent that is root can run it as {spec.user}; this one is not"
    return ""


def user_of(spec: Spec) -> str:
    """Who its program is on this node; the number of a user without a name."""
    if spec.user is not None:
        return spec.user
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
