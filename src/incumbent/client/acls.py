"""Which ACL a new znode gets where its maker names none: an ACL is each znode's own, never its
parent's.

Rule of this file: an ACL that was named is never replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from incumbent.wire import (
    OPEN_ACL,
    Acl,
    Create,
    Create2,
    CreateContainer,
    CreateTtl,
    Multi,
    Request,
)

__all__ = ["AclOf", "dressed"]

AclOf: TypeAlias = Callable[[str], Sequence[Acl] | None]
"""The ACL for a znode at this path, as the server has it; None: as it was asked for."""

_Any = TypeVar("_Any", bound=Request)


def dressed(request: _Any, acl_of: AclOf, down: Callable[[str], str]) -> _Any:
    """The same request, with ACLs. `down`: from the caller's path to the server's."""
    if isinstance(request, Multi):
        return replace(request, ops=[dressed(op, acl_of, down) for op in request.ops])
    if not isinstance(request, Create | Create2 | CreateContainer | CreateTtl):
        return request
    if request.acl is not OPEN_ACL:
        return request
    acl = acl_of(down(request.path))
    return request if acl is None else replace(request, acl=acl)
