"""What runs beside an instance of a seat: its hooks, and checks that are commands.

Each is a tree of its own under the guardian, contained as its program is, with the same hard
deadline and a time limit, and is named SEAT!WHAT. It works for one epoch, and is a part of it:

Rule of this file: an instance is not proven dead before everything beside it is (`end`); nothing
of an epoch is started once that was asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from incumbent.agent.instance import Instance
from incumbent.agent.sentences import how_it_ended
from incumbent.agent.view import take_outcome
from incumbent.errors import NumbersDontFit, SpecErrors

if TYPE_CHECKING:
    from incumbent.agent.bell import Bell
    from incumbent.agent.edition import Edition
    from incumbent.agent.term import Term

__all__ = ["Beside"]


class Beside:
    """Of one seat, within one session."""

    def __init__(self, term: Term, seat: str, bell: Bell) -> None:
        self._term = term
        self._seat = seat
        self._bell = bell
        self._tasks: dict[asyncio.Task[None], None] = {}

    def alive(self) -> list[Instance]:
        """What is not proven dead, in a fixed order."""
        of_ours = f"{self._seat}!"
        instances = self._term.instances
        return [i for name, i in sorted(instances.items()) if name.startswith(of_ours)]

    async def run(
        self,
        edition: Edition,
        what: str,
        command: tuple[str, ...],
        limit: float,
        epoch: int,
        *,
        more: Mapping[str, str] | None = None,
        give_up: Callable[[], str] = lambda: "",
    ) -> str:
        """Run it to its proven end; "" if it exited with 0, else what is wrong, in a clause.

        `more`: of its environment. `give_up`: why it is not to be waited for any more; it is
        killed then.
        """
        name = f"{self._seat}!{what}"
        number = self._term.custody.newest.get(name, 0) + 1
        try:
            start = self._term.launcher.start_beside(
                edition, name, number, epoch, command, limit, more or {}
            )
        except (NumbersDontFit, SpecErrors) as error:
            return str(error)
        instance = Instance(
            seat=name, epoch=number, breadcrumb="", containment=start.containment, beside=epoch
        )
        self._term.order_start(instance, start)
        given_up = ""
        while not instance.is_empty:
            given_up = given_up or give_up()
            if given_up and not instance.stop_ordered:
                self._term.custody.order_stop(instance, 0.0)
            await self._bell.heard()
        self._term.forget(instance)
        exited = instance.exited
        if exited is not None and exited.code == 0:
            return ""
        if given_up:
            return f"given up: {given_up}"
        if exited is not None and exited.uptime >= limit:
            return f"took longer than {limit:g} s"
        return how_it_ended(None, exited, instance.refused)

    def ring(self) -> None:
        """The seat is to look again."""
        self._bell.ring()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with it beside everything else, until it is done, or `end`."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(take_outcome)
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def cancel(self) -> None:
        """Begin nothing more. The session's end, or `end`, sees to what runs."""
        for task in self._tasks:
            task.cancel()

    async def end(self) -> None:
        """Kill all of it and wait for the proofs, however long they take."""
        while self._tasks:
            self.cancel()
            await asyncio.wait(list(self._tasks))
        while alive := [each for each in self.alive() if not each.is_empty]:
            for instance in alive:
                if not instance.stop_ordered:
                    self._term.custody.order_stop(instance, 0.0)
            await self._bell.heard()
        for instance in self.alive():
            self._term.forget(instance)
