"""Orders to the leader of a seat: a znode below the component, made by anybody who may.

    create /incumbent/components/web/commands/now restart
    create /incumbent/components/web/commands/reload "signal HUP"

or, as JSON, `{"v": 1, "do": "restart", "by": "who orders it"}`. Whoever leads a seat takes the
order: in one transaction with the check that its candidate stands it writes into the znode which
epoch it is carried out for; then it acts, and writes down what came of it. An order that was taken
by an instance of a leader that is gone is not repeated: what came of it is unknown.

What was carried out stays there to be read; the newest `KEPT` of a component, that is.

Rule of this file: nothing is done for an order before it is taken, and nothing twice.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from incumbent.agent.tree import (
    Command,
    Taken,
    Tree,
    UnreadableZnode,
    read,
    session_key,
    split_seat,
    write,
)
from incumbent.agent.view import follow_children, patient, take_outcome
from incumbent.client import Client
from incumbent.errors import BadVersion, FateUnknown, NoNode, NotSent, Refused
from incumbent.recipes.place import Place
from incumbent.wire import Delete, SetData, Stat

__all__ = ["KEPT", "KNOWN", "Order", "Orders", "is_done", "meant", "read_command", "signal_number"]

KEPT = 20
KNOWN = ("restart", "signal NAME")
UNKNOWN = "unknown: its leader is gone, and did not say what came of it"


def read_command(data: bytes, path: str) -> Command:
    """What a person writes by hand is one word, what a program writes is JSON. Raises
    `UnreadableZnode`."""
    text = data.decode(errors="replace").strip()
    if text.startswith("{"):
        return read(Command, data, path)
    do, _, rest = text.partition(" ")
    return Command(do=do, signal=rest) if do == "signal" else Command(do=text)


def signal_number(name: str) -> int | None:
    """Of HUP, or SIGHUP."""
    wanted = name.strip().upper()
    return getattr(signal.Signals, wanted if wanted.startswith("SIG") else f"SIG{wanted}", None)


def _problem(command: Command) -> str:
    """What is wrong with an order, or ""."""
    if command.do == "signal" and signal_number(command.signal) is None:
        return f"there is no signal {command.signal!r}"
    if command.do not in ("restart", "signal"):
        return f"{command.do!r} is not known here; known: {', '.join(KNOWN)}"
    return ""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A command as read, for one seat."""

    path: str
    command: Command
    version: int
    czxid: int

    @property
    def id(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def by(self) -> str:
        """For a sentence."""
        return f" by {self.command.by}" if self.command.by else ""

    @property
    def what(self) -> str:
        """For a sentence."""
        return f"{self.command.do} {self.command.signal}".strip()


def meant(command: Command, copies: int) -> list[str]:
    """The seats that an order is for, by number."""
    return command.only or [str(number) for number in range(copies)]


def is_done(command: Command, copies: int) -> bool:
    """Whether the outcome of every seat that it is for is there."""
    seats = command.seats
    return all(k in seats and seats[k].outcome for k in meant(command, copies))


class Orders:
    """For one seat, while this node leads it.

    `ring` is called when something has changed, `say` with a line for operators. An order that we
    may not read or answer is passed over, and said: it must not keep the seat from anything else.
    """

    def __init__(
        self,
        client: Client,
        tree: Tree,
        seat: str,
        ring: Callable[[], None],
        say: Callable[[str], None],
        distrust: Callable[[str], Awaitable[str]],
    ) -> None:
        """`distrust`: why the znode at a path is no order for us, "" if it is."""
        self._distrust = distrust
        self._client = client
        self._session = session_key(client.session_id)
        self._tree = tree
        self._component, number = split_seat(seat)
        self._number = str(number)
        self._ring = ring
        self._say = say
        self._names: list[str] = []
        self._settled: dict[str, int] = {}
        """Orders with which we are done: name → czxid, for their age."""
        self.begun: Order | None = None
        """Taken by us; its outcome is still to be written."""

    async def follow(self) -> None:
        """Until cancelled."""

        async def see(names: list[str]) -> None:
            self._names = names
            self._settled = {n: czxid for n, czxid in self._settled.items() if n in names}
            self._ring()

        await follow_children(self._client, self._tree.commands(self._component), see)

    @property
    def has_news(self) -> bool:
        """Is there an order that we have not looked at?"""
        return self.begun is None and any(name not in self._settled for name in self._names)

    async def take(self, place: Place, epoch: int, why_not: str, copies: int) -> Order | None:
        """The oldest order that is ours to carry out, taken; None: there is none.

        `epoch`: of the instance that it concerns. `why_not`: why nothing can be started now, which
        then is the outcome of a restart. `copies`: how many seats an order is for.
        """
        for order in await self._open():
            command, taken = order.command, order.command.seats.get(self._number)
            if taken is not None and (taken.session, taken.epoch) == (self._session, epoch):
                self.begun = order  # by us, and the answer was lost, or our agent was killed
                return order
            if taken is not None:
                await self._write(place, order, taken.epoch, UNKNOWN)
            elif wrong := _problem(command):
                await self._write(place, order, epoch, f"refused: {wrong}")
            elif why_not and command.do == "restart":
                await self._write(place, order, epoch, f"refused: {why_not}")
            elif await self._write(place, order, epoch, ""):
                self.begun = order
                return order
        await self._tidy(copies)
        return None

    async def finish(self, place: Place, epoch: int, outcome: str, copies: int) -> None:
        """What came of the order that we have begun."""
        assert self.begun is not None
        path, self.begun = self.begun.path, None
        while True:
            try:
                data, stat = await patient(lambda: self._client.get(path))
                order = _order(path, data, stat)
            except (Refused, UnreadableZnode):
                return
            if await self._write(place, order, epoch, outcome) or order.id in self._settled:
                await self._tidy(copies)
                return
            place.raise_if_gone()

    async def _open(self) -> Sequence[Order]:
        """What we have not settled yet, the oldest first."""
        found: list[Order] = []
        for name in self._names:
            if name in self._settled:
                continue
            if (order := await self._read(name)) is None:
                self._settled[name] = 0
                continue
            taken = order.command.seats.get(self._number)
            is_ours = not order.command.only or self._number in order.command.only
            if not is_ours or (taken is not None and taken.outcome):
                self._settled[name] = order.czxid
            else:
                found.append(order)
        return sorted(found, key=lambda order: order.czxid)

    async def _read(self, name: str) -> Order | None:
        path = f"{self._tree.commands(self._component)}/{name}"
        try:
            data, stat = await patient(lambda: self._client.get(path))
            order = _order(path, data, stat)
            if not (why := await self._distrust(path)):
                return order
            self._say(f"{path} is passed over: {why}")
        except NoNode:
            pass
        except (Refused, UnreadableZnode) as error:
            self._say(f"{path} is passed over: {error}")
        return None

    async def _write(self, place: Place, order: Order, epoch: int, outcome: str) -> bool:
        """Say what becomes of it at our seat. False: somebody else wrote, or it may be unwritten."""
        taken = Taken(epoch=epoch, session=self._session, outcome=outcome)
        seats = {**order.command.seats, self._number: taken}
        data = write(msgspec.structs.replace(order.command, seats=seats))
        try:
            await self._client.multi([place.check_own(), SetData(order.path, data, order.version)])
        except (BadVersion, NoNode, FateUnknown, NotSent):
            return False
        except Refused as error:
            self._say(f"{order.path} is passed over: it cannot be answered: {error}")
            self._settled[order.id] = order.czxid
            return False
        if outcome:
            self._settled[order.id] = order.czxid
        return True

    async def _tidy(self, copies: int) -> None:
        """Delete what is too old, as far as every seat has answered it."""
        oldest_first = sorted(self._settled, key=self._settled.__getitem__)
        for name in oldest_first[: max(0, len(oldest_first) - KEPT)]:
            order = await self._read(name)
            if order is not None and is_done(order.command, copies):
                deletion = self._client.submit(Delete(order.path, order.version))
                deletion.add_done_callback(take_outcome)


def _order(path: str, data: bytes, stat: Stat) -> Order:
    command = read_command(data, path)
    return Order(path=path, command=command, version=stat.version, czxid=stat.czxid)
