"""What an agent without a guardian still has to write, it writes while its session lives."""

from __future__ import annotations

from typing import Any

import pytest

from incumbent.agent.agent import give_up
from incumbent.client import State
from incumbent.errors import FateUnknown, IncumbentError, NoNode, NotSent, SessionExpired
from incumbent.wire import Delete

OPS = [Delete("/incumbent/components/web/seats/0/running/7")]


class Answering:
    """A client whose multis are answered with these, one after the other."""

    def __init__(self, *answers: IncumbentError | None) -> None:
        self.state = State.CONNECTED
        self.left = list(answers)

    async def multi(self, ops: Any) -> list[Any]:
        assert ops == OPS
        answer = self.left.pop(0)
        if isinstance(answer, SessionExpired):
            self.state = State.LOST
        if answer is not None:
            raise answer
        return []


LOST = FateUnknown("multi", "the connection was lost")
NOT_SENT = NotSent("multi", "no connection within 10 s")


@pytest.mark.parametrize(
    "answers",
    [
        (None,),
        (LOST, None),
        (NOT_SENT, LOST, LOST, None),
        (LOST, NoNode(OPS[0].path)),
        (NOT_SENT, SessionExpired(7)),
    ],
)
async def test_it_is_tried_until_it_is_done_or_the_session_is_over(answers: Any) -> None:
    client = Answering(*answers)

    await give_up(client, OPS)  # type: ignore[arg-type]

    assert client.left == []


async def test_nothing_is_written_where_nothing_ran() -> None:
    await give_up(Answering(), [])  # type: ignore[arg-type]
