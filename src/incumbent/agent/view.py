"""What an agent knows of the tree: kept new by one-shot watches, for one session.

Rule of this file: the view may be late, and nothing unsafe is decided on it. Whatever must be
so at the moment of a start is checked again by the start's multi.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from incumbent.agent.bell import Bell
from incumbent.agent.tree import (
    Config,
    Control,
    Desired,
    Failures,
    NodeFacts,
    Plan,
    Rollout,
    Tree,
    UnreadableZnode,
    altered,
    read,
)
from incumbent.client import Client, Watcher
from incumbent.errors import FateUnknown, NoAuth, NoNode, NotSent, SpecError
from incumbent.spec import Spec, decode, earlier, program
from incumbent.wire import EventType, Stat, WatchEvent

__all__ = [
    "Change",
    "ComponentView",
    "View",
    "follow_children",
    "follow_data",
    "patient",
    "take_outcome",
]

T = TypeVar("T")

CLOSED_RETRY = 2.0
"""Seconds between two looks at what is closed to us, or open to everybody: ACLs have no watches."""


async def patient(read_: Callable[[], Awaitable[T]]) -> T:
    """Repeat a read until it is answered. Ends with the session: SessionExpired, SessionClosed."""
    while True:
        try:
            return await read_()
        except (NotSent, FateUnknown):
            await asyncio.sleep(0.05)


def take_outcome(future: asyncio.Future[Any]) -> None:
    """A done callback for what nobody waits for: its error, the session's end, is no news."""
    if not future.cancelled():
        future.exception()


class Change:
    """A one-shot watcher that can be waited for."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __call__(self, event: WatchEvent) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def seen(self) -> None:
        await self._future


async def follow_data(
    client: Client,
    path: str,
    see: Callable[[bytes | None, Stat | None], None],
    say: Callable[[str], None] = lambda _line: None,
) -> None:
    """Call `see` with a znode's data now and after each change, (None, None) while it is missing.

    One that is closed to us is looked at again and again; what was seen of it before holds.
    """
    told = False
    while True:
        change = Change()
        try:
            data, stat = await patient(lambda c=change: client.get(path, watcher=c))  # type: ignore[misc]
            see(data, stat)
        except NoNode:
            if await patient(lambda c=change: client.exists(path, watcher=c)) is not None:  # type: ignore[misc]
                continue
            see(None, None)
        except NoAuth as error:
            if not told:
                told = True
                say(f"{error}; looking again every {CLOSED_RETRY:g} s")
            await asyncio.sleep(CLOSED_RETRY)
            continue
        await change.seen()


async def follow_children(
    client: Client,
    path: str,
    see: Callable[[list[str]], Awaitable[None]],
    say: Callable[[str], None] = lambda _line: None,
) -> None:
    """The same for a znode's children; a missing znode has none."""
    told = False
    while True:
        change = Change()
        try:
            names = await patient(lambda c=change: client.children(path, watcher=c))  # type: ignore[misc]
        except NoNode:
            if await patient(lambda c=change: client.exists(path, watcher=c)) is not None:  # type: ignore[misc]
                continue
            names = []
        except NoAuth as error:
            if not told:
                told = True
                say(f"{error}; looking again every {CLOSED_RETRY:g} s")
            await asyncio.sleep(CLOSED_RETRY)
            continue
        await see(names)
        await change.seen()


@dataclass(slots=True)
class ComponentView:
    """One component as last read. `spec` is None while it cannot be read; `problem` says why.

    What cannot be read (or is missing: `desired`) starts nothing and stops nothing.
    """

    name: str
    spec: Spec | None = None
    program: str = ""
    zxid: int = 0
    """Of the spec's last change."""
    before: list[Spec] = field(default_factory=list)
    """Specs that it had, newest first."""
    problem: str = ""
    is_removed: bool = False
    desired: Desired = field(default_factory=lambda: Desired(run=False))
    desired_version: int = -1
    desired_problem: str = ""
    failures: Failures = field(default_factory=Failures)
    rollout: Rollout | None = None
    rollout_version: int = -1


