"""A component's output wherever it runs: on this node, on another, and on the next one.

    follow the tree (observed) ─► which node has it, in which epoch
    its log there ─► moved: the rest of it ─► a marked line ─► the next node's log, from that epoch on

Rule of this file: what one node wrote is shown to its end before what the next one writes, and
where it changes is marked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from incumbent.agent.home import Home
from incumbent.agent.log_words import Ask
from incumbent.agent.tree import NodeFacts, Observed, Tree, UnreadableZnode, read, seat_name
from incumbent.agent.view import follow_data
from incumbent.cli import local
from incumbent.cli.cluster import ComponentState, SeatState, connected, read_cluster
from incumbent.cli.exits import No
from incumbent.cli.node_logs import CannotRead, FileLog, Log, read_from
from incumbent.client import Client, State
from incumbent.errors import IncumbentError, NoNode, SessionError
from incumbent.settings import Settings
from incumbent.wire import Stat

__all__ = ["Following", "Place", "place_of"]

_AGAIN = 2.0
"""Seconds until a log that cannot be read is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an instance of a seat ran last, as far as the tree says."""

    node: str = ""
    epoch: int = 0


def place_of(seat: SeatState) -> Place:
    """By its newest breadcrumb, else by the last word of who had it."""
    if seat.breadcrumbs:
        return Place(node=seat.breadcrumbs[-1].node, epoch=seat.breadcrumbs[-1].epoch)
    if seat.observed is not None:
        return Place(node=seat.observed.node, epoch=seat.observed.epoch)
    return Place()


class Following:
    """One call of `logs`. `show(seat, line)`; `say` is for what is no line of any program."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        *,
        count: int,
        follow: bool,
        hook: str,
        show: Callable[[str, str], None],
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._tree = Tree(settings.root)
        self._name = name
        self._ask = Ask(seat="x/0", hook=hook, lines=count, follow=follow)
        self._show_line = show
        self._say = say
        self._here: Mapping[str, Path] = {}
        self._places: dict[str, Place] = {}
        self._news: dict[str, asyncio.Event] = {}
        self.seats: Sequence[str] = ()

    async def run(self) -> None:
        """Show the last lines of each seat, one after the other; or all of them, as they come,
        without an end. Raises `No`, `CannotRead`, and what `connected` does.
        """
        async with connected(self._settings) as client:
            self._here = _nodes_here(self._settings)
            await self._find(client)
            if not self._ask.follow:
                await self._all_once(client)
                return
            forget = client.watch_state(self._see_connection)
            try:
                async with asyncio.TaskGroup() as group:
                    for seat in self.seats:
                        group.create_task(self._watch(client, seat))
                        group.create_task(self._follow(client, seat))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
            finally:
                forget()

    def _see_connection(self, state: State) -> None:
        """Who follows must know why nothing comes any more, and that it is not the program."""
        if state is State.SUSPENDED:
            self._say("ZooKeeper does not answer: where it goes on cannot be told until it does")
        elif state is State.CONNECTED:
            self._say("ZooKeeper answers again")

    async def _find(self, client: Client) -> None:
        """The seats that are meant, and where each is."""
        component, slash, _number = self._name.rpartition("/")
        there = {each.name: each for each in (await read_cluster(client, self._tree)).components}
        found = there.get(component if slash else self._name)
        places = {} if found is None else _places(found)
        if slash:
            places = {seat: place for seat, place in places.items() if seat == self._name}
        if not places:
            names = ", ".join(n for n, each in there.items() if not each.is_removed) or "none"
            raise No(f"there is no component {self._name}; there are: {names}")
        self._places, self.seats = places, sorted(places, key=_by_number)
        self._news = {seat: asyncio.Event() for seat in places}
        if not any(place.node for place in places.values()) and not self._ask.follow:
            raise No(f"{self._name} has run nowhere yet; `incumbent why {self._name}` says why")

    async def _all_once(self, client: Client) -> None:
        problems = []
        for seat in self.seats:
            try:
                await self._once(client, seat)
            except CannotRead as error:
                problems.append(error)
        for problem in problems[:-1]:
            self._say(str(problem))
        if problems:
            raise problems[-1]

    async def _once(self, client: Client, seat: str) -> None:
        place = self._places[seat]
        if not place.node:
            self._say(f"{seat} has run nowhere yet")
            return
        log = await self._open(client, seat, place, self._ask)
        try:
            while (lines := await log.batch()) is not None:
                self._put(seat, lines)
        finally:
            log.close()

    async def _watch(self, client: Client, seat: str) -> None:
        """Keep `_places` up to date, over sessions that end."""

        def see(data: bytes | None, _stat: Stat | None) -> None:
            with suppress(UnreadableZnode):
                if data:
                    said = read(Observed, data, self._tree.observed(seat))
                    if said.epoch > self._places[seat].epoch:
                        self._places[seat] = Place(node=said.node, epoch=said.epoch)
                        self._news[seat].set()

        while True:
            with suppress(SessionError):
                await follow_data(client, self._tree.observed(seat), see)
            await asyncio.sleep(_AGAIN)

    async def _follow(self, client: Client, seat: str) -> None:
        ask, place, told = self._ask, self._places[seat], ""
        while True:
            self._news[seat].clear()
            log = None
            try:
                if place.node:
                    log = await self._open(client, seat, place, ask)
                    told = ""
                    await self._to_the_end(seat, place, log)
            except CannotRead as error:
                if log is not None and log.place != (0, 0):
                    ask = replace(ask, after=log.place)
                if str(error) != told:
                    told = str(error)
                    self._say(told)
            finally:
                if log is not None:
                    log.close()
            now = await self._moved(seat, place, _AGAIN if place.node else None)
            if now.node == place.node:
                place = now
                continue
            if place.node:
                self._put(seat, [_mark(self._title(seat), place, now)])
            place, ask, told = now, replace(self._ask, epoch=now.epoch if place.node else 0), ""

    async def _to_the_end(self, seat: str, place: Place, log: Log) -> None:
        """Show it until the seat is somewhere else, and what was written until then. Raises
        `CannotRead`."""
        moved = asyncio.ensure_future(self._moved(seat, place, None))
        reading: asyncio.Future[list[str] | None] | None = None
        is_told = False
        try:
            while True:
                reading = reading or asyncio.ensure_future(log.batch())
                waits: list[asyncio.Future[object]] = [reading, moved]  # type: ignore[list-item]
                if is_told:
                    waits.pop()
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if moved.done() and not is_told:
                    is_told = True
                    await log.finish()
                if reading.done():
                    lines, reading = reading.result(), None
                    if lines is None:
                        return
                    self._put(seat, lines)
        finally:
            moved.cancel()
            if reading is not None:
                reading.cancel()

    async def _moved(self, seat: str, place: Place, timeout: float | None) -> Place:
        """Wait until the seat is at another node; or no longer than that. Where it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._places[seat].node == place.node:
                    self._news[seat].clear()
                    await self._news[seat].wait()
        return self._places[seat]

    async def _open(self, client: Client, seat: str, place: Place, ask: Ask) -> Log:
        """Its log at that node. Raises `CannotRead`."""
        asked = replace(ask, seat=seat)
        folder = self._here.get(place.node)
        if folder is not None:
            said = (local.ask(folder) or {}).get("seats", {}).get(seat, {})
            since = float(said.get("began") or 0.0) if ask.epoch else 0.0
            try:
                return FileLog(Home(folder).log_of(asked.log), asked, since)
            except PermissionError as error:
                why = f"{error.filename} cannot be read: it belongs to the agent's user"
                raise CannotRead(why) from None
        facts = await self._facts(client, place.node)
        if facts is None:
            raise CannotRead(f"{place.node}, where it ran last, is not there now")
        if not facts.logs:
            raise CannotRead(
                f"{place.node} shows its logs to no other machine: `incumbent logs {self._name}` "
                "there, or [logs] in its /etc/incumbent/agent.toml"
            )
        return await read_from(facts, asked, self._settings.credentials())

    async def _facts(self, client: Client, node: str) -> NodeFacts | None:
        path = self._tree.node(node)
        try:
            return read(NodeFacts, (await client.get(path))[0], path)
        except (NoNode, UnreadableZnode):
            return None
        except IncumbentError as error:
            raise CannotRead(f"where {node} shows its logs cannot be read now: {error}") from None

    def _put(self, seat: str, lines: Sequence[str]) -> None:
        for line in lines:
            self._show_line(seat, line)

    def _title(self, seat: str) -> str:
        return seat if "/" in self._name or len(self.seats) > 1 else self._name


def _places(component: ComponentState) -> dict[str, Place]:
    copies = component.spec.copies if component.spec is not None else 0
    found = {seat_name(component.name, seat.number): place_of(seat) for seat in component.seats}
    wanted = [seat_name(component.name, number) for number in range(copies)]
    return {seat: place for seat, place in found.items() if seat in wanted or place.node}


def _nodes_here(settings: Settings) -> dict[str, Path]:
    """The nodes of this machine and their data directories; also one that has ended."""
    found = {settings.node: settings.data} if Home(settings.data).logs.exists() else {}
    for folder in settings.agent_folders:
        if said := local.ask(folder):
            found[str(said["node"])] = folder
    return found


def _mark(title: str, before: Place, now: Place) -> str:
    return f"── {title} moved from {before.node} to {now.node} (epoch {now.epoch}) ──"


def _by_number(seat: str) -> int:
    return int(seat.rpartition("/")[2])
