"""A client without a network: a few znodes in memory, a clock and a lease set by hand.

Rule of this file: what a test does not set by hand behaves like a healthy session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from incumbent.client import State
from incumbent.client.chroot import Chroot
from incumbent.errors import NodeExists, NoNode
from incumbent.wire import (
    Check,
    Create,
    Create2,
    CreateContainer,
    Created,
    Delete,
    EventType,
    Exists,
    GetChildren,
    GetData,
    KeeperState,
    Multi,
    Request,
    SetData,
    Stat,
    WatchEvent,
)

__all__ = ["StandIn"]


class StandIn:
    """What recipes use of `incumbent.client.Client`.

    refuse   gives an error instead of an answer to a request, or None
    holds    which answers wait in `held`, until they are called
    """

    def __init__(self, session_id: int = 7) -> None:
        self.session_id = session_id
        self.generation = 1
        self.is_ours = True
        self.is_closing = False
        self.root = Chroot("")
        self.state = State.CONNECTED
        self.timeout = 10.0
        self.now = 100.0
        self.clock = SimpleNamespace(boottime=lambda: self.now, wall=lambda: self.now)
        self.lease = SimpleNamespace(valid_until=109.0, margin=0.1, report_lag=0.0)
        self.refuse: Callable[[Request], Exception | None] = lambda request: None
        self.holds: Callable[[Request], bool] = lambda request: False
        self.held: list[Callable[[], None]] = []
        self.requests: list[Request] = []
        self.znodes: dict[str, tuple[bytes, Stat]] = {}
        self.beating: list[str] = []
        self.watchers: dict[str, list[Callable[[WatchEvent], None]]] = {}
        self._states: list[Callable[[State], None]] = []
        self._beats: list[Callable[[float], None]] = []
        self._zxid = 0

    # By hand.

    @property
    def listeners(self) -> list[object]:
        """Whoever waits for a state, a beat or a znode."""
        watchers = [watcher for each in self.watchers.values() for watcher in each]
        return [*self._states, *self._beats, *watchers]

    def make(self, path: str, owner: int, data: bytes = b"") -> Stat:
        self._zxid += 1
        stat = Stat(self._zxid, self._zxid, 0, 0, 0, 0, 0, owner, len(data), 0, self._zxid)
        self.znodes[path] = (data, stat)
        return stat

    def remove(self, path: str) -> None:
        del self.znodes[path]
        self.fire(path, EventType.DELETED)

    def fire(self, path: str, kind: EventType) -> None:
        for watcher in self.watchers.pop(path, []):
            watcher(WatchEvent(kind, KeeperState.CONNECTED, path))

    def beaten(self) -> None:
        for listener in list(self._beats):
            listener(self.now)

    def move(self, state: State) -> None:
        self.state = state
        for listener in list(self._states):
            listener(state)

    # As a client.

    def submit(self, request: Request, *, watcher: Any = None, **_: Any) -> asyncio.Future[Any]:
        self.requests.append(request)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            if error := self.refuse(request):
                raise error
            future.set_result(self._answer(request))
            if watcher is not None:
                self.watchers.setdefault(request.where, []).append(watcher)
        except Exception as error:
            future.set_exception(error)
        return future

    def ask(
        self, request: Request, told: Callable[[Any], None], *, watcher: Any = None
    ) -> SimpleNamespace:
        answer = self.submit(request, watcher=watcher)
        outcome = answer.exception() or answer.result()
        if self.holds(request):
            self.held.append(lambda: told(outcome))
        else:
            told(outcome)
        return SimpleNamespace(cancel=lambda: None)

    def here(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def flush(self) -> None:
        """What is submitted is answered at once here."""

    def _answer(self, request: Any) -> Any:
        match request:
            case Multi():
                return [self._part(index, part) for index, part in enumerate(request.ops)]
            case Check() | Exists():
                if request.path not in self.znodes:
                    raise NoNode(request.path)
                return self.znodes[request.path][1]
            case GetData():
                if request.path not in self.znodes:
                    raise NoNode(request.path)
                return self.znodes[request.path]
            case SetData() if request.path in self.znodes:
                self.znodes[request.path] = (request.data, self.znodes[request.path][1])
                self.fire(request.path, EventType.CHANGED)
                return self.znodes[request.path][1]
            case GetChildren():
                inside = request.path + "/"
                return [path[len(inside) :] for path in self.znodes if path.startswith(inside)]
            case Create2() if request.flags == 3:
                number = sum(path.startswith(request.path[:3]) for path in self.znodes)
                path = f"{request.path}{number:010d}"
                return Created(path, self.make(path, self.session_id, request.data or b""))
            case Create() | Create2() | CreateContainer():
                if request.path in self.znodes:
                    raise NodeExists(request.path)
                return Created(request.path, self.make(request.path, 0))
            case Delete():
                if request.path not in self.znodes:
                    raise NoNode(request.path)
                self.remove(request.path)
                return None
        raise AssertionError(request)

    def _part(self, index: int, part: Any) -> Any:
        try:
            return self._answer(part)
        except NoNode as error:
            error.index = index
            raise

    async def get(self, path: str, *, watcher: Any = None) -> tuple[bytes, Stat]:
        answer: tuple[bytes, Stat] = await self.submit(
            GetData(path, watcher is not None), watcher=watcher
        )
        return answer

    async def exists(self, path: str) -> Stat | None:
        try:
            stat: Stat = await self.submit(Exists(path))
        except NoNode:
            return None
        return stat

    async def delete(self, path: str, version: int = -1) -> None:
        await self.submit(Delete(path, version))

    async def children(self, path: str) -> list[str]:
        return sorted(await self.submit(GetChildren(path)))

    async def multi(self, operations: Any) -> list[Any]:
        results: list[Any] = await self.submit(Multi(tuple(operations)))
        return results

    def unwatch(self, path: str, watcher: Any) -> None:
        with contextlib.suppress(ValueError):
            self.watchers.get(path, []).remove(watcher)

    @contextlib.contextmanager
    def beat(self, path: str) -> Iterator[None]:
        self.beating.append(path)
        try:
            yield
        finally:
            self.beating.remove(path)

    def watch_state(self, listener: Callable[[State], None]) -> Callable[[], None]:
        self._states.append(listener)
        return lambda: self._states.remove(listener) if listener in self._states else None

    def watch_beats(self, listener: Callable[[float], None]) -> Callable[[], None]:
        self._beats.append(listener)
        return lambda: self._beats.remove(listener)
