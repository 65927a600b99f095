"""An `up` that runs: write the components, let the agent go, watch, restart what dies, stop.

Rule of this file: on the way down the guardian ends first, which stops everything in order and
needs the server for it; the server goes last.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from incumbent import runtime_file
from incumbent.agent.tree import Observed, Tree, read, seat_name
from incumbent.agent.view import follow_children, follow_data, patient
from incumbent.cli import local, orders
from incumbent.cli.children import Kept
from incumbent.cli.closing import close_tree
from incumbent.cli.exits import DONE, NO, failed, say
from incumbent.cli.live import Live
from incumbent.cli.process import Child
from incumbent.cli.up import PORT, SESSION, Scene, stop_signals
from incumbent.client import Client
from incumbent.credentials import read_auth
from incumbent.errors import IncumbentError, NoNode, SessionExpired, SpecError
from incumbent.runtime_file import Runtime
from incumbent.spec import decode
from incumbent.wire import Stat

__all__ = ["run"]

_PATIENCE = 30.0
"""Seconds in which the server has to answer us."""
_ASK_EVERY = 1.0
_LAST_LOOK = 1.0
"""Seconds."""


def run(scene: Scene, server: Child, guardian: Child, early: Sequence[int] = ()) -> int:
    """Until told to stop; returns the exit code. `early`: how often we were told already, by
    signals whose handler goes on adding to it until ours are set.
    """
    return asyncio.run(_Running(scene, server, guardian).run(early))


class _Running:
    def __init__(self, scene: Scene, server: Child, guardian: Child) -> None:
        self.scene = scene
        self.screen = scene.screen
        self.tree = Tree(scene.settings.root)
        self.seats = [seat_name(spec.name, k) for spec in scene.specs for k in range(spec.copies)]
        self.live = Live(self.seats)
        self.server = Kept("server", server, scene.start_server, self.screen.line)
        self.guardian = Kept("guardian", guardian, scene.start_guardian, self.screen.line)
        self._stops = 0
        self._asked = asyncio.Event()
        self._published: tuple[Runtime, list[Path]] | None = None
        self._began_at: int | None = None
        """The zxid after which what is said of a seat is about this run."""

    async def run(self, early: Sequence[int]) -> int:
        """Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, self._stop)
        for _ in early:
            self._stop()
        server = asyncio.ensure_future(self.server.keep())
        guardian = asyncio.ensure_future(self.guardian.keep())
        asked = asyncio.ensure_future(self._asked.wait())
        work = asyncio.ensure_future(self._work())
        ends: list[asyncio.Future[Any]] = [work, server, guardian, asked]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        code = DONE
        if not asked.done():
            code = self._broken(work, server, guardian)
            self.guardian.stop()
        await guardian
        work.cancel()
        await asyncio.wait([work])  # its session is closed while there is a server
        self.server.stop()
        await server
        asked.cancel()
        if self._published is not None:
            runtime_file.withdraw(*self._published)
        self.screen.line("everything is stopped")
        return code

    def _stop(self) -> None:
        """In order; asked again: at once."""
        self._stops += 1
        self._asked.set()
        if self._stops == 1:
            self.screen.line("stopping in order (Ctrl-C again: at once)")
        elif self._stops == 2:
            self.screen.line("stopping at once")
        self.guardian.stop()

    def _broken(self, *tasks: asyncio.Future[Any]) -> int:
        """Nobody asked, but it cannot go on: say why; the exit code."""
        work, server, guardian = tasks
        for task, kept in ((server, self.server), (guardian, self.guardian)):
            if task.done():
                words = kept.child.last_words() or f"it ended with {task.result()}"
                say(f"the {kept.name} cannot start: {words}")
                return NO
        error = work.exception()
        if isinstance(error, IncumbentError):
            return failed(error)
        assert error is not None
        raise error

    async def _work(self) -> None:
        """Write the components, let the agent go, and tell what happens to them."""
        await self._listening()
        client = Client(
            self.scene.hosts,
            session_timeout=SESSION,
            request_timeout=_PATIENCE,
            tick=0.0,
            auth=read_auth(self.scene.folder.credentials.operators),
            rng=random.SystemRandom(),
            log=lambda _line: None,
        )
        await client.connect(_PATIENCE)
        self.server.is_proven = True
        try:
            await self._declare(client)
            self._publish()
            self._began_at = client.last_zxid
            with suppress(BrokenPipeError):  # nobody is held back, or it is dead and starts again
                os.write(self.scene.go_fd, b"\n")
            os.close(self.scene.go_fd)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._ask_agent())
                for seat in self.seats:
                    group.create_task(self._follow(client, seat))
                group.create_task(self._follow_new(client, group))
        finally:
            with suppress(IncumbentError, TimeoutError):
                async with asyncio.timeout(_LAST_LOOK):
                    await self._last_look(client)
            await client.close()

    async def _listening(self) -> None:
        """Until the server says that it listens, or has ended."""
        loop = asyncio.get_running_loop()
        said: asyncio.Future[None] = loop.create_future()
        loop.add_reader(
            self.scene.listens_fd, lambda: None if said.done() else said.set_result(None)
        )
        try:
            await said
        finally:
            loop.remove_reader(self.scene.listens_fd)
            os.close(self.scene.listens_fd)

    async def _declare(self, client: Client) -> None:
        await close_tree(client, self.tree, self.scene.folder.credentials.access())
        changes = await orders.apply(client, self.tree, self.scene.specs, run=True)
        ours = ", ".join(spec.name for spec in self.scene.specs)
        taken = "" if self.scene.port == PORT else f" (port {PORT} is taken)"
        self.screen.line(f"{self.scene.file.name}: {ours}; ZooKeeper on {self.scene.hosts}{taken}")
        for change in changes:
            if change.is_started_again:
                self.screen.line(f"{change.component} had been stopped: `up` starts it again")
            if change.what == "absent":
                is_removed = await orders.discard(client, self.tree, change.component)
                become = "removed" if is_removed else "stopped"
                self.screen.line(f"{change.component} is not in {self.scene.file.name}: {become}")

    def _publish(self) -> None:
        """Let other terminals find us; that they can't is no reason not to run."""
        runtime = Runtime.of_this_process(
            file=self.scene.file,
            zookeeper=self.scene.hosts,
            root=self.scene.settings.root,
            data=self.scene.folder.agent,
            node=self.scene.settings.node,
            session_timeout=self.scene.session,
            tick=0.0,
            auth=self.scene.folder.credentials.operators,
        )
        try:
            written = runtime_file.publish(
                runtime, self.scene.file.parent, os.environ, os.geteuid()
            )
        except OSError as error:
            say(f"other terminals will not find this `up`: {error}")
        else:
            self._published = (runtime, written)

    async def _follow(self, client: Client, seat: str) -> None:
        """Show each change of a seat, over the ends of our own sessions."""
        while True:
            try:
                await follow_data(
                    client, self.tree.observed(seat), lambda *found: self._see(seat, *found)
                )
            except SessionExpired:
                await asyncio.sleep(0.2)

    async def _follow_new(self, client: Client, group: asyncio.TaskGroup) -> None:
        """Components that somebody adds by `apply` are shown as well."""

        async def see(names: list[str]) -> None:
            for name in names:
                for seat in await self._seats_of(client, name):
                    if seat not in self.seats:
                        self.seats.append(seat)
                        self.live.add(seat)
                        group.create_task(self._follow(client, seat))

        while True:
            try:
                await follow_children(client, self.tree.components, see)
            except SessionExpired:
                await asyncio.sleep(0.2)

    async def _seats_of(self, client: Client, component: str) -> list[str]:
        """Those of a component that is there and can be read."""
        path = self.tree.component(component)
        try:
            data, _stat = await patient(lambda: client.get(path))
            copies = decode(data, path).copies if data else 0
        except (NoNode, SpecError):
            return []
        return [seat_name(component, k) for k in range(copies)]

    async def _last_look(self, client: Client) -> None:
        """The guardian's end may have been noticed before the last word about a seat was read."""
        for seat in self.seats:
            with suppress(NoNode):
                self._see(seat, *await client.get(self.tree.observed(seat)))

    def _see(self, seat: str, data: bytes | None, stat: Stat | None) -> None:
        if data and stat is not None and self._began_at is not None and stat.mzxid > self._began_at:
            self.screen.seat(self.live.see(seat, read(Observed, data, self.tree.observed(seat))))

    async def _ask_agent(self) -> None:
        """What never gets as far as the tree: a seat for which this node does not stand."""
        while True:
            await asyncio.sleep(_ASK_EVERY)
            if not (unseen := self.live.unseen):
                continue
            said = (local.ask(self.scene.folder.agent, timeout=0.1) or {}).get("seats", {})
            for seat in unseen:
                if said.get(seat, {}).get("state") == "aside":
                    self.screen.seat(self.live.aside(seat, said[seat]["reason"]))