class View:
    """Control, nodes, plan and components. Every change rings the bell."""

    def __init__(
        self,
        client: Client,
        tree: Tree,
        bell: Bell,
        say: Callable[[str], None],
        distrust: Callable[[str], Awaitable[str]],
    ) -> None:
        """`distrust`: why a component's znodes are no orders for us, "" if they are."""
        self._distrust = distrust
        self._client = client
        self._tree = tree
        self._bell = bell
        self._say = say
        self.control = Control(paused=True)
        self.control_version = -1
        self.control_zxid = 0
        """Of its last change."""
        self.control_problem = ""
        self.nodes: dict[str, NodeFacts] = {}
        self.plan = Plan()
        self.config: dict[str, str] = {}
        """Key → value, as far as it can be read."""
        self.config_before: dict[str, list[str]] = {}
        """Key → the values that it had, newest first."""
        self.config_zxid: dict[str, int] = {}
        self._keys: dict[str, asyncio.Task[None]] = {}
        self.components: dict[str, ComponentView] = {}
        self.is_complete = False
        self._followers: dict[str, list[asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def follow(self, group: asyncio.TaskGroup) -> None:
        """Start following, in `group`, and return when everything was read once."""
        self._group = group
        seen: list[asyncio.Future[None]] = []
        follows = (self._follow_control, self._follow_nodes, self._follow_plan, self._follow_config)
        for follow in follows:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            seen.append(future)
            group.create_task(follow(future))
        future = asyncio.get_running_loop().create_future()
        seen.append(future)
        group.create_task(self._follow_components(future))
        for each in seen:
            await each
        self.is_complete = True

    def session_nodes(self) -> dict[str, str]:
        """Session key → node, for the names of contenders."""
        return {facts.session: node for node, facts in self.nodes.items()}

    async def _follow_control(self, ready: asyncio.Future[None]) -> None:
        def see(data: bytes | None, stat: Stat | None) -> None:
            control, self.control_problem = self._order(Control, data, self._tree.control)
            self.control = control or Control(paused=True)
            self.control_version = stat.version if stat is not None else -1
            self.control_zxid = stat.mzxid if stat is not None else 0
            self._seen(ready)

        await follow_data(self._client, self._tree.control, see, self._say)

    async def _follow_plan(self, ready: asyncio.Future[None]) -> None:
        def see(data: bytes | None, stat: Stat | None) -> None:
            self.plan = self._read(Plan, data, self._tree.plan, Plan()) if data else Plan()
            self._seen(ready)

        await follow_data(self._client, self._tree.plan, see, self._say)

    async def _follow_config(self, ready: asyncio.Future[None]) -> None:
        async def see(names: list[str]) -> None:
            assert self._group is not None
            for name in sorted(self._keys.keys() - set(names)):
                self._keys.pop(name).cancel()
                self.config.pop(name, None)
            waits: list[asyncio.Future[None]] = []
            for name in names:
                if name not in self._keys:
                    first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    waits.append(first)
                    self._keys[name] = self._group.create_task(self._follow_key(name, first))
            for each in waits:
                await each
            self._seen(ready)

        await follow_children(self._client, self._tree.config, see)

    async def _follow_key(self, key: str, ready: asyncio.Future[None]) -> None:
        path = self._tree.config_key(key)

        def see(data: bytes | None, stat: Stat | None) -> None:
            found = self._read(Config, data, path, None) if data is not None else None
            if found is None or stat is None:
                self.config.pop(key, None)
            else:
                self.config[key] = found.now.value
                self.config_before[key] = [entry.value for entry in found.before]
                self.config_zxid[key] = stat.mzxid
            self._seen(ready)

        await follow_data(self._client, path, see)

    async def _follow_nodes(self, ready: asyncio.Future[None]) -> None:
        """A node writes its facts once a session; and again, if somebody has written over them."""
        names: list[str] = []
        changed = asyncio.Event()

        async def see(found: list[str]) -> None:
            names[:] = found
            changed.set()

        def written_over(event: WatchEvent) -> None:
            if event.type is EventType.CHANGED:  # the others are told of with the names
                changed.set()

        assert self._group is not None
        self._group.create_task(follow_children(self._client, self._tree.nodes, see, self._say))
        while True:
            await changed.wait()
            changed.clear()
            paths = [self._tree.node(name) for name in names]
            nodes: dict[str, NodeFacts] = {}
            every = await _gather(self._client, paths, written_over)
            for path, data in zip(paths, every, strict=True):
                if data is not None:
                    facts = self._read(NodeFacts, data, path, None)
                    if facts is not None:
                        nodes[facts.node] = facts
            self.nodes = nodes
            self._seen(ready)

    async def _follow_components(self, ready: asyncio.Future[None]) -> None:
        async def see(names: list[str]) -> None:
            for name in sorted(self.components.keys() - set(names)):
                del self.components[name]
                for task in self._followers.pop(name):
                    task.cancel()
            assert self._group is not None
            waits = []
            for name in names:
                if name not in self.components:
                    view = self.components[name] = ComponentView(name)
                    first: list[asyncio.Future[None]] = [
                        asyncio.get_running_loop().create_future() for _ in range(4)
                    ]
                    waits += first
                    self._followers[name] = [
                        self._group.create_task(self._follow_spec(view, first[0])),
                        self._group.create_task(self._follow_desired(view, first[1])),
                        self._group.create_task(self._follow_failures(view, first[2])),
                        self._group.create_task(self._follow_rollout(view, first[3])),
                    ]
            for each in waits:
                await each
            self._seen(ready)

        await follow_children(self._client, self._tree.components, see, self._say)

    async def _follow_spec(self, view: ComponentView, ready: asyncio.Future[None]) -> None:
        """While its znodes are no orders for us (`distrust`), it is one that cannot be read."""
        path = self._tree.component(view.name)
        seen: list[tuple[bytes | None, Stat | None]] = []

        def see(data: bytes | None, stat: Stat | None) -> None:
            seen.append((data, stat))
            changed.set()

        changed = asyncio.Event()
        assert self._group is not None
        following = self._group.create_task(follow_data(self._client, path, see, self._say))
        try:
            while True:
                await changed.wait()
                changed.clear()
                why = await self._distrust(view.name)
                self._take_spec(view, path, *seen[-1], why)
                del seen[:-1]
                self._seen(ready)
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLOSED_RETRY if why else None):
                        await changed.wait()
                changed.set()
        finally:
            following.cancel()

    def _take_spec(
        self, view: ComponentView, path: str, data: bytes | None, stat: Stat | None, why: str
    ) -> None:
        before = view.problem
        view.spec, view.problem, view.is_removed = None, "it was removed", True
        if not data or stat is None:  # a tombstone, which keeps its seats' epochs
            return
        view.is_removed = False
        try:
            spec = decode(data, path)
        except SpecError as error:
            why = why or str(error)
        if why:
            view.problem = why
            if why != before:
                self._say(why)
        else:
            view.spec, view.problem, view.program = spec, "", program(spec)
            view.zxid, view.before = stat.mzxid, earlier(data)

    async def _follow_desired(self, view: ComponentView, ready: asyncio.Future[None]) -> None:
        path = self._tree.desired(view.name)

        def see(data: bytes | None, stat: Stat | None) -> None:
            desired, view.desired_problem = self._order(Desired, data, path)
            view.desired = desired or Desired()
            view.desired_version = stat.version if stat is not None else -1
            self._seen(ready)

        await follow_data(self._client, path, see, self._say)

    async def _follow_failures(self, view: ComponentView, ready: asyncio.Future[None]) -> None:
        """What cannot be read keeps nothing from anything, and is written anew."""
        path = self._tree.failures(view.name)

        def see(data: bytes | None, stat: Stat | None) -> None:
            view.failures = self._read(Failures, data, path, Failures()) if data else Failures()
            self._seen(ready)

        await follow_data(self._client, path, see)

    async def _follow_rollout(self, view: ComponentView, ready: asyncio.Future[None]) -> None:
        """One that cannot be read is none, and is written anew at the next change. One that was
        written before what it tells of is a copy out of another ensemble, whose zxids say nothing.
        """
        path = self._tree.rollout(view.name)

        def see(data: bytes | None, stat: Stat | None) -> None:
            record = self._read(Rollout, data, path, None) if data else None
            if record is not None and stat is not None and stat.mzxid < record.zxid:
                record = altered(record, zxid=0)
            view.rollout = record
            view.rollout_version = stat.version if stat is not None else -1
            self._seen(ready)

        await follow_data(self._client, path, see, self._say)

    def _read(self, kind: type[T], data: bytes, path: str, otherwise: T) -> T:
        try:
            return read(kind, data, path)  # type: ignore[type-var]
        except UnreadableZnode as error:
            self._say(str(error))
            return otherwise

    def _order(self, kind: type[T], data: bytes | None, path: str) -> tuple[T | None, str]:
        """An operators' word, or None and why it is not known."""
        if data is None:
            return None, f"{path} is missing; `incumbent apply` makes it anew"
        try:
            return read(kind, data, path), ""  # type: ignore[type-var]
        except UnreadableZnode as error:
            self._say(str(error))
            return None, str(error)

    def _seen(self, ready: asyncio.Future[None]) -> None:
        if not ready.done():
            ready.set_result(None)
        self._bell.ring()


async def _gather(client: Client, paths: list[str], watcher: Watcher) -> list[bytes | None]:
    """The data of several znodes, in one flight, watched; None for one that is missing."""
    out: list[bytes | None] = []
    tasks = [
        asyncio.ensure_future(patient(lambda p=path: client.get(p, watcher=watcher)))  # type: ignore[misc]
        for path in paths
    ]
    try:
        for task in tasks:
            try:
                data, _stat = await task
                out.append(data)
            except NoNode:
                out.append(None)
    finally:
        for task in tasks:
            task.cancel()
    return out
