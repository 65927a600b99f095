"""The errand of `incumbent elect`: lead an election, and stand again when deposed.

Rule of this file: stdout says which role we have, and nothing else does.
"""

from __future__ import annotations

import random

from incumbent.agent.ending import Ended, Ending
from incumbent.agent.errand import Errand
from incumbent.agent.exit_codes import NOT_FOUND
from incumbent.agent.lines import Role
from incumbent.agent.view import patient
from incumbent.agent.wrapped_settings import WrappedSettings
from incumbent.client import Client
from incumbent.errors import Deposed, IncumbentError, MixedDialects, NoNode, NumbersDontFit
from incumbent.recipes.dialects import Dialect, detect
from incumbent.recipes.ledger import Ledger
from incumbent.recipes.place import Place
from incumbent.recipes.queue import Queue

__all__ = ["Leading"]

PLAIN = Dialect("plain", "node_")
"""How contenders are named where nobody stands yet: as the literature does."""


class Leading(Errand):
    error = Deposed
    tells_all = True

    def __init__(self, settings: WrappedSettings, role: Role, rng: random.Random) -> None:
        self._settings = settings
        self._role = role
        self._rng = rng

    async def enter(self, client: Client, ledger: Ledger) -> Place:
        """Stand in the dialect of those who stand there."""
        tries = 10
        while True:
            try:
                children = await patient(lambda: client.children(self._settings.path))
            except NoNode:
                children = []
            dialect = detect(self._settings.path, children, PLAIN)
            queue = Queue(client, self._settings.path, dialect, rng=self._rng, ledger=ledger)
            try:
                return await queue.enter(self._settings.name.encode())
            except MixedDialects:  # somebody came between the look and our create
                tries -= 1
                if not tries:
                    raise

    def waits(self, place: Place) -> None:
        self._role.play(f"{place.name} is not the leader, watching {place.watching}")

    def has(self, place: Place) -> None:
        self._role.play(f"{place.name} is the leader")
        place.tell_next()

    def loses(self, place: Place, why: str) -> None:
        if self._role.lasts:
            self._role.play(f"{place.name} is no longer the leader: {why}", lasts=False)

    def drops_out(self, place: Place, why: str) -> None:
        self._role.play(f"{place.name} is out of the election: {why}", lasts=False)

    def rests(self) -> None:
        self._role.play("")

    def code(self, ending: Ending) -> int | None:
        match ending.how:
            case Ended.OWN:
                return ending.code
            case Ended.STOPPED:
                return 0
            case Ended.BACKGROUND:
                return 1
            case Ended.UNSTARTABLE:
                return NOT_FOUND
            case Ended.LOST | Ended.NOT_STARTED:
                return None

    def stopped(self, signal: str) -> int:
        return 0

    def failed(self, error: IncumbentError | ValueError) -> int:
        return 2 if isinstance(error, NumbersDontFit | ValueError) else 1
