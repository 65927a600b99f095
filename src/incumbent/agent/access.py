"""Who may do what in the tree: the ACL of each znode, by its path.

Operators may do everything; agents what the table says; the world reads, or nothing. An ACL is a
znode's own and is never handed down, so whoever makes a znode gives it the one that stands here.
Letters are ZooKeeper's: create and delete (of children), read, write, admin.

Rule of this file: pure; what stands in no row is for agents to read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from incumbent.agent.tree import Access
from incumbent.wire import Acl, AclPerm

__all__ = ["acls", "is_open", "who_may_write"]

_AGENTS = (
    ("sessions", "rc"),
    ("nodes", "rc"),
    ("nodes/*", "rw"),
    ("plan", "rw"),
    ("planner/election", "rcd"),
    ("planner/election/*", "rw"),
    ("components/*", "rc"),  # failures are counted below it
    ("components/*/failures", "rw"),
    ("components/*/rollout", "rw"),
    ("components/*/commands", "rd"),  # what is too old is tidied away
    ("components/*/commands/*", "rw"),  # what came of it
    ("components/*/seats/*", "rwc"),
    ("components/*/seats/*/election", "rcd"),
    ("components/*/seats/*/election/*", "rw"),
    ("components/*/seats/*/running", "rcd"),
    ("components/*/seats/*/running/*", "rw"),  # after a pause
    ("components/*/seats/*/observed", "rw"),
)
_SHARED = ("locks", "once", "queues", "barriers")
"""What commands on nodes use: agents may do everything there, at any depth."""
_LETTERS = {
    "r": AclPerm.READ,
    "w": AclPerm.WRITE,
    "c": AclPerm.CREATE,
    "d": AclPerm.DELETE,
}
_TO_CHANGE = AclPerm.WRITE | AclPerm.CREATE | AclPerm.DELETE | AclPerm.ADMIN


def acls(access: Access, root: str) -> Callable[[str], Sequence[Acl] | None]:
    """From a path to its znode's ACL; None above and beside `root`."""

    def acl_of(path: str) -> Sequence[Acl] | None:
        if path != root and not path.startswith(f"{root}/"):
            return None
        below = path[len(root) + 1 :]
        who = [(each, int(AclPerm.ALL)) for each in access.operators]
        who += [(each, _for_agents(below)) for each in access.agents]
        if access.readable and below != "access":
            who.append(("world:anyone", int(AclPerm.READ)))
        return [Acl(perms, *each.split(":", 1)) for each, perms in dict(reversed(who)).items()]

    return acl_of


def is_open(acl: Sequence[Acl]) -> bool:
    """Whether anybody at all may change what has this ACL, or what is below it."""
    return any(entry.scheme == "world" and entry.perms & _TO_CHANGE for entry in acl)


def who_may_write(path: str) -> str:
    """The sentence about a znode that `is_open`, with the way out."""
    return (
        f"anybody may write {path}, and so could run anything here: `incumbent init` closes the "
        "tree; `--insecure` takes orders all the same"
    )


def _for_agents(below: str) -> int:
    if below.partition("/")[0] in _SHARED:
        return int(AclPerm.ALL & ~AclPerm.ADMIN)
    depth = below.count("/")
    for pattern, letters in _AGENTS:
        if pattern.count("/") == depth and fnmatchcase(below, pattern):
            return sum(int(_LETTERS[letter]) for letter in letters)
    return int(AclPerm.READ)
