"""What a command is wrapped for: what must be had while it runs, and what is made of its end.

`wrapped` is the procedure, the same for all; an errand is asked what to stand for, is told what
happens, and says in its own words what that means: a line, an exit code, a record.

Rule of this file: an errand decides nothing about COMMAND's life. It may forbid a start, and it
is asked for the exit code only when everything is proven dead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from incumbent.agent.ending import Ending
from incumbent.client import Client
from incumbent.errors import HoldLost, IncumbentError, LockLost
from incumbent.recipes.hold import Hold
from incumbent.recipes.ledger import Ledger
from incumbent.recipes.place import Place

__all__ = ["Errand"]


class Errand(ABC):
    """One errand, from its first session to its exit code."""

    error: type[HoldLost] = LockLost
    """What losing it is called."""
    is_fencing = True
    """Whether what is had has a fencing token: only one has it at a time."""
    tells_all = False
    """Whether starts and ends are worth a line where all goes well."""

    async def before(self, client: Client) -> int | None:
        """Before standing: an exit code if there is nothing to stand for."""
        return None

    @abstractmethod
    async def enter(self, client: Client, ledger: Ledger) -> Place:
        """Stand for it."""

    def is_admitted(self, place: Place) -> bool:
        """By what was last read."""
        return not place.ahead()

    async def admitted(self, place: Place) -> None:
        """Return when we are. Raises as `Place.first`."""
        await place.first(self.waits)

    def hold(self, place: Place, grace: float) -> Hold:
        """What being admitted is worth; to be begun."""
        return Hold(place, grace=grace, error=self.error)

    @abstractmethod
    def waits(self, place: Place) -> None:
        """We began to wait for another contender (`place.watching`)."""

    async def sees(self, place: Place) -> None:
        """Others are before us and are not to be waited for: find out who, for `late`."""
        return

    @abstractmethod
    def has(self, place: Place) -> None:
        """We have it."""

    async def claim(self, client: Client, place: Place) -> int | None:
        """We have it, nothing runs: an exit code if nothing is to be run. Never cancelled while
        what it writes may be under way; raises `SessionError` or `NoNode` if we lost it."""
        return None

    @abstractmethod
    def loses(self, place: Place, why: str) -> None:
        """It is lost, whether COMMAND runs or not. May be told again."""

    @abstractmethod
    def drops_out(self, place: Place, why: str) -> None:
        """Our place among those who stand there is gone; we shall stand again."""

    async def ended(self, client: Client, ending: Ending, patience: float) -> None:
        """COMMAND is proven dead, or was never started after a `claim`. At most `patience` s."""
        return

    def rests(self) -> None:
        """Nothing more is so from now on."""
        return

    @abstractmethod
    def code(self, ending: Ending) -> int | None:
        """The exit code, or None: stand again."""

    @abstractmethod
    def stopped(self, signal: str) -> int:
        """The exit code when we are told to stop, SIGTERM or so, and nothing was started."""

    @abstractmethod
    def failed(self, error: IncumbentError | ValueError) -> int:
        """The exit code when we cannot go on."""

    def late(self) -> str:
        """Why it is no longer waited for, and for whom it was."""
        return "not had in time"

    def environment(self, token: int) -> dict[str, str]:
        """What COMMAND finds besides what all have."""
        return {"INCUMBENT_TOKEN": str(token)} if self.is_fencing else {}
