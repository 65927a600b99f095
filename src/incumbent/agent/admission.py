"""Whether this session may take orders from this tree: only from one that strangers cannot write.

Rule of this file: nothing is made in a tree, and nothing believed of it, before it is known to be
closed, or somebody has said that it need not be. What is in our way is said, with the way out,
and looked at again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from incumbent.agent.access import acls, is_open, who_may_write
from incumbent.agent.tree import Access, Tree, UnreadableZnode, read, seat_name
from incumbent.agent.view import Change, follow_data, patient
from incumbent.client import Client
from incumbent.credentials import Credentials, digest_id
from incumbent.errors import FateUnknown, NoAuth, NoNode, NotSent, Refused
from incumbent.recipes.flight import flight
from incumbent.wire import AclAndStat, GetAcl, GetData, Request, Stat, WhoAmI

__all__ = ["Admission", "dress", "shown_ids"]

RETRY = 2.0
"""Seconds between two looks; ACLs have no watches."""


class Admission:
    """Of one session. `why` is what is in our way, "" while nothing is."""

    def __init__(
        self,
        client: Client,
        tree: Tree,
        credentials: Credentials,
        draining: asyncio.Future[str],
        say: Callable[[str], None],
    ) -> None:
        self._client = client
        self._tree = tree
        self._credentials = credentials
        self._draining = draining
        self._say = say
        self.why = ""
        self._operators: Sequence[str] = ()
        self._is_admitted = False

    @property
    def operators(self) -> Sequence[str] | None:
        """The tree's, as ACLs name them; None before this tree is to be believed."""
        return self._operators if self._is_admitted else None

    @property
    def is_strict(self) -> bool:
        return not self._credentials.insecure

    async def admitted(self) -> bool:
        """Wait until the tree is fit for us. False: told to shut down first."""
        while not self._draining.done():
            changed = Change()
            why = await self._look(changed)
            if why and why != self.why:
                self._say(f"nothing runs here: {why}")
            self.why = why
            if not why:
                self._is_admitted = True
                return True
            seen = asyncio.ensure_future(changed.seen())
            ends: list[asyncio.Future[Any]] = [seen, self._draining]
            await asyncio.wait(ends, timeout=RETRY, return_when=asyncio.FIRST_COMPLETED)
            seen.cancel()
        return False

    async def follow(self) -> None:
        """Go by what `init` makes of the tree while we are here."""
        await follow_data(self._client, self._tree.access, self._see, self._say)

    async def _look(self, changed: Change) -> str:
        """Why not, or "". `changed` hears of the closing of a tree that is open."""
        root = self._tree.root
        try:
            await self._read_access(changed)
            if not self.is_strict:
                return ""
            base = [path for path, _ in self._tree.skeleton() if path.startswith(root)]
            missing, found = await self._look_at(base)
        except NoAuth as error:
            return (
                f"{error.path} is closed to {self._credentials.shown}: the setting `auth` names "
                "the file with the agents' credential, which `incumbent init` made"
            )
        if missing == root:
            return f"there is no {root} yet: `incumbent init` makes it, for nobody else to write"
        if missing:
            return f"{missing} is missing; `incumbent init` makes it anew"
        return who_may_write(found) if found else ""

    async def _read_access(self, changed: Change) -> None:
        try:
            data, stat = await patient(lambda: self._client.get(self._tree.access, watcher=changed))
        except NoNode:
            await patient(lambda: self._client.exists(self._tree.access, watcher=changed))
        else:
            self._see(data, stat)

    async def distrust(self, component: str) -> str:
        """Why a component's znodes are no orders for us, "" if they are."""
        if not self.is_strict:
            return ""
        tree = self._tree
        seats = tree.seats(component)
        paths = [tree.component(component), tree.desired(component), tree.commands(component)]
        try:
            names = await patient(lambda: self._client.children(seats))
        except NoNode:
            names = []
        except NoAuth as error:
            return str(error)
        for number in names:
            if number.isdecimal():
                seat = seat_name(component, int(number))
                paths += [tree.seat(seat), tree.election(seat), tree.running(seat)]
                paths.append(tree.observed(seat))
        _missing, found = await self._look_at([seats, *paths])
        return who_may_write(found) if found else ""

    async def distrust_order(self, path: str) -> str:
        """The same of one command."""
        if not self.is_strict:
            return ""
        with suppress(NoNode):
            acl, _stat = await patient(lambda: self._client.get_acl(path))
            return who_may_write(path) if is_open(acl) else ""
        return ""

    async def _look_at(self, paths: Sequence[str]) -> tuple[str, str]:
        """The first that is missing, and the first that is open; "" for none."""
        while True:
            answers = await flight(self._client, *(GetAcl(path) for path in paths))
            errors = [each for each in answers if isinstance(each, BaseException)]
            if not any(isinstance(error, NotSent | FateUnknown) for error in errors):
                break
            await asyncio.sleep(0.05)
        missing = open_ = ""
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, NoNode):
                missing = missing or path
            elif isinstance(answer, BaseException):
                raise answer
            elif isinstance(answer, AclAndStat) and is_open(answer.acl):
                open_ = open_ or path
        return missing, open_

    def _see(self, data: bytes | None, stat: Stat | None) -> None:
        if data:
            try:
                access = read(Access, data, self._tree.access)
            except UnreadableZnode as error:
                self._say(str(error))
            else:
                self._operators = tuple(access.operators)
                self._client.acl_of = acls(access, self._tree.root)


async def shown_ids(client: Client, credentials: Credentials) -> list[str]:
    """What ACLs call us, SCHEME:ID; of a certificate only where the server says (3.7 or newer)."""
    ids = [f"digest:{digest_id(each)}" for scheme, each in credentials.auth if scheme == "digest"]
    if len(ids) == len(credentials.auth) and credentials.tls_cert is None:
        return ids
    whoami: Request = WhoAmI()
    with suppress(Refused):
        said = await patient(lambda: client.submit(whoami))
        ids += [f"{scheme}:{name}" for scheme, name in said if scheme in ("x509", "sasl")]
    return ids


async def dress(client: Client, tree: Tree) -> None:
    """What this client makes below the root gets the ACLs that this tree's znodes have. Where
    that cannot be known, whoever writes is told by the server."""
    with suppress(Refused, UnreadableZnode):
        data, _stat = await client.submit(GetData(tree.access), absolute=True)
        client.acl_of = acls(read(Access, data, tree.access), tree.root)
