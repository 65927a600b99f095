"""A multi, put together line by line.

    async with client.transaction() as t:
        t.check("/app/config", version=3)
        t.create("/app/jobs/", sequential=True)
    made = t.results[1]

Rule of this file: all of it or nothing; what came of each operation is in `results`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from incumbent.wire import (
    OPEN_ACL,
    Acl,
    Check,
    Create2,
    CreateContainer,
    CreateFlag,
    CreateTtl,
    Delete,
    MultiOp,
    MultiResult,
    SetData,
)

__all__ = ["Transaction", "creation"]


class _Committer(Protocol):
    async def multi(self, operations: Sequence[MultiOp]) -> Sequence[MultiResult]: ...


def creation(
    path: str,
    data: bytes | None,
    *,
    ephemeral: bool = False,
    sequential: bool = False,
    container: bool = False,
    ttl: float | None = None,
    acl: Sequence[Acl] = OPEN_ACL,
) -> Create2 | CreateContainer | CreateTtl:
    """The request that makes such a znode; `ttl` in seconds."""
    if container:
        assert not (ephemeral or sequential or ttl), "a container is nothing else besides"
        return CreateContainer(path, data, acl)
    if ttl is not None:
        assert not ephemeral, "an ephemeral ends with its session, not by a time to live"
        kind = CreateFlag.TTL_SEQUENTIAL if sequential else CreateFlag.TTL
        return CreateTtl(path, data, acl, kind, round(ttl * 1000))
    flags = ephemeral * CreateFlag.EPHEMERAL | sequential * CreateFlag.SEQUENTIAL
    return Create2(path, data, acl, flags)


class Transaction:
    """Operations that are carried out together, at the end of the block or by `commit()`.

    A block that raises commits nothing. `results` then has one result per operation: the path
    made, the Stat of what was set, `Created` for a container or a time to live, or None.
    """

    def __init__(self, client: _Committer) -> None:
        self._client = client
        self._operations: list[MultiOp] = []
        self.results: Sequence[MultiResult] = ()

    def check(self, path: str, version: int = -1) -> None:
        self._operations.append(Check(path, version))

    def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        container: bool = False,
        ttl: float | None = None,
        acl: Sequence[Acl] = OPEN_ACL,
    ) -> None:
        operation = creation(
            path,
            data,
            ephemeral=ephemeral,
            sequential=sequential,
            container=container,
            ttl=ttl,
            acl=acl,
        )
        self._operations.append(operation)

    def set(self, path: str, data: bytes | None, version: int = -1) -> None:
        self._operations.append(SetData(path, data, version))

    def delete(self, path: str, version: int = -1) -> None:
        self._operations.append(Delete(path, version))

    async def commit(self) -> Sequence[MultiResult]:
        """Raises the refusal of the operation at its `index` (then nothing was done), or
        `FateUnknown` if no answer came: read back what it would have written."""
        self.results = await self._client.multi(self._operations)
        return self.results

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.commit()
