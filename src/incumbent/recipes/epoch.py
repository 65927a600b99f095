"""A count of holds, for a fencing token where the znode's own will not do.

A contender's czxid is a token for as long as one at a time holds, and its server's zxids go on. Where
several hold at a time, or where tokens have to outlive a move to another ensemble, each hold
counts up a persistent znode: decimal digits, which `incumbent zk cp` takes along.

Counting is one transaction: our contender (of a multilock each of them) stands, and the number is the one before plus one, for the
version at which that was read. So no number is given out twice, and who holds after us has a
larger one. Where an answer is lost the next number is taken: some are never had by anybody.

Rule of this file: a number is counted while our znode stands and after we were let in; never before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from incumbent.errors import BadContent, BadVersion, FateUnknown, NodeExists, NoNode, NotSent
from incumbent.recipes.flight import flight, why_not_made
from incumbent.recipes.ledger import Pause
from incumbent.wire import Create, GetData, Multi, Request, SetData, Stat
from incumbent.wire.paths import ancestors

if TYPE_CHECKING:
    from incumbent.recipes.place import Place

__all__ = ["count_up"]


async def count_up(places: Sequence[Place], path: str) -> int:
    """Count one more hold of all these places, which one session has, at `path`; its number, from 1.

    One round trip where nobody has counted since we did, else two, and one more to make the znode.
    Waits through disconnections. Raises as `Place.first` when our znode is gone, `BadContent` if
    the znode is something else, or what the server refused.
    """
    client, known = places[0].ledger.client, places[0].ledger.epochs
    pause = Pause()
    while True:
        for place in places:
            place.raise_if_gone()
        requests: list[Request] = [GetData(path)]
        if path in known:
            number, version = known.pop(path)
            counting = SetData(path, b"%d" % (number + 1), version)
            requests.insert(0, Multi([*(place.check_own() for place in places), counting]))
        *counted, found = await flight(client, *requests)
        for result in counted:
            if isinstance(result, list):
                known[path] = number + 1, result[-1].version
                return number + 1
            if isinstance(result, NoNode) and (result.index or 0) < len(places):
                gone = places[result.index or 0]
                gone.gone.set(NoNode(gone.path))
            elif not isinstance(result, NoNode | BadVersion | FateUnknown | NotSent):
                raise _error(result)
        if isinstance(found, NoNode):
            above = [Create(each) for each in ancestors(path)]
            *results, made = await flight(client, *above, Create(path, b"0"))
            if isinstance(made, NoNode) and (why := why_not_made(client, path, results)):
                raise why
            if isinstance(made, NoNode | FateUnknown | NotSent):
                await pause.take()
            elif isinstance(made, NodeExists):
                pass  # somebody else's, just now
            elif isinstance(made, BaseException):
                raise made
            else:
                known[path] = 0, 0
        elif isinstance(found, FateUnknown | NotSent):
            await pause.take()
        elif isinstance(found, BaseException):
            raise found
        else:
            known[path] = _read(path, found)


def _read(path: str, found: Any) -> tuple[int, int]:
    data, stat = found
    with contextlib.suppress(ValueError):
        if (number := int(data or b"0")) >= 0:
            return number, Stat(*stat).version
    raise BadContent(path, "a count of holds, as decimal digits", data)


def _error(result: object) -> BaseException:
    assert isinstance(result, BaseException)
    return result
