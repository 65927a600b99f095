"""A subtree in memory, kept by one watch: for settings, services, whatever is read often.

    async with zk.cache("/app/config") as cache:
        cache.get("/app/config/limit")          # memory, no request
        async with cache.changes() as changes:
            async for change in changes:
                ...

One persistent recursive watch (ZooKeeper 3.6) tells of every change at and below the path. What
changed is read in one request, however much it is, at one moment of the server. What is shown is
what the tree was at one moment, and only ever a later one: see `picture`. Nothing is shown on an
event alone: at the price of its round trip, a reconnect to a server that lags cannot take it
back, since servers refuse a session that has seen more than they have.

Rule of this file: what is read moves `Picture`, nothing else does; what was asked before a gap
counts for nothing after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from incumbent.client import Client, State, Watcher
from incumbent.errors import (
    AnswerTooLarge,
    FateUnknown,
    IncumbentError,
    NoAuth,
    NoNode,
    NotSent,
    Refused,
    SessionClosed,
    SessionExpired,
)
from incumbent.recipes.changes import Changes
from incumbent.recipes.ledger import Pause
from incumbent.recipes.picture import Change, Picture, Znode
from incumbent.wire import (
    AddWatch,
    EventType,
    GetChildren,
    GetData,
    KeeperState,
    MultiRead,
    Request,
    Stat,
    WatchEvent,
    WatchMode,
)
from incumbent.wire.paths import problem

__all__ = ["Cache", "Changes"]

_PATHS = 1000  # in one request
_BYTES = 512 * 1024  # of data that one answer is expected to have; half of what a client takes
_REQUESTS = 16  # in one flight
_OVERHEAD = 120  # bytes that an answer has for each znode, its Stat and headers
_OWN = "/zookeeper"  # the server's own part of the tree, of whose changes nobody tells

_AGAIN = (FateUnknown, NotSent, SessionExpired)


class Cache:
    """The tree at and below `path`. `async with` it: it is loaded when the block begins.

    The path need not exist. Waits through disconnections and into later sessions, meanwhile
    showing what it had; bound the beginning with `asyncio.timeout`. Znodes that we may not read
    are left out with all that is below them; if that is the path itself, entering raises `NoAuth`.
    Every method raises `SessionClosed` once the client is closed.

    patience     how many times in a row it may fail to read a tree of one moment, since the tree
                 changes too fast, before it shows what lies between two; see `picture`
    keeps_order  then, too, changes are shown in their order only
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        log: Callable[[str], None],
        patience: int = 8,
        keeps_order: bool = False,
    ) -> None:
        if wrong := problem(path):
            raise ValueError(f"{path!r}: {wrong}")
        self.path = path
        self._client = client
        self._log = log
        self._picture = Picture(path, patience=patience, keeps_order=keeps_order)
        self._listeners: dict[int, Callable[[Sequence[Change]], None]] = {}
        self._added = 0
        self._paths = _PATHS
        self._era = 0
        self._seen = 0
        self._is_over = False  # the session in which our watch was set
        self._is_cut = False  # a connection was lost, and nobody has told us to look again
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: IncumbentError | None = None

    # What it shows.

    def get(self, path: str | None = None) -> Znode | None:
        """The znode at `path` (default: the cache's own), or None."""
        self._raise_if_over()
        return self._picture.shown.get(self.path if path is None else path)

    def children(self, path: str | None = None) -> list[str]:
        """The names of the children, sorted; none if there is no such znode."""
        self._raise_if_over()
        return self._picture.children(self.path if path is None else path)

    def snapshot(self) -> dict[str, Znode]:
        """All of it, by path, parents first."""
        self._raise_if_over()
        return dict(sorted(self._picture.shown.items()))

    @property
    def is_current(self) -> bool:
        """Is all shown that was told, with a connection on which more would be?"""
        return (
            self._error is None
            and not self._is_cut
            and self._client.state in (State.CONNECTED, State.READ_ONLY)
            and not self._picture.is_behind
        )

    async def settled(self) -> None:
        """Return when all is shown that this session was told until now: the effect of every
        write of ours that was answered, for one."""
        goal = self._picture.events
        while self._picture.through < goal:
            self._raise_if_over()
            await self._shown()

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[Changes]:
        """What changes from now on, beginning with all that is there: `async with
        cache.changes() as changes`, then `async for change in changes`."""
        changes = Changes(self)
        forget = self.listen(changes._put)
        try:
            yield changes
        finally:
            forget()

    def listen(self, listener: Callable[[Sequence[Change]], None]) -> Callable[[], None]:
        """Call `listener(changes)` each time another moment is shown, and with no changes at the
        end; the result takes it off again. It must not block."""
        self._added = number = self._added + 1
        self._listeners[number] = listener

        def forget() -> None:
            self._listeners.pop(number, None)

        return forget

    # Its life.

    async def __aenter__(self) -> Self:
        assert self._task is None, "a cache is entered once"
        self._task = self._client.here().create_task(self._follow())
        try:
            while self._picture.through < 0:
                self._raise_if_over()
                await self._shown()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        self._end(SessionClosed(self._client.session_id, "this cache is closed"))

    async def _follow(self) -> None:
        pause = Pause()
        forget_state = self._client.watch_state(self._on_state)
        try:
            while True:
                self._gap()
                self._is_over = False
                adding = self._submit(AddWatch(self.path, WatchMode.RECURSIVE), self._fired)
                adding.add_done_callback(self._watches_again)
                try:
                    if self._seen:  # else the first reading goes in the same flight
                        await adding
                        await self._not_older()
                    pause = await self._live(adding)
                except _AGAIN:
                    await pause.take()
                finally:
                    adding.cancel()
                    self._client.unwatch(self.path, self._fired)
        except IncumbentError as error:
            self._end(error)
        finally:
            forget_state()

    async def _live(self, adding: asyncio.Future[Any]) -> Pause:
        """Read and show, until the session is over."""
        pause = Pause()
        while not self._is_over:
            self._news.clear()
            if paths := self._picture.take(_REQUESTS * self._paths):
                if await self._read(paths):
                    pause = Pause()
                else:
                    await pause.take()
                await adding
            changes = self._picture.show()
            if changes is not None:
                self._seen = max(self._seen, self._client.last_zxid)
                self._tell(changes)
            if changes is not None and not self._picture.is_behind and not self._is_over:
                await self._news.wait()
        return pause

    async def _read(self, paths: list[str]) -> bool:
        """One flight. False if a part of it was not answered."""
        era, is_whole = self._era, True
        flight = []
        for chunk in self._chunks(paths):
            listed = [path for path in chunk if self._picture.lists(path)]
            reads = [GetData(path) for path in chunk]
            answer = self._submit(MultiRead([*reads, *map(GetChildren, listed)]))
            self._picture.asked(chunk, answer.done)
            flight.append((chunk, listed, answer))
        await asyncio.wait([answer for _, _, answer in flight])
        for chunk, listed, answer in flight:
            error = answer.exception()
            if era != self._era:
                continue  # asked before a gap
            if error is None:
                self._take_in(chunk, listed, answer.result())
                continue
            self._picture.failed(chunk)
            if isinstance(error, AnswerTooLarge) and len(chunk) > 1:
                self._paths = max(1, len(chunk) // 2)
            elif isinstance(error, _AGAIN):
                is_whole = False
            else:
                raise error
        return is_whole

    def _chunks(self, paths: list[str]) -> list[list[str]]:
        """What one answer each may hold."""
        chunks: list[list[str]] = [[]]
        size = 0
        for path in paths:
            znode = self._picture.shown.get(path)
            own = _OVERHEAD + len(path) + (0 if znode is None else len(znode.data))
            if chunks[-1] and (size + own > _BYTES or len(chunks[-1]) >= self._paths):
                chunks.append([])
                size = 0
            chunks[-1].append(path)
            size += own
        return chunks

    def _take_in(self, paths: list[str], listed: list[str], results: Sequence[Any]) -> None:
        listings = dict(zip(listed, results[len(paths) :], strict=True))
        for path, read in zip(paths, results, strict=False):
            names = listings.get(path)
            if refused := next((each for each in (read, names) if isinstance(each, Refused)), None):
                if not isinstance(refused, NoNode) and not (
                    isinstance(refused, NoAuth) and path != self.path
                ):
                    raise refused
                self._picture.came(path, None)
                continue
            if path == "/" and names is not None and not self._client.root.path:
                names = [name for name in names if f"/{name}" != _OWN]
            self._picture.came(path, Znode(path, read[0] or b"", Stat(*read[1])), names)

    def _submit(self, request: Request, watcher: Watcher | None = None) -> asyncio.Future[Any]:
        """Nobody is blamed for not looking at its error."""
        answer = self._client.submit(request, watcher=watcher)
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        return answer

    async def _not_older(self) -> None:
        """Wait until the server knows all that was shown: a session that some server made by
        itself (read-only, or local ones) may begin with an older tree."""
        pause = Pause()
        until = self._client.clock.boottime() + self._client.timeout
        while self._client.last_zxid < self._seen:
            if self._client.clock.boottime() > until:
                self._log(
                    f"{self.path}: the servers' data went back from zxid {self._seen:#x} to "
                    f"{self._client.last_zxid:#x}, and is taken as it is"
                )
                self._seen = 0
                return
            await pause.take()
            await self._client.exists(self.path)

    # What is told.

    def _fired(self, event: WatchEvent) -> None:
        if event.state is KeeperState.EXPIRED:
            self._is_over = True
        elif event.type is EventType.NONE:
            self._gap()
        elif self.path != "/" or self._client.root.path or not _is_own(event.path):
            self._picture.told(event.type, event.path)
        self._news.set()

    def _on_state(self, state: State) -> None:
        self._is_cut |= state is State.SUSPENDED

    def _watches_again(self, _: object) -> None:
        self._is_cut = False

    def _gap(self) -> None:
        self._is_cut = False
        self._era += 1
        self._picture.gap()

    def _tell(self, changes: Sequence[Change]) -> None:
        for number in tuple(self._listeners):
            if number in self._listeners:
                try:
                    self._listeners[number](changes)
                except Exception as error:  # a stranger's code: the cache goes on
                    self._log(f"{self.path}: a listener of its cache failed: {error!r}")

    def _end(self, error: IncumbentError) -> None:
        if self._error is None:
            self._error = error
            self._tell(())

    def _raise_if_over(self) -> None:
        if self._error is not None:
            raise self._error

    async def _shown(self) -> None:
        """Return when another moment is shown, or it is over."""
        happened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(changes: Sequence[Change]) -> None:
            if not happened.done():
                happened.set_result(None)

        forget = self.listen(wake)
        try:
            await happened
        finally:
            forget()


def _is_own(path: str) -> bool:
    return path == _OWN or path.startswith(f"{_OWN}/")
