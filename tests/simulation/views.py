"""Those who look: caches, groups and observers of an election, judged by the server's disk.

The judge replays what is on the disk, transaction by transaction. A cache may show nothing but
such a moment, each later than the one before; once all is healed and at rest it shows the last.

Rule of this file: what was shown is noted in the moment it is shown; it is judged in the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.simulation.recipes import Trial

from incumbent import aio
from incumbent.client import Client, State
from incumbent.errors import IncumbentError, NameTaken, NotSent
from incumbent.recipes.cache import Cache
from incumbent.recipes.hold import Hold
from incumbent.recipes.picture import Znode
from incumbent.server import tree as trees
from incumbent.server.journal import unpack_transactions
from incumbent.server.tree import Tree
from incumbent.testing.faults import Fault
from incumbent.testing.world import Host

__all__ = ["CacheTrial", "GroupTrial", "ObserverTrial"]

Moment = frozenset[tuple[str, int, int, bytes]]
"""Path, czxid, mzxid and data of every znode below some path."""


def moment(znodes: Iterable[Znode | None]) -> Moment:
    there = [znode for znode in znodes if znode is not None]
    return frozenset((z.path, z.stat.czxid, z.stat.mzxid, z.data) for z in there)


def now_in(tree: Tree, path: str) -> Moment:
    return frozenset(
        (each, node.czxid, node.mzxid, node.data or b"")
        for each, node in tree.nodes.items()
        if each == path or each.startswith(f"{path}/")
    )


class CacheTrial(Trial):
    """Everybody writes, and has the tree in a cache."""

    name = "cache"
    seeds = 110
    faults_for = 8.0
    true_within = 20.0  # seconds of quiet
    tree_path = "/app/tree"

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.shown: dict[str, list[Moment]] = {}
        self.moves: Counter[str] = Counter()
        self.replayed: dict[str, dict[str, Znode | None]] = {}

    async def use(self, zk: aio.Zk, host: Host) -> None:
        cache = Cache(
            zk.client,
            self.tree_path,
            log=lambda line: self.world.record("log", line=line),
            patience=10_000,
        )
        async with cache, cache.changes() as changes:
            key = f"{host.name} #{len(self.shown)}"
            shown = self.shown.setdefault(key, [])
            copy: dict[str, Znode | None] = {}

            def note(_: object) -> None:
                if cache._error is None:
                    shown.append(moment(cache.snapshot().values()))
                    self.moves[host.name] += 1

            async def follow() -> None:
                async for change in changes:
                    if moment([copy.get(change.path)]) != moment([change.before]):
                        self.blame(f"{key}: a change of what was not told: {change}")
                    copy[change.path] = change.after

            note(None)
            forget = cache.listen(note)
            following = asyncio.ensure_future(follow())
            try:
                until = self.world.now + host.rng.choice([1.0, 20.0]) * host.rng.random()
                while not self.is_over and self.world.now < until:
                    await self.write(zk, host)
                if self.is_over:
                    await self.rest(cache, key, copy)
            finally:
                following.cancel()
                forget()

    async def write(self, zk: aio.Zk, host: Host) -> None:
        """Some change, perhaps several at once; whether it was done does not matter."""
        rng = host.rng
        what = [rng.choice("abc"), rng.choice("xyz"), rng.choice("xyz")][: rng.randint(1, 3)]
        path = "/".join([self.tree_path, *what])
        with contextlib.suppress(IncumbentError):
            kinds = ["set", "set", "create", "create", "burst", "multi", "delete", "ephemeral"]
            match rng.choice(kinds):
                case "set":
                    await zk.set(path, f"{rng.random()}".encode())
                case "create":
                    await zk.create(path, b"", parents=True)
                case "ephemeral":
                    await zk.create(f"{path}-e", b"", ephemeral=True)
                case "burst":
                    await asyncio.gather(
                        *(zk.set(path, b"%d" % n) for n in range(rng.randint(2, 9))),
                        zk.set(self.tree_path, b"burst"),
                        return_exceptions=True,
                    )
                case "multi":
                    async with zk.transaction() as t:
                        t.set(self.tree_path, b"together")
                        t.set(f"{self.tree_path}/a", b"together")
                        t.create(f"{self.tree_path}/a/{rng.random()}", ephemeral=True)
                case "delete":
                    await zk.delete(path, recursive=True)
        await asyncio.sleep(rng.choice([0.001, 0.2, 0.5, 1.0]) * rng.random())

    async def rest(self, cache: Cache, key: str, copy: Mapping[str, Znode | None]) -> None:
        """Nobody writes any more: the cache, and whoever followed it, has the tree as it is."""
        deadline = self.world.now + self.true_within
        while True:
            assert self.server is not None
            true = now_in(self.server._service.tree, self.tree_path)
            if cache.is_current and moment(copy.values()) == true == self.shown[key][-1]:
                return
            if self.world.now > deadline:
                self.blame(f"{key}: at rest it shows {self.shown[key][-1] ^ true} differently")
                return
            await asyncio.sleep(0.05)

    def progressed(self) -> Mapping[str, int]:
        return {f"the cache of {name} moves": self.moves[name] for name in self.names}

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        """Watches: those of a dead host go with its session."""
        assert self.server is not None
        return [f"a watch on {path}" for path in self.server._service.watches.by_path()]

    async def done(self, zk: aio.Zk) -> None:
        tree, history = Tree(), [now_in(Tree(), self.tree_path)]
        for group in self.store._groups:
            for transaction in unpack_transactions(group):
                tree.apply(transaction)
                if history[-1] != (now := now_in(tree, self.tree_path)):
                    history.append(now)
        for key, shown in self.shown.items():
            at = 0
            for each in shown:
                if each not in history[at:]:
                    when = "is older than one before" if each in history else "never was"
                    self.blame(f"{key} showed what {when}: {sorted(each)}")
                    break
                at = history.index(each, at)


class GroupTrial(Trial):
    """Everybody is a member now and then, and says something new now and then."""

    name = "group"
    seeds = 60
    faults_for = 8.0
    progress_within = 60.0  # in for 20 s, and then waiting as long for a name that another has

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.joins: Counter[str] = Counter()

    async def use(self, zk: aio.Zk, host: Host) -> None:
        rng = host.rng
        group = zk.group("/app/group")
        name = rng.choice([host.name, host.name, None, "shared"])
        try:
            async with asyncio.timeout(rng.choice([None, 0.2 * rng.random()])):
                async with group.join(b"0", name=name, timeout=20) as membership:
                    self.joins[host.name] += 1
                    await self.be_in(group, membership, zk, host)
        except NameTaken:
            if name == "shared":  # an outcome as well: nobody is promised a turn
                self.joins[host.name] += 1
        except (NotSent, TimeoutError):
            pass

    async def be_in(self, group: Any, membership: Any, zk: aio.Zk, host: Host) -> None:
        rng, said = host.rng, 0
        until = self.world.now + rng.choice([0.5, 6.0, 20.0]) * rng.random()
        async with group.observe() as rosters:
            following = asyncio.ensure_future(self.follow(rosters, host))
            try:
                while self.world.now < until and not self.is_over:
                    await asyncio.sleep(rng.random())
                    if rng.random() < 0.5:
                        said += 1
                        membership.update(f"{said}")
                    elif rng.random() < 0.2:
                        with contextlib.suppress(IncumbentError):
                            await zk.delete(membership.path)  # by hand
                await self.is_as_said(membership, zk.client)
            finally:
                following.cancel()

    async def is_as_said(self, membership: Any, client: Client) -> None:
        """Where the session lives, and a little later, the disk has what the member says."""

        def node() -> trees.Znode | None:
            tree = self.server._service.tree if self.server is not None else Tree()
            is_up = client.state is State.CONNECTED and membership.is_in
            return tree.nodes.get(membership.path) if is_up else None

        with contextlib.suppress(TimeoutError):
            await membership.settled(2.0)
            found = node()
            if found is None:
                return
            if found.owner == client.session_id:
                if found.data != membership.data:
                    self.blame(f"{membership.path} has {found.data!r} for {membership.data!r}")
                return
            await asyncio.sleep(1.0)  # deleted by hand, and made by another: the news is on its way
            if node() is found and client.state is State.CONNECTED:
                self.blame(f"{membership.path} is not ours for a second, and we do not know it")

    async def follow(self, rosters: Any, host: Host) -> None:
        members: dict[str, Any] = {}
        async for roster in rosters:
            back = set(roster.joined) & set(members) | set(roster.left) - set(members)
            if back or set(roster.members) != (set(members) | set(roster.joined)) - set(
                roster.left
            ):
                self.blame(f"{host.name}: {roster} does not follow on {sorted(members)}")
            for name, member in roster.members.items():
                if name in members and member.czxid < members[name].czxid:
                    self.blame(f"{host.name}: an older {member} after {members[name]}")
            members = dict(roster.members)

    def progressed(self) -> Mapping[str, int]:
        return {f"{name} joins": self.joins[name] for name in self.names}

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        return [path for path in tree if path != "/app/group"]


class ObserverTrial(Trial):
    """Everybody stands, leads, says how it goes, abdicates; and everybody looks on."""

    name = "observer"
    seeds = 130
    faults_for = 8.0

    def __init__(
        self, seed: int, *, kinds: Sequence[str] = (), faults: Sequence[Fault] | None = None
    ) -> None:
        super().__init__(seed, kinds=kinds, faults=faults)
        self.led: list[int] = []
        self.views: Counter[str] = Counter()

    async def use(self, zk: aio.Zk, host: Host) -> None:
        election = zk.election("/app/leader", dialect="ours")
        async with election.observe() as views:
            following = asyncio.ensure_future(self.follow(views, host))
            try:
                async with asyncio.timeout(host.rng.choice([1.0, 20.0])):
                    async for term in election.terms(host.name, grace=0.0):
                        async with term as leadership:
                            await self.lead(election, leadership, host)
                        if self.is_over:
                            break
            except TimeoutError:
                pass
            finally:
                following.cancel()

    async def lead(self, election: Any, leadership: Hold, host: Host) -> None:
        self.led.append(leadership.fencing_token)
        self.believes(host, leadership)
        await leadership.update(f"{host.name} since {self.world.now:.3f}")
        await asyncio.sleep(host.rng.choice([0.1, 3.0]) * host.rng.random())
        if host.rng.random() < 0.5:
            election.abdicate()
            await asyncio.sleep(30)
            self.blame(f"{host.name} goes on although it abdicated")

    async def follow(self, views: Any, host: Host) -> None:
        last = 0
        async for view in views:
            self.views[host.name] += 1
            if view.leader is not None:
                if view.leader.czxid < last:
                    self.blame(f"{host.name} saw {view.leader} after one of {last}")
                last = view.leader.czxid

    def look(self) -> None:
        held = self.held()
        if len(held) > 1:
            self.blame(f"overlap at {self.world.now:.6f} s: {', '.join(map(str, held))}")

    def progressed(self) -> Mapping[str, int]:
        return {"somebody leads": len(self.led), **{f"{n} sees": self.views[n] for n in self.names}}

    def leftovers(self, tree: Mapping[str, bytes]) -> Sequence[str]:
        return [path for path in tree if path != "/app/leader"]
