"""`incumbent init`: from a tree that anybody may write to one that only operators may.

Rule of this file: nobody locks himself out: what would leave us without the right to undo it is
refused before anything is changed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from incumbent.agent.access import is_open
from incumbent.agent.admission import shown_ids
from incumbent.agent.tree import Access, Tree
from incumbent.cli import wishes
from incumbent.cli.closing import close_tree, read_access, strangers
from incumbent.cli.cluster import connected
from incumbent.cli.exits import DONE, NO, No, Usage, say
from incumbent.cli.files import Files
from incumbent.cli.options import Hosts, Root
from incumbent.client import Client
from incumbent.credentials import Credentials, read_auth
from incumbent.errors import NoAuth, NoNode
from incumbent.settings import Settings, config_folder, resolve

__all__ = ["init"]


def init(
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Where the two credentials are, or go."),
    ] = None,
    operators: Annotated[
        list[str] | None,
        typer.Option(
            "--operators", metavar="SCHEME:ID", help="Who they are, as in x509:CN=ops; more of it."
        ),
    ] = None,
    agents: Annotated[
        list[str] | None,
        typer.Option("--agents", metavar="SCHEME:ID", help="Who the nodes are; again for more."),
    ] = None,
    readable: Annotated[
        bool, typer.Option("--readable", help="Everybody may read; else nobody else may.")
    ] = False,
    zookeeper: Hosts = None,
    root: Root = None,
) -> None:
    """Close the tree, so that only operators write orders.

    And only agents what agents write; nobody else writes or, by default, reads anything. Makes a credential for each of both, where none is named. Run again it says what is so, and
    puts right what is not; with --operators, --agents or --readable it sets these anew.
    """
    settings = resolve({"zookeeper": zookeeper, "root": root})
    files = Files(config_folder(os.environ, os.geteuid()) if folder is None else folder.absolute())
    wanted = _Wanted(settings, files, operators or (), agents or (), readable)
    raise typer.Exit(asyncio.run(wanted.run()))


class _Wanted:
    """One call of `init`."""

    def __init__(
        self,
        settings: Settings,
        files: Files,
        operators: Sequence[str],
        agents: Sequence[str],
        readable: bool,
    ) -> None:
        for each in (*operators, *agents):
            scheme, colon, name = each.partition(":")
            if not (scheme and colon and name) or scheme in ("world", "auth", "ip"):
                raise Usage(
                    f"{each!r} is nobody's id: expected SCHEME:ID as ACLs have it, such as "
                    "x509:CN=ops,O=Example, sasl:alice or digest:name:HASH"
                )
        self.settings = settings
        self.tree = Tree(settings.root)
        self.files = files
        self.operators = list(operators)
        self.agents = list(agents)
        self.readable = readable

    async def run(self) -> int:
        self._make_files()
        credentials = self._credentials()
        async with connected(self.settings, credentials=credentials) as client:
            mine = await shown_ids(client, credentials)
            access = await self._access(client)
            if not set(mine) & set(access.operators):
                raise No(
                    f"none of {', '.join(access.operators)} is shown here ({credentials.shown}): "
                    "closed for us too, it could not be opened again; nothing was changed"
                )
            if await self._is_open(client) and (
                others := await strangers(client, self.tree, access)
            ):
                self._tell_files()
                say(
                    f"not closed yet, since it would stop {', '.join(others)}: put the agents' "
                    "credential there (below), restart those agents with --insecure, one after "
                    "the other, then `incumbent init` again"
                )
                self._tell_next()
                return NO
            is_new = await client.exists(self.tree.root) is None
            count, changed = await close_tree(client, self.tree, access)
            there = await wishes.components(client, self.tree)
        what = f"{count} znodes, as they were"
        if is_new or changed:
            what = f"made, {count} znodes" if is_new else f"{changed} of {count} znodes changed"
        print(f"{self.tree.root} is closed: {what}")
        self._tell_files(access)
        if changed and there:
            say(f"{', '.join(there)}: declared before; who did that could be anybody: look at them")
        self._tell_next()
        return DONE

    def _make_files(self) -> None:
        if self.operators and self.agents:
            return
        try:
            self.files.make()
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise No(f"{self.files.folder}: {why}; name another one with --folder DIR") from None

    def _credentials(self) -> Credentials:
        """What the settings say, and the operators' file beside it."""
        credentials = self.settings.credentials()
        if self.operators or not self.files.operators.exists():
            return credentials
        more = [each for each in read_auth(self.files.operators) if each not in credentials.auth]
        return replace(credentials, auth=(*credentials.auth, *more))

    async def _access(self, client: Client) -> Access:
        """Who is to be what: as said now; else as it is, in a tree that is closed; else by the
        files. An open tree's own word on it counts for nothing: anybody may have written it."""
        is_named = self.operators or self.agents
        known = None
        try:
            if not await self._is_open(client):
                known = await read_access(client, self.tree)
        except NoAuth:
            raise No(
                f"{self.tree.root} is closed to us: show an operator's credential (the setting "
                "`auth`, or --folder DIR with its operators.auth); nothing was changed"
            ) from None
        if known is not None and not is_named:
            return Access(
                operators=known.operators,
                agents=known.agents,
                readable=known.readable or self.readable,
            )
        by_file = self.files.access() if not (self.operators and self.agents) else None
        old = known or by_file
        return Access(
            operators=self.operators or (old.operators if old else []),
            agents=self.agents or (old.agents if old else []),
            readable=self.readable,
        )

    async def _is_open(self, client: Client) -> bool:
        """Or not there."""
        try:
            acl, _stat = await client.get_acl(self.tree.root)
        except NoNode:
            return True
        return is_open(acl)

    def _tell_files(self, access: Access | None = None) -> None:
        operators, agents = str(self.files.operators), str(self.files.agents)
        if self.operators or (access and not self.files.operators.exists()):
            operators = ", ".join(access.operators if access else self.operators)
        if self.agents or (access and not self.files.agents.exists()):
            agents = ", ".join(access.agents if access else self.agents)
        print(f"operators  {operators}")
        print(f"agents     {agents}")
        if access is not None:
            print(f"others     {'read' if access.readable else 'nothing'}")

    def _tell_next(self) -> None:
        if not self.agents and self.files.agents.exists():
            say(
                f"on each node: copy {self.files.agents.name} there, mode 0600, owned by the "
                "agent's user, and name it in /etc/incumbent/agent.toml:\n  [incumbent]\n  auth = "
                f'"/etc/incumbent/{self.files.agents.name}"'
            )
        if not self.operators and self.files.operators.exists():
            say(
                f"for your own commands: export INCUMBENT_AUTH={self.files.operators}\n"
                "whoever has that file can run programs on every node"
            )
