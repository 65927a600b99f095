"""What became of a write whose answer was lost.

A `multi[check]` goes to the leader behind everything that this client sent before, on whichever
connection: once it is answered, an earlier write of the same session has been carried out, or
never will be. What is read behind it shows which.

Rule of this file: it only reads. What is concluded from it is the recipe's, and where nothing
can be concluded the recipe says so.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from incumbent.client import Client
from incumbent.errors import FateUnknown, NotSent, Refused, SessionExpired
from incumbent.recipes.flight import flight
from incumbent.recipes.ledger import SYSTEM_ERROR, Pause
from incumbent.wire import Check, Multi, Request

__all__ = ["is_passing", "read_back", "tells_nothing"]

_TRIES = 5


async def read_back(client: Client, *reads: Request) -> list[Any]:
    """Each read's answer, or its `Refused`, as of after this session's earlier writes.

    Raises what kept it from knowing: `FateUnknown`, `NotSent`, a `SessionError`, or a `Refused`
    of a server that cannot write, after a few tries. In a next session an earlier one's write may still be on its way.
    """
    pause = Pause()
    for tries_left in reversed(range(_TRIES)):
        results = await flight(client, Multi([Check("/")]), *reads)
        failed = [each for each in results if tells_nothing(each)]
        if not failed:
            return results[1:]
        if not tries_left or not is_passing(failed[0]):
            raise failed[0]
        await pause.take()
    raise AssertionError("the last try returns or raises")


def tells_nothing(answer: object) -> TypeGuard[BaseException]:
    """A server that cannot write just now has put no read behind anything, either."""
    if isinstance(answer, Refused):
        return answer.code == SYSTEM_ERROR
    return isinstance(answer, BaseException)


def is_passing(error: BaseException) -> bool:
    """Of those that tell nothing: may another try help?"""
    return isinstance(error, FateUnknown | NotSent | SessionExpired | Refused)
