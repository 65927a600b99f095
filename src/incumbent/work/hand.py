"""Records read and written by hand: to look, to retry, to mark as done.

Rule of this file: a record is written only at the version at which it was read without a claim.
Whoever claims the item meanwhile changes that version, or finds it changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

from incumbent.client import Client
from incumbent.errors import BadVersion, MalformedValue, NodeExists, NoNode, Refused, Taken
from incumbent.recipes.entry import TRIES
from incumbent.recipes.flight import flight, why_not_made
from incumbent.wire import Create, CreateContainer, GetChildren, GetData, MultiRead
from incumbent.wire.paths import ancestors, name, parent
from incumbent.work.records import (
    CLAIM,
    SHARDS,
    Record,
    Standing,
    read_record,
    record_path,
)

__all__ = ["Found", "look", "look_at", "make_parents", "records", "write"]

_READS = 500


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at an item at one moment: its record with its version, and whether somebody
    has a claim."""

    record: Record | None
    version: int
    _: KW_ONLY
    is_claimed: bool


async def look(client: Client, path: str) -> Found:
    """How it stands with the item of this record."""
    (found,) = await look_at(client, [path])
    return found


async def look_at(client: Client, paths: Sequence[str]) -> list[Found]:
    """The same for many, each at one moment. Raises `MalformedValue`."""
    found: list[Found] = []
    for start in range(0, len(paths), _READS):
        piece = paths[start : start + _READS]
        reads = [GetData(each) for path in piece for each in (path, f"{path}/{CLAIM}")]
        answers = await client.submit(MultiRead(tuple(reads)))
        for path, record, claim in zip(piece, answers[::2], answers[1::2], strict=True):
            for answer in (record, claim):
                if isinstance(answer, BaseException) and not isinstance(answer, NoNode):
                    raise answer
            if isinstance(record, NoNode):
                found.append(Found(None, 0, is_claimed=False))
                continue
            data, stat = record
            is_claimed = not isinstance(claim, NoNode)
            found.append(Found(read_record(path, data), stat.version, is_claimed=is_claimed))
    return found


async def write(client: Client, work: str, item: str, record: Record | None) -> None:
    """Write this record of an item that nobody has a claim on; None: none, as if it were new.
    Raises `Taken`, and `FateUnknown` if the answer was lost."""
    path = record_path(work, item)
    for _ in range(TRIES):
        found = await look(client, path)
        if found.is_claimed:
            break
        with contextlib.suppress(NodeExists, BadVersion, NoNode):
            if record is None:
                if found.record is not None:
                    await client.delete(path, found.version)
            elif found.record is not None:
                await client.set(path, record.write(name(path)), found.version)
            else:
                try:
                    await client.create(path, record.write(name(path)))
                except NoNode:
                    await make_parents(client, work, [path])
                    continue
            return
    raise Taken(work, item, Standing.CLAIMED.value)


async def records(client: Client, work: str) -> AsyncIterator[Record]:
    """Every record of a work, in no order; what cannot be read is passed over."""
    shards = [f"{work}/{shard}" for shard in SHARDS]
    listings = await flight(client, *map(GetChildren, shards))
    for shard, names in zip(shards, listings, strict=True):
        if isinstance(names, NoNode):
            continue
        if isinstance(names, BaseException):
            raise names
        assert isinstance(names, list)
        paths = [f"{shard}/{each}" for each in names]
        for start in range(0, len(paths), _READS):
            piece = paths[start : start + _READS]
            answers = await client.submit(MultiRead(tuple(map(GetData, piece))))
            for path, answer in zip(piece, answers, strict=True):
                if not isinstance(answer, BaseException):
                    with contextlib.suppress(MalformedValue):
                        yield read_record(path, answer[0])


async def make_parents(client: Client, work: str, paths: Iterable[str]) -> None:
    """The containers above these records, which are missing. Raises the refusal because of which
    one of them cannot be made."""
    above = [*(Create(path) for path in ancestors(work)), CreateContainer(work)]
    shards = [CreateContainer(path) for path in dict.fromkeys(map(parent, paths))]
    results = await flight(client, *above, *shards)
    for shard, made in zip(shards, results[len(above) :], strict=True):
        if isinstance(made, NoNode) and (
            why := why_not_made(client, shard.path, results[: len(above)])
        ):
            raise why
        if isinstance(made, Refused) and not isinstance(made, NodeExists | NoNode):
            raise made
